# What a scheduler is told about a job: its job group ("pack") and the resources it asks for. No rules.
import collections
import os

# Whether this process is that of a job or a job group in an allocation. It runs the commands of its rules itself, one
# after the other: each is local there, and in no group, or it would start Snakemake once more for each of them.
IN_JOB = not workflow.is_main_process

# If this folder has no site file, the workflow's own is used. Set before anything reads it.
if not os.environ.get("KETSCALE_SITE") and not Path("profiles/slurm/site.yaml").exists():
    os.environ.update(KETSCALE_SITE=str(workflow.source_path("../../profiles/slurm/site.yaml")))

from ketscale.errors import UserError
from ketscale.jobs import snakemake_internals as internals
from ketscale.jobs.slurm import check as cluster
from ketscale.jobs.slurm import packs
from ketscale.jobs.slurm import site as sites

# Whether anything may ask what jobs need: a scheduler, to which Snakemake submits only with --jobs; the allocation that
# this process is in; or a limit of --resources. If nothing does, jobs have no group and none of these resources:
# Snakemake evaluates each of them for each run, which was a third of a dry run of 20,000 runs.
ASKED = bool(
    IN_JOB or workflow.resource_settings.nodes or {"mem_mb", "runtime"} & workflow.global_resources.keys()
)

try:
    SITE = sites.load_site(study.config.sizes, study.config.size_names)
    PACKS = packs.packs(study.runs, study.config.timed, SITE, study.config.is_trial) if ASKED else {}
except UserError as error:
    sys.exit(f"Error: {error}")

if IN_JOB and SITE.file.setup:
    # No -u here, which environment modules do not survive. Snakemake formats the text, so braces are doubled.
    commands = SITE.file.setup.replace("{", "{{").replace("}", "}}")
    shell.prefix(f"set -eo pipefail\n{commands}\nset -u\n")

# How far the requests of runs may grow (None: that for preparing data), once the call has started. On one machine and inside
# an allocation they are those of the first attempt.
ROOM = collections.defaultdict(cluster.Room)


def pack_of(run):
    """The name of the run's job group."""
    return PACKS.get(run) or packs.name_alone(run)


def pack(wildcards):
    """The group of a run: the runs that share an allocation with it."""
    name = pack_of(study.run_of(wildcards))
    # The profile's group-components for `pack` applies to this group.
    internals.make_one_job(workflow, name, "pack")
    return name


def of_run(function):
    """A resource of the executor's: the value of `function` for a run if there is a scheduler, else None."""
    return lambda wildcards: function(study.run_of(wildcards)) if study.scheduled() else None


def of_attempt(grow, first):
    """A resource that grows with the attempt: by `grow`, a method of `Room`, from the value of `first` for a run."""

    def resource(wildcards, attempt):
        run = study.run_of(wildcards) if "seed" in wildcards.keys() else None
        return grow(ROOM[run], first(run), attempt)

    return resource


def gres(run):
    """The GPUs per node, as SLURM's generic resource; None without GPUs."""
    number = sites.gpus_per_node(run)
    return ":".join(filter(None, ["gpu", SITE.file.gpu_type, str(number)])) if number else None


OF_TRAIN = OF_FEATURES = {}
if ASKED:
    of_site = {
        "slurm_account": SITE.file.account,
        "qos": SITE.file.qos,
        "constraint": SITE.file.constraint,
    }
    # One task per node, with all cores of the run's ranks there; srun divides them among the ranks. A timed run has its
    # nodes alone.
    OF_TRAIN = of_site | {
        "slurm_partition": of_run(SITE.partition_of),
        "runtime": of_attempt(cluster.Room.minutes, SITE.minutes),
        "mem_mb": of_attempt(cluster.Room.memory, SITE.memory_mb),
        "nodes": of_run(lambda run: run.nodes),
        "tasks": of_run(lambda run: run.nodes),
        "cpus_per_task": of_run(sites.cores_per_node),
        "gres": of_run(gres),
        "tasks_per_gpu": of_run(lambda run: 0 if gres(run) else None),
        "slurm_extra": of_run(lambda run: "--exclusive" if study.config.timed(run) else None),
    }
    # Features are computed by two threads on every machine, so that they are the same.
    OF_FEATURES = of_site | {
        "slurm_partition": SITE.file.partition,
        "runtime": of_attempt(cluster.Room.minutes, lambda run: SITE.file.features.minutes),
        "mem_mb": of_attempt(cluster.Room.memory, lambda run: SITE.file.features.memory_mb),
        "nodes": 1,
        "cpus_per_task": 2,
    }
