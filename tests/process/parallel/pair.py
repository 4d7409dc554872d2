"""A rank of two, on which things happen to one rank or both; rank 0 prints what comes of them on each."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ketscale import Circuit, Layer
from ketscale.errors import UserError
from ketscale.jobs import outcome
from ketscale.measure.clock import Clock
from ketscale.parallel import ddp
from ketscale.parallel.world import World, check_nodes, open_world
from ketscale.process import end
from ketscale.training.loop import Stopped, Trainer
from tests.toys import QUIETLY, Rows, classification, protocol_of, run_at, without_dropout


def timed_out(world: World, late_rank: int, late_step: int) -> tuple[Any, ...]:
    """Status, last step and reason of 40 steps, where time is over on one rank from some step on."""
    protocol, clock = protocol_of({"steps": 40, "limit_s": 1800}), Clock(world.device, 1, frozenset())
    trainer = Trainer(classification(), world, clock, protocol, 2, 0, history=Rows(), **QUIETLY)
    original = trainer.problem.sums

    def sums(indices: torch.Tensor, step: int) -> torch.Tensor:
        """The sums of a step, before which time may jump."""
        if world.rank == late_rank and step + 1 == late_step:
            trainer.pace._began -= 3600
        return original(indices, step)

    trainer.problem.sums = sums  # type: ignore[method-assign]
    result = outcome.run(trainer)
    return result.status, trainer.step, result.reason


def stopped(world: World) -> str:
    """What L-BFGS says, of which only the last rank is asked to stop, in the third iteration."""
    hooks = {**QUIETLY, "stop_requested": lambda: world.rank == world.ranks - 1 and trainer.step == 3}
    protocol, clock = protocol_of({"optimiser": "l-bfgs", "steps": 20}), Clock(world.device, 1, frozenset())
    trainer = Trainer(without_dropout(), world, clock, protocol, 37, 0, history=Rows(), **hooks)
    try:
        trainer.run()
    except Stopped as error:
        return str(error)
    return ""


def error_of(world: World, where: str) -> str:
    """What is said if the world of another place is asked for."""
    try:
        run = run_at(where)
        check_nodes(run, open_world(run).gather("here") if run.ranks != world.ranks else world.gather("here"))
    except UserError as error:
        return str(error)
    return ""


def gloo() -> list[Any]:
    """How Gloo's threads and this one are scheduled, and what is said where that is forbidden."""
    tasks = Path("/proc/self/task")
    names = {int(task): (tasks / task / "comm").read_text().strip() for task in os.listdir(tasks)}
    result = {name: os.sched_getscheduler(task) for task, name in names.items() if name.startswith("gloo")}

    def forbidden(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    os.sched_setscheduler = forbidden
    with warnings.catch_warnings(record=True) as message:
        ddp._let_gloo_wait()
    return [result, os.sched_getscheduler(0), [str(each.message) for each in message]]


def layer(world: World) -> list[float]:
    """A weight and its gradient of 8 samples that the ranks share, under DistributedDataParallel."""
    torch.manual_seed(world.rank)  # every rank draws others, and that of rank 0 is sent out
    layer = Layer(Circuit(1).ry(0, "x0").ry(0, "w0"), dtype=torch.float64)
    inputs = torch.linspace(0, 1, 8, dtype=torch.float64)[:, None]
    model = DistributedDataParallel(layer)
    model(inputs[world.rank :: world.ranks]).mean().backward()
    assert layer.weight.grad is not None
    return [layer.weight.item(), layer.weight.grad.item()]


where, backend, cases = sys.argv[1], sys.argv[1].partition("-n")[0], json.loads(sys.argv[2])
torch.set_num_threads(1)
world = open_world(run_at(where))
found = {
    "ends": [timed_out(world, *case) for case in cases],
    "stopped": stopped(world),
    "refused": [error_of(world, f"{backend}-n1r3t1"), error_of(world, f"{backend}-n2r2t1"), error_of(world, "cpu-n1r1t1")],
}  # fmt: skip
if backend == "ddp-cpu":
    found |= {"gloo": gloo(), "layer": layer(world)}
gathered = world.gather(found)
if world.rank == 0:
    print("RESULT", json.dumps(gathered), flush=True)
world.close()
end(0)
