# The life of a call of Snakemake: what it notes and checks before its first job, and what it says at its end. No rules.
import os

from ketscale.errors import UserError
from ketscale.jobs import cohorts, driver, finished, launch
from ketscale.jobs import snakemake_internals as internals
from ketscale.jobs.slurm import check as cluster
from ketscale.jobs.slurm import site as sites
from ketscale.jobs.slurm import submission
from ketscale.jobs.status.progress import Progress

if not IN_JOB:
    os.environ.pop(cohorts.VARIABLE, None)
    os.environ.pop(finished.AGAIN, None)

# The runs of this call, and the lock of this folder, once the call has it.
CALLED = []
CALL = []


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
    except (UserError, OSError) as error:
        sys.exit(f"Error: {error}")
    # A run that has its result is trained again only for those who say so.
    asked = workflow.dag_settings
    if asked.forceall or asked.forcerun or asked.forcetargets:
        os.environ[finished.AGAIN] = "1"
    CALLED.extend(sorted(planned_runs(), key=lambda run: study.order.get(run, len(study.runs))))
    try:
        start()
    except (UserError, OSError) as error:
        let_go()
        sys.exit(f"Error: {error}")


def start():
    """Prepare what the runs of this call need, and watch them."""
    submitted = {job.rule.name for job in internals.planned(workflow) if not workflow.is_local(job.rule)}
    if not study.scheduled() or not submitted:
        together()
        return
    packed = {run: pack_of(run) for run in CALLED}
    ROOM.update(cluster.check(SITE, packed, submitted != {"train"}))
    together()
    submission.begin(workflow, TERMINAL.say if TERMINAL else print)


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
