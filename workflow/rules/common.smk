# What the rules share: the checked config, the grid's runs, and where and when a run may start. No rules.
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from ketscale import analysis, grid
from ketscale import config as settings
from ketscale.analysis.catalogue import FORMATS, TABLES, figures as figure_names
from ketscale.analysis.claims import LEDGER
from ketscale.errors import UserError
from ketscale.jobs import finished
from ketscale.problems.fetching import MANIFEST


wildcard_constraints:
    **grid.CONSTRAINTS,


# `--config partial=true` arrives as text.
if config.get("partial") in ("true", "false"):
    config["partial"] = config["partial"] == "true"

try:
    # Read again: Snakemake's own reader lets the last of two equal keys win.
    for path in workflow.configfiles:
        settings.load(path)
    CONFIG = analysis.of(config)
    RUNS = CONFIG.runs
    SOURCES = {
        name: [str(path) for path in settings.sources(CONFIG, name)]
        for name in dict.fromkeys(run.workload for run in RUNS)
    }
except UserError as error:
    # A WorkflowError would name a line of this file, and the mistake is in the config.
    sys.exit(f"Error in {', '.join(map(str, workflow.configfiles)) or 'the config'}: {error}")

PARTIAL = CONFIG.partial
RESULTS = CONFIG.results
# The folder of a run, and the manifests of its data.
RUN = f"{RESULTS}/{grid.RUNS}/{grid.PATTERN}"
FEATURES = f"{RESULTS}/features/{{workload}}/features.json"
FETCHED = f"{RESULTS}/data/{{workload}}/{MANIFEST}"
# What tables, figures and report are made for.
STUDY = CONFIG.text
FIGURES = figure_names(CONFIG)
ORDER = {run: index for index, run in enumerate(RUNS)}

# Timed runs have the machine to themselves: they take all of `host`, others as many of its units as they have
# threads. A global resource that is set here holds without any profile; its local scope leaves jobs of a scheduler
# alone, where an exclusive allocation does the same.
HOST = max([len(os.sched_getaffinity(0)), *(run.ranks * run.threads for run in RUNS)])
if workflow.is_main_process:
    workflow.register_resource("host", HOST)


resource_scopes:
    host="local",


def record_of(run):
    """Where the run's record is."""
    return f"{RESULTS}/{run.path}"


def records(wildcards=None):
    """Every run's record; for a partial report those that exist."""
    return [record_of(run) for run in RUNS if not PARTIAL or Path(record_of(run)).exists()]


def run_settings(wildcards):
    """What decides the run's numbers and timing, as one canonical text."""
    try:
        return CONFIG.settings(grid.Run.of(wildcards)).text
    except UserError as error:
        raise WorkflowError(str(error)) from None


def features_of(wildcards):
    """The manifest of the run's data; nothing where the workload's family has none."""
    if wildcards.workload in CONFIG.workloads and CONFIG.family(wildcards.workload).prepared:
        return FEATURES.format(workload=wildcards.workload)
    return []


def workload_settings(wildcards):
    """What decides the workload's data, as one canonical text."""
    return CONFIG.workload_text(wildcards.workload)


def workload_places(wildcards):
    """Where the workload's files are on this machine; a resource, since it changes no number."""
    return grid.canonical(CONFIG.workloads[wildcards.workload][1].places())


def sources(wildcards):
    """The data files that a workload reads; none where its data are made, or fetched."""
    return SOURCES.get(wildcards.workload, [])


def fetched(wildcards):
    """The manifest of what is fetched for a workload; nothing where nothing is."""
    needed = CONFIG.workloads[wildcards.workload][1].fetched
    return FETCHED.format(workload=wildcards.workload) if needed else []


def host_share(wildcards):
    """How much of the machine the run takes while it runs; all of it in an allocation, where runs take turns."""
    run = grid.Run.of(wildcards)
    return HOST if CONFIG.timed(run) or scheduled() else min(run.ranks * run.threads, HOST)


def priority(wildcards):
    """Runs start seed by seed in the grid's order; a run that only the command line names comes last."""
    return len(RUNS) - ORDER.get(grid.Run.of(wildcards), len(RUNS))
