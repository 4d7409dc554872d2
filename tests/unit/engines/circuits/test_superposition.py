"""Superpositions of a state with its mirror image: every way of measuring them gives the same numbers."""

from __future__ import annotations

import pytest
import torch

from ketscale.config.simulators.circuits import CircuitSimulator
from ketscale.engines.circuits.ansaetze import qlcu_ansatz, strongly_entangling_ansatz
from ketscale.engines.circuits.circuit import Angles, Circuit, Column, Gate, pauli_words
from ketscale.engines.circuits.fused import Fused, call, listing
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.circuits.superposition import (
    Superposition,
    measured,
    mixed,
    reversal,
    superposed,
)
from ketscale.engines.circuits.wrapper import Looped
from ketscale.errors import UserError
from ketscale.simulators.factory import build_simulator
from ketscale.simulators.placement import Placed
from ketscale.simulators.spanned import Spanned

REFERENCE: Simulator = build_simulator(
    "default.qubit",
    CircuitSimulator.usual("default.qubit"),
    torch.device("cpu"),
)


def swapped(circuit: Circuit, *more: str) -> Circuit:
    """The circuit and a cyclic shift of its wires, as in the Hydra models; then gates on wire 0."""
    shift = [Gate("SWAP", (w, w + 1)) for w in range(circuit.qubits - 1)]
    return Circuit(circuit.qubits, (*circuit.gates, *shift, *(Gate(name, (0,)) for name in more)))


CIRCUITS = {
    "one qubit": Circuit(1, (Gate("RX", (0,), (Column("input", 0),)),)),
    "two qubits": swapped(qlcu_ansatz(2, 1)),
    "odd": swapped(qlcu_ansatz(5, 2)),
    "even": swapped(qlcu_ansatz(6, 1)),
    "not shifted": qlcu_ansatz(4, 1),
    "with weights and CNOT": swapped(strongly_entangling_ansatz(4, 2)),
    "with a power of i": swapped(qlcu_ansatz(3, 1), "S"),
    "with global phases": Circuit(2).rz(0, "x0").t(0).ry(1, "x1").phase(1, "x1").cphase(0, 1, "x0"),
    "with moves": swapped(qlcu_ansatz(4, 1)).toffoli(0, 1, 3).rx(1, "x0").permuted((2, 0, 1, 3), 1, 2),
    "real amplitudes": Circuit(3, tuple(Gate("RY", (w,), (Column("input", w),)) for w in range(3))),
}


def request(
    circuit: Circuit, batch: int, dtype: torch.dtype = torch.float64
) -> tuple[Angles, Superposition, list[torch.Tensor]]:
    """Random angles and superposition, and all of their tensors as leaves."""
    generator = torch.Generator().manual_seed(7)
    shapes = [(batch, circuit.inputs), (circuit.weights,)]
    real = [3 * torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in shapes]
    sizes = [2, 2**circuit.qubits]
    mixed = [torch.randn(size, dtype=torch.complex128, generator=generator) for size in sizes]
    leaves = [tensor.to(dtype).requires_grad_() for tensor in real]
    leaves += [tensor.to(dtype.to_complex()).requires_grad_() for tensor in mixed]
    return Angles(*leaves[:2]), Superposition(*leaves[2:]), leaves


def evaluated(
    simulator: Simulator, circuit: Circuit, batch: int, dtype: torch.dtype = torch.float64
) -> list[torch.Tensor]:
    """Expectation values of all one-wire words, and the gradients of a scalar of them."""
    angles, superposition, leaves = request(circuit, batch, dtype)
    values = superposed(simulator, circuit, angles, pauli_words(circuit.qubits, "XYZ"), superposition)
    weights = torch.linspace(-1, 2, values.numel(), dtype=torch.float64).to(dtype).view_as(values)
    gradients = torch.autograd.grad(
        (values * weights).sum(), leaves, allow_unused=True, materialize_grads=True
    )
    return [values.detach(), *gradients]


def test_a_superposition_is_what_its_definition_says() -> None:
    """Against a state vector that is written out, one sample and one word at a time."""
    circuit = CIRCUITS["odd"]
    angles, superposition, _ = request(circuit, 2)
    psi = REFERENCE.state(circuit, angles)
    mirrored = psi.view(2, *[2] * 5).permute(0, 5, 4, 3, 2, 1).reshape(2, 32)
    alpha, beta = superposition.coefficients
    phi = alpha * psi + beta * mirrored + superposition.constant
    phi = phi / phi.norm(dim=1, keepdim=True)
    probabilities = phi.abs().square().view(2, 2, 16).sum(2)
    found = superposed(REFERENCE, circuit, angles, ("ZIIII",), superposition)
    torch.testing.assert_close(found[:, 0], probabilities[:, 0] - probabilities[:, 1], atol=1e-8, rtol=0)
    assert reversal(3) == (0, 4, 2, 6, 1, 5, 3, 7)


