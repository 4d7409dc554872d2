"""One run, from its settings to its record: sets up the ranks, trains, and writes the results."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from ketscale import process
from ketscale.config import Data, Protocol, Settings
from ketscale.errors import UserError, in_words
from ketscale.files import clear, copy_atomic
from ketscale.grid import CURVES, HISTORY, RECORD
from ketscale.jobs import cohorts, finished, kept, outcome, prepared, supervise, waiting
from ketscale.jobs.lease import Lease
from ketscale.jobs.signals import Signals
from ketscale.jobs.slurm import queue
from ketscale.measure import host, host_lock, record, topology
from ketscale.measure.clock import Clock, sampled_steps
from ketscale.measure.quiet import Quiet, judged
from ketscale.parallel.world import World, check_nodes, check_variables, open_world
from ketscale.problems.problem import Problem
from ketscale.problems.registry import FAMILIES
from ketscale.problems.samplers import SAMPLERS
from ketscale.training import checkpoint
from ketscale.training.history import History
from ketscale.training.loop import Stopped, Trainer


def train(
    settings: Settings,
    folder: Path,
    manifest: Path | None,
    trace: Path | None,
    cohort: Path | None = None,
) -> str:
    """Train a run, write `folder`/metrics.json, history.csv and the trained model, and return the run's status.

    Every rank calls this. A run that diverges, or does not fit in memory, leaves a record that says so.

    If two processes are given the same run, the second waits for the first and uses its result, if there is one.

    Args:
        manifest: of the workload's prepared data; None for a family that prepares nothing.
        trace: the file for the spans of the sampled steps, if wanted.
        cohort: names runs of the same shape, which are trained together with this one unless they are finished, or
            others train them.

    Raises:
        UserError: something that the run needs is missing here, the ranks are not those that it needs, or another
            process has taken the run over.
        Stopped: SIGTERM or SIGINT came and the checkpoint is written.
    """
    signals = Signals()
    run, protocol = settings.run, settings.protocol
    host.set_threads(run.threads)
    process.keep_freed_memory()
    if protocol.mistake == "oversubscribed":
        host.set_threads_of_all_cores(run.threads)
    check_variables(run)
    sign = waiting.Sign(folder)
    with host_lock.hold(protocol.timed, run.ranks, sign.show):
        sign.remove()
        world = open_world(run)
        signals.heed_stop()
        lease = Lease(folder, job_over=queue.job_over)
        # One job of a cohort at a time: the first trains the runs of those that wait.
        gate = Lease(cohort.with_suffix(""), job_over=queue.job_over) if cohort else None
        try:
            if gate is not None:
                _hold(gate, world, signals)
            waited = _hold(lease, world, signals)
            if world.rank == 0:
                checkpoints = folder / checkpoint.FOLDER
                clear(folder, folder / "lease", checkpoints, checkpoints / finished.KEPT)
            if waited or gate is not None:
                status = _finished_meanwhile(world, folder, settings, manifest, in_this_call=not waited)
                if status is not None:
                    return status
            try:
                if cohort is not None:
                    from ketscale.jobs import cohort_session

                    others = cohorts.read(cohort, FAMILIES)
                    together = cohort_session.train(settings, folder, lease, others, manifest, world, signals)
                    if together is not None:
                        return together
                return _train(settings, folder, manifest, trace, world, signals, lease)
            except Stopped as stopped:
                if world.rank == 0 and not lease.finished:
                    # Here too: the process that started the ranks may be ended before it can write its own note.
                    supervise.leave_note(folder, f"{supervise.why_stopped()}; {stopped}")
                raise
        except Stopped:
            raise
        except BaseException:
            if world.ranks > 1:
                # The other ranks wait for this one in a collective; with some launchers they would wait for ever.
                _say_why(world.rank)
                world.abort()
            raise
        finally:
            lease.release()
            if gate is not None:
                gate.release()
            world.close()


def _hold(lease: Lease, world: World, signals: Signals) -> bool:
    """Rank 0 takes the run's lease, and waits while another process holds it. Every rank calls this.

    Returns:
        Whether it had to wait.
    """
    waited, notice = False, waiting.Notice()
    while True:
        held = world.rank == 0 and lease.try_acquire()
        if any(world.gather(held)):
            return waited
        if any(world.gather(signals.stop)):
            raise Stopped(f"stopped while waiting for {lease.holder}, which is training this run")
        if world.rank == 0:
            notice.tell(
                f"{lease.folder}: {lease.holder} is training this run; waiting until it ends, or shows no sign of life "
                f"for {lease.patience_s:g} s"
            )
            time.sleep(1)
        waited = True


def _finished_meanwhile(
    world: World, folder: Path, settings: Settings, manifest: Path | None, in_this_call: bool
) -> str | None:
    """The status of the record that the previous process wrote. Rank 0 looks; other nodes may see the file later.

    in_this_call: whether it counts only if it was written in this call of Snakemake.
    """
    status = None
    if world.rank == 0:
        hashed = prepared.features_hash(manifest)
        finished.restore(folder, settings, hashed)
        found = finished.of_this_code(folder / RECORD, settings, hashed)
        counts = found and (not in_this_call or found["call"] == finished.call() is not None)
        status = found["status"] if found and counts else None
    return world.gather(status)[0]


def _say_why(rank: int) -> None:
    said = in_words(sys.exception())
    if said is not None:
        print(f"ketscale: {said}", file=sys.stderr, flush=True)
    else:
        print(f"ketscale: rank {rank} failed and ends the run", file=sys.stderr)
        traceback.print_exc()
        sys.stderr.flush()


def _train(
    settings: Settings,
    folder: Path,
    manifest: Path | None,
    trace: Path | None,
    world: World,
    signals: Signals,
    lease: Lease,
) -> str:
    run, protocol = settings.run, settings.protocol
    here = Here.of(settings, world)
    # Known even if the data do not fit in memory: a record belongs to them.
    data, problem, data_s = Data(features_hash=prepared.features_hash(manifest)), None, 0.0
    start = time.perf_counter()
    with outcome.Memory() as memory, process.uncollected():
        data = read(settings, manifest)
        data_s = time.perf_counter() - start
        problem = build(settings, data, world.device)
    demand_one_code(world)
    # If it does not fit on one rank, the others must not wait for that one.
    misfit = next((why for why in world.gather(memory.ran_out) if why), None)
    # A run never resumes from a checkpoint of other settings, features or code.
    key = checkpoint.identify(settings.hash, data.features_hash or "", finished.code_hash())
    lost = {"resumed": 0, "lost_s": lost_s(lease, None)}
    clock, trainer = Clock(world.device, protocol.warmup, frozenset()), None

    def save(state: dict[str, Any]) -> None:
        lease.check()
        checkpoint.save(folder, key, {**state, **lost, "saved": time.time()})

    if problem is not None and misfit is None:
        clock = _clock(protocol, problem, run.batch, world.device)
        if trace is not None and not clock.sampled:
            raise UserError(
                f"--trace: protocol {run.protocol} samples no step of this run, so there is nothing to trace; "
                "set sampled_steps, and give it at least two steps after warm-up"
            )
        with memory:
            trainer = Trainer(
                problem,
                world,
                clock,
                protocol,
                run.batch,
                run.seed,
                save=save,
                stop_requested=lambda: signals.stop,
                save_requested=signals.save,
                history=History(checkpoint.history_of(folder, key) if world.rank == 0 else None, lease.check),
                progress=sys.stderr.isatty(),
                metrics=settings.family.metrics,
            )
            # Rank 0 loads it: on a shared disk other nodes may still see an older checkpoint, or none.
            wanted = world.rank == 0 and not trainer.no_checkpoints
            saved = world.gather(checkpoint.load(folder, key) if wanted else None)[0]
            if saved is not None:
                lost = restore(trainer, saved, lease, checkpoint.path_of(folder, key))
            elif world.rank == 0:
                start_anew([folder], key)
                if trainer.no_checkpoints and lease.former is not None:
                    print(
                        f"ketscale: this run was stopped before it had ended ({lost['lost_s']:.0f} s are lost); "
                        f"{trainer.no_checkpoints} has no checkpoints: starting from the beginning",
                        file=sys.stderr,
                    )
    unfit = misfit or memory.ran_out
    ended = outcome.run(trainer) if trainer and not unfit else outcome.Outcome("out_of_memory", 0.0, unfit)
    # After running out of memory in the trainer the other ranks may be stuck, so there can be no collective.
    collective = ended.status != "out_of_memory" or world.ranks == 1 or misfit is not None
    mine = here.of_rank(trainer, ended)
    ranks = world.gather(mine) if collective else [mine]
    if world.rank == 0 or not collective:
        if world.rank == 0:
            lease.check()
        if trace:
            clock.write_trace(trace)
        timing = {"data_s": data_s, **outcome.timing(clock, trainer, ended)}
        finish(settings, folder, data, trainer, ended, here, ranks, timing, lost)
        lease.finished = True
    if not collective:
        world.abort()
    return ended.status


@dataclasses.dataclass(frozen=True)
class Here:
    """Where and when a process trains: its world, its machine and what it may use of it.

    cores: the logical CPUs of this rank. shared: whether threads of this host's ranks share physical cores; None if that
    is unknown. clock_s: the start by a clock that is never set. startup_s: from the start of the process until data are
    read.
    """

    world: World
    machine: dict[str, Any]
    cores: list[int]
    shared: bool | None
    quiet: Quiet
    started: datetime
    clock_s: float
    startup_s: float

    @classmethod
    def of(cls, settings: Settings, world: World) -> Here:
        """Bind this rank to its cores and look around. Every rank calls this.

        Raises:
            UserError: the ranks are on another number of nodes than the run needs, or are bound otherwise.
        """
        names = world.gather(process.node_name())
        check_nodes(settings.run, names)
        machine = host.describe()
        cores = _bind(settings, world, names.count(process.node_name()))
        started, clock_s = datetime.now(UTC), time.monotonic()
        # The CPUs that the run's ranks on this host may use, a list for each rank.
        here = [
            cpus for name, cpus in world.gather((process.node_name(), cores)) if name == process.node_name()
        ]
        shared = topology.shared_cores(topology.read(), here, torch.get_num_threads())
        quiet = Quiet({cpu for cpus in here for cpu in cpus}, settings.run.threads * len(here))
        return cls(world, machine, cores, shared, quiet, started, clock_s, process.age_s())

    def of_rank(self, trainer: Trainer | None, ended: outcome.Outcome) -> dict[str, Any]:
        """This rank's entry in a record."""
        return outcome.of_rank(self.world, self.cores, self.shared, self.quiet, trainer, ended)


