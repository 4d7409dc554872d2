# What the rules share: the checked config, the runs of the grid, and where and when a run may start. No rules.
import functools
import gc
import importlib.metadata
import os
import re
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

import ketscale

# The package that Python imports, and the one of the checkout that this file is in. There is none in a cache of
# Snakemake's, where the files of a remote module are.
PACKAGE = Path(ketscale.__file__).resolve().parent
OWN = Path(workflow.current_basedir.get_path_or_uri(secret_free=True), "..", "ketscale").resolve()


def from_wheel():
    """Whether the package is installed in the environment, and so is no checkout's."""
    return any(
        found.read_text("WHEEL") and Path(found.locate_file("ketscale")).resolve() == PACKAGE
        for found in importlib.metadata.distributions(name="ketscale")
    )


# Before anything else is imported, which another package may not have.
if workflow.is_main_process and PACKAGE != OWN and (OWN / "__init__.py").exists():
    if not from_wheel():
        sys.exit(
            f"Error: this workflow is that of {OWN.parents[1]}, but {sys.executable} imports the package of another "
            f"checkout ({PACKAGE}). Activate the environment of {OWN.parents[1]} (`make setup` makes it), or run the "
            "Snakefile of the other."
        )
    own_version = re.search('__version__ = "(.+)"', (OWN / "__init__.py").read_text())[1]
    if own_version != ketscale.__version__:
        print(
            f"ketscale: this workflow is that of version {own_version}, but the installed package, which trains and "
            f"reports, is {ketscale.__version__}",
            file=sys.stderr,
        )

from ketscale import analysis, grid
from ketscale import config as settings
from ketscale.analysis import analysed
from ketscale.analysis.analysed import CONFIG_FILE
from ketscale.analysis.columns import TABLES
from ketscale.analysis.figures import figures_of
from ketscale.errors import UserError
from ketscale.jobs import choice, driver, finished, launch, prepared, tried
from ketscale.jobs import snakemake_internals as internals
from ketscale.measure import record

# Snakemake keeps all jobs that it plans, and Python's collector looks through all that is kept again and again: with
# its usual threshold (700 objects) that is a tenth of a dry run of 20,000 runs.
gc.set_threshold(100_000)


wildcard_constraints:
    **grid.CONSTRAINTS,


# `--config partial=true` arrives as text.
for switch in ("partial", "cohorts"):
    if config.get(switch) in ("true", "false"):
        config[switch] = config[switch] == "true"

try:
    named = driver.given("--configfile", "--configfiles") if workflow.is_main_process else []
    if len(workflow.overwrite_configfiles or ()) > 1 or len(named) > 1:
        first = os.path.relpath(named[0][0] if len(named) > 1 else workflow.overwrite_configfiles[0])
        why = (
            "of several --configfile the last counts"
            if len(named) > 1
            else "--configfile takes every name after it"
        )
        raise UserError(
            f"{why}, and a study is one file. A target stands before --configfile; a file "
            f"that is laid over {first} says so itself (`over: {first}`)"
        )
    # Read the files again: Snakemake's own reader takes the last of duplicate keys, and knows no `over`.
    whole = {}
    for path in workflow.configfiles:
        whole = settings.laid(settings.load(path), whole)
    CONFIG = analysis.of(settings.laid(config, whole) if "over" in config else config)
    RUNS = CONFIG.runs
    # Files that no run reads need not be there.
    for name in CONFIG.studied:
        settings.sources(CONFIG, name)
except UserError as error:
    # A WorkflowError would name a line of this file, but the mistake is in the config.
    sys.exit(f"Error in {', '.join(map(str, workflow.configfiles)) or 'the config'}: {error}")

