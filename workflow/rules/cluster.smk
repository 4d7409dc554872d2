# What a scheduler is told about a job: its job group ("pack") and the resources it asks for. No rules.
import os
import shutil
from collections import Counter

# Whether this process is that of a job or a job group in an allocation. It runs the commands of its rules itself, one
# after the other: each is local there, and in no group, or it would start Snakemake once more for each of them.
IN_JOB = not workflow.is_main_process

# If this folder has no site file, the workflow's own is used. Set before anything reads it.
if not os.environ.get("KETSCALE_SITE") and not Path("profiles/slurm/site.yaml").exists():
    os.environ.update(KETSCALE_SITE=str(workflow.source_path("../../profiles/slurm/site.yaml")))

from ketscale.errors import UserError
from ketscale.jobs import cohorts, driver, finished, launch
from ketscale.jobs import snakemake_internals as internals
from ketscale.jobs.slurm import check as cluster
from ketscale.jobs.slurm import packs
from ketscale.jobs.slurm import site as sites
from ketscale.jobs.slurm import submission
from ketscale.jobs.status.progress import Progress

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

if not IN_JOB:
    os.environ.pop(cohorts.VARIABLE, None)
    os.environ.pop(finished.AGAIN, None)
elif SITE.file.setup:
    # If a setup command fails, the run ends. No -u here, which environment modules do not survive. Snakemake formats
    # the text, so braces are doubled.
    commands = SITE.file.setup.replace("{", "{{").replace("}", "}}")
    failed = f"echo 'ketscale: setup in {sites.PATH} failed' >&2"
    shell.prefix(f'set -eo pipefail\ntrap "{failed}" EXIT\n{commands}\ntrap - EXIT\nset -u\n')

# The runs of this call, and how far their requests may grow (None: for preparing data); filled when the call starts.
# Before that, on one machine and inside an allocation, the request is that of the first attempt.
CALLED = []
# The lock of this folder, once the call has it.
CALL = []
ROOM = {}


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
    """A resource: the value of `function` for a run if there is a scheduler, else None."""

    def resource(wildcards):
        return function(study.run_of(wildcards)) if study.scheduled() else None

    return resource


def minutes(attempt, run=None):
    """The time limit of a run, or of preparing data: grows with the attempt, up to the partition's limit."""
    factor = min(attempt, ROOM[run].factor) if run in ROOM else 1
    return SITE.minutes(run, factor) if run else int(SITE.file.features.minutes * factor)


def memory_mb(attempt, run=None):
    """The memory per node of a run, or of preparing data: doubles with each attempt, up to what the nodes have."""
    tries = attempt if run in ROOM else 1
    asked = SITE.memory_mb(run, tries) if run else SITE.file.features.memory_mb * 2 ** (tries - 1)
    return min(asked, ROOM[run].memory_mb) if run in ROOM else asked


def sbatch_options(run):
    """Options that give a timed run its nodes alone, and warn every run before its time limit."""
    alone = ["--exclusive"] if study.config.timed(run) else []
    return " ".join([*alone, f"--signal=USR1@{SITE.file.warning_s}"])


def gres(run):
    """The GPUs per node, as SLURM's generic resource; None without GPUs."""
    kind = f"{SITE.file.gpu_type}:" if SITE.file.gpu_type else ""
    return f"gpu:{kind}{sites.gpus_per_node(run)}" if sites.gpus_per_node(run) else None


