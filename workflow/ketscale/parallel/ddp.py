"""`ddp` (NCCL, one GPU a rank) and `ddp-cpu` (Gloo): torch's DistributedDataParallel, started by torchrun."""

# No `from __future__ import annotations` here: torch compares the reduction hook's annotations as types.
import os
import socket
import time
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ketscale.grid import BACKENDS, Run
from ketscale.measure.spans import active
from ketscale.parallel.world import refuse_world, require_gpu


class Ddp:
    """The ranks of torch.distributed's default process group."""

    def __init__(self, run: Run) -> None:
        self.rank = int(os.environ.get("RANK", 0))
        self.ranks = int(os.environ.get("WORLD_SIZE", 1))
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        if self.ranks != run.ranks or "MASTER_ADDR" not in os.environ:
            raise refuse_world(run, self.ranks)
        if BACKENDS[run.backend].device == "gpu":
            self.device = require_gpu(run, self.local_rank)
            dist.init_process_group("nccl", device_id=self.device)
            self.library: str | None = f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}"
        else:
            self.device = torch.device("cpu")
            if run.nodes == 1:
                # Ranks of one host talk over loopback; by name it may resolve to no address at all.
                os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback())
            dist.init_process_group("gloo")
            self.library = f"Gloo of torch {torch.__version__}"
        # Squared norms of this rank's gradients, bucket by bucket.
        self._squares: list[torch.Tensor] = []

    def wrap(self, problem: nn.Module) -> nn.Module:
        """DistributedDataParallel with a reduction that sums, where its own would average."""
        with warnings.catch_warnings():
            # The option's announced successor would broadcast the whole data set, which every rank has, at the start.
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

    def reduce_gradients(self, parameters: list[nn.Parameter]) -> torch.Tensor | None:
        """Done by the backward pass already; on a sampled step its exposed part ends here."""
        recorder = active()
        if recorder is not None and recorder.innermost == "communication":
            recorder.leave()
        own = torch.stack(self._squares).sum().sqrt()
        self._squares.clear()
        return own

    def allreduce(self, values: torch.Tensor) -> torch.Tensor:
        """Their sum over ranks."""
        total = values.detach().clone().contiguous()
        dist.all_reduce(torch.view_as_real(total) if total.is_complex() else total)
        return total

    def gather(self, value: Any) -> list[Any]:
        """All ranks' values."""
        values: list[Any] = [None] * self.ranks
        dist.all_gather_object(values, value)
        return values

    def gather_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """All ranks' rows (they may differ in number)."""
        return torch.cat([part.to(self.device) for part in self.gather(rows.detach().cpu())])

    def barrier(self) -> None:
        """Wait for every rank."""
        dist.barrier()

    def abort(self) -> None:
        """Leave at once; torchrun ends the other ranks when one fails."""
        os._exit(1)

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()


def _sum_bucket(squares: list[torch.Tensor], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Start the sum of a bucket of gradients over ranks, beside the rest of the backward pass.

    On a sampled step the ranks meet first, so that waiting for the slowest is counted apart. What is then
    left of the reduction when the last gradient is there is the *exposed* communication; each reduction's
    whole duration is counted beside it as `communication.total`.
    """
    buffer = bucket.buffer()
    values = torch.view_as_real(buffer) if buffer.is_complex() else buffer
    squares.append(values.square().sum())
    recorder = active()
    if recorder is None:
        return dist.all_reduce(values, async_op=True).get_future().then(lambda _: buffer)
    recorder.enter("communication.wait")
    dist.barrier()
    recorder.leave()
    if bucket.is_last():
        recorder.enter("communication")  # left by reduce_gradients, when the backward pass has its sums
    start = recorder.now()

    def finish(_: Any) -> torch.Tensor:
        # On a GPU the callback runs on a stream behind the reduction: waiting for that stream times it.
        if values.is_cuda:
            torch.cuda.current_stream(values.device).synchronize()
        recorder.overlap("communication.total", start, time.perf_counter() - start)
        return buffer

    return dist.all_reduce(values, async_op=True).get_future().then(finish)


def _loopback() -> str:
    return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
