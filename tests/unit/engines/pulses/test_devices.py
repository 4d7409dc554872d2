"""Superconducting devices from circuit parameters: against scqubits and QuTiP, published layouts, and derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import qutip
import torch

from ketscale.engines.operators import embedded
from ketscale.engines.pulses import (
    Device,
    Fluxoniums,
    Transmons,
    fluxonium_chain,
    fluxonium_lattice,
    spread,
    transmon_chain,
)
from ketscale.engines.pulses import circuits as module
from ketscale.engines.pulses.circuits import Circuits
from ketscale.errors import UserError

# scqubits 4.3.1: frequencies E_k - E_0 in GHz of k = 1 to 4, then the moduli of the matrix elements of n (and phi, of a
# fluxonium) between 01, 12, 23, 34 and 03. Made by
#   q = Fluxonium(EC, EJ, EL, flux, cutoff=200, truncated_dim=5)   or   q = Transmon(EC, EJ, ng, ncut=31, truncated_dim=5)
#   e, v = q.eigensys(evals_count=5)
#   n, phi = (abs(q.matrixelement_table(o, evecs=v, evals_count=5)) for o in ("n_operator", "phi_operator"))
# For (EC, EJ, EL, flux) and (EC, EJ, ng); flux in flux quanta.
SCQUBITS = {
    (1, 4, 0.9, 0.5): [
        0.499910130844, 3.92990098446, 6.38380934758, 9.58777807307,
        0.138409140166, 0.573135581459, 0.60962460099, 0.86630892171, 0.392699763234,
        2.21494435301, 1.33676293826, 1.98744047709, 2.16308958278, 0.49211966317,
    ],
    (1, 4, 1.1, 0.5): [
        0.669229328252, 4.02763696061, 6.77164130087, 10.1464537737,
        0.17157962914, 0.584900898981, 0.660424395101, 0.893296469505, 0.353905157172,
        2.05107124744, 1.39328149054, 1.92543250872, 2.11756114262, 0.418102662498,
    ],
    (1.05, 4.2, 0.8, 0.45): [
        1.23538309651, 4.44098469409, 6.8826492947, 10.0733371265,
        0.122662367283, 0.417800303596, 0.579620935491, 0.83622027396, 0.306867627495,
        0.834044020913, 1.09480933403, 1.99405596366, 2.20148465523, 0.37451974677,
    ],
    (0.105, 33.063, 0.5): [
        5.16279179904, 10.2154001311, 15.1539164182, 19.9739338833,
        1.75297279066, 2.45236361802, 2.96915521288, 3.38663629602, 0.0227728067811,
    ],
    (0.12, 22.234, 0): [
        4.49667400478, 8.86537098649, 13.0998039124, 17.1925382583,
        1.53028670822, 2.13294411461, 2.57142373575, 2.91830948525, 0.0264486980053,
    ],
    (0.3, 15, 0.25): [
        5.68256973273, 11.0205678208, 15.9696126949, 20.4564308548,
        1.08780085731, 1.49027024828, 1.75532713552, 1.92363913992, 0.0395070243289,
    ],
}  # fmt: skip
ELEMENTS = ((0, 1), (1, 2), (2, 3), (3, 4), (0, 3))
DEVICES = {
    "fluxonium chain": fluxonium_chain(3),
    "fluxonium lattice": fluxonium_lattice(2, 2),
    "transmon chain": transmon_chain(3),
}


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def circuits(parameters: tuple[float, ...]) -> Circuits:
    """One circuit, from a key of `SCQUBITS`."""
    if len(parameters) == 3:
        return Transmons(*(numbers(each) for each in parameters))
    return Fluxoniums(*(numbers(each) for each in parameters[:3]), numbers(2 * math.pi * parameters[3]))


def detuned(first: Circuits) -> Fluxoniums:
    """Two fluxoniums away from half a flux quantum, whose levels have no parity."""
    assert isinstance(first, Fluxoniums)
    return Fluxoniums(numbers(1, 1.1), numbers(4, 4.2), numbers(0.9, 1.05), numbers(2.9, 3.3))


def by_qutip(circuit: Circuits, site: int) -> dict[str, qutip.Qobj]:
    """Hamiltonian in GHz, charge and phase of one circuit: a fluxonium in 150 states of its L and C, a transmon in n."""
    if isinstance(circuit, Transmons):
        n = qutip.charge(25) - circuit.offset[site].item()
        hopping = qutip.tunneling(51)
        return {
            "h": 4 * circuit.charging[site].item() * n**2 - circuit.josephson[site].item() / 2 * hopping,
            "n": n,
        }
    charging, josephson, inductive, flux = (
        each[site].item() for each in (circuit.charging, circuit.josephson, circuit.inductive, circuit.flux)
    )
    length = (8 * charging / inductive) ** 0.25
    a = qutip.destroy(150)
    phi, n = length * (a + a.dag()) / math.sqrt(2), 1j * (a.dag() - a) / (length * math.sqrt(2))
    h = 4 * charging * n**2 + inductive / 2 * phi**2 - josephson * (phi - flux).cosm()
    return {"h": h, "n": n, "phi": phi}


@pytest.mark.parametrize("parameters", SCQUBITS, ids=str)
def test_scqubits_has_the_same_levels_and_matrix_elements(parameters: tuple[float, ...]) -> None:
    levels = circuits(parameters).levels(5)
    result = (levels.energies[0, 1:] / (2 * math.pi)).tolist()
    for operator in (levels.charge, levels.phase):
        result += [] if operator is None else [operator[0, i, j].abs().item() for i, j in ELEMENTS]
    assert result == pytest.approx(SCQUBITS[parameters], rel=1e-10)


@pytest.mark.parametrize("name", DEVICES)
def test_qutip_finds_the_same_energies_of_the_coupled_device(name: str) -> None:
    device, levels = DEVICES[name], 4
    values: list[dict[str, Any]] = []
    for site in range(device.sites):
        operators = by_qutip(device.circuits, site)
        states = np.hstack([each.full() for each in operators["h"].eigenstates(eigvals=levels)[1]])
        values.append(
            {key: qutip.Qobj(states.conj().T @ each.full() @ states) for key, each in operators.items()}
        )

    def at(operators: dict[int, qutip.Qobj]) -> qutip.Qobj:
        return qutip.tensor([operators.get(site, qutip.qeye(levels)) for site in range(device.sites)])

    total = sum(at({site: each["h"]}) for site, each in enumerate(values))
    for place, (i, j) in enumerate(device.pairs):
        total += device.capacitive[place].item() * at({i: values[i]["n"], j: values[j]["n"]})
        if device.inductive is not None:
            total += device.inductive[place].item() * at({i: values[i]["phi"], j: values[j]["phi"]})
    expected = 2 * math.pi * total.eigenenergies()
    result = np.linalg.eigvalsh(device.system(levels).hamiltonian())
    np.testing.assert_allclose(result - result[0], expected - expected[0], rtol=0, atol=1e-8)


def test_a_circuits_operators_obey_their_commutator() -> None:
    # [phi, H] = 8 i E_C n: it ties the phases of charge and phase elements to one another.
    for circuit in (circuits((1, 4, 0.9, 0.5)), detuned(circuits((1, 4, 0.9, 0.5)))):
        assert isinstance(circuit, Fluxoniums)
        energies, charge, phase = circuit.levels(5)
        assert phase is not None
        gaps = (energies[:, None, :] - energies[:, :, None]) / (2 * math.pi)
        torch.testing.assert_close(
            gaps * phase, 8j * circuit.charging[:, None, None] * charge, rtol=0, atol=1e-9
        )


def test_a_charge_offset_moves_the_charge_as_in_qutip() -> None:
    circuit = Transmons(numbers(1.0), numbers(1.5), numbers(0.3))
    operators = by_qutip(circuit, 0)
    expected = qutip.expect(operators["n"], operators["h"].groundstate()[1])
    assert circuit.levels(2).charge[0, 0, 0].real.item() == pytest.approx(expected, rel=1e-9)


def test_a_flux_moves_the_phase_as_in_qutip() -> None:
    circuit = detuned(circuits((1, 4, 0.9, 0.5)))
    phase = circuit.levels(1).phase
    assert phase is not None
    for site in range(2):
        operators = by_qutip(circuit, site)
        expected = qutip.expect(operators["phi"], operators["h"].groundstate()[1])
        assert phase[site, 0, 0].real.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("parameters", SCQUBITS, ids=str)
def test_charge_between_neighbouring_levels_is_positive(parameters: tuple[float, ...]) -> None:
    offdiagonal = circuits(parameters).levels(5).charge.diagonal(1, -2, -1)
    assert (offdiagonal.real > 0.1).all()
    assert offdiagonal.imag.abs().max() == 0


@pytest.mark.parametrize(
    "circuit",
    [detuned(fluxonium_chain(1).circuits), transmon_chain(3, width=0).circuits],
    ids=["fluxonium", "transmon"],
)
def test_levels_have_the_derivatives_of_finite_differences(circuit: Circuits) -> None:
    # The transmons' highest charge states are degenerate, which must not matter.
    parameters = [each.clone().requires_grad_() for each in vars(circuit).values()]

    def levels(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        energies, charge, phase = type(circuit)(*given).levels(3)
        return (energies, charge) if phase is None else (energies, charge, phase)

    assert torch.autograd.gradcheck(levels, parameters, eps=1e-5, atol=1e-6, rtol=1e-5)


def test_a_smaller_grid_that_holds_the_states_changes_only_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> list[torch.Tensor]:
        circuits = fluxonium_chain(3).circuits
        parameter = circuits.josephson.requires_grad_()
        levels = circuits.levels(5)
        values = [levels.energies, torch.view_as_real(levels.charge), torch.view_as_real(levels.phase)]
        (gradient,) = torch.autograd.grad(sum(each.square().sum() for each in values), parameter)
        return [*(each.detach() for each in values), gradient]

    small = found()
    monkeypatch.setattr(module, "GRIDS", module.GRIDS[-1:])
    for actual, expected in zip(small, found(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def test_levels_do_not_depend_on_the_number_of_threads() -> None:
    before, result = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            result.append(fluxonium_chain(2).circuits.levels(5))
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, *result))


@pytest.mark.parametrize("inductive", [0.05, 1e-6])
def test_states_that_no_grid_holds_are_refused(inductive: float) -> None:
    with pytest.raises(UserError, match="do not fit a phase from -5 pi to 5 pi"):
        fluxonium_chain(1, inductive=[inductive]).circuits.levels(5)


def test_published_layouts() -> None:
    chain, block, complete = (
        fluxonium_chain(5, 0),
        fluxonium_lattice(3, 2, width=0),
        fluxonium_lattice(5, 5, width=0),
    )
    for device in (chain, block, complete):
        assert isinstance(device.circuits, Fluxoniums)
        for name, value in {"charging": 1, "josephson": 4, "flux": math.pi}.items():
            assert getattr(device.circuits, name).tolist() == [value] * device.sites
    assert chain.circuits.inductive.tolist() == [0.9, 1.0, 1.1, 0.9, 1.0]  # type: ignore[union-attr]
    assert block.circuits.inductive.tolist() == [1.0, 0.8, 0.9, 1.1, 1.2, 1.0]  # type: ignore[union-attr]
    assert chain.pairs == ((0, 1), (1, 2), (2, 3), (3, 4))
    assert block.pairs == ((0, 1), (0, 2), (1, 3), (2, 3), (2, 4), (3, 5), (4, 5))
    assert [sum(site in pair for pair in complete.pairs) for site in range(25)] == [4] * 25
    assert set(chain.capacitive.tolist()) == {0.02} and set(block.capacitive.tolist()) == {0.0115}


def test_a_spread_depends_on_seed_and_site_alone() -> None:
    short, long = fluxonium_chain(2).circuits, fluxonium_chain(4).circuits
    for name, each in vars(short).items():
        assert getattr(long, name)[:2].tolist() == each.tolist()
    like = torch.ones(2000, dtype=torch.float64)
    sample = spread(Transmons(like, 3 * like, like), 0.01, seed=1)
    for values, factor in ((sample.charging, 1), (sample.josephson, 3)):
        assert values.mean().item() == pytest.approx(factor, rel=1e-3)
        assert values.std().item() == pytest.approx(0.01 * factor, rel=0.05)
    assert sample.offset.tolist() == like.tolist()
    assert sample.charging[0] != spread(Transmons(like, like, like), 0.01, seed=2).charging[0]


def test_operators_are_embedded_as_by_qutip() -> None:
    operator = torch.randn(9, 9, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    for pair in ((0, 1), (1, 2), (0, 2), (2, 0)):
        expected = qutip.expand_operator(qutip.Qobj(operator.numpy(), dims=[[3, 3]] * 2), [3] * 3, list(pair))
        np.testing.assert_array_equal(embedded(operator, pair, (3, 3, 3)).numpy(), expected.full())


ONE = numbers(1.0)


@pytest.mark.parametrize(
    "made, message",
    [
        (lambda: Transmons(-ONE, ONE, ONE), "charging: .* positive"),
        (lambda: Transmons(ONE, ONE * 1e-9, 0 * ONE).levels(3), "phases of its states"),
        (lambda: Device(Transmons(ONE, ONE, ONE), ((0, 1),), ONE, None), "pairs: .* two different sites"),
        (lambda: replace(fluxonium_chain(2), capacitive=numbers(1, 1)), "capacitive: must be one number a pair"),
        (lambda: replace(fluxonium_chain(2), pairs=((0, 1),) * 2, capacitive=numbers(1, 1), inductive=numbers(1, 1)).system(2), "is there twice"),
        (lambda: Transmons(ONE, ONE, 29 * ONE).levels(3), "charges from -30 to 30 Cooper pairs"),
        (
            lambda: Transmons(ONE, (0 * ONE + 1e-300).requires_grad_(), numbers(0.5)).levels(2),
            "degenerate level",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_device_is_refused(made: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        made()
