"""One rank of a world that trains 40 steps several times; in each of them, time is over on one rank from some step on."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from ketscale.jobs import outcome
from ketscale.measure.clock import Clock
from ketscale.parallel.world import World, open_world
from ketscale.process import end
from ketscale.training.loop import Trainer
from tests.toys import QUIETLY, Rows, classification, protocol_of, run_at


def ended(world: World, late_rank: int, late_step: int) -> tuple[Any, ...]:
    """How training ends here: status, last step and reason."""
    trainer = Trainer(
        classification(),
        world,
        Clock(world.device, 1, frozenset()),
        protocol_of({"steps": 40, "limit_s": 1800}),
        batch=2,
        seed=0,
        history=Rows(),
        **QUIETLY,
    )
    original = trainer.problem.sums

    def sums(indices: torch.Tensor, step: int) -> torch.Tensor:
        """The sums of a step, before which time may jump."""
        if world.rank == late_rank and step + 1 == late_step:
            trainer.pace._began -= 3600
        return original(indices, step)

    trainer.problem.sums = sums  # type: ignore[method-assign]
    found = outcome.run(trainer)
    return found.status, trainer.step, found.reason


where, cases = sys.argv[1], json.loads(sys.argv[2])
torch.set_num_threads(1)
world = open_world(run_at(where))
ends = [world.gather(ended(world, *case)) for case in cases]
if world.rank == 0:
    sys.stdout.write(f"ENDS {json.dumps(ends)}\n")
    sys.stdout.flush()
world.close()
if where.startswith("ddp"):
    end(0)  # as `ketscale train` does
