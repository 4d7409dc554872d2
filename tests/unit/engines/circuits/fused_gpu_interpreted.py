"""What the GPU's kernels compute, on a CPU: `test_fused_gpu.py` runs these tests under Triton's interpreter.

By hand: TRITON_INTERPRET=1 python -m pytest tests/unit/engines/circuits/fused_gpu_interpreted.py
"""

from __future__ import annotations

import os

import pytest
import torch

from ketscale.engines.circuits.ansaetze import vqc_ansatz
from ketscale.engines.circuits.circuit import Angles, Circuit, Column, Gate, given
from ketscale.engines.circuits.fused import gpu
from tests.unit.engines.circuits.test_simulators import (
    random_angles,
    random_circuit,
    random_states,
    random_words,
    simulator,
)

Words = tuple[str, ...]
Tensors = list[torch.Tensor]


def test_triton_interprets_its_kernels() -> None:
    assert os.environ["TRITON_INTERPRET"] == "1"


def values_and_gradients(
    values: torch.Tensor, angles: Angles, initial: torch.Tensor | None, wanted: str = "all"
) -> Tensors:
    """The values and the gradients of a random product with them by all tensors, or the one that is named."""
    generator = torch.Generator().manual_seed(3)
    cotangent = torch.randn(values.shape, dtype=torch.complex128, generator=generator)
    scalar = (values * cotangent.to(values.dtype if values.is_complex() else torch.complex128)).real.sum()
    tensors = {"inputs": angles.inputs, "weights": angles.weights, "initial": initial}
    by = [t for name, t in tensors.items() if t is not None and t.requires_grad and wanted in ("all", name)]
    gradients = torch.autograd.grad(scalar, by, allow_unused=True, materialize_grads=True)
    return [values.detach(), *gradients]


def found(
    circuit: Circuit,
    angles: Angles,
    words: Words | None,
    initial: torch.Tensor | None = None,
    wanted: str = "all",
) -> Tensors:
    return values_and_gradients(gpu.evaluate(circuit, *angles, words, initial), angles, initial, wanted)


def expected(
    circuit: Circuit,
    angles: Angles,
    words: Words | None,
    initial: torch.Tensor | None = None,
    wanted: str = "all",
) -> Tensors:
    return values_and_gradients(whole(circuit, *angles, words, initial), angles, initial, wanted)


def assert_as_expected(
    circuit: Circuit, batch: int, words: Words | None, initial: torch.Tensor | None = None
) -> None:
    angles = random_angles(circuit, batch)
    torch.testing.assert_close(
        found(circuit, angles, words, initial), expected(circuit, angles, words, initial), atol=1e-10, rtol=0
    )


def assert_higher_as_expected(circuit: Circuit, words: Words | None, initial: torch.Tensor) -> None:
    """First, second and third derivatives of a scalar by all tensors."""
    angles, results = random_angles(circuit, 2), []
    for evaluate in (gpu.evaluate, whole):
        values, orders = evaluate(circuit, *angles, words, initial), []
        total = (values * torch.arange(1, values.shape[1] + 1)).real.exp().sum()
        for _ in range(3):
            slopes = torch.autograd.grad(total, (*angles, initial), create_graph=True)
            total = sum((x.real.sin().sum() for x in slopes), start=torch.zeros(()))
            orders += slopes
        results.append(orders)
    torch.testing.assert_close(*results, atol=1e-9, rtol=0)


def whole(
    circuit: Circuit,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    words: Words | None,
    initial: torch.Tensor | None,
) -> torch.Tensor:
    reference, angles = simulator("default.qubit"), Angles(inputs, weights)
    if words is None:
        return reference.state(circuit, angles, initial)
    return reference.expval(circuit, angles, words, initial)


def start(kind: str, qubits: int, batch: int) -> torch.Tensor | None:
    shapes = {"shared": (2**qubits,), "own": (batch, 2**qubits)}
    return random_states(*shapes[kind]).requires_grad_() if kind in shapes else None


