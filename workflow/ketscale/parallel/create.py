"""From a run to its backend; each is imported only by the run that asks for it."""

from __future__ import annotations

from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.parallel.backend import Backend


def create(run: Run) -> Backend:
    """The backend of a run, its world proved to have the ranks and nodes that the run asks for.

    Raises:
        UserError: the launcher started another world, or the GPU or library that is needed is missing.
    """
    backend: Backend
    if run.backend in ("cpu", "gpu"):
        from ketscale.parallel.single import Single

        backend = Single(run)
    elif run.backend in ("ddp", "ddp-cpu"):
        from ketscale.parallel.ddp import Ddp

        backend = Ddp(run)
    elif run.backend == "mpi":
        from ketscale.parallel.mpi import Mpi

        backend = Mpi(run)
    else:
        raise UserError(f"backend {run.backend!r}: choose one of cpu, gpu, ddp, ddp-cpu, mpi")
    return backend