def finish(
    settings: Settings,
    folder: Path,
    data: Data,
    trainer: Trainer | None,
    ended: outcome.Outcome,
    here: Here,
    ranks: list[dict[str, Any]],
    timing: dict[str, Any],
    entries: dict[str, Any],
    cohort: Sequence[str] = (),
    share_s: float | None = None,
) -> None:
    """Write what a run leaves, the record last, and delete what it needed to go on.

    ranks: their entries in the record. timing: without the start. entries: others of the record.
    cohort: the runs with which it was trained. share_s: see `outcome.spent`.
    """
    # The copy first: what Snakemake deletes at the start of the run's own job is then never the only one.
    places = [*finished.copies(folder, together=bool(cohort)), folder]
    history = trainer.history if trainer else History(None)
    hashes = [history.finish(place / HISTORY) for place in places]
    problem = trainer.problem if trainer else None
    measured = {
        **entries,
        "cohort": list(cohort),
        "mpi_library": here.world.library,
        "machine": {**here.machine, "ranks": ranks},
        "quiet": judged(ranks),
        "files": {HISTORY: hashes[0], **kept.keep(settings, problem, ended, folder)},
        "timing": {"startup_s": here.startup_s, **timing},
        **outcome.spent(
            here.started, time.monotonic() - here.clock_s, settings.run, here.world.device, share_s
        ),
    }
    made = outcome.record_of(settings, data, trainer, ended, measured)
    for place in places:
        if CURVES in made["files"] and place != folder:
            copy_atomic(folder / CURVES, place / CURVES)
        record.write(place / RECORD, settings, made)
    (folder / supervise.NOTE).unlink(missing_ok=True)
    checkpoint.clear(folder)


