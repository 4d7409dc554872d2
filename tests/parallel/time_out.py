"""One rank of a world that trains 40 steps; on one rank, time is over from some step on."""

import sys

import torch

from ketscale.jobs import outcome
from ketscale.measure.clock import Clock
from ketscale.parallel.world import open_world
from ketscale.process import end
from ketscale.training.loop import Trainer
from tests.toys import QUIETLY, classification, protocol_of, run_at

where, late_rank, late_step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
world = open_world(run_at(where))
trainer = Trainer(
    classification(),
    world,
    Clock(world.device, 1, frozenset()),
    protocol_of({"steps": 40, "limit_s": 1800}),
    batch=2,
    seed=0,
    **QUIETLY,
)
original = trainer.problem.sums


def sums(indices: torch.Tensor, step: int) -> torch.Tensor:
    """The sums of a step, before which time may jump."""
    if world.rank == late_rank and step + 1 == late_step:
        trainer._pace._began -= 3600
    return original(indices, step)


trainer.problem.sums = sums  # type: ignore[method-assign]
ended = outcome.run(trainer)
ends = world.gather((ended.status, trainer.step, ended.reason))
if world.rank == 0:
    sys.stdout.write(f"{ends}\n")
    sys.stdout.flush()
world.close()
if where.startswith("ddp"):
    end(0)  # as `ketscale train` does
