"""A training that is stopped at any steps and resumed ends with bitwise the parameters and losses of one that is not."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ketscale.problems.problem import Problem
from ketscale.training.loop import Stopped, Trainer
from tests import toys

# With dropout; of all columns in every step; with tasks drawn afresh in each step. Each has its batch.
FAMILIES: dict[str, tuple[Callable[[], Problem], int]] = {
    "classification": (toys.classification, 8), "columns": (toys.Columns, 4), "tasks": (toys.Tasks, 5),
}  # fmt: skip
# By steps, and by epochs with all that has a state: a plateau, an early stop and the best weights.
STOPPING = {"early_stopping": {"monitor": "loss", "patience": 1}, "plateau": {"factor": 0.5, "patience": 0}}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "steps": {"steps": 11},
    "epochs": {"epochs": 3},
    "stopping": {"epochs": 4, "learning_rate": 0.1, **STOPPING},
    "adamw": {"epochs": 3, "optimiser": "adamw", "weight_decay": 0.1, "cosine": {"minimum": 1e-4}},
    "momentum": {"epochs": 3, "optimiser": "sgd", "momentum": 0.9, "weight_decay": 0.1, "cosine": {}},
}


class Stop:
    """A request to stop that comes when a run has taken so many steps, -1 for none."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> bool:
        self.left -= 1
        return self.left == -1


def trained(family: str, protocol: str, pieces: Sequence[int]) -> Trainer:
    """Train with a stop after each number of steps, each piece a new trainer that goes on from what the last has saved."""
    saved: list[dict[str, Any]] = []
    problem, batch = FAMILIES[family]
    for steps in (*pieces, -1):
        loop = toys.trainer(
            problem(),
            PROTOCOLS[protocol],
            batch,
            save=lambda state: saved.append(copy.deepcopy(state)),
            stop_requested=Stop(steps),
        )
        if saved:
            loop.restore(copy.deepcopy(saved[-1]))
        try:
            loop.run()
        except Stopped:
            continue
        break
    return loop


def outcome(loop: Trainer) -> tuple[Any, ...]:
    """All that a training ends with but its times."""
    rows = [{name: value for name, value in row.items() if name != "epoch_s"} for row in loop.history]
    return loop.weights_hash(), loop.step, loop.losses, rows


@functools.cache
def undisturbed(family: str, protocol: str) -> tuple[Any, ...]:
    return outcome(trained(family, protocol, ()))


@given(
    st.sampled_from(sorted(FAMILIES)),
    st.sampled_from(sorted(PROTOCOLS)),
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
)
def test_resumed_at_any_steps_a_training_ends_the_same(family: str, protocol: str, pieces: list[int]) -> None:
    assert outcome(trained(family, protocol, pieces)) == undisturbed(family, protocol)
