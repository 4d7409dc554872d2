"""The backends by name: one object each, which launch, config, doctor, SLURM and tables read; imports nothing heavy."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ketscale.errors import UserError
from ketscale.grid import Run

if TYPE_CHECKING:
    from ketscale.parallel.world import World


@dataclass(frozen=True)
class Backend:
    """Where ranks run and how they talk.

    Attributes:
        title: its name in sentences and figures.
        launcher: what starts its ranks; None for one process that needs nobody.
        device: what a rank computes on; with "gpu" each has one of its own.
        several_ranks: whether a run may have more than one.
        world: module and class of its `World`, imported by the run that asks for it alone.
    """

    name: str
    title: str
    launcher: Literal["torchrun", "mpirun"] | None
    device: Literal["cpu", "gpu"]
    several_ranks: bool
    world: str


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("cpu", "CPU", None, "cpu", False, "ketscale.parallel.single:Single"),
        Backend("gpu", "GPU", None, "gpu", False, "ketscale.parallel.single:Single"),
        Backend("ddp", "DDP", "torchrun", "gpu", True, "ketscale.parallel.ddp:Ddp"),
        Backend("ddp-cpu", "DDP (Gloo)", "torchrun", "cpu", True, "ketscale.parallel.ddp:Ddp"),
        Backend("mpi", "MPI", "mpirun", "cpu", True, "ketscale.parallel.mpi:Mpi"),
    )
}


def open_world(run: Run) -> World:
    """The world of a run's ranks, proved to have as many as the run asks for.

    Raises:
        UserError: the launcher started another world, or the GPU or library that is needed is missing.
    """
    if run.backend not in BACKENDS:
        raise UserError(f"backend {run.backend!r}: choose one of {', '.join(BACKENDS)}")
    module, name = BACKENDS[run.backend].world.split(":")
    world: World = getattr(importlib.import_module(module), name)(run)
    return world
