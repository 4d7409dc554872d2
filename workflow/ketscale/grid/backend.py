"""The backends by name: where ranks run, how they start, and whether there may be several. Data, no code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Torchrun's backends send a gradient of more bytes in several messages, during the backward pass. It is the size
# of the first message of torch's DistributedDataParallel: of a smaller gradient it would overlap nothing.
ONE_MESSAGE = 1024**2


@dataclass(frozen=True)
class Backend:
    """A backend: the place where ranks run, and their way to communicate.

    title: its name in sentences. launcher: the program that starts several ranks; None for a single process.
    device: what each rank computes on; with "gpu" each rank has a GPU of its own. world: module and class of its
    `World`, which only runs of this backend import.
    """

    name: str
    title: str
    launcher: Literal["torchrun", "mpirun"] | None
    device: Literal["cpu", "gpu"]
    world: str

    @property
    def several_ranks(self) -> bool:
        """Whether it can have more than one rank."""
        return self.launcher is not None


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("cpu", "CPU", None, "cpu", "ketscale.parallel.single:Single"),
        Backend("gpu", "GPU", None, "gpu", "ketscale.parallel.single:Single"),
        Backend("ddp", "DDP", "torchrun", "gpu", "ketscale.parallel.ddp:Ddp"),
        Backend("ddp-cpu", "DDP (Gloo)", "torchrun", "cpu", "ketscale.parallel.ddp:Ddp"),
        Backend("mpi", "MPI", "mpirun", "cpu", "ketscale.parallel.mpi:Mpi"),
    )
}