@pytest.mark.parametrize(
    "circuit, batch", [*((circuit, 70) for circuit in CIRCUITS.values()), (CIRCUITS["even"], 1)]
)
def test_fused_agrees_with_default_qubit(
    circuit: Circuit, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = evaluated(REFERENCE, circuit, batch)
    torch.testing.assert_close(evaluated(Fused(), circuit, batch), expected, atol=1e-10, rtol=1e-10)
    # A state in several blocks.
    monkeypatch.setattr(listing, "WHOLE_BYTES", 0)
    monkeypatch.setattr(listing, "BLOCK_BYTES", 1024)
    call.compiled.cache_clear()
    try:
        torch.testing.assert_close(evaluated(Fused(), circuit, batch), expected, atol=1e-10, rtol=1e-10)
    finally:
        call.compiled.cache_clear()


@pytest.mark.parametrize(
    "simulator", [Fused("matrix"), Looped(Fused()), Placed(Fused(), torch.device("cpu"))]
)
def test_other_routes_agree(simulator: Simulator) -> None:
    circuit = CIRCUITS["even"]
    torch.testing.assert_close(
        evaluated(simulator, circuit, 9), evaluated(REFERENCE, circuit, 9), atol=1e-10, rtol=1e-10
    )


class Minimal:
    """A simulator with no more than the protocol asks for."""

    def __init__(self) -> None:
        self.state, self.expval = Fused().state, Fused().expval


def test_a_simulator_needs_only_states_and_expectation_values() -> None:
    circuit = CIRCUITS["even"]
    assert not hasattr(Minimal(), "superposed")
    for simulator in (
        Minimal(),
        Spanned(Minimal()),
        Looped(Minimal()),
        Placed(Minimal(), torch.device("cpu")),
    ):
        torch.testing.assert_close(
            evaluated(simulator, circuit, 9), evaluated(REFERENCE, circuit, 9), atol=1e-10, rtol=1e-10
        )


def test_single_precision_is_close_to_double() -> None:
    circuit = swapped(qlcu_ansatz(7, 2))
    single, double = (evaluated(Fused(), circuit, 20, dtype) for dtype in (torch.float32, torch.float64))
    assert (single[0] - double[0]).abs().max() <= 1e-5
    for found, expected in zip(single[1:], double[1:], strict=True):
        assert (found - expected).norm() <= 1e-4 * expected.norm()


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "WORK_PER_THREAD", 1)
    call.compiled.cache_clear()
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(evaluated(Fused(), CIRCUITS["odd"], 200, torch.float32))
    finally:
        torch.set_num_threads(before)
        call.compiled.cache_clear()
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def through_states(
    circuit: Circuit, angles: Angles, words: tuple[str, ...], superposition: Superposition
) -> torch.Tensor:
    """Expectation values of a superposition by its states, without `superposed` of any simulator."""
    return measured(REFERENCE, mixed(REFERENCE, circuit, angles, superposition), words)


@pytest.mark.parametrize("wanted", [0, 2, 3])
def test_only_what_needs_a_gradient_gets_one(wanted: int) -> None:
    circuit = CIRCUITS["even"]
    angles, superposition, leaves = request(circuit, 40)
    for i, leaf in enumerate(leaves):
        leaf.requires_grad_(i == wanted)
    values = [
        way(circuit, angles, pauli_words(6), superposition) for way in (Fused().superposed, through_states)
    ]
    found, expected = (torch.autograd.grad((v**3).sum(), leaves[wanted]) for v in values)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


def test_no_gradient_and_no_rows() -> None:
    circuit = CIRCUITS["odd"]
    angles, superposition, _ = request(circuit, 3)
    with torch.no_grad():
        found = Fused().superposed(circuit, angles, pauli_words(5), superposition)
        torch.testing.assert_close(
            found, superposed(REFERENCE, circuit, angles, pauli_words(5), superposition), atol=1e-10, rtol=0
        )
    assert evaluated(Fused(), circuit, 0)[0].shape == (0, 15)


@pytest.mark.parametrize("simulator", [Fused(), REFERENCE])
def test_a_superposition_that_does_not_fit_is_refused(simulator: Simulator) -> None:
    circuit = CIRCUITS["even"]
    angles, superposition, _ = request(circuit, 3)
    for bad, message in (
        (
            superposition._replace(constant=torch.zeros(32, dtype=torch.complex128)),
            r"constant must be \(64,\)",
        ),
        (superposition._replace(coefficients=torch.zeros(2)), "coefficients must be .* of torch.complex128"),
    ):
        with pytest.raises(UserError, match=message):
            superposed(simulator, circuit, angles, pauli_words(6), bad)
