"""One run from its settings to its record: the ranks' set-up, the training, and what is written at the end."""

from __future__ import annotations

import csv
import importlib.metadata
import io
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import torch

import ketscale
from ketscale.engines.circuits import routes
from ketscale.errors import UserError
from ketscale.grid import RECORD, Run, config_hash
from ketscale.jobs import finished, supervise
from ketscale.jobs.lease import Lease
from ketscale.jobs.slurm import queue, site
from ketscale.measure import host, records, topology
from ketscale.measure.clock import Clock, quartiles, sampled_steps
from ketscale.measure.environment import THREAD_VARIABLES, node_name
from ketscale.parallel.backends import open_world
from ketscale.parallel.world import World, check_nodes
from ketscale.problems import build
from ketscale.problems.eeg.superposition import parameter_count
from ketscale.training import checkpoint
from ketscale.training.loop import Diverged, Stopped, Trainer

PACKAGES = (
    "torch",
    "numpy",
    "pennylane",
    "pennylane-lightning",
    "qiskit",
    "mpi4py",
    "scikit-learn",
    "snakemake",
)


# The history on disk is for who watches; the finished run's is written with its record.
_REPORT_S = 2.0


class Signals:
    """What the trainer is asked for between steps: to stop (SIGTERM), or to save a checkpoint and go on (SIGUSR1)."""

    def __init__(self) -> None:
        self.stop = False
        self._save = False
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        signal.signal(signal.SIGUSR1, self._ask_to_save)

    def _ask_to_stop(self, signum: int, frame: Any) -> None:
        self.stop = True

    def _ask_to_save(self, signum: int, frame: Any) -> None:
        self._save = True

    def save(self) -> bool:
        """Whether a checkpoint was asked for since this was asked."""
        asked, self._save = self._save, False
        return asked


def train(
    run: Run, settings: Mapping[str, Any], folder: Path, manifest: Path | None, trace: Path | None
) -> str:
    """Train `run` and write `folder`/metrics.json and history.csv; its status.

    Every rank calls this. A diverged run, or one that does not fit in memory, leaves a record that says so.

    A second process that is given the same run waits for the first one, and takes its result if it is there then.

    Raises:
        UserError: something that was asked for is missing here, the world is not the one asked for, or another
            process has taken the run over.
        Stopped: SIGTERM came and the checkpoint is written.
    """
    signals = Signals()
    host.set_threads(run.threads)
    if settings["protocol"].get("mistake") == "oversubscribed":
        host.set_threads_of_all_cores(run.threads)
    with host.alone(settings["protocol"]["timed"]):
        backend = open_world(run)
        lease = Lease(folder, job_over=queue.job_over)
        try:
            if _hold(lease, backend, signals):
                status = _finished_meanwhile(backend, folder, settings, manifest)
                if status is not None:
                    return status
            try:
                return _train(run, settings, folder, manifest, trace, backend, signals, lease)
            except Stopped as stopped:
                if backend.rank == 0:
                    # Here too: what started the ranks may have been ended before it could write its own note.
                    supervise.leave_note(folder, f"{supervise.why_stopped()}; {stopped}")
                raise
        except Stopped:
            raise
        except BaseException:
            if backend.ranks > 1:
                # The other ranks wait in a collective for this one, some launchers for ever.
                _say_why(backend.rank)
                backend.abort()
            raise
        finally:
            lease.release()
            backend.close()


def _hold(lease: Lease, backend: World, signals: Signals) -> bool:
    """Rank 0 takes the run's lease, waiting for who holds it; whether it had to wait. Every rank calls this."""
    waited = False
    while True:
        held = backend.rank == 0 and lease.try_acquire()
        if any(backend.gather(held)):
            return waited
        if any(backend.gather(signals.stop)):
            raise Stopped(f"stopped while waiting for {lease.holder}, which trains this run")
        if backend.rank == 0:
            if not waited:
                print(
                    f"ketscale: {lease.folder}: trained by {lease.holder}; waiting until it ends, or shows no sign of "
                    f"life for {lease.patience_s:g} s",
                    file=sys.stderr,
                    flush=True,
                )
            time.sleep(1)
        waited = True


def _finished_meanwhile(
    backend: World, folder: Path, settings: Mapping[str, Any], manifest: Path | None
) -> str | None:
    """The status of the record that the process before has written; rank 0 looks, since others may see it later."""
    status = None
    if backend.rank == 0:
        features = finished.features_hash(manifest) if manifest else None
        if finished.is_finished(folder, settings, features):
            status = records.read(folder / RECORD)["status"]
    return backend.gather(status)[0]


def _say_why(rank: int) -> None:
    error = sys.exception()
    if isinstance(error, UserError):
        print(f"ketscale: {error}", file=sys.stderr, flush=True)
    else:
        print(f"ketscale: rank {rank} failed and ends the run", file=sys.stderr)
        traceback.print_exc()
        sys.stderr.flush()


