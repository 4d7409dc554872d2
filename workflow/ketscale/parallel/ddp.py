"""`ddp` (NCCL, one GPU per rank) and `ddp-cpu` (Gloo): ranks of torch.distributed, started by torchrun.

A gradient of up to `ONE_MESSAGE` bytes is summed in its own buffer, after the backward pass. Torch's
DistributedDataParallel would send it in one message too, with nothing left to overlap, but copy it to a bucket and back,
and wait for Python callbacks on other threads. It sums larger gradients, in buckets, during the backward pass.
"""

# No `from __future__ import annotations` here: torch compares the reduction hook's annotations as types.
import contextlib
import os
import select
import signal
import socket
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ketscale import process
from ketscale.grid import BACKENDS, ONE_MESSAGE, Run
from ketscale.parallel.world import World, as_real, require_gpu
from ketscale.spans import active


class Ddp(World):
    """The ranks of torch.distributed's default process group."""

    def __init__(self, run: Run) -> None:
        self.rank, self.ranks, self.local_rank = (
            int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        )
        _end_with_torchrun()
        if BACKENDS[run.backend].device == "gpu":
            self.device = require_gpu(run, self.local_rank)
            dist.init_process_group("nccl", device_id=self.device)
            self.library = f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}"
        else:
            if run.nodes == 1:
                # Ranks of one host communicate over loopback; the host's name may not resolve to an address.
                loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
                os.environ["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME") or loopback
            dist.init_process_group("gloo")
            _let_gloo_wait()
            self.library = f"Gloo of torch {torch.__version__}"
        # With pairs of ranks Gloo's own all-reduce has more messages, each handed over between threads.
        self._pairs = BACKENDS[run.backend].device == "cpu" and self.ranks.bit_count() == 1
        self._overlapped = False
        # Squared norms of this rank's gradients, bucket by bucket.
        self._squares: list[torch.Tensor] = []

    def wrap(self, problem: nn.Module) -> nn.Module:
        """Broadcast rank 0's parameters; for a large gradient, DistributedDataParallel around the problem."""
        trained = [parameter for parameter in problem.parameters() if parameter.requires_grad]
        self._overlapped = sum(p.numel() * p.element_size() for p in trained) > ONE_MESSAGE
        if self._overlapped:
            return self._distributed(problem)
        for parameter in problem.parameters():
            dist.broadcast(as_real(parameter.detach()), 0)
        return problem

    def _distributed(self, problem: nn.Module) -> nn.Module:
        """DistributedDataParallel with a reduction that sums; its own would average."""
        with warnings.catch_warnings():
            # The announced successor of this option would broadcast the whole data set at the start; every rank has
            # it.
            warnings.filterwarnings(
                "ignore", message=".broadcast_buffers. is deprecated", category=FutureWarning
            )
            module = nn.parallel.DistributedDataParallel(
                problem,
                device_ids=[self.local_rank] if self.device.type == "cuda" else None,
                broadcast_buffers=False,
            )
        module.register_comm_hook(self._squares, _sum_bucket)
        return module

    def reduce_gradients(self, gradients: torch.Tensor) -> torch.Tensor | None:
        """One all-reduce in place; or the backward pass has already reduced them.

        In a sampled step the exposed communication ends here.
        """
        if not self._overlapped:
            return super().reduce_gradients(gradients)
        recorder = active()
        if recorder is not None and recorder.innermost == "communication":
            recorder.leave()
        own = torch.stack(self._squares).sum().sqrt().reshape(1)
        self._squares.clear()
        return own

    def add(self, values: torch.Tensor) -> None:
        """Sum over ranks in place."""
        if self._pairs and values.nbytes <= ONE_MESSAGE:
            self._exchange(values)
        else:
            self.library_add(values)

    def library_add(self, values: torch.Tensor) -> None:
        """The library's own all-reduce."""
        dist.all_reduce(values)

    def _exchange(self, values: torch.Tensor) -> None:
        """Recursive doubling: ranks 1, 2, 4, ... apart exchange what they have and add it up.

        All ranks get the same bits, since a + b is b + a.
        """
        other, distance = torch.empty_like(values), 1
        while distance < self.ranks:
            partner = self.rank ^ distance
            received, sent = dist.irecv(other, partner), dist.isend(values, partner)
            assert received is not None and sent is not None  # only for ranks outside of the group
            received.wait()
            sent.wait()
            values.add_(other)
            distance *= 2

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks."""
        values: list[Any] = [None] * self.ranks
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Wait for every rank."""
        dist.barrier()

    def abort(self) -> None:
        """Exit at once; torchrun ends the other ranks when one fails."""
        os._exit(1)

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()


def _sum_bucket(squares: list[torch.Tensor], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Start to sum a bucket of gradients over ranks, during the rest of the backward pass.

    In a sampled step the ranks first meet at a barrier, so that waiting for the slowest is counted separately. The
    part of the reduction after the last gradient is the *exposed* communication. The whole duration of each reduction
    is counted as `communication.total`.
    """
    buffer = bucket.buffer()
    values = as_real(buffer)
    squares.append(values.square().sum())
    recorder = active()
    if recorder is None:
        return dist.all_reduce(values, async_op=True).get_future().then(lambda _: buffer)
    recorder.enter("communication.wait")
    dist.barrier()
    recorder.leave()
    if bucket.is_last():
        recorder.enter("communication")  # reduce_gradients leaves it, when the backward pass has its sums
    start = recorder.now()

    def finish(_: Any) -> torch.Tensor:
        # On a GPU the callback runs on a stream after the reduction, so waiting for that stream times the reduction.
        if values.is_cuda:
            torch.cuda.current_stream(values.device).synchronize()
        recorder.overlap("communication.total", time.perf_counter() - start)
        return buffer

    return dist.all_reduce(values, async_op=True).get_future().then(finish)


def _end_with_torchrun() -> None:
    """Get SIGTERM when torchrun ends, and be killed if that does not help.

    Otherwise this rank would train on in vain, or wait for a rank that hangs, or for a torchrun that has been killed.
    """
    parent = os.getppid()
    # If torchrun, and what started it, were killed while this rank imported torch, init has adopted the rank.
    adopted = parent == 1 and b"torch" not in Path("/proc/1/cmdline").read_bytes()
    process.end_with_parent(0 if adopted else parent)
    with contextlib.suppress(OSError):  # Linux before 5.3, or torchrun has just ended
        torchrun = os.pidfd_open(os.getppid())

        def watch() -> None:
            select.select([torchrun], [], [])
            time.sleep(10.0)  # it may save a checkpoint
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=watch, name="torchrun", daemon=True).start()


def _let_gloo_wait() -> None:
    """Let Gloo's thread for messages never interrupt a thread that computes: it is a batch job for the kernel.

    It spins while another thread has the lock of a connection. If it has interrupted that thread, on the one core that a
    timed rank has for both, it spins for its whole share of time: a message of microseconds takes milliseconds.
    """
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if Path("/proc/self/task", thread, "comm").read_text().startswith("gloo_tcp"):
                try:
                    os.sched_setscheduler(int(thread), os.SCHED_BATCH, os.sched_param(0))
                except PermissionError:
                    warnings.warn(
                        "this system lets no process change its threads' scheduling (a container's seccomp profile?): "
                        "Gloo's messages may take milliseconds",
                        stacklevel=2,
                    )