def read(settings: Settings, manifest: Path | None) -> Data:
    """The workload's data as the run reads them.

    Raises:
        UserError: the family prepares data but there is no manifest, a file does not match the manifest, or the data
            were prepared with other settings.
    """
    if settings.family.read is None:
        return Data()
    if manifest is None:
        raise UserError(
            f"workload {settings.run.workload} needs its prepared data: give --features FILE (`ketscale prepare --help`)"
        )
    data = settings.family.read(settings, manifest)
    if prepared.of_other_settings(manifest, settings.workload):
        name = settings.run.workload
        raise UserError(
            f"{manifest}: prepared with other settings of workload {name}; run the rule prepare again, or "
            f"`ketscale prepare {name}`"
        )
    return data


def build(settings: Settings, data: Data, device: torch.device) -> Problem:
    """The run's problem on `device`, in the protocol's precision, with weights drawn from the run's seed.

    Weights are always drawn in fp32 on the CPU, so that they are the same for every precision and device.

    Raises:
        UserError: model, simulator and data do not fit together.
    """
    torch.manual_seed(settings.run.seed)
    problem: Problem = settings.family.build(settings, data, device)
    if not isinstance(problem.sampler, SAMPLERS[settings.sampler]):
        raise TypeError(
            f"family {settings.family.name} declares the sampler {settings.sampler}, but has {problem.sampler}"
        )
    problem.convert(device, torch.float64 if settings.protocol.precision == "fp64" else torch.float32)
    return problem