def _train(
    run: Run,
    settings: Mapping[str, Any],
    folder: Path,
    manifest: Path | None,
    trace: Path | None,
    backend: World,
    signals: Signals,
    lease: Lease,
) -> str:
    names = backend.gather(node_name())
    check_nodes(run, names)
    machine = host.describe()
    cores = _bind(run, settings["protocol"], backend, names.count(node_name()))
    started = datetime.now(UTC)
    # All CPUs that the run may use on this host, which its other ranks have bound too.
    here = [cpus for name, cpus in backend.gather((node_name(), cores)) if name == node_name()]
    shared = topology.shared_cores(topology.read(), here, torch.get_num_threads())
    quiet = host.Quiet({cpu for cpus in here for cpu in cpus})
    startup_s = time.time() - psutil.Process().create_time()
    protocol, identity = settings["protocol"], config_hash(settings)
    start = time.perf_counter()
    data = build.read(run, manifest)
    data_s = time.perf_counter() - start
    # Other settings, features or arithmetic than those of a checkpoint never go on from it.
    key = checkpoint.identify(identity, data.features_hash, finished.code_hash())
    problem = build.problem(run, settings, data, backend.device)
    warmup = protocol.get("warmup", 2)
    steps = protocol.get("steps") or problem.sampler.steps_per_epoch(run.batch)
    clock = Clock(backend.device, warmup, sampled_steps(steps, warmup, protocol.get("sampled_steps", 0)))
    if trace is not None and not clock.sampled:
        raise UserError(
            f"--trace: protocol {run.protocol} samples no step of this run, so there is nothing to trace; "
            "give it sampled_steps, and at least two steps after warm-up"
        )

    def save(state: dict[str, Any]) -> None:
        lease.check()
        about = {"resumed": resumed, "lost_s": lost_s, "saved": time.time()}
        checkpoint.save(folder, key, {**state, **about})

    trainer = Trainer(
        problem,
        backend,
        clock,
        protocol,
        run.batch,
        run.seed,
        save=save,
        stop_requested=lambda: signals.stop,
        save_requested=signals.save,
        report=_seldom(lambda history: write_history(folder / "history.csv", history)),
        progress=sys.stderr.isatty(),
    )
    resumed, lost_s = 0, _lost_s(lease, None)
    # From rank 0: on a shared disk another node may still see an older checkpoint, or none.
    saved = backend.gather(checkpoint.load(folder, key) if backend.rank == 0 else None)[0]
    if saved is not None:
        resumed = saved["resumed"] + 1
        lost_s = (
            saved["lost_s"] + _lost_s(lease, saved["saved"]) + time.time() - psutil.Process().create_time()
        )
        trainer.restore(saved)
    elif checkpoint.others(folder, key) and backend.rank == 0:
        print(
            "ketscale: the checkpoint in this folder is of other settings, features or code: starting anew",
            file=sys.stderr,
        )
    outcome = _run(trainer)
    # A rank that ran out of memory cannot be waited for in a collective.
    collective = outcome.status != "out_of_memory" or backend.ranks == 1
    mine = _of_rank(backend, cores, shared, quiet, trainer)
    ranks = backend.gather(mine) if collective else [mine]
    stopped = datetime.now(UTC)
    hours = (stopped - started).total_seconds() / 3600
    record = {
        "schema": records.SCHEMA_VERSION,
        "run": settings["run"],
        "status": outcome.status,
        "reason": outcome.reason,
        "resumed": resumed,
        "lost_s": lost_s,
        "call": finished.call(),
        "parameters": parameter_count(problem.model),
        "config": dict(settings),
        "config_hash": identity,
        "data_hash": data.data_hash,
        "features_hash": data.features_hash,
        "split": data.split,
        "code": {
            "version": ketscale.__version__,
            "hash": finished.code_hash(),
            **host.git_state(Path(__file__).parent),
        },
        "packages": _packages(),
        "mpi_library": backend.library,
        "machine": {**machine, "ranks": ranks},
        "slurm_job_id": site.here(),
        "started": started.isoformat(),
        "stopped": stopped.isoformat(),
        "quiet": quiet.report(sum(r["cpu_s"] for r in ranks if r["host"] == node_name())),
        "quality": outcome.quality,
        "losses": trainer.losses,
        "weights_hash": trainer.weights_hash() if outcome.status == "completed" else None,
        "routes": routes.taken(),
        "timing": {
            "startup_s": startup_s,
            "data_s": data_s,
            **_timing(clock, trainer, run.batch),
            "train_s": outcome.train_s,
        },
        "node_hours": hours * run.nodes,
        "gpu_hours": hours * run.ranks if backend.device.type == "cuda" else 0.0,
    }
    if backend.rank == 0 or not collective:
        if backend.rank == 0:
            lease.check()
        write_history(folder / "history.csv", trainer.history)
        if trace:
            clock.write_trace(trace)
        records.write(folder / RECORD, record)
        finished.keep(folder)
        (folder / supervise.NOTE).unlink(missing_ok=True)
        checkpoint.clear(folder)
        lease.finished = True
    if not collective:
        backend.abort()
    return outcome.status


