# What a scheduler is told about a job: which pack it belongs to, and what that asks for. No rules. On one machine
# Snakemake knows no groups, most of these functions give None, and nothing limits the others.
from ketscale.backends import supervise
from ketscale.slurm import check as cluster
from ketscale.slurm import packs
from ketscale.slurm import site as sites
from ketscale.training import finished

try:
    SITE = sites.load()
    PACKS = packs.packs(RUNS, timed, SITE)
except UserError as error:
    sys.exit(f"Error: {error}")

# A run that was finished in this call of Snakemake is not trained again when its pack is tried again.
if workflow.is_main_process:
    finished.begin_call()
elif SITE.setup:
    shell.prefix(f"{SITE.setup}\n")


def scheduled():
    """Whether the job runs in an allocation of a scheduler (asked when a job's resources are worked out)."""
    return not workflow.local_exec or not workflow.is_main_process


def pack_of(run):
    """The name of the run's pack."""
    return PACKS.get(run) or packs.name_alone(run)


def pack(wildcards):
    """The group of a run: the runs that share an allocation with it."""
    if not workflow.is_main_process:
        # Snakemake tells the jobs of a group neither that one's failure is not the others', nor that its timers for
        # submitting no more than 100 jobs a second are unwanted (see onstart in the Snakefile).
        workflow.execution_settings.keep_going = True
        workflow.scheduling_settings.max_jobs_per_timespan = None
    name = pack_of(grid.Run.of(wildcards))
    # What the profile's group-components says of `pack` then holds for this group: that its runs, which do not depend
    # on one another, are one job all the same.
    workflow.parent_groupids[name] = "pack"
    return name


def of_run(function):
    """What `function` of the site and a run says, where there is a scheduler."""

    def resource(wildcards, attempt):
        return function(grid.Run.of(wildcards), attempt) if scheduled() else None

    return resource


def sbatch_options(run):
    """A timed run gets its nodes alone; every run is warned before its time limit."""
    alone = ["--exclusive"] if timed(run) else []
    return " ".join([*alone, f"--signal=USR1@{SITE.warning_s}"])


def gres(run):
    """The GPUs of each node."""
    kind = f"{SITE.gpu_type}:" if SITE.gpu_type else ""
    return f"gpu:{kind}{sites.gpus_per_node(run)}" if sites.gpus_per_node(run) else None


# Of every job alike.
OF_SITE = {
    "slurm_account": lambda wildcards: SITE.account if scheduled() else None,
    "qos": lambda wildcards: SITE.qos if scheduled() else None,
    "constraint": lambda wildcards: SITE.constraint if scheduled() else None,
    # Inside an allocation: Snakemake starts no srun around a run, which starts its own (see backends/launch.py).
    "mpi": lambda wildcards: None if workflow.is_main_process else 1,
}

# One task a node, which is given all cores of the run's ranks there: srun divides them among the ranks.
TRAIN = OF_SITE | {
    "slurm_partition": of_run(lambda run, attempt: SITE.partition_of(run)),
    "runtime": lambda wildcards, attempt: SITE.minutes(grid.Run.of(wildcards), attempt),
    "mem_mb": lambda wildcards, attempt: SITE.memory_mb(grid.Run.of(wildcards), attempt),
    "nodes": of_run(lambda run, attempt: run.nodes),
    "tasks": of_run(lambda run, attempt: run.nodes),
    "cpus_per_task": of_run(lambda run, attempt: sites.cores_per_node(run)),
    "gres": of_run(lambda run, attempt: gres(run)),
    "tasks_per_gpu": of_run(lambda run, attempt: 0 if gres(run) else None),
    "slurm_extra": of_run(lambda run, attempt: sbatch_options(run)),
}

# Features are computed by two threads on any machine, so that they come out the same (see workloads/resnet.py).
FEATURES = OF_SITE | {
    "slurm_partition": lambda wildcards: SITE.partition if scheduled() else None,
    "runtime": lambda wildcards, attempt: SITE.features_minutes * attempt,
    "mem_mb": lambda wildcards, attempt: SITE.features_memory_mb * attempt,
    "nodes": lambda wildcards: 1 if scheduled() else None,
    "cpus_per_task": lambda wildcards: 2 if scheduled() else None,
}


def say_why():
    """Why the runs of this call failed, and where to read on."""
    notes = {run: supervise.read_note(Path(run.folder)) for run in RUNS}
    failed = {run: note for run, note in notes.items() if note and note.get("call") == finished.call()}
    for run, note in failed.items():
        print(f"{run.folder}: {note['reason']}", file=sys.stderr)
    if failed:
        print("`ketscale status` shows what is left; the same command tries it again.", file=sys.stderr)


def check_cluster():
    """Stop before anything is submitted where the cluster would refuse a run of this call, or never start it."""
    runs = [grid.Run.of(job.wildcards) for job in workflow.dag.needrun_jobs() if job.rule.name == "train"]
    try:
        cluster.check(SITE, {run: pack_of(run) for run in runs})
    except UserError as error:
        sys.exit(f"Error: {error}")
