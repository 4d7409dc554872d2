"""Steady states: closed forms, what long evolutions end in, derivatives, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ketscale import dynamics as kd
from ketscale.errors import UserError

QUBIT = kd.transmon(0.3, levels=2)


def test_a_driven_and_damped_qubit_is_that_of_blochs_equations() -> None:
    rabi, detuning, gamma = 0.3, torch.linspace(-1, 1, 5, dtype=torch.float64), 0.2
    rates, width = {"relaxation": gamma, "dephasing": 0.05}, gamma / 2 + 0.05
    rho = kd.steady_state(QUBIT, [rabi, 0.0], rates=rates, parameters={"detuning": detuning})
    pumped = rabi**2 * width / gamma
    excited = pumped / (width**2 + detuning**2 + pumped) / 2
    torch.testing.assert_close(rho[:, 1, 1].real, excited, rtol=0, atol=1e-14)
    coherence = -1j * rabi / 2 * (1 - 2 * excited) / (width + 1j * detuning)
    torch.testing.assert_close(rho[:, 1, 0], coherence, rtol=0, atol=1e-14)
    single = kd.steady_state(QUBIT, torch.tensor([rabi, 0]), rates=rates, parameters={"detuning": 1.0})
    torch.testing.assert_close(single, rho[-1].to(torch.complex64))


@pytest.mark.parametrize("levels", [3, 17])
def test_it_is_what_every_state_ends_in(levels: int) -> None:
    """A list of systems is a batch, also with so many levels that coordinates are all entries."""
    systems = [kd.transmon(detuning, levels=levels, t1=3.0, t2=4.0) for detuning in (0.1, 0.4)]
    drive, number = torch.tensor([0.4, 0.2], dtype=torch.float64), torch.diag(torch.arange(levels))[None]
    rho = kd.steady_state(systems, drive)
    torch.testing.assert_close(rho, kd.evolve(systems, drive[None], 200.0), rtol=0, atol=1e-10)
    means = (rho.diagonal(dim1=1, dim2=2).real * torch.arange(levels)).sum(1, keepdim=True)
    torch.testing.assert_close(kd.steady_state(systems, drive, expect=number.numpy()), means)


def test_it_has_second_derivatives_by_controls_rates_and_operators() -> None:
    lower = np.diag(np.sqrt([1, 2]), 1)

    def state(controls: torch.Tensor, rates: torch.Tensor, energies: torch.Tensor) -> torch.Tensor:
        drift, driven = {"n": kd.Term([0], energies)}, {"x": lower + lower.T}
        system = kd.System(drift, {"n": 1.0}, driven, {"a": lower}, levels=(3,))
        return torch.view_as_real(kd.steady_state(system, controls, rates=rates))

    arguments = [torch.tensor(each, dtype=torch.float64) for each in ([0.3], [0.2], [0.0, 0.5, 0.8])]
    leaves = [each.clone().requires_grad_() for each in arguments]
    assert torch.autograd.gradcheck(state, leaves)
    assert torch.autograd.gradgradcheck(state, leaves, fast_mode=True)
    by_rates = torch.autograd.functional.jacobian(state, tuple(arguments))[1]
    torch.testing.assert_close(torch.func.jacrev(state, argnums=1)(*arguments), by_rates)


@pytest.mark.parametrize(
    ("system", "rates", "message"),
    [
        (kd.transmon(0.3, levels=3), None, "rates: member 0 has 3 steady states"),
        (kd.chain([kd.transmon(levels=2, t1=9.0), QUBIT]), None, "rates: member 0 has 2 steady states"),
        (QUBIT, torch.tensor([[0.1, 0], [0, 0.1]]).double(), "rates: member 1 has 2 steady states"),
        (QUBIT, [np.nan, 0.1], "rates: some are not finite"),
    ],
)  # fmt: skip
def test_several_steady_states_are_refused_in_words(system: kd.System, rates: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        kd.steady_state(system, rates=rates)
