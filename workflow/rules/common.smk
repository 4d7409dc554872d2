# What the rules share: the checked config, the runs of the grid, and where and when a run may start. No rules.
import functools
import gc
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from ketscale import analysis, grid
from ketscale import config as settings
from ketscale.analysis.catalogue import CONFIG_FILE, FORMATS, TABLES, figures as figure_names
from ketscale.analysis.claims import LEDGER
from ketscale.errors import UserError
from ketscale.jobs import finished, prepared
from ketscale.measure.record import outdated

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
    # Read the files again to refuse duplicate keys: Snakemake's own reader takes the last one.
    for path in workflow.configfiles:
        settings.load(path)
    CONFIG = analysis.of(config)
    RUNS = CONFIG.runs
    SOURCES = {
        name: [str(path) for path in settings.sources(CONFIG, name)]
        for name in dict.fromkeys(run.workload for run in RUNS)
    }
except UserError as error:
    # A WorkflowError would name a line of this file, but the mistake is in the config.
    sys.exit(f"Error in {', '.join(map(str, workflow.configfiles)) or 'the config'}: {error}")

PARTIAL = CONFIG.partial
RESULTS = CONFIG.results
# The folder of a run, and the manifests of its data.
RUN = f"{RESULTS}/{grid.RUNS}/{grid.PATTERN}"
FEATURES = f"{RESULTS}/{grid.PREPARED}"
FETCHED = f"{RESULTS}/{grid.FETCHED}"
# Where the files of each workload are on this machine; a resource, since it changes no number.
PLACES = grid.canonical({name: CONFIG.workloads[name][1].places() for name in SOURCES})
FIGURES = figure_names(CONFIG)
ORDER = {run: index for index, run in enumerate(RUNS)}

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
    """The config that tables, figures and report are made for. A function, so that braces in it are no wildcards."""
    return CONFIG.text


def records(wildcards=None):
    """The record of every run; for a partial report only the existing ones."""
    return [record_of(run) for run in RUNS if not PARTIAL or Path(record_of(run)).exists()]


def run_settings(wildcards):
    """Everything that determines the run's numbers and timing, as one canonical text."""
    try:
        return CONFIG.settings(run_of(wildcards)).text
    except UserError as error:
        raise WorkflowError(str(error)) from None


def features_of(wildcards):
    """The manifest of the run's data; empty if the workload's family prepares none.

    Snakemake asks here before it decides whether the run is done. By its notes and the times of files it would keep a
    record that no table takes, so it is told which of them to make again, also in a dry run.
    """
    run = run_of(wildcards)
    if workflow.is_main_process and outdated(Path(record_of(run)), CONFIG.timed(run)):
        workflow.dag.forcefiles.add(record_of(run))
    if wildcards.workload in CONFIG.workloads and CONFIG.family(wildcards.workload).prepared:
        return FEATURES.format(workload=wildcards.workload)
    return []


def workload_settings(wildcards):
    """Everything that determines the workload's data, as one canonical text."""
    return CONFIG.workload_text(wildcards.workload)


def workload_places(wildcards):
    """Where the workload's files are on this machine; a resource, since it changes no number."""
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
