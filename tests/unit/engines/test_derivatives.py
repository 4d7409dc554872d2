"""Second derivatives are refused by backward passes that cannot be differentiated, or are right."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from ketscale.engines.circuits.ansaetze import vqc_ansatz
from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.pulses.plain import unitary
from ketscale.errors import UserError
from ketscale.problems.eeg.state_space import linear_scan
from ketscale.simulators.factory import named_simulator
from ketscale.simulators.placement import Placed

FUNCTIONS = {
    "engines.circuits.shifts": "Shifted",
    "engines.pulses.plain": "_Unitary",
    "engines.pulses.exponential_cpu": "_TaylorExponential",
    "engines.pulses.merging_cpu": "_Merged",
    "engines.pulses.two_level_cpu": "_Evolutions",
    "layers.losses": "_Summed",
    "layers.dense": "_Dense",
    "problems.eeg.state_space": "_Scan",
    "problems.eeg.selective_scan": "_SelectiveScan",
    "problems.sentences.likelihood": "_ByShift",
}


@pytest.mark.parametrize("module", FUNCTIONS)
def test_a_backward_pass_that_has_no_derivative_says_so(module: str) -> None:
    function = getattr(importlib.import_module(f"ketscale.{module}"), FUNCTIONS[module])
    with (
        torch.enable_grad(),
        pytest.raises(UserError, match=r"has first derivatives only: .*create_graph=True"),
    ):
        function.backward(SimpleNamespace(name="Fused"), torch.ones(1))


@pytest.mark.parametrize(
    "function",
    [lambda x: linear_scan(x, x), lambda x: unitary(torch.diag_embed(x[0]).to(torch.complex128)).real],
    ids=["scan", "exponential"],
)
def test_a_sum_has_no_second_derivative_of_zero(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    # The cotangent of a sum is a constant, and x**3 makes the gradient differentiable all the same.
    x = torch.rand(1, 4, 3, dtype=torch.float64).requires_grad_()
    with pytest.raises(UserError, match="first derivatives only"):
        torch.autograd.grad(function(x).sum() + x.pow(3).sum(), x, create_graph=True)


def test_a_simulator_elsewhere_has_the_second_derivatives_of_its_own() -> None:
    circuit, simulator = vqc_ansatz(2, 1), named_simulator("default.qubit")
    generator = torch.Generator().manual_seed(0)
    inputs, weights = torch.rand(1, 2, generator=generator), torch.rand(20, generator=generator)

    def second(of: object) -> torch.Tensor:
        given = weights.clone().requires_grad_()
        value = of.expval(circuit, Angles(inputs, given), ("ZZ",)).sum()  # type: ignore[attr-defined]
        (slope,) = torch.autograd.grad(value, given, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), given)[0]

    found, expected = second(Placed(simulator, torch.device("cpu"))), second(simulator)
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(found, expected)
