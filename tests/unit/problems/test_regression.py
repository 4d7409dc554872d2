"""Regression: its loss and gradient written out by hand, its metrics against scikit-learn's, and a solution in closed form."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from sklearn import metrics as reference
from torch import nn

from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.shots import Shots
from ketscale.engines.randomness import keyed
from ketscale.errors import UserError
from ketscale.jobs import outcome
from ketscale.measure.right import unpacked_numbers
from ketscale.problems.supervised import Regression
from ketscale.problems.vectors.mlp import MLP
from ketscale.problems.vectors.vqc import VQC
from tests import toys
from tests.toys import trainer

GENERATOR = np.random.default_rng(5)
INPUTS = GENERATOR.normal(size=(60, 3))
# The units of the columns are far apart.
TARGETS = np.stack([INPUTS @ [3.0, -1.0, 0.5] + 20, 1e4 * (INPUTS[:, 0] * INPUTS[:, 1]) - 5e5], axis=1)
TARGETS += np.array([0.3, 900.0]) * GENERATOR.normal(size=(60, 2))
SPLITS = {"train": np.arange(40), "validation": np.arange(40, 50), "test": np.arange(50, 60)}


def regression(
    model: nn.Module, columns: int = 2, validation: bool = True, order: Literal["C", "F"] = "C"
) -> Regression:
    splits = {name: torch.from_numpy(rows) for name, rows in SPLITS.items()}
    if not validation:
        splits["validation"] = splits["validation"][:0]
    inputs, targets = (np.array(each, order=order) for each in (INPUTS, TARGETS[:, :columns]))
    result = Regression(model, torch.from_numpy(inputs), torch.from_numpy(targets), splits, seed=3)
    return result.convert(torch.device("cpu"), torch.float64)


class Slots:
    """The places of gradients, as `engines.vjp.Slots`."""

    def __init__(self) -> None:
        self.found: dict[int, torch.Tensor] = {}

    def slot(self, parameter: torch.Tensor) -> torch.Tensor:
        return self.found.setdefault(id(parameter), torch.empty_like(parameter))


def mlp(columns: int) -> nn.Module:
    torch.manual_seed(0)
    return MLP(3, columns, dropout=0.3, width=3)


def vqc(columns: int) -> nn.Module:
    torch.manual_seed(0)
    return VQC(2, 1, inputs=3, outputs=columns, dropout=0.3)


@pytest.mark.parametrize("columns", [1, 2])
def test_the_metrics_are_those_of_scikit_learn(columns: int) -> None:
    problem = regression(mlp(columns), columns)
    for split, rows in SPLITS.items():
        outputs = problem.outputs(split, torch.arange(len(rows)))
        train = TARGETS[SPLITS["train"], :columns]
        truth, result = TARGETS[rows, :columns], outputs.numpy() * train.std(0) + train.mean(0)
        built = problem.metrics(split, outputs, full=True)
        assert built["rmse"] == pytest.approx(reference.root_mean_squared_error(truth, result), rel=1e-12)
        assert built["mae"] == pytest.approx(reference.mean_absolute_error(truth, result), rel=1e-12)
        assert built["r2"] == pytest.approx(reference.r2_score(truth, result), rel=1e-12)
        mean = np.broadcast_to(train.mean(0), truth.shape)
        assert built["chance"] == pytest.approx(reference.root_mean_squared_error(truth, mean), rel=1e-12)
        scaled = (reference.mean_squared_error(truth, result, multioutput="raw_values") / train.var(0)).mean()
        assert built["loss"] == pytest.approx(scaled, rel=1e-12) and built["count"] == len(rows)
        assert problem.metrics(split, outputs, full=False) == {"loss": built["loss"], "rmse": built["rmse"]}
        saved = problem.predictions(split, outputs)
        np.testing.assert_allclose(saved["outputs"], result, rtol=1e-13)
        assert np.array_equal(saved["targets"], truth) and np.array_equal(saved["samples"], rows)
        assert problem.right(split, outputs) is None


def test_hubers_loss_and_a_chosen_metric() -> None:
    problem, plain = toys.regression(loss="huber", metric="median_absolute_error"), toys.regression()
    rows = problem.rows("test")
    outputs = problem.outputs("test", torch.arange(20))
    scaled = problem.get_buffer("targets")[rows]
    metrics = problem.metrics("test", outputs, full=True)
    assert metrics["loss"] == pytest.approx(float(nn.functional.huber_loss(outputs, scaled)), rel=1e-12)
    assert problem.vjp(torch.arange(3), 0) is None
    truth, mean = problem.compared("test", scaled)[1], problem.compared("test", torch.zeros_like(outputs))[1]
    for name, guess in (("median_absolute_error", problem.compared("test", outputs)[1]), ("chance", mean)):
        assert metrics[name] == pytest.approx(reference.median_absolute_error(truth, guess), rel=1e-9)
    assert plain.metrics("test", outputs, full=True)["rmse"] == metrics["rmse"]


@pytest.mark.parametrize("make, columns, order", [(mlp, 2, "C"), (mlp, 1, "F"), (vqc, 2, "F")])
def test_a_step_without_autograd_is_the_gradient_of_the_loss_by_hand(
    make: object, columns: int, order: Literal["C", "F"]
) -> None:
    """Also of arrays whose columns are side by side, as those of a data frame are."""
    problem = regression(make(columns), columns, order=order)  # type: ignore[operator]
    indices = torch.tensor([3, 7, 21, 39])
    with torch.no_grad():
        result = problem.vjp(indices, 2)
    assert result is not None
    train = TARGETS[SPLITS["train"], :columns]
    scaled = torch.tensor((TARGETS[indices, :columns] - train.mean(0)) / train.std(0))
    with keyed(3, 2, indices):
        outputs = problem.model(torch.tensor(INPUTS[indices]))
    by_hand = sum(((outputs[i] - scaled[i]) ** 2).sum() / columns for i in range(4))
    assert isinstance(by_hand, torch.Tensor)
    assert float(result.value) == pytest.approx(by_hand.item(), rel=1e-13)
    assert float(problem.combine(result.value, 4)) == pytest.approx(by_hand.item() / 4, rel=1e-13)
    by_hand.backward()
    slots = Slots()
    with torch.no_grad():
        result.back(torch.ones(1, dtype=torch.float64), slots)
    for parameter in problem.model.parameters():
        torch.testing.assert_close(slots.found[id(parameter)], parameter.grad, rtol=1e-10, atol=1e-13)


def test_training_with_shots_depends_on_seed_step_and_sample_alone() -> None:
    """Shards add up to the whole, and an evaluation repeats in parts."""
    torch.manual_seed(0)
    problem = regression(VQC(2, 1, Shots(Fused(), 20, "shift"), inputs=3, outputs=2, dropout=0.3))
    indices = torch.tensor([3, 7, 21, 39])

    def stepped(rows: torch.Tensor, step: int = 2) -> list[torch.Tensor]:
        problem.zero_grad()
        sums = problem(rows, step)
        sums.sum().backward()
        grads = [p.grad for p in problem.parameters() if p.grad is not None]
        return [sums.detach(), *(grad.clone() for grad in grads)]

    whole, parts = stepped(indices), [stepped(indices[:1]), stepped(indices[1:])]
    for tensor, *shards in zip(whole, *parts, strict=True):
        torch.testing.assert_close(tensor, sum(shards), rtol=1e-9, atol=1e-12)
    assert torch.equal(whole[0], stepped(indices)[0]) and not torch.equal(whole[0], stepped(indices, 3)[0])
    every = problem.outputs("test", torch.arange(10))
    assert torch.equal(
        torch.cat([problem.outputs("test", rows) for rows in torch.arange(10).split(3)]), every
    )
    problem.seed = 4
    assert not torch.equal(problem.outputs("test", torch.arange(10)), every)


def test_a_linear_model_becomes_the_least_squares_solution() -> None:
    problem = regression(nn.Linear(3, 2, dtype=torch.float64), validation=False)
    trainer(problem, {"epochs": 60, "learning_rate": 1.0, "optimiser": "l-bfgs"}, batch=40).run()
    rows = SPLITS["train"]
    ones = np.ones((60, 1))
    exact = np.linalg.lstsq(np.hstack([INPUTS, ones])[rows], TARGETS[rows], rcond=None)[0]
    predicted = problem.compared("train", problem.outputs("train", torch.arange(40)))[1]
    np.testing.assert_allclose(predicted, (np.hstack([INPUTS, ones]) @ exact)[rows], rtol=1e-5, atol=1e-5)


def test_without_validation_the_last_weights_count() -> None:
    with_it, without = regression(mlp(2)), regression(mlp(2), validation=False)
    settings = {"epochs": 3, "learning_rate": 0.01}
    loops = [trainer(problem, settings, batch=8) for problem in (with_it, without)]
    for loop in loops:
        loop.run()
    assert loops[0].losses == loops[1].losses
    assert loops[1].best["epoch"] == 2 and without.splits == {"train": 40, "test": 10}
    assert not any(name.startswith("validation") for name in loops[1].history[0])
    by_steps = trainer(regression(mlp(2)), {"steps": 15, "learning_rate": 0.01}, batch=8)
    by_steps.run()
    assert loops[1].weights_hash() == by_steps.weights_hash()


def test_what_needs_validation_is_refused_without() -> None:
    stopping = {"early_stopping": {"monitor": "loss", "patience": 2}}
    for setting in (stopping, {"plateau": {"factor": 0.5, "patience": 2}}):
        with pytest.raises(UserError, match=": needs validation, but the workload has no such samples"):
            trainer(regression(mlp(2), validation=False), {"epochs": 3, **setting})


def test_the_influence_of_a_sample_is_what_a_little_more_of_it_changes() -> None:
    problem = regression(mlp(2))
    outputs = problem.outputs("test", torch.arange(10))
    result = problem.influence("test", outputs)
    assert result is not None
    predicted, truth = problem.compared("test", outputs)[1].numpy(), TARGETS[SPLITS["test"]]

    def logarithm(weights: np.ndarray) -> float:
        return float(np.log(reference.root_mean_squared_error(truth, predicted, sample_weight=weights)))

    for sample in range(10):
        more, less = np.ones(10), np.ones(10)
        more[sample] += 1e-5
        less[sample] -= 1e-5
        by_hand = 10 * (logarithm(more) - logarithm(less)) / 2e-5
        assert float(result[sample]) == pytest.approx(by_hand, rel=1e-4, abs=1e-8)
    assert float(result.mean()) == pytest.approx(0, abs=1e-12)
    assert problem.influence("test", problem.get_buffer("targets")[problem.rows("test")]) is None
    quality = outcome.run(trainer(problem, {"epochs": 1})).quality
    assert quality is not None and quality["right"] is None
    exact = problem.influence("test", problem.outputs("test", torch.arange(10)))
    assert exact is not None and unpacked_numbers(quality["influence"]) == pytest.approx(
        exact.tolist(), rel=1e-6
    )
