"""Models that are fitted: one phase, no steps, and what config, signals and records say of it."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ketscale import analysis
from ketscale.errors import UserError
from ketscale.jobs import outcome
from ketscale.measure.clock import Clock
from ketscale.parallel.world import World
from ketscale.problems.fitted import Fitted, Samples
from ketscale.problems.supervised import Classification
from ketscale.training.fit import Fit, fit
from ketscale.training.history import History
from tests import record_maker as maker


class Centres(Fitted):
    """Names the class whose mean is nearest; notes what it was given."""

    centres: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centres", torch.zeros(0, 0))
        self.given: tuple[Samples, Samples | None] | None = None

    def fit(self, train: Samples, validation: Samples | None) -> None:
        self.given, self.chosen = (train, validation), {"power": 2.0}
        classes = range(int(train.targets.max()) + 1)
        self.centres = torch.stack([train.inputs[train.targets == each].mean(0) for each in classes])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -torch.cdist(x, self.centres)


def problem(validation: bool = True) -> Classification:
    """Three classes around the corners of a triangle, in the order of the classes."""
    labels = torch.arange(120) // 40
    noise = torch.randn(120, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    inputs = torch.eye(3, dtype=torch.float64)[labels] + 0.2 * noise
    parts = {"train": (0, 2), **({"validation": (1, 4)} if validation else {}), "test": (3, 4)}
    rows = {name: torch.arange(first, 120, step) for name, (first, step) in parts.items()}
    return Classification(Centres(), inputs, labels, rows, seed=0)


def fitted(made: Classification) -> Fit:
    return Fit(made, World(), Clock(torch.device("cpu"), 0, frozenset()), 1, History(None))


def test_a_fit_that_draws_is_that_of_the_runs_seed() -> None:
    def draw() -> list[float]:
        return [np.random.rand(), random.random(), torch.rand(()).item()]  # noqa: NPY002 (the global one)

    class Drawing(Centres):
        def fit(self, train: Samples, validation: Samples | None) -> None:
            super().fit(train, validation)
            draws.append(draw())
            self.chosen = {}

    draws: list[list[float]] = []
    for seed in (0, 0, 1):
        result = problem()
        result.model, result.seed = Drawing(), seed
        fitted(result).run()
        # The next one begins with another state of the generators.
        draw()
    assert draws[0] == draws[1] and not set(draws[0]) & set(draws[2])


def test_a_fit_sees_all_samples_of_training_and_validation_and_none_of_the_test():
    result = problem()
    training = fitted(result)
    ended = outcome.run(training)
    for name, part in zip(("train", "validation"), result.model.given, strict=True):
        rows = result.get_buffer(f"rows_{name}")
        assert torch.equal(part.inputs, result.get_buffer("inputs")[rows])
        assert torch.equal(part.targets, result.get_buffer("targets")[rows])
    assert ended.status == "completed" and ended.quality is not None
    assert training.fit_s is not None and 0 < training.fit_s <= ended.train_s
    assert (training.step, training.losses, training.samples_seen) == (0, [], 60)
    assert ended.quality["epochs"] is ended.quality["best_epoch"] is None
    assert ended.quality["chosen"] == {"power": 2.0}
    assert ended.quality["test"]["accuracy"] > 0.9 and ended.quality["test"]["loss"] is None
    without = problem(validation=False)
    assert fit(without) == 60 and without.model.given[1] is None


def test_permuted_labels_of_the_test_change_nothing_that_was_learned():
    result, permuted = problem(), problem()
    rows = permuted.get_buffer("rows_test")
    permuted.get_buffer("targets")[rows] = permuted.get_buffer("targets")[rows].flip(0)
    one, other = fitted(result), fitted(permuted)
    first, second = outcome.run(one), outcome.run(other)
    assert one.weights_hash() == other.weights_hash()
    assert first.quality["validation"] == second.quality["validation"]
    assert first.quality["test"]["accuracy"] != second.quality["test"]["accuracy"]


@pytest.mark.parametrize(("given", "kept"), [(torch.tensor(2), 2.0), ("rbf", None), (math.nan, None)])
def test_what_a_model_has_chosen_is_a_number(given: Any, kept: float | None) -> None:
    result = problem()
    chosen = result.model.fit
    result.model.fit = lambda *parts: (chosen(*parts), result.model.chosen.update(power=given))
    if kept is None:
        with pytest.raises(UserError, match=r"Centres.chosen: power is .*, not a finite number"):
            fit(result)
        return
    fit(result)
    assert json.dumps(result.model.chosen) == json.dumps({"power": kept})


def test_running_out_of_memory_is_an_outcome(monkeypatch):
    def short(*_: Any) -> None:
        raise MemoryError("no room for a Gram matrix of 100,000 samples")

    monkeypatch.setattr(Centres, "fit", short)
    ended = outcome.run(fitted(problem()))
    assert ended.status == "out_of_memory" and ended.reason == "no room for a Gram matrix of 100,000 samples"


GIVEN: dict[str, Any] = {
    **maker.settings(),
    "protocols": {
        "fit": {"precision": "fp64", "timed": False},
        "timing": {"precision": "fp64", "timed": True, "steps": 40, "learning_rate": 0.01},
        "quality": {"precision": "fp64", "timed": False, "epochs": 4, "learning_rate": 0.01},
    },
    "studies": {
        "fits": {
            "kind": "accuracy",
            "question": "Does the kernel pay?",
            "axes": {
                "workload": "digits", "model": "kernel", "qubits": 4, "layers": 2, "batch": 1, "simulator": "fused",
                "backend": "cpu-n1r1t1", "protocol": "fit", "seed": [0, 1],
            },
            "points": [{}, {"model": "svm", "qubits": 0, "layers": 0, "simulator": "none"}],
        }
    },
}  # fmt: skip


def changed(change: Callable[[dict[str, Any]], Any] = lambda given: None, **axes: Any) -> dict[str, Any]:
    settings = copy.deepcopy(GIVEN)
    settings["studies"]["fits"]["axes"].update(axes)
    change(settings)
    return settings


@pytest.mark.parametrize(
    "given, why",
    [
        (changed(protocol="timing"), "kernel is fitted: give it a protocol without epochs, steps"),
        (changed(model="vqc"), "vqc is trained by steps, but protocol fit has none"),
        (
            changed(backend="mpi-n1r2t1"),
            "kernel is fitted to all samples at once: give it one rank",
        ),
        (changed(lambda g: g["protocols"]["fit"].update(clip_norm=1.0)), "fitted, which take no clip_norm"),
        (changed(lambda g: g["studies"]["fits"].update(kind="parity")), "parity compares"),
    ],
)
def test_a_config_refuses_what_a_fit_does_not_have(given, why):
    with pytest.raises(UserError) as caught:
        analysis.of(given)
    assert why in str(caught.value)
