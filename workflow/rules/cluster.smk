# What a scheduler is told about a job: which pack it belongs to, and what that asks for. No rules. On one machine
# Snakemake knows no groups, most of these functions give None, and nothing limits the others.

# Where the folder has no site file, the workflow's own counts. Named before anything reads it.
if not Path("profiles/slurm/site.yaml").exists():
    os.environ.setdefault("KETSCALE_SITE", workflow.source_path("../../profiles/slurm/site.yaml"))

from ketscale.jobs import supervise
from ketscale.jobs.slurm import check as cluster
from ketscale.jobs.slurm import packs
from ketscale.jobs.slurm import site as sites

try:
    SITE = sites.load_site(CONFIG.sizes, CONFIG.size_names)
    PACKS = packs.packs(RUNS, CONFIG.timed, SITE)
except UserError as error:
    sys.exit(f"Error: {error}")

# A run that was finished in this call of Snakemake is not trained again when its pack is tried again.
if workflow.is_main_process:
    finished.begin_call()
elif SITE.file.setup:
    # A command of the site that fails ends the run. Not -u, which modules do not survive; Snakemake formats the text.
    commands = SITE.file.setup.replace("{", "{{").replace("}", "}}")
    failed = f"echo 'ketscale: setup in {sites.PATH} failed' >&2"
    shell.prefix(f'set -eo pipefail\ntrap "{failed}" EXIT\n{commands}\ntrap - EXIT\nset -u\n')

# The runs of this call, and how far their requests may grow (None: that for features); filled when it starts. Before, on
# one machine and inside an allocation a first try counts, which fits.
CALLED = []
ROOM = {}


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
    """What `function` says of a run, where there is a scheduler."""

    def resource(wildcards):
        return function(grid.Run.of(wildcards)) if scheduled() else None

    return resource


def minutes(attempt, run=None):
    """The time limit of the run, or of features: the attempt's, as far as the partition has time for all of a pack."""
    factor = min(attempt, ROOM[run].factor) if run in ROOM else 1
    return SITE.minutes(run, factor) if run else int(SITE.file.features.minutes * factor)


def memory_mb(attempt, run=None):
    """The memory of a node of the run, or of features: the attempt's, as far as the partition's nodes have it."""
    tries = attempt if run in ROOM else 1
    asked = SITE.memory_mb(run, tries) if run else SITE.file.features.memory_mb * tries
    return min(asked, ROOM[run].memory_mb) if run in ROOM else asked


def sbatch_options(run):
    """A timed run gets its nodes alone; every run is warned before its time limit."""
    alone = ["--exclusive"] if CONFIG.timed(run) else []
    return " ".join([*alone, f"--signal=USR1@{SITE.file.warning_s}"])


def gres(run):
    """The GPUs of each node."""
    kind = f"{SITE.file.gpu_type}:" if SITE.file.gpu_type else ""
    return f"gpu:{kind}{sites.gpus_per_node(run)}" if sites.gpus_per_node(run) else None


# Of every job alike.
OF_SITE = {
    "slurm_account": lambda wildcards: SITE.file.account if scheduled() else None,
    "qos": lambda wildcards: SITE.file.qos if scheduled() else None,
    "constraint": lambda wildcards: SITE.file.constraint if scheduled() else None,
    # Inside an allocation: Snakemake starts no srun around a run, which starts its own (see jobs/launch.py).
    "mpi": lambda wildcards: None if workflow.is_main_process else 1,
}

# One task a node, which is given all cores of the run's ranks there: srun divides them among the ranks.
OF_TRAIN = OF_SITE | {
    "slurm_partition": of_run(lambda run: SITE.partition_of(run)),
    "runtime": lambda wildcards, attempt: minutes(attempt, grid.Run.of(wildcards)),
    "mem_mb": lambda wildcards, attempt: memory_mb(attempt, grid.Run.of(wildcards)),
    "nodes": of_run(lambda run: run.nodes),
    "tasks": of_run(lambda run: run.nodes),
    "cpus_per_task": of_run(lambda run: sites.cores_per_node(run)),
    "gres": of_run(lambda run: gres(run)),
    "tasks_per_gpu": of_run(lambda run: 0 if gres(run) else None),
    "slurm_extra": of_run(lambda run: sbatch_options(run)),
}

# Features are computed by two threads on any machine, so that they come out the same (see problems/images/resnet.py).
OF_FEATURES = OF_SITE | {
    "slurm_partition": lambda wildcards: SITE.file.partition if scheduled() else None,
    "runtime": lambda wildcards, attempt: minutes(attempt),
    "mem_mb": lambda wildcards, attempt: memory_mb(attempt),
    "nodes": lambda wildcards: 1 if scheduled() else None,
    "cpus_per_task": lambda wildcards: 2 if scheduled() else None,
}


def say_why():
    """Why the runs of this call failed, and where to read on."""
    notes = {run: supervise.read_note(Path(RESULTS, run.folder)) for run in CALLED}
    failed = {run: note for run, note in notes.items() if note and note.get("call") == finished.call()}
    for run, note in failed.items():
        print(f"{RESULTS}/{run.folder}: {note['reason']}", file=sys.stderr)
    if failed:
        print("`ketscale status` shows what is left; the same command tries it again.", file=sys.stderr)


def begin():
    """Note the runs of this call. Stop where the cluster would refuse one, or never start it, before any is submitted."""
    jobs = list(workflow.dag.needrun_jobs())
    CALLED.extend(grid.Run.of(job.wildcards) for job in jobs if job.rule.name == "train")
    submitted = {job.rule.name for job in jobs if not workflow.is_local(job.rule)}
    if not scheduled() or not submitted:
        return
    packed = {run: pack_of(run) for run in CALLED}
    try:
        status_command = getattr(workflow.executor_settings, "status_command", None)
        ROOM.update(cluster.check(SITE, packed, submitted != {"train"}, status_command))
    except UserError as error:
        sys.exit(f"Error: {error}")


def end():
    """Nothing will be tried again: what was kept for that goes."""
    for run in CALLED:
        finished.forget(Path(RESULTS, run.folder))