def demand_one_code(world: World) -> None:
    """Refuse code that was edited while the ranks imported it: nobody could say what trains. Every rank calls this.

    Raises:
        UserError: the sources are not those that every rank has started with.
    """
    seen = world.gather((finished.code_hash(), finished.sources_hash()))
    if len({each for pair in seen for each in pair}) > 1:
        raise UserError("the package's code was changed while this run started: start it again")


def restore(trainer: Trainer, saved: dict[str, Any], lease: Lease, path: Path) -> dict[str, Any]:
    """Continue from the checkpoint that was read from `path`.

    Returns:
        How often the run has resumed, and the seconds lost.

    Raises:
        UserError: the checkpoint is of another form, or its history is missing or damaged.
    """
    try:
        lost = {
            "resumed": saved["resumed"] + 1,
            "lost_s": saved["lost_s"] + lost_s(lease, saved["saved"]) + process.age_s(),
        }
        trainer.restore(saved)
    except UserError as error:
        raise UserError(
            f"{error}: the run goes on from it; bring it back, or delete {path} to start from the beginning"
        ) from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise checkpoint.unusable(path, repr(error)) from None
    except RuntimeError as error:
        if outcome.is_out_of_memory(error):
            raise
        raise checkpoint.unusable(path, repr(error)) from None
    return lost


def start_anew(folders: Sequence[Path], key: str) -> None:
    """Forget the histories of a training without a checkpoint; say so if a folder has one that is of no use here."""
    for folder in folders:
        checkpoint.history_of(folder, key).unlink(missing_ok=True)
    if any(checkpoint.others(folder, key) for folder in folders):
        print(
            "ketscale: the checkpoint in this folder belongs to other settings, features or code: starting from the "
            "beginning",
            file=sys.stderr,
        )


def _clock(protocol: Protocol, problem: Problem, batch: int, device: torch.device) -> Clock:
    steps = protocol.steps or problem.sampler.steps_per_epoch(batch)
    return Clock(device, protocol.warmup, sampled_steps(steps, protocol.warmup, protocol.sampled_steps))


def lost_s(lease: Lease, saved: float | None) -> float:
    """Seconds of work that the previous process of this run lost: those after the last checkpoint.

    Its start and its last sign of life are by its own clock. The checkpoint may be from an even earlier process.
    """
    former = lease.former
    if not former:
        return 0.0
    since, at = (datetime.fromisoformat(former[key]).timestamp() for key in ("since", "at"))
    return max(0.0, at - max(since, saved or since))


def _bind(settings: Settings, world: World, local_ranks: int) -> list[int]:
    """Bind a timed rank to cores of its own. Untimed runs share the host, and the kernel schedules them."""
    protocol, threads = settings.protocol, settings.run.threads
    if not protocol.timed or protocol.mistake == "oversubscribed":
        return sorted(os.sched_getaffinity(0))
    if protocol.mistake != "one-device":
        return host.bind(world.local_rank, local_ranks, threads)
    cores = host.bind(0, local_ranks, threads)
    if any(other != cores for other in world.gather(cores)):
        raise UserError(
            "mistake one-device needs all ranks on the same cores, but the scheduler has bound each rank to cores of "
            "its own: start the ranks unbound (srun --cpu-bind=none, mpiexec -bind-to none)"
        )
    return cores