OF_TRAIN = OF_FEATURES = {}
if ASKED:
    # For every job.
    of_site = {
        "slurm_account": SITE.file.account,
        "qos": SITE.file.qos,
        "constraint": SITE.file.constraint,
    }
    # One task per node, with all cores of the run's ranks there; srun divides them among the ranks.
    OF_TRAIN = of_site | {
        "slurm_partition": of_run(lambda run: SITE.partition_of(run)),
        "runtime": lambda wildcards, attempt: minutes(attempt, study.run_of(wildcards)),
        "mem_mb": lambda wildcards, attempt: memory_mb(attempt, study.run_of(wildcards)),
        "nodes": of_run(lambda run: run.nodes),
        "tasks": of_run(lambda run: run.nodes),
        "cpus_per_task": of_run(lambda run: sites.cores_per_node(run)),
        "gres": of_run(lambda run: gres(run)),
        "tasks_per_gpu": of_run(lambda run: 0 if gres(run) else None),
        "slurm_extra": of_run(lambda run: sbatch_options(run)),
    }
    # Features are computed by two threads on every machine, so that they are the same.
    OF_FEATURES = of_site | {
        "slurm_partition": SITE.file.partition,
        "runtime": lambda wildcards, attempt: minutes(attempt),
        "mem_mb": lambda wildcards, attempt: memory_mb(attempt),
        "nodes": 1,
        "cpus_per_task": 2,
    }


def planned_runs():
    """The runs of this call, and the job of each."""
    jobs = [job for job in internals.planned(workflow) if "seed" in job.wildcards_dict]
    return {study.run_of(job.wildcards): job for job in jobs}


# What speaks on the terminal, if the profile names it.
TERMINAL = internals.terminal(workflow)
if TERMINAL:
    reasons = lambda: {run: internals.reason(workflow, job) for run, job in planned_runs().items()}
    TERMINAL.follow(Progress(study.config, workflow.overwrite_configfiles or (), reasons))


def together():
    """Write down which runs of this call are trained together."""
    if study.config.cohorts:
        # Runs of a job group take turns in its allocation.
        cores, place = min(study.host, workflow.resource_settings.cores or study.host), lambda run: ""
        if study.scheduled():
            cores, place = 1, pack_of
        everything = [*study.runs, *(run for run in CALLED if run not in study.order)]
        planned = cohorts.plan(map(study.config.settings, everything), cores, place, set(CALLED))
        cohorts.write(Path(study.results), planned)


def begin():
    """Note this call and its runs. Before any is submitted, stop if the cluster would refuse one or never start it."""
    try:
        if not workflow.deployment_settings.deployment_method:
            launch.check_package()
        CALL.append(driver.begin(workflow))
    except UserError as error:
        sys.exit(f"Error: {error}")
    # A run that has its result is trained again only for those who say so.
    asked = workflow.dag_settings
    if asked.forceall or asked.forcerun or asked.forcetargets:
        os.environ[finished.AGAIN] = "1"
    # What a killed call has left.
    shutil.rmtree(Path(study.results) / cohorts.FOLDER, ignore_errors=True)
    CALLED.extend(sorted(planned_runs(), key=lambda run: study.order.get(run, len(study.runs))))
    try:
        start()
    except UserError as error:
        let_go()
        sys.exit(f"Error: {error}")


def start():
    """Prepare what the runs of this call need, and watch them."""
    submitted = {job.rule.name for job in internals.planned(workflow) if not workflow.is_local(job.rule)}
    if not study.scheduled() or not submitted:
        together()
        return
    packed = {run: pack_of(run) for run in CALLED}
    status_command = getattr(workflow.executor_settings, "status_command", None)
    ROOM.update(cluster.check(SITE, packed, submitted != {"train"}, status_command))
    together()
    submission.begin(trained_by(packed))
    internals.give_up(workflow, submission.why_refused)
    submission.follow(
        TERMINAL.say if TERMINAL else print, lambda waiting: internals.let_submissions_wait(workflow, waiting)
    )


def trained_by(packed):
    """What each job group trains, in words: its first run, and how many more."""
    first, count = {}, Counter(packed.values())
    for run, name in packed.items():
        first.setdefault(name, f"{study.results}/{run.folder}")
    return {
        name: path + (f" and {count[name] - 1} more" if count[name] > 1 else "")
        for name, path in first.items()
    }


def let_go():
    """Give the lock of the folder back."""
    for lock in CALL:
        lock.finished = True
        lock.release()


def end(succeeded):
    """Give the folder back, and tell the user how the call ended."""
    done = len(CALLED) - len(planned_runs())
    cohorts.forget()
    let_go()
    if SITE.file.notify:
        driver.notify(SITE.file.notify, sites.PATH, succeeded, done, len(CALLED))
