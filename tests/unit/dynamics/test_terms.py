"""Systems of terms on some sites: against embedded matrices and finite differences, from circuits, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

from ketscale import dynamics as kd
from ketscale.dynamics.evolution import Kind
from ketscale.engines import operators
from ketscale.engines.dynamics.propagators import propagator
from ketscale.engines.dynamics.tasks import Tasks
from ketscale.errors import UserError

GENERATOR = torch.Generator().manual_seed(5)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


NUMBERS = {
    "transmon": {"charging": 0.4, "josephson": 6.0, "offset": 0.2, "capacitive_coupling": 0.012},
    "fluxonium": {"charging": 1.0, "josephson": 4.0, "flux": math.pi, "inductive_coupling": -0.002},
}


@pytest.mark.parametrize("kind, method, dt", [("unitary", "suzuki4", 0.02), ("density", "exact", None)])
@pytest.mark.parametrize("circuit", ["transmon", "fluxonium"])
def test_gradients_by_the_parameters_of_circuits_are_finite_differences(
    circuit: str, kind: Kind, method: str, dt: float | None
) -> None:
    """Also by those that no matrix element depends on in first order, such as a flux of half a quantum."""
    controls, weights = 0.1 * normal(3, 2), torch.complex(normal(9, 9), normal(9, 9))

    def value(given: torch.Tensor) -> torch.Tensor:
        numbers = dict(zip(NUMBERS[circuit], given, strict=True))
        if circuit == "transmon":
            numbers = {
                name: each[None] if name in ("charging", "josephson") else each
                for name, each in numbers.items()
            }
            device = kd.transmon_chain(2, width=0.02, **numbers)
        else:
            device = kd.fluxonium_chain(2, **numbers)
        system = device.system(3)
        frame = kd.dressed_frame(system)
        initial = frame.states if kind == "unitary" else frame.states[:, 1]
        final = kd.evolve(system, controls, 3.0, kind=kind, initial=initial, method=method, dt=dt)
        return (weights[: len(final), : final.shape[1]] * final).sum().abs().square()

    arguments = torch.tensor(list(NUMBERS[circuit].values()), dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(value(arguments), arguments)
    steps = 1e-5 * torch.eye(len(arguments), dtype=torch.float64)
    with torch.no_grad():
        expected = torch.stack([(value(arguments + step) - value(arguments - step)) / 2e-5 for step in steps])
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


def followed(josephson: torch.Tensor) -> kd.System:
    """Two transmons, whose operators are differentiated."""
    return kd.transmon_chain(2, josephson=josephson[None]).system(2)


CHANGES = {
    "another order": lambda system: {"controls": {name: system.controls[name] for name in reversed(list(system.controls))}},
    "a multiple": lambda system: {"drift": {name: 2 * each for name, each in system.drift.items()}},
    "jumps": lambda system: {"jumps": {"down": kd.Term([1], [[0, 1], [0, 0]])}, "rates": {"down": 0.3}},
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_what_replaces_parts_of_a_system_with_gradients_has_them(change: Callable[[kd.System], Any]) -> None:
    controls, weights = normal(3, 2), torch.complex(normal(4, 4), normal(4, 4))

    def value(josephson: torch.Tensor) -> torch.Tensor:
        system = followed(josephson)
        final = kd.evolve(replace(system, **change(system)), controls, 1.0)
        return (weights[: len(final)] * final).sum().abs()

    at = torch.tensor(6.0, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        expected = (value(at + 1e-5) - value(at - 1e-5)) / 2e-5
    (gradient,) = torch.autograd.grad(value(at), at)
    assert gradient.item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("place", ["drift", "controls"])
@pytest.mark.parametrize(
    "kind, method, dt", [("unitary", "exact", None), ("unitary", "suzuki4", 0.05), ("density", "rk4", 0.01)]
)
def test_operators_of_ones_own_have_gradients(place: str, kind: Kind, method: str, dt: float | None) -> None:
    """By each entry of a Hermitian matrix, on one site of two."""
    controls, weights = 0.3 * normal(3, 2), torch.complex(normal(4, 4), normal(4, 4))

    def value(entries: torch.Tensor) -> torch.Tensor:
        matrix = torch.complex(entries, entries * entries)
        own = {"own": kd.Term([1], matrix + matrix.mH)}
        drift = {"j": kd.Term([0, 1], np.diag([0, 0, 0, 1.0])), **(own if place == "drift" else {})}
        driven = {
            "x": kd.Term([0], [[0, 1], [1, 0]]),
            **(own if place == "controls" else {"z": kd.Term([0], [1, -1])}),
        }
        system = kd.System(drift, dict.fromkeys(drift, 0.7), driven, levels=(2, 2))
        final = kd.evolve(system, controls, 2.0, kind=kind, method=method, dt=dt)
        return (weights * final).sum().abs()

    assert torch.autograd.gradcheck(value, 0.3 * normal(2, 2).requires_grad_())


def diagonal(entries: torch.Tensor) -> kd.System:
    """A qubit beside another, with energies that are differentiated."""
    drift = {"z": kd.Term([1], entries), "j": kd.Term([0, 1], [0, 0, 2, 3.0])}
    controls = {"x": kd.Term([0], [[0, 1], [1, 0]])}
    return kd.System(
        drift, {"z": 1.0, "j": 0.5}, controls, {"down": kd.Term([0], [[0, 1], [0, 0]])}, levels=(2, 2)
    )


def test_a_diagonal_of_many_states_is_sparse() -> None:
    result = kd.System({"e": kd.Term(range(10), np.arange(1024))}, {"e": 1.0}, {}, levels=(2,) * 10)
    assert result.drift["e"].nnz == 1023
    assert kd.evolve(result, None, 1.0, initial=np.eye(1024)[5])[5].angle().item() == pytest.approx(
        2 * math.pi - 5
    )


def test_the_published_loop_does_not_lose_gradients() -> None:
    tasks = Tasks(torch.zeros(1, 2, 1, dtype=torch.float64), 1.0)
    with pytest.raises(UserError, match="fixed operators; use another propagator"):
        propagator("literal", dt=0.1).state(
            diagonal(torch.tensor([0.0, 5.0], dtype=torch.float64, requires_grad=True)), tasks
        )


def test_who_looks_at_operators_leaves_their_gradients_as_they_are() -> None:
    """Also a look without gradients, after a step of an optimiser, and of two backward passes."""
    entries = torch.tensor([0.0, 5.0], dtype=torch.float64, requires_grad=True)
    system = diagonal(entries)
    with torch.no_grad():
        assert system.hamiltonian()[1, 1] == 5
    for energy in (5.0, 4.0):
        result = kd.dressed_frame(system).energies[1]
        assert result.item() == energy
        (gradient,) = torch.autograd.grad(result, entries)
        assert gradient.tolist() == [0, 1]
        with torch.no_grad():
            entries -= gradient
            entries[0] = 0


def test_constant_tensors_are_copied() -> None:
    entries = torch.tensor([0.0, 5.0], dtype=torch.float64)
    system, controls = diagonal(entries), normal(2, 1)
    methods = (("exact", None), ("suzuki4", 0.1))

    def found() -> list[torch.Tensor]:
        return [kd.evolve(system, controls, 1.0, method=name, dt=dt) for name, dt in methods]

    before = found()
    entries *= 3
    assert all(map(torch.equal, before, found()))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's forward mode itself
@pytest.mark.parametrize(
    "kind, method, dt", [("ket", "exact", None), ("density", "exact", None), ("density", "rk4", 0.01)]
)
def test_operators_have_tangents_and_second_derivatives(kind: Kind, method: str, dt: float | None) -> None:
    controls, rates = normal(2, 1), None if kind == "ket" else [0.2]

    def value(entries: torch.Tensor) -> torch.Tensor:
        final = kd.evolve(
            diagonal(entries),
            controls,
            1.0,
            kind=kind,
            rates=rates,
            initial=[0.6, 0.8, 0, 0],
            method=method,
            dt=dt,
        )
        return torch.view_as_real(final).flatten()[:5]

    at = torch.tensor([0.1, 1.7], dtype=torch.float64)
    assert torch.autograd.gradgradcheck(value, at.clone().requires_grad_())
    jacobian, along = torch.func.jacrev(value)(at), normal(2)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(value(forward_ad.make_dual(at, along))).tangent
    torch.testing.assert_close(tangent, jacobian @ along, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.func.jacfwd(value)(at), jacobian, rtol=0, atol=1e-12)


def test_a_term_is_its_embedded_matrix() -> None:
    pair, line = normal(6, 6) + 0j, np.array([1.0, -2, 3])
    terms = {"pair": kd.Term([2, 0], pair + pair.mH), "line": kd.Term([0], line)}
    system = kd.System(terms, {"pair": 0.2, "line": 1.1}, {}, levels=(3, 2, 2))
    known = (
        operators.embedded((pair + pair.mH).numpy(), [2, 0], (3, 2, 2)),
        operators.embedded(np.diag(line), [0], (3, 2, 2)),
    )
    np.testing.assert_array_equal(system.drift["pair"], known[0])
    np.testing.assert_array_equal(system.drift["line"], known[1])
    np.testing.assert_allclose(system.hamiltonian(), 0.2 * known[0] + 1.1 * known[1], atol=1e-15)
    complete = kd.System(dict(zip(terms, known, strict=True)), system.parameters, {}, levels=(3, 2, 2))
    for other in (complete, replace(system)):
        torch.testing.assert_close(
            kd.evolve(other, None, 1.3), kd.evolve(system, None, 1.3), rtol=0, atol=1e-14
        )


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: kd.System({"z": kd.Term([0], [1, -1])}, {"z": 1.0}, {}), "levels: give each site's"),
        (lambda: kd.System({"z": kd.Term([2], [1, -1])}, {"z": 1.0}, {}, levels=(2, 2)), "drift.z: sites: [2] are not different"),
        (lambda: kd.System({"z": kd.Term([0], torch.tensor([1, math.nan]))}, {"z": 1.0}, {}, levels=(2,)), "drift.z: has entries that are not"),
        (lambda: kd.System({"z": kd.Term([0], [1, 1j])}, {"z": 1.0}, {}, levels=(2, 2)), "drift.z: is not Hermitian"),
        (lambda: kd.System({}, {}, {"a": kd.Term([0], [[0, 1], [0, 0]])}, levels=(2,)), "instead of an operator a, give a + a^+"),
        (
            lambda: kd.evolve(kd.System({"x": torch.eye(65, dtype=torch.complex128).requires_grad_()}, {"x": 1.0}, {}), None, 1.0),
            "may be on 64 states, and x is on 65",
        ),
    ],
)  # fmt: skip
def test_bad_terms_are_refused_in_words(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError) as caught:
        call()
    assert message in str(caught.value)


# Systems of a list


def circuits(energies: torch.Tensor) -> list[kd.System]:
    """Pairs of transmons with a jump, whose energies (systems, 2), couplings, parameters and rates all differ."""
    values = []
    for number, josephson in enumerate(energies):
        coupling = 0.01 + 0.004 * number
        system = kd.transmon_chain(2, josephson=josephson, capacitive_coupling=coupling).system(2)
        parameters = dict.fromkeys(system.drift, 1 + 0.1 * number)
        down = {"down": kd.Term([1], [[0, 1], [0, 0]])}
        rates = {"down": 0.05 * number} if number else {}
        values.append(replace(system, parameters=parameters, jumps=down, rates=rates))
    return values


ENERGIES = torch.tensor([[6.0, 5.0], [6.4, 4.7], [6.2, 5.0]], dtype=torch.float64)


@pytest.mark.parametrize("given", ["nothing", "parameters", "controls", "trajectory"])
@pytest.mark.parametrize(
    "kind, method, dt",
    [
        ("ket", "exact", None),
        ("unitary", "exact", None),
        ("unitary", "suzuki4", 0.05),
        ("density", "exact", None),
        ("density", "rk4", 0.002),
        ("channel", "exact", None),
    ],
)
def test_a_list_of_systems_is_a_loop_over_them(kind: Kind, method: str, dt: float | None, given: str) -> None:
    systems = circuits(ENERGIES)
    controls = 0.1 * normal(3, 4, 2) if given == "controls" else 0.1 * normal(4, 2)
    options: dict[str, Any] = {"trajectory": given == "trajectory"}
    if given == "parameters":
        options["parameters"] = {"coupling_1_2": torch.tensor([0.5, 1.5, 0.0], dtype=torch.float64)}
    state = kd.evolve(systems, controls, 3.0, kind=kind, method=method, dt=dt, **options)
    for number, system in enumerate(systems):
        if given == "parameters":
            options["parameters"] = {"coupling_1_2": [0.5, 1.5, 0.0][number]}
        own = controls[number] if controls.ndim == 3 else controls
        rates = {} if kind in ("ket", "unitary") else {"rates": {"down": 0.05 * number}}
        single = kd.evolve(system, own, 3.0, kind=kind, method=method, dt=dt, **options, **rates)
        torch.testing.assert_close(state[number], single, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "kind, method, dt", [("unitary", "exact", None), ("unitary", "suzuki4", 0.05), ("density", "exact", None)]
)
def test_gradients_by_the_energies_of_several_circuits_are_finite_differences(
    kind: Kind, method: str, dt: float | None
) -> None:
    controls, weights = 0.1 * normal(3, 2), torch.complex(normal(2, 4, 4), normal(2, 4, 4))

    def value(energies: torch.Tensor) -> torch.Tensor:
        systems = circuits(energies)
        frame = kd.dressed_frame(systems)
        initial = frame.states if kind == "unitary" else frame.states @ frame.states.mH
        final = kd.evolve(systems, controls, 2.0, kind=kind, initial=initial, method=method, dt=dt)
        return (weights * frame.amplitudes(final, 2.0)).sum((1, 2)).abs()

    energies = ENERGIES[:2].clone().requires_grad_()
    assert torch.autograd.gradcheck(value, energies)
    for number in range(2):
        (gradient,) = torch.autograd.grad(value(energies)[number], energies)
        assert gradient[number].abs().min() > 0 and gradient[1 - number].abs().max() == 0


def test_the_frame_of_several_systems_is_that_of_each() -> None:
    systems = circuits(ENERGIES)
    frame = kd.dressed_frame(systems)
    channels = kd.evolve(systems, None, 3.0, kind="channel", initial=frame.states)
    result = frame.amplitudes(channels, 3.0)
    for number, system in enumerate(systems):
        own = kd.dressed_frame(system)
        assert torch.equal(frame.states[number], own.states)
        torch.testing.assert_close(result[number], own.amplitudes(channels[number], 3.0), rtol=0, atol=1e-13)


QUBIT = kd.qubit()


@pytest.mark.parametrize(
    "systems, message",
    [
        ([QUBIT, kd.transmon()], "system: number 1 has levels (3,), and the first (2,)"),
        ([QUBIT, replace(QUBIT, controls={"x": QUBIT.controls["x"], "z": QUBIT.controls["y"]})], "system: number 1 has controls"),
        ([QUBIT] * 2 + [replace(QUBIT)], "batch: arguments have batches of several lengths: controls 2, system 3"),
    ],
)  # fmt: skip
def test_systems_that_are_not_alike_are_refused_in_words(systems: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        kd.evolve(systems, torch.ones(2, 3, 2).double(), 1.0)
    assert message in str(caught.value)


@pytest.mark.parametrize("kind", ["ket", "unitary", "density", "channel"])
def test_the_members_of_each_system_of_a_list_are_a_batch(kind: Kind) -> None:
    """So each has the bits that it has alone, and gradients."""
    energies = torch.tensor([[8.0, 6.0], [8.4, 6.6]], dtype=torch.float64, requires_grad=True)
    systems = [kd.transmon_chain(2, josephson=each).system(2) for each in energies]
    controls = 0.1 * normal(4, 3, 2)
    state = kd.evolve(systems * 2, controls, 2.0, kind=kind)
    for number, system in enumerate(systems):
        assert torch.equal(state[number::2], kd.evolve(system, controls[number::2], 2.0, kind=kind))
    torch.view_as_real(state).square()[..., 0].sum().backward()
    assert energies.grad is not None and energies.grad.abs().min() > 0
