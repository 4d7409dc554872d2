"""`cpu` and `gpu`: one process, no communication."""

from __future__ import annotations

from ketscale.grid import BACKENDS, Run
from ketscale.parallel.world import World, refuse_world, require_gpu


class Single(World):
    """A world of one rank."""

    def __init__(self, run: Run) -> None:
        if run.ranks != 1:
            raise refuse_world(run, 1)
        if BACKENDS[run.backend].device == "gpu":
            self.device = require_gpu(run, 0)
