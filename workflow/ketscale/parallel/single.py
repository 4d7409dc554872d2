"""`cpu` and `gpu`: one process, no communication."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ketscale.grid import BACKENDS, Run
from ketscale.parallel.world import refuse_world, require_gpu


class Single:
    """A world of one rank."""

    rank = 0
    ranks = 1
    local_rank = 0
    library: str | None = None

    def __init__(self, run: Run) -> None:
        if run.ranks != 1:
            raise refuse_world(run, 1)
        gpu = BACKENDS[run.backend].device == "gpu"
        self.device = require_gpu(run, 0) if gpu else torch.device("cpu")

    def wrap(self, problem: nn.Module) -> nn.Module:
        """The problem itself."""
        return problem

    def reduce_gradients(self, gradients: torch.Tensor) -> torch.Tensor | None:
        """Do nothing: one rank has nothing to sum."""
        return None

    def add(self, values: torch.Tensor) -> None:
        """Do nothing: one rank has nothing to sum."""

    library_add = add

    def allreduce(self, values: torch.Tensor) -> torch.Tensor:
        """The values themselves."""
        return values

    def gather(self, value: Any) -> list[Any]:
        """A list with the one value."""
        return [value]

    def gather_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows themselves."""
        return rows

    def barrier(self) -> None:
        """Do nothing: there is no other rank."""

    def abort(self) -> None:
        """Do nothing: there is no other rank."""

    def close(self) -> None:
        """Do nothing: no world was opened."""
