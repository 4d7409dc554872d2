# The object `study`, which knows the jobs of the config with their inputs, settings and priorities; `requests`, which knows
# their requests to a scheduler; and `campaign`, the life of this call. No rules.
import gc
import os
import sys
from pathlib import Path

import ketscale

# The package that Python imports, and the one of the checkout that this file is in. There is none in a cache of
# Snakemake's, where the files of a remote module are. This comes before other imports, which another package may not have.
PACKAGE = Path(ketscale.__file__).resolve().parent
OWN = Path(workflow.current_basedir.get_path_or_uri(secret_free=True), "..", "ketscale").resolve()
if workflow.is_main_process and PACKAGE != OWN and (OWN / "__init__.py").exists():
    if "site-packages" not in PACKAGE.parts:
        sys.exit(
            f"Error: this workflow is that of {OWN.parents[1]}, but {sys.executable} imports the package of another "
            f"checkout ({PACKAGE}). Activate the environment of {OWN.parents[1]} (`make setup` makes it), or run the "
            "Snakefile of the other."
        )
    if f'__version__ = "{ketscale.__version__}"' not in (OWN / "__init__.py").read_text():
        print(
            f"ketscale: this workflow is of another version than the package ({ketscale.__version__})",
            file=sys.stderr,
        )

# If this folder has no site file, the workflow's own is used. Set before anything reads it.
if not os.environ.get("KETSCALE_SITE") and not Path("profiles/slurm/site.yaml").exists():
    os.environ.update(KETSCALE_SITE=str(workflow.source_path("../../profiles/slurm/site.yaml")))

from ketscale import dag, grid
from ketscale.jobs.driver import Campaign
from ketscale.jobs.slurm.requests import Requests

# Snakemake keeps all jobs that it plans, and Python's collector looks through all that is kept again and again: with
# its usual threshold (700 objects) that is a tenth of a dry run of 20,000 runs.
gc.set_threshold(100_000)


wildcard_constraints:
    **grid.CONSTRAINTS,


study = dag.Jobs(workflow, config)
requests = Requests(workflow, study)
campaign = Campaign(workflow, study, requests)

if study.in_job and requests.site.file.setup:
    # No -u here, which environment modules do not survive. Snakemake formats the text, so braces are doubled.
    commands = requests.site.file.setup.replace("{", "{{").replace("}", "}}")
    shell.prefix(f"set -eo pipefail\n{commands}\nset -u\n")

# Timed runs have the machine to themselves: they take all units of the resource `host`, others as many as they have
# threads. As a global resource it needs no profile. Its scope is local: under a scheduler, exclusive allocations do
# the same.
if workflow.is_main_process:
    workflow.register_resource("host", study.host)


resource_scopes:
    host="local",