@dataclass(frozen=True)
class _Outcome:
    """How a training ended, and how long it took in seconds."""

    status: str
    train_s: float
    reason: str | None = None
    quality: dict[str, Any] | None = None


def _run(trainer: Trainer) -> _Outcome:
    start = time.perf_counter()
    try:
        trainer.run()
        train_s = time.perf_counter() - start
        return _Outcome("completed", train_s, quality=_quality(trainer) if trainer.by_epochs else None)
    except Diverged as error:
        return _Outcome("diverged", time.perf_counter() - start, str(error))
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        return _Outcome("out_of_memory", time.perf_counter() - start, str(error).splitlines()[0])


def _quality(trainer: Trainer) -> dict[str, Any]:
    return {
        "epochs": len(trainer.history),
        "best_epoch": trainer.best["epoch"],
        "validation": trainer.evaluate("validation", full=True),
        "test": trainer.evaluate("test", full=True),
    }


def _of_rank(
    backend: World, cores: list[int], shared: bool | None, quiet: host.Quiet, trainer: Trainer
) -> dict[str, Any]:
    """What a record says of this rank."""
    return {
        "rank": backend.rank,
        "host": node_name(),
        "pid": os.getpid(),
        "threads": {"torch": torch.get_num_threads()} | {name: os.environ[name] for name in THREAD_VARIABLES},
        "affinity": cores,
        "shared_cores": shared,
        "gpu_uuid": _gpu_uuid(backend.device),
        "peak_rss_bytes": host.peak_rss_bytes(),
        "peak_device_bytes": torch.cuda.max_memory_allocated() if backend.device.type == "cuda" else None,
        "cpu_s": quiet.own_s(),
        "samples": trainer.samples_seen,
    }


def _timing(clock: Clock, trainer: Trainer, batch: int) -> dict[str, Any]:
    """What the clock has measured, in seconds."""
    step = quartiles(clock.steady_s)
    median = step["median_s"]
    return {
        "first_step_s": clock.first_s,
        "step": step,
        "spans": {name: quartiles(seconds) for name, seconds in sorted(clock.spans_s.items())},
        "sampled_step": quartiles(clock.sampled_s),
        "validation_s": quartiles(clock.validations_s)["median_s"],
        "epoch": quartiles(clock.epochs_s),
        "steps": trainer.step,
        "steps_per_epoch": trainer.steps_per_epoch,
        "epoch_s": median and median * trainer.steps_per_epoch,
        "samples_per_s": median and batch / median,
    }


def _lost_s(lease: Lease, saved: float | None) -> float:
    """Seconds of the process that held the run before which count for nothing: those after the last checkpoint.

    Its start and its last sign of life were taken by its own clock; the checkpoint may be of a process before it.
    """
    former = lease.former
    if not former:
        return 0.0
    since, at = (datetime.fromisoformat(former[key]).timestamp() for key in ("since", "at"))
    return max(0.0, at - max(since, saved or since))


def _bind(run: Run, protocol: Mapping[str, Any], backend: World, local_ranks: int) -> list[int]:
    """Bind a timed rank to cores of its own. Untimed runs share the host, so the kernel places them."""
    mistake = protocol.get("mistake")
    if not protocol["timed"] or mistake == "oversubscribed":
        return sorted(os.sched_getaffinity(0))
    if mistake != "one-device":
        return host.bind(backend.local_rank, local_ranks, run.threads)
    cores = host.bind(0, local_ranks, run.threads)
    if any(other != cores for other in backend.gather(cores)):
        raise UserError(
            "mistake one-device wants every rank on the same cores, but the scheduler has bound each rank to its own: "
            "start the ranks unbound (srun --cpu-bind=none, mpiexec -bind-to none)"
        )
    return cores


def _seldom(report: Callable[[list[dict[str, Any]]], None]) -> Callable[[list[dict[str, Any]]], None]:
    """A report that leaves out what comes too soon: where an epoch is one small step, the file would be the work."""
    last = -math.inf

    def unless_just_done(history: list[dict[str, Any]]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _REPORT_S:
            last = now
            report(history)

    return unless_just_done


def write_history(path: Path, history: list[dict[str, Any]]) -> None:
    """The history as CSV, one row an epoch, written atomically (a header alone when there is no epoch)."""
    text = io.StringIO()
    columns = list(history[0]) if history else ["epoch", "step"]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    records.write_atomic(path, text.getvalue().encode())


def _out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out; torch's CPU allocator says so in words only."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


def _gpu_uuid(device: torch.device) -> str | None:
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else None


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
