"""One rank of a world in which only the last rank is asked to stop, in the third iteration of L-BFGS."""

import sys

import torch

from ketscale.measure.clock import Clock
from ketscale.parallel.world import open_world
from ketscale.process import end
from ketscale.training.loop import Stopped, Trainer
from tests.toys import QUIETLY, Rows, protocol_of, run_at, without_dropout

torch.set_num_threads(1)
world = open_world(run_at(sys.argv[1]))
trainer = Trainer(
    without_dropout(),
    world,
    Clock(world.device, 1, frozenset()),
    protocol_of({"optimiser": "l-bfgs", "steps": 20}),
    batch=37,
    seed=0,
    history=Rows(),
    **{**QUIETLY, "stop_requested": lambda: world.rank == world.ranks - 1 and trainer.step == 3},
)
try:
    trainer.run()
except Stopped as stopped:
    sys.stdout.write(f"{stopped}\n")
    sys.stdout.flush()
world.close()
if sys.argv[1].startswith("ddp"):
    end(0)  # as `ketscale train` does