# 17 samples are no whole number of blocks, of which each of these circuits needs several.
@pytest.mark.parametrize(
    "qubits, batch, kind",
    [
        *((1, 1, "zero"), (2, 3, "shared"), (3, 17, "own"), (5, 3, "shared")),
        *(pytest.param(*case, marks=pytest.mark.nightly) for case in ((1, 17, "own"), (4, 17, "zero"))),
    ],
)
def test_expectation_values_and_gradients(qubits: int, batch: int, kind: str) -> None:
    initial = start(kind, qubits, batch)
    assert_as_expected(random_circuit(qubits, qubits), batch, random_words(qubits, qubits), initial)


@pytest.mark.parametrize("kind", ["zero", "shared", "own"])
def test_states_and_gradients(kind: str) -> None:
    assert_as_expected(random_circuit(3, 13), 3, None, start(kind, 3, 3))


@pytest.mark.parametrize("qubits", [1, 3])
def test_gradients_at_angles_of_zero(qubits: int) -> None:
    """Angles at which the backward kernel would divide by a sine of 0."""
    circuit, words, initial = (
        random_circuit(qubits, qubits),
        random_words(qubits, qubits),
        start("own", qubits, 3),
    )
    angles = Angles(*(torch.zeros_like(t).requires_grad_() for t in random_angles(circuit, 3)))
    values, *gradients = found(circuit, angles, words, initial)
    assert any(gradient.abs().max() > 0.1 for gradient in gradients)
    expectations = expected(circuit, angles, words, initial)
    torch.testing.assert_close([values, *gradients], expectations, atol=1e-10, rtol=0)


@pytest.mark.parametrize("qubits, batch", [(1, 65), (7, 2)])
def test_circuits_of_real_amplitudes(qubits: int, batch: int) -> None:
    words = ("Z" * qubits, "X" * qubits, "Y" + "I" * (qubits - 1), *random_words(qubits, qubits))
    assert_as_expected(vqc_ansatz(qubits, 2), batch, words)


HIGHER = {
    "by operators": random_circuit(2, 3),
    "by shifts": Circuit(2).ry(0, "x0").crx(0, 1, "w0").rx(1, "x1").xx(0, 1, "w1").ry(0, "w0"),
    "with a move": Circuit(2).ry(0, "x0").rx(1, "w0").permuted((2, 0, 3, 1), 0, 1).ry(0, "w1"),
}


@pytest.mark.parametrize("words", [("ZX", "YI"), None])
@pytest.mark.parametrize("name", HIGHER)
def test_second_and_third_derivatives(name: str, words: Words | None) -> None:
    assert_higher_as_expected(HIGHER[name], words, random_states(4).requires_grad_())


# The largest states within one warp, and the smallest that several share.
@pytest.mark.parametrize("qubits, kind", [(8, "own"), (9, "zero")])
def test_states_of_a_warp_and_of_several(qubits: int, kind: str) -> None:
    gates = [Gate("RX", (w,), (Column("input", w),)) for w in range(qubits)]
    gates += [Gate("CRZ", (w, (w + 1) % qubits), (Column("weight", w),)) for w in range(0, qubits, 2)]
    gates += [Gate("CNOT", (0, qubits - 1)), Gate("IsingXX", (0, qubits - 1), (Column("weight", 1),))]
    words = ("Z" * qubits, "XIYIZI" + "X" * (qubits - 6))
    assert_as_expected(Circuit(qubits, tuple(gates)), 2, words, start(kind, qubits, 2))


@pytest.mark.parametrize("wanted", ["inputs", "weights", "initial"])
@pytest.mark.parametrize("words", [random_words(2, 4), None])
def test_gradients_of_one_tensor_alone(wanted: str, words: Words | None) -> None:
    circuit, initial = random_circuit(2, 4), random_states(4)
    angles = Angles(
        *(t.detach().requires_grad_(n == wanted) for n, t in random_angles(circuit, 3)._asdict().items())
    )
    initial.requires_grad_(wanted == "initial")
    torch.testing.assert_close(
        found(circuit, angles, words, initial, wanted),
        expected(circuit, angles, words, initial, wanted),
        atol=1e-10,
        rtol=0,
    )