# A dry run writes nothing. Only when the jobs are planned does Snakemake know that it is one.
prepared.may_note = lambda: not workflow.dryrun
PARTIAL = CONFIG.partial
RESULTS = CONFIG.results
RESULTS_PATH = Path(RESULTS)
# The folder of a run, the manifests of its data, and what stands beside it.
RUN = f"{RESULTS}/{grid.RUNS}/{grid.PATTERN}"
POINT = RUN.rpartition("/")[0]
CHOSEN = f"{POINT}/{grid.CHOSEN}"
FEATURES = f"{RESULTS}/{grid.PREPARED}"
FETCHED = f"{RESULTS}/{grid.FETCHED}"
TRIED = f"{RESULTS}/{grid.TRIED}"
# The places of each workload's files on this machine, whether or not a study uses it, since the whole config is
# checked. They are a resource, since they change no number.
PLACES = grid.canonical({name: workload.places() for name, (_, workload) in CONFIG.workloads.items()})
try:
    launch.check_length(CONFIG.text, PLACES)
except UserError as error:
    sys.exit(f"Error: {error}")
# The first trials of all searches come first: they train the others with them, which would wait for them on other cores.
ORDER = {
    run: index
    for index, run in enumerate(
        sorted(RUNS, key=lambda run: CONFIG.trials.get(run.protocol, ("", len(RUNS)))[1])
    )
}

# Timed runs have the machine to themselves: they take all units of the resource `host`, others as many as they have
# threads. As a global resource it needs no profile. Its scope is local: under a scheduler, exclusive allocations do
# the same.
HOST = max([len(os.sched_getaffinity(0)), *(run.ranks * run.threads for run in RUNS)])
if workflow.is_main_process:
    workflow.register_resource("host", HOST)


resource_scopes:
    host="local",


@functools.lru_cache(maxsize=4)
def run_of(wildcards):
    """The run that wildcards name; Snakemake asks several functions about each run, one after the other."""
    return grid.Run.of(wildcards)


def record_of(run):
    """The path of the run's record."""
    return f"{RESULTS}/{run.path}"


def study(wildcards):
    """The config that the report is made for. A function, so that braces in it are no wildcards."""
    return CONFIG.text


def records(wildcards=None):
    """The record of every run; for a partial report only the existing ones."""
    return [record_of(run) for run in RUNS if not PARTIAL or Path(record_of(run)).exists()]


def records_of_tables(wildcards):
    """The input of the tables; if they are there and are not what these records say now, they are made again."""
    if workflow.is_main_process and outdated():
        internals.make_again(workflow, f"{RESULTS}/{analysed.NOTE}")
    return records()


@functools.cache
def outdated():
    """Why the tables must be made again although they are there; None if they must not."""
    why = analysed.outdated(CONFIG, RESULTS_PATH)
    if why:
        print(f"ketscale: {why}; they are made again", file=sys.stderr)
    return why


def settings_of(run):
    """The resolved settings of a run."""
    try:
        return CONFIG.settings(run)
    except UserError as error:
        raise WorkflowError(str(error)) from None


def run_settings(wildcards):
    """Everything that determines the run's numbers and timing, as one canonical text."""
    return settings_of(run_of(wildcards)).text


def features_of(wildcards):
    """The manifest of the run's data; empty if the workload's family prepares none."""
    if wildcards.workload in CONFIG.workloads and CONFIG.family(wildcards.workload).prepared:
        return FEATURES.format(workload=wildcards.workload)
    return []


@functools.cache
def features_hash(workload):
    """The hash of a workload's prepared data, if there are any."""
    return prepared.features_hash(prepared.manifest(CONFIG, RESULTS_PATH, workload))


def features_for(wildcards):
    """The manifest of the run's data. Snakemake asks before it decides whether the run is done.

    By its notes and the times of files it would keep a record that no table takes.
    """
    run = run_of(wildcards)
    if workflow.is_main_process:
        settings = choice.resolved(settings_of(run), RESULTS_PATH)
        if record.outdated(RESULTS_PATH / run.path, settings, features_hash(run.workload)):
            internals.make_again(workflow, record_of(run))
    else:
        # Inputs are worked out before the scheduler of a job group is made, which reads its settings once.
        internals.complete_settings(workflow)
    return features_of(wildcards)


