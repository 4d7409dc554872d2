"""The contract of a Problem: what it must state, its precision, and its penalty."""

import pytest
import torch
from torch import nn

from ketscale.training.loop import Diverged
from ketscale.training.step import Stepper
from tests.toys import Columns, Fidelity, Tasks, classification, protocol_of, trainer

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype, pair", [(torch.float32, torch.complex64), (torch.float64, torch.complex128)])
def test_precision_keeps_imaginary_parts_and_leaves_integers_alone(dtype, pair):
    columns, fidelity = Columns(), Fidelity()
    before = columns.target.clone(), fidelity.model.a.detach().clone()
    assert all(values.imag.abs().max() > 0.1 for values in before)
    for problem in (columns, fidelity):
        assert problem.convert(CPU, dtype) is problem
    assert columns.target.dtype == columns.drift.dtype == fidelity.model.a.dtype == pair
    assert columns.model.controls.dtype == dtype
    assert isinstance(fidelity.model.a, nn.Parameter) and fidelity.model.a.requires_grad
    for now, then in zip((columns.target, fidelity.model.a), before, strict=True):
        torch.testing.assert_close(now.detach(), then.to(pair), rtol=0, atol=0)
    problem = classification().convert(CPU, torch.float32)
    assert problem.targets.dtype == problem.rows_train.dtype == torch.int64
    assert {p.dtype for p in problem.parameters()} == {torch.float32}


@pytest.mark.parametrize("make, batch", [(Columns, 4), (Tasks, 7)])
@pytest.mark.parametrize("mistake", [{}, {"mistake": "unsharded"}])
def test_the_penalty_is_part_of_the_gradient_and_of_the_loss(make, batch, mistake):
    """Against autograd on the whole loss, written as one expression."""
    problem, by_hand = make(), make()
    loop = trainer(problem, {"steps": 1, **mistake}, batch)
    figures = loop.stepper.differentiate(torch.arange(batch), 0)
    loss = by_hand.combine(by_hand.sums(torch.arange(batch), 0), batch) + by_hand.penalty()
    loss.backward()
    for actual, expected in zip(problem.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(actual.grad, expected.grad, rtol=1e-13, atol=1e-15)
    assert float(figures.norm) > 0
    loop.run()
    assert loop.losses[0] == pytest.approx(loss.item(), rel=1e-14)
    assert loop.history[0]["train_loss"] == loop.losses[0]


def test_a_penalty_of_what_is_not_trained_is_part_of_the_loss_alone():
    problem, without = Columns(), Columns()
    problem.penalty = lambda: torch.tensor(2.0, dtype=torch.float64)
    without.penalty = lambda: None
    loop, single = (trainer(each, {"steps": 1}, 4) for each in (problem, without))
    for each in (loop, single):
        each.stepper.differentiate(torch.arange(4), 0)
    for actual, expected in zip(problem.parameters(), without.parameters(), strict=True):
        torch.testing.assert_close(actual.grad, expected.grad, rtol=0, atol=0)
    loop.run()
    single.run()
    assert loop.losses[0] == pytest.approx(single.losses[0] + 2, rel=1e-14)


def test_lbfgs_minimises_loss_and_penalty():
    problem = Columns()
    loop = trainer(problem, {"steps": 40, "optimiser": "l-bfgs"}, batch=4)
    loop.run()
    assert float(problem.model.spare.detach()) == pytest.approx(1, abs=1e-5)
    total = problem.combine(problem.sums(torch.arange(4), 0), 4) + problem.penalty()
    total.backward()
    assert problem.model.controls.grad.abs().max() < 1e-4
    assert loop.history[-1]["train_loss"] == pytest.approx(total.item(), rel=1e-12)


def test_lbfgs_that_finds_no_better_point_is_divergence():
    problem = Columns()
    original = problem.penalty
    # A gradient of the wrong sign: the line search finds no smaller loss along it.
    problem.penalty = lambda: original() - 2 * (original() - original().detach())
    problem.sums = lambda indices, step: problem.model.controls.sum().reshape(1) * 0
    problem.combine = lambda sums, count: sums.real.sum()
    with pytest.raises(Diverged, match="l-bfgs found no better point than the start: SciPy says"):
        trainer(problem, {"steps": 5, "optimiser": "l-bfgs"}, batch=4).run()


@pytest.mark.parametrize("ranks", [1, 3])
def test_each_rank_adds_its_share_of_the_penalty(ranks):
    """One rank's own gradient, its world faked: the ranks' gradients add up to the penalty once."""
    world = trainer(Tasks(), {"steps": 1}).world
    world.ranks = ranks
    problem = Tasks()
    problem.sums = lambda indices, step: problem.model.weight.sum().reshape(1) * 0
    Stepper(problem, world, protocol_of({"steps": 3})).differentiate(torch.arange(6), 0)
    torch.testing.assert_close(problem.model.weight.grad * ranks, 0.6 * problem.model.weight.detach())