def test_without_gradients_the_values_are_the_same() -> None:
    circuit, words = random_circuit(2, 6), random_words(2, 6)
    angles = random_angles(circuit, 3)
    with torch.no_grad():
        values = gpu.evaluate(circuit, *angles, words, None)
    assert torch.equal(values, gpu.evaluate(circuit, *angles, words, None))


@pytest.mark.parametrize("kind", ["input", "weight"])
def test_circuits_with_one_kind_of_angles(kind: str) -> None:
    gates = (
        Gate("Hadamard", (0,)),
        Gate("Rot", (1,), tuple(Column(kind, i) for i in (0, 3, 0))),  # column 1 has no gate, 0 has several
        Gate("CRX", (1, 0), (Column(kind, 3),)),
        Gate("RZ", (0,), (Column(kind, 2),)),
    )
    assert_as_expected(Circuit(2, gates), 3, ("ZX", "YI"))
    assert_as_expected(Circuit(2, gates), 3, None)


@pytest.mark.parametrize("words", [("XZ", "YY"), None])
def test_circuits_without_angles(words: Words | None) -> None:
    rotated = (Gate("Hadamard", (0,)), Gate("CNOT", (0, 1)), given([[0, 1], [1j, 0]], 1))
    permuted = (Gate("PauliY", (1,)), Gate("SWAP", (0, 1)), Gate("S", (0,)))
    for gates in (rotated, permuted, ()):
        assert_as_expected(Circuit(2, gates), 2, words, start("own", 2, 2))


def test_spare_columns_get_zero_gradients() -> None:
    circuit = Circuit(1, (Gate("RY", (0,), (Column("input", 0),)), Gate("RX", (0,), (Column("weight", 0),))))
    inputs, weights = torch.ones(2, 3).requires_grad_(), torch.ones(4).requires_grad_()
    _, by_inputs, by_weights = found(circuit, Angles(inputs, weights), ("Z",))
    assert torch.equal(by_inputs != 0, torch.tensor([[True, False, False]] * 2))
    assert torch.equal(by_weights != 0, torch.tensor([True, False, False, False]))


def test_tensors_that_are_views_conjugate_or_negative() -> None:
    circuit, words = random_circuit(2, 7), random_words(2, 7)
    stored = torch.randn(4, 3, dtype=torch.complex128, generator=torch.Generator().manual_seed(5))
    angles = Angles(stored.conj().imag.T[:, :3], random_angles(circuit, 1).weights.detach())
    initial = random_states(4).conj()
    assert angles.inputs.is_neg() and not angles.inputs.is_contiguous() and initial.is_conj()
    plain = Angles(angles.inputs.clone().contiguous(), angles.weights)
    values = gpu.evaluate(circuit, *angles, words, initial)
    reference = simulator("default.qubit").expval(circuit, plain, words, initial.resolve_conj())
    torch.testing.assert_close(values, reference, atol=1e-10, rtol=0)

    states = gpu.evaluate(circuit, *random_angles(circuit, 3), None, initial.requires_grad_())
    (gradient,) = torch.autograd.grad(states.conj().imag.sum(), initial)
    states = simulator("default.qubit").state(circuit, random_angles(circuit, 3), initial)
    (other,) = torch.autograd.grad(states.conj().imag.sum(), initial)
    torch.testing.assert_close(gradient.resolve_conj(), other.resolve_conj(), atol=1e-10, rtol=0)


@pytest.mark.parametrize("words", [random_words(2, 8), None])
def test_single_precision_is_kept(words: Words | None) -> None:
    circuit = random_circuit(2, 8)
    angles = random_angles(circuit, 3, torch.float32)
    initial = random_states(4, dtype=torch.complex64).requires_grad_()
    exact = Angles(*(t.detach().double().requires_grad_() for t in angles))
    start_ = initial.detach().to(torch.complex128).requires_grad_()
    single = found(circuit, angles, words, initial)
    assert {t.dtype for t in single} <= {torch.float32, torch.complex64}
    double = expected(circuit, exact, words, start_)
    torch.testing.assert_close(single, double, atol=1e-5, rtol=1e-5, check_dtype=False)
