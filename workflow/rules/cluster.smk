# What a scheduler is told about a job: its job group ("pack") and the resources it asks for. No rules.
import collections
import os
import shutil

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
    # No -u here, which environment modules do not survive. Snakemake formats the text, so braces are doubled.
    commands = SITE.file.setup.replace("{", "{{").replace("}", "}}")
    shell.prefix(f"set -eo pipefail\n{commands}\nset -u\n")

# The runs of this call, and the lock of this folder, once the call has it.
CALLED = []
CALL = []
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
    """A resource that grows with the attempt: by a method of `Room`, from the value of `first` for a run."""

    def resource(wildcards, attempt):
        run = study.run_of(wildcards) if "seed" in wildcards.keys() else None
        return getattr(ROOM[run], grow)(first(run), attempt)

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
        "runtime": of_attempt("minutes", SITE.minutes),
        "mem_mb": of_attempt("memory", SITE.memory_mb),
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
        "runtime": of_attempt("minutes", lambda run: SITE.file.features.minutes),
        "mem_mb": of_attempt("memory", lambda run: SITE.file.features.memory_mb),
        "nodes": 1,
        "cpus_per_task": 2,
    }


def planned_runs():
    """The runs of this call, and the job of each."""
    jobs = [job for job in internals.planned(workflow) if "seed" in job.wildcards_dict]
    return {study.run_of(job.wildcards): job for job in jobs}


# What speaks on the terminal, if the profile names it.
TERMINAL = internals.terminal(workflow)
PROGRESS = Progress(study.config, SITE, workflow.overwrite_configfiles or ())
if TERMINAL:
    TERMINAL.follow(
        PROGRESS,
        lambda: {run: internals.reason(workflow, job) for run, job in planned_runs().items()},
    )


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
        PROGRESS.train_together([one.run for one in cohort] for cohort in planned)


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
    if TERMINAL:
        TERMINAL.begin()
    submitted = {job.rule.name for job in internals.planned(workflow) if not workflow.is_local(job.rule)}
    if not study.scheduled() or not submitted:
        together()
        return
    packed = {run: pack_of(run) for run in CALLED}
    ROOM.update(cluster.check(SITE, packed, submitted != {"train"}))
    together()
    submission.begin(workflow, trained_by(packed), TERMINAL.say if TERMINAL else print)


def trained_by(packed):
    """What each job group trains, in words: its first run, and how many more."""
    first = {name: f"{study.results}/{run.folder}" for run, name in reversed(packed.items())}
    count = collections.Counter(packed.values())
    return {
        name: f"{run} and {count[name] - 1} more" if count[name] > 1 else run for name, run in first.items()
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
