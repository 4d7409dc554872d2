# What the rules share: the checked config, the grid's runs, and where and when a run may start. No rules.
import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from ketscale import config as settings
from ketscale import grid
from ketscale.analysis.catalogue import FORMATS, TABLES, figures as figure_names
from ketscale.analysis.claims import LEDGER
from ketscale.errors import UserError
from ketscale.problems.workloads import WORKLOADS, files


wildcard_constraints:
    **grid.CONSTRAINTS,


# `--config partial=true` arrives as text.
if config.get("partial") in ("true", "false"):
    config["partial"] = config["partial"] == "true"

try:
    # Read again: Snakemake's own reader lets the last of two equal keys win.
    for path in workflow.configfiles:
        settings.load(path)
    settings.check(config)
    RUNS = grid.runs(config)
    GIVING = {
        kind: [name for name, entry in WORKLOADS.items() if entry.gives == kind]
        for kind in ("images", "series", "sentences")
    }
    SOURCES = {
        name: settings.source_files(config, name) for name in dict.fromkeys(run.workload for run in RUNS)
    }
except UserError as error:
    # A WorkflowError would name a line of this file, and the mistake is in the config.
    sys.exit(f"Error in {', '.join(map(str, workflow.configfiles)) or 'the config'}: {error}")

PARTIAL = bool(config.get("partial"))
# What tables, figures and report are made for.
STUDY = grid.canonical(settings.study(config))
FIGURES = figure_names(config)
ORDER = {run: index for index, run in enumerate(RUNS)}

# Timed runs have the machine to themselves: they take all of `host`, others as many of its units as they have
# threads. A global resource that is set here holds without any profile; its local scope leaves jobs of a scheduler
# alone, where an exclusive allocation does the same.
HOST = max([len(os.sched_getaffinity(0)), *(run.ranks * run.threads for run in RUNS)])
if workflow.is_main_process:
    workflow.register_resource("host", HOST)


resource_scopes:
    host="local",


def records(wildcards=None):
    """Every run's record; for a partial report those that exist."""
    return [run.path for run in RUNS if not PARTIAL or Path(run.path).exists()]


def timed(run):
    """Whether the run has the machine to itself; a run outside the config is refused by its settings."""
    return bool(config["protocols"].get(run.protocol, {}).get("timed"))


def run_settings(wildcards):
    """What decides the run's numbers and timing, as one canonical text."""
    try:
        return grid.canonical(grid.resolve(config, grid.Run.of(wildcards)))
    except UserError as error:
        raise WorkflowError(str(error)) from None


def workload_settings(wildcards):
    """What decides the workload's data and features, as one canonical text."""
    return grid.canonical(settings.study(config)["workloads"][wildcards.workload])


def source_files(wildcards):
    """The data files that a workload reads; none where the data are embedded."""
    return SOURCES.get(wildcards.workload, [])


def source_option(wildcards):
    """The folder of the data files as a command-line option; a resource, since where data lie changes no number."""
    folder = settings.source_folder(config, wildcards.workload)
    return f"--source {shlex.quote(str(folder))}" if folder else ""


def eegmmidb_block():
    """The configured subjects and runs; those of one small file where nothing is to be fetched."""
    block = config["workloads"].get("eegmmidb", {})
    return block if block and "folder" not in block else {"subjects": [1], "runs": [4]}


def eegmmidb_files():
    """What the rule fetch_eegmmidb makes."""
    return [f"results/data/eegmmidb/{name}" for name in files("eegmmidb", eegmmidb_block())]


def eegmmidb_options():
    """Its subjects and runs as command-line options."""
    return " ".join(f"--{name} {' '.join(map(str, eegmmidb_block()[name]))}" for name in ("subjects", "runs"))


def weights_file(wildcards):
    """The ResNet-18 weights that a workload's features are computed with."""
    weights = config["workloads"][wildcards.workload]["weights"]
    if weights == "imagenet":
        return "results/features/imagenet.safetensors"
    return f"results/features/{wildcards.workload}/weights-{weights}.safetensors"


def imagenet_option(wildcards):
    """The local folder of microsoft/resnet-18 as a command-line option, where one is named."""
    folders = sorted(
        {block["weights_folder"] for block in config["workloads"].values() if "weights_folder" in block}
    )
    return f"--folder {shlex.quote(folders[0])}" if folders else ""


def host_share(wildcards):
    """How much of the machine the run takes while it runs; all of it in an allocation, where runs take turns."""
    run = grid.Run.of(wildcards)
    return HOST if timed(run) or scheduled() else min(run.ranks * run.threads, HOST)


def priority(wildcards):
    """Runs start seed by seed in the grid's order; a run that only the command line names comes last."""
    return len(RUNS) - ORDER.get(grid.Run.of(wildcards), len(RUNS))
