"""One rank of a test world: trains a toy problem and, as rank 0, prints what the world computed as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from ketscale.process import end, permanent

with permanent():
    import torch

    from ketscale.measure.clock import Clock
    from ketscale.parallel.world import World, open_world
    from ketscale.training.loop import Trainer
    from tests.toys import PROBLEMS, QUIETLY, Rows, protocol_of, run_at


def main(where: str, cases: list[tuple[Any, ...]]) -> None:
    """Train each case (problem, batch, steps, settings of the protocol) at the place `where`, e.g. mpi-n1r2t1."""
    torch.set_num_threads(1)
    world = open_world(run_at(where))
    results = [train(world, *case[:3], **dict(*case[3:])) for case in cases]
    if world.rank == 0:
        print("RESULT", json.dumps(results), flush=True)
    world.close()
    end(0)  # as `ketscale train` does


def train(world: World, name: str, batch: int, steps: int, **settings: Any) -> dict[str, Any]:
    """What this world computes for one case, known on every rank."""
    problem = PROBLEMS[name]()
    if world.rank > 0:
        # Rank 0's weights must win: a rank that starts elsewhere is set right by the broadcast.
        with torch.no_grad():
            for parameter in problem.model.parameters():
                parameter.add_(1.0)
    clock = Clock(world.device, warmup=1, sampled=frozenset({2}))
    trainer = Trainer(
        problem, world, clock, protocol_of({"steps": steps, **settings}), batch, 0, history=Rows(), **QUIETLY
    )
    trainer.run()
    right = trainer.problem.right("validation", trainer.outputs("validation"))
    parameters = [torch.view_as_real(p) if p.is_complex() else p for p in trainer.stepper.parameters]
    return {
        "losses": trainer.losses,
        "figures": trainer.problem.metrics("validation", trainer.outputs("validation"), full=True),
        "right": None if right is None else right.tolist(),
        "parameters": torch.cat([p.detach().reshape(-1) for p in parameters]).tolist(),
        "samples": world.gather(trainer.samples_seen),
        "spans": sorted(clock.spans_s),
        "norms": [[row["gradient_norm"], row["own_gradient_norm"]] for row in trainer.history],
    }


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
