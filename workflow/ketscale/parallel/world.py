"""A world of ranks, how a batch is shared among them, and the errors if it is not the world that a run needs."""

from __future__ import annotations

import os
import pkgutil
from typing import Any

import torch
from torch import nn

from ketscale import process
from ketscale.errors import UserError
from ketscale.grid import BACKENDS, Run
from ketscale.spans import active, span

# Variables in which launchers say how many processes they have started. The last, SLURM's, counts only in a job.
_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


class World:
    """The ranks of a run, which sum numbers. Every rank must call each method: they are collectives.

    This class has what all worlds share, and what the others add to it does nothing here, in a world of one rank.

    Attributes:
        rank, ranks: the number of this rank, and how many there are.
        local_rank: the number of this rank among those of its host.
        device: where this rank trains.
        library: name and version of the library that carries the messages, for the record.
    """

    rank = 0
    ranks = 1
    local_rank = 0
    device = torch.device("cpu")
    library: str | None = None

    def wrap(self, problem: nn.Module) -> nn.Module:
        """Broadcast rank 0's parameters and return the module to train (its backward may reduce gradients)."""
        return problem

    def reduce_gradients(self, gradients: torch.Tensor) -> torch.Tensor | None:
        """After a backward pass: replace every rank's gradients, real (members, numbers), by their sum over ranks.

        In a sampled step the ranks first meet, so that waiting for the slowest is counted separately.

        Returns:
            The norms of this rank's own gradients before the sum (members,); None with one rank.
        """
        if self.ranks == 1:
            return None
        own = torch.linalg.vector_norm(gradients, dim=1)
        if active() is not None:
            with span("communication.wait"):
                self.barrier()
        with span("communication"):
            self.add(gradients)
        return own

    def add(self, values: torch.Tensor) -> None:
        """Replace a contiguous real tensor by its sum over ranks, in place; every rank gets the same bits."""

    def library_add(self, values: torch.Tensor) -> None:
        """`add` by the library's own all-reduce, which the benchmark measures for comparison."""
        self.add(values)

    def allreduce(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over ranks of a tensor of the same shape on each, real or complex."""
        if self.ranks == 1:
            return values
        total = values.detach().clone().contiguous()
        self.add(as_real(total))
        return total

    def of_rank_0(self, numbers: torch.Tensor) -> torch.Tensor:
        """The real numbers that rank 0 has, of the same shape on each, on the CPU."""
        # A reduction may give ranks different last bits, but not of a sum with zeros.
        own = numbers if self.rank == 0 else torch.zeros_like(numbers)
        return self.allreduce(own.to(self.device)).cpu()

    def gather(self, value: Any) -> list[Any]:
        """The Python objects of all ranks in rank order, on every rank."""
        return [value]

    def gather_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows of all ranks, which may differ in number, concatenated in rank order, on every rank."""
        if self.ranks == 1:
            return rows
        return torch.cat([part.to(self.device) for part in self.gather(rows.detach().cpu())])

    def barrier(self) -> None:
        """Wait for every rank."""

    def abort(self) -> None:
        """End every rank now, with an error."""

    def close(self) -> None:
        """Leave the world."""


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """A view of a tensor's numbers; a complex one has two real ones."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def shard(indices: torch.Tensor, rank: int, ranks: int, way: str = "balanced") -> torch.Tensor:
    """A rank's part of `indices`, which may be empty; the parts of all ranks together are `indices`.

    way: "balanced" for contiguous parts that differ by at most one sample; "strided" for every `ranks`-th sample,
        which balances the load if the cost of samples grows along the batch.
    """
    if ranks == 1:
        return indices
    if way == "strided":
        return indices[rank::ranks]
    return torch.tensor_split(indices, ranks)[rank]


def open_world(run: Run) -> World:
    """The world of a run's ranks, checked to have as many ranks as the run needs.

    Raises:
        UserError: the launcher started another number of ranks, or the GPU or library that is needed is missing.
    """
    check_variables(run)
    world: World = pkgutil.resolve_name(BACKENDS[run.backend].world)(run)
    return world


def check_variables(run: Run) -> None:
    """Check that this process is in the run's world as far as variables say so, before anything is waited for.

    Under mpirun and srun only the MPI library knows: there are many such variables, and others may have left them.

    Raises:
        UserError: they say that it is in another world.
    """
    launcher = BACKENDS[run.backend].launcher
    if launcher is None:
        # If started under a launcher by accident, each of N processes would do the whole run.
        for name in _SIZES if process.slurm_job() else _SIZES[:-1]:
            if (size := os.environ.get(name)) not in (None, "", "1"):
                raise refuse_world(run, size, name)
    elif launcher == "torchrun" and (ranks := os.environ.get("WORLD_SIZE", "1")) != str(run.ranks):
        raise refuse_world(run, ranks)


def check_nodes(run: Run, names: list[str]) -> None:
    """Check that the ranks, by their node names, are on as many nodes as the run needs.

    Raises:
        UserError: they are on more or fewer nodes.
    """
    if len(set(names)) != run.nodes:
        raise UserError(
            f"{run.layout} asks for {run.nodes} node(s), but its ranks are on {', '.join(sorted(set(names)))}: "
            "use a launcher that spreads them over nodes, or name a run with as many nodes as you have"
        )


def _by_launch(run: Run) -> str:
    return f"start it with `ketscale launch results/{run.path}`, which sets such variables for its ranks"


def refuse_world(run: Run, size: int | str, variable: str | None = None) -> UserError:
    """The error for a process that finds itself in a world of `size` ranks, as a variable says."""
    if variable is not None:
        return UserError(
            f"{run.layout} needs {run.ranks} rank(s), but this process is in a world of {size} ({variable}={size}), "
            f"where each would train the whole run: unset {variable} if another program left it, or {_by_launch(run)}"
        )
    command, srun = "ketscale train ...", ""
    match BACKENDS[run.backend].launcher:
        case "mpirun":
            command = f"mpirun -n {run.ranks} ... {command}"
            srun = "; under SLURM mpi in the site file must fit the MPI library (see `srun --mpi=list`)"
        case "torchrun":
            command = f"torchrun --nproc-per-node {run.ranks // run.nodes} ... {command}"
    return UserError(
        f"{run.layout} needs {run.ranks} rank(s), but this process is in a world of {size}: "
        f"start it with `{command}` (`ketscale doctor` checks the launchers){srun}"
    )


def require_gpu(run: Run, local_rank: int) -> torch.device:
    """The GPU of a local rank.

    Raises:
        UserError: this process sees too few GPUs.
    """
    if not torch.cuda.is_available():
        like = [
            other.name
            for other in BACKENDS.values()
            if other.device == "cpu" and other.launcher == BACKENDS[run.backend].launcher
        ]
        raise UserError(
            f"backend {run.backend}: torch sees no GPU here; use {' or '.join(like)}, "
            "or a GPU machine with the environment of `make env-cuda`"
        )
    # Every rank raises: one that waited for the others could not be stopped.
    here, needed = torch.cuda.device_count(), max(local_rank + 1, run.ranks // run.nodes)
    if needed > here:
        raise UserError(
            f"{run.layout}: local rank {max(local_rank, here)} has no GPU of its own, torch sees {here}; "
            "ask for fewer ranks per node"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