def point_of(wildcards):
    """Any run of a point, whose search is that of all."""
    return grid.Run.of({**dict(wildcards.items()), "seed": 0})


def point_settings(wildcards):
    """Everything that determines the numbers of a point's runs but what a search chooses, as one canonical text."""
    return settings_of(point_of(wildcards)).text


def trials_for(wildcards):
    """The records of the trials of a point's search, which chooses again if they say something else now."""
    point = point_of(wildcards)
    features = features_hash(point.workload)
    if workflow.is_main_process and choice.outdated(settings_of(point), RESULTS_PATH, features):
        internals.make_again(workflow, f"{RESULTS}/{point.choice}")
    return [record_of(trial) for trial in CONFIG.trials_of(point)]


def chosen_for(wildcards):
    """What a search has chosen for the run, if its protocol has one."""
    return CHOSEN.format(**dict(wildcards.items())) if settings_of(run_of(wildcards)).protocol.search else []


@functools.cache
def data_outdated(workload):
    """Whether a workload's data are of other settings or sources."""
    return prepared.outdated(CONFIG, RESULTS_PATH, workload)


def tried_for(wildcards):
    """The note that a first step was taken, if model or data are code of the user's and the run has to be trained.

    A finished run asks for none, so that a note which was deleted, or is made again for other runs, trains none again.
    """
    run = run_of(wildcards)
    settings = settings_of(run)
    own = settings.model.own_code or settings.workload.own_code
    # The smallest step of a study stands for all its runs; others are named by the command line.
    if not own or run.workload not in CONFIG.studied or settings.protocol.search:
        return []  # the trials of a search have asked for it
    features, path = features_hash(run.workload), RESULTS_PATH / run.path
    trained = path.exists() and not record.outdated(path, settings, features)
    if trained and not data_outdated(run.workload):
        return []
    note = TRIED.format(workload=run.workload)
    if workflow.is_main_process and not tried.covers(Path(note), settings, features):
        internals.make_again(workflow, note)
    return note


# An input of the runs of a config with code of the user's. Others are not asked, thousands of times.
OWN_CODE = any(part.own_code for _, part in (*CONFIG.workloads.values(), *CONFIG.models.values()))
FIRST_STEP = {"tried": tried_for} if OWN_CODE else {}
# An input of the runs of a config with searches.
SEARCHED = {"chosen": chosen_for} if CONFIG.trials else {}


def fetched_for(wildcards):
    """The input of a workload's data, which are prepared again if they are of other settings or sources."""
    if workflow.is_main_process and data_outdated(wildcards.workload):
        internals.make_again(workflow, FEATURES.format(workload=wildcards.workload))
    return fetched(wildcards)


def workload_settings(wildcards):
    """Everything that determines the workload's data, as one canonical text."""
    return CONFIG.workload_text(wildcards.workload)


def workload_places(wildcards):
    """The places of the workload's files on this machine; a resource, since they change no number."""
    return grid.canonical(CONFIG.workloads[wildcards.workload][1].places())


@functools.cache
def digest_of(workload):
    """Names and contents of the files that a workload reads."""
    try:
        return prepared.digest(settings.sources(CONFIG, workload), Path(FEATURES.format(workload=workload)))
    except UserError as error:
        raise WorkflowError(str(error)) from None


def sources(wildcards):
    """The digest of a workload's files: if it changes, its data are prepared again."""
    return digest_of(wildcards.workload)


def fetched(wildcards):
    """The manifest of what is fetched for a workload; empty if nothing is."""
    needed = CONFIG.workloads[wildcards.workload][1].fetched
    return FETCHED.format(workload=wildcards.workload) if needed else []


def host_share(wildcards):
    """How much of the machine a run takes; inside an allocation all of it, since runs take turns there."""
    run = run_of(wildcards)
    return HOST if CONFIG.timed(run) or scheduled() else min(run.ranks * run.threads, HOST)


def priority(wildcards):
    """Runs start seed by seed in the order of the grid; runs that only the command line names come last."""
    return len(RUNS) - ORDER.get(run_of(wildcards), len(RUNS))
