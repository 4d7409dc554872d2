"""The backends by name: where ranks run, how they are started, and how many there may be. Data alone, no code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Backend:
    """Where ranks run and how they talk.

    title: in sentences. launcher: the program that starts several ranks; None where the one process is the run.
    device: what each rank computes on, with "gpu" one of its own. world: module and class of its `World`, which is
    imported by the run that asks for it alone.
    """

    name: str
    title: str
    launcher: Literal["torchrun", "mpirun"] | None
    device: Literal["cpu", "gpu"]
    world: str

    @property
    def several_ranks(self) -> bool:
        """Whether it takes more than one rank."""
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
