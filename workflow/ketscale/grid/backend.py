"""The backends by name: where ranks run, how they are started, and how many there may be. Data alone, no code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Backend:
    """Where ranks run and how they talk.

    title: in sentences. launcher: the program that starts several ranks; None where the one process is the run.
    device: what each rank computes on.
    """

    name: str
    title: str
    launcher: Literal["torchrun", "mpirun"] | None
    device: Literal["cpu", "gpu"]

    @property
    def several_ranks(self) -> bool:
        """Whether it takes more than one rank."""
        return self.launcher is not None


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("cpu", "CPU", None, "cpu"),
        Backend("gpu", "GPU", None, "gpu"),
        Backend("ddp", "DDP", "torchrun", "gpu"),
        Backend("ddp-cpu", "DDP (Gloo)", "torchrun", "cpu"),
        Backend("mpi", "MPI", "mpirun", "cpu"),
    )
}
