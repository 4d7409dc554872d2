"""Noisy circuits against PennyLane's default.mixed, Qiskit's Kraus operators and torch's operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pennylane as qml
import pytest
import torch
from qiskit.quantum_info import Kraus, SuperOp

import ketscale
from ketscale.engines.circuits.circuit import CHANNELS, Angles, Circuit, Column
from ketscale.engines.circuits.fused import Fused
from ketscale.engines.noise import density
from ketscale.engines.noise.channels import PAULIS, channel, transfer
from ketscale.errors import UserError
from tests.unit.engines.noise import reference

F64 = torch.float64
pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated"
)  # torch's forward mode itself
# Every kind of feature and pass: cosines, strengths, roots, products, a spread, a matrix on three wires.
EVERY = (
    Circuit(3).rx(0, "x0").channel("AmplitudeDamping", 0, "w0").rot(1, "w1", "w2", "x1").cnot(0, 1).crx(1, 2, "w3")
    .toffoli(0, 1, 2).channel("GeneralizedAmplitudeDamping", 1, "x1", "w4").channel("DepolarizingChannel", (0, 2), "w5")
    .channel("ResetError", 0, "w6", 0.1).swap(0, 1).channel("Readout", 2, 0.1, "w0")
)  # fmt: skip
WORDS = ("ZII", "XYZ", "IIZ", "YIX")


def drawn(circuit: Circuit, batch: int, seed: int = 0, dtype: torch.dtype = F64) -> Angles:
    """Numbers that are angles and strengths."""
    generator = torch.Generator().manual_seed(seed)
    made = [0.3 * torch.rand(*shape, generator=generator, dtype=F64).to(dtype) for shape in
            ((batch, circuit.inputs), (circuit.weights,))]  # fmt: skip
    return Angles(*(each.requires_grad_() for each in made))


def plain(circuit: Circuit, words: tuple[str, ...]) -> Callable[..., torch.Tensor]:
    return density.call_of(circuit, words)._plain


@pytest.mark.parametrize("seed", range(24))
def test_values_are_those_of_default_mixed(seed: int) -> None:
    generator = np.random.default_rng(seed)
    qubits = int(generator.integers(1, 5))
    circuit = reference.random_circuit(generator, qubits, int(generator.integers(3, 25)))
    words, angles = reference.random_words(generator, qubits), drawn(circuit, 2, seed)
    found = density.expval(circuit, angles, words).detach().numpy()
    states = [
        reference.density(circuit, row.numpy(), angles.weights.detach().numpy())
        for row in angles.inputs.detach()
    ]
    expected = [[np.trace(reference.word_matrix(word) @ state).real for word in words] for state in states]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    matrices = density.density_matrix(circuit, angles).detach().numpy()
    np.testing.assert_allclose(matrices, states, atol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_gradients_are_those_of_torchs_operators(seed: int) -> None:
    generator = np.random.default_rng(100 + seed)
    qubits = int(generator.integers(1, 5))
    circuit = reference.random_circuit(generator, qubits, 20)
    words, angles = reference.random_words(generator, qubits), drawn(circuit, 1 + 3 * seed, seed)
    values = [density.expval(circuit, angles, words), plain(circuit, words)(*angles)]
    torch.testing.assert_close(*values, rtol=0, atol=1e-13)
    cotangent = torch.randn(values[0].shape, generator=torch.Generator().manual_seed(seed), dtype=F64)
    gradients = [
        torch.autograd.grad((each * cotangent).sum(), angles, materialize_grads=True)
        if each.requires_grad
        else ()
        for each in values
    ]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_single_precision_is_rounded_alone() -> None:
    angles = drawn(EVERY, 20)
    halves = Angles(*(each.detach().float().requires_grad_() for each in angles))
    found = []
    for each in (angles, halves):
        values = density.expval(EVERY, each, WORDS)
        found.append(
            [values.detach().double(), *(x.double() for x in torch.autograd.grad(values.sum(), each))]
        )
    torch.testing.assert_close(*found, rtol=0, atol=2e-5)


def test_derivatives_of_first_and_second_order_are_those_of_differences() -> None:
    angles = drawn(EVERY, 3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert torch.autograd.gradcheck(
            lambda *given: density.expval(EVERY, Angles(*given), WORDS), tuple(angles)
        )
        assert torch.autograd.gradgradcheck(
            lambda *given: density.expval(EVERY, Angles(*given), WORDS), angles
        )


def test_torch_func_knows_noisy_circuits() -> None:
    inputs, weights = (each.detach() for each in drawn(EVERY, 3))
    many = 0.3 * torch.rand(5, EVERY.weights, generator=torch.Generator().manual_seed(1), dtype=F64)

    def both(transformed: Callable[[Callable[..., torch.Tensor]], Any]) -> None:
        ours = transformed(lambda w: density.expval(EVERY, Angles(inputs, w), WORDS))
        theirs = transformed(lambda w: plain(EVERY, WORDS)(inputs, w))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)

    both(lambda f: torch.func.vmap(f)(many))
    both(lambda f: torch.func.jacrev(f)(weights))
    both(lambda f: torch.func.jvp(f, (weights,), (torch.ones_like(weights),)))
    both(lambda f: torch.func.hessian(lambda w: f(w).sum())(weights))
    both(lambda f: torch.func.vmap(torch.func.grad(lambda w: f(w).sum()))(many))


def test_a_second_sweep_back_and_vectors_that_are_made_again_give_the_same_bits(monkeypatch: Any) -> None:
    angles = drawn(EVERY, 11)
    values = density.expval(EVERY, angles, WORDS).sum()
    first = torch.autograd.grad(values, angles, retain_graph=True)
    density.expval(EVERY, drawn(EVERY, 11, 1), WORDS).sum().backward()
    monkeypatch.setattr(density, "MOST_KEPT", 0)
    for again in (values, density.expval(EVERY, angles, WORDS).sum()):
        for one, other in zip(first, torch.autograd.grad(again, angles), strict=True):
            assert torch.equal(one, other)


def test_samples_do_not_depend_on_threads_or_on_each_other() -> None:
    angles = drawn(EVERY, 13)
    whole = density.expval(EVERY, angles, WORDS)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert torch.equal(density.expval(EVERY, angles, WORDS), whole)
    finally:
        torch.set_num_threads(threads)
    for row in range(13):
        alone = density.expval(EVERY, Angles(angles.inputs[row : row + 1], angles.weights), WORDS)
        assert torch.equal(alone[0], whole[row])


@pytest.mark.parametrize("seed", range(6))
def test_density_matrices_are_states(seed: int) -> None:
    circuit = reference.random_circuit(np.random.default_rng(seed), 3, 30)
    states = density.density_matrix(circuit, drawn(circuit, 2, seed)).detach()
    torch.testing.assert_close(states.diagonal(dim1=1, dim2=2).sum(1).real, torch.ones(2, dtype=F64))
    torch.testing.assert_close(states, states.mH)
    assert float(torch.linalg.eigvalsh(states).min()) > -1e-14


@pytest.mark.parametrize("name", [name for name in CHANNELS if hasattr(qml, name)])
def test_a_channel_is_pennylanes(name: str) -> None:
    numbers = reference.THERMAL if name == "ThermalRelaxationError" else (0.3, 0.25)[: CHANNELS[name].angles]
    operators = getattr(qml, name)(*numbers, wires=0).kraus_matrices()
    found = channel(name, [Column("constant", value=number) for number in numbers]).constant
    # PennyLane adds 1e-14 under its roots.
    np.testing.assert_allclose(found, transfer(operators), atol=3e-14)
    theirs = SuperOp(Kraus([np.asarray(operator) for operator in operators])).data
    columns = PAULIS.transpose(0, 2, 1).reshape(4, 4).T  # Qiskit stacks columns
    np.testing.assert_allclose(found, (columns.conj().T @ theirs @ columns).real / 2, atol=3e-14)


def test_given_channels_on_one_and_two_wires() -> None:
    one = qml.AmplitudeDamping(0.3, wires=0).kraus_matrices()
    both = [np.kron(a, b) for a in one for b in qml.PhaseFlip(0.2, wires=0).kraus_matrices()]
    start = Circuit(2).rx(0, 0.4).cnot(0, 1).ry(1, 0.9)
    given = start.kraus(both, 1, 0)
    named = start.channel("AmplitudeDamping", 1, 0.3).channel("PhaseFlip", 0, 0.2)
    alone = start.kraus(one, 1).channel("PhaseFlip", 0, 0.2)
    nothing = Angles(torch.empty(1, 0, dtype=F64), torch.empty(0, dtype=F64))
    states = [density.density_matrix(each, nothing) for each in (given, named, alone)]
    torch.testing.assert_close(states[0], states[1])
    torch.testing.assert_close(states[2], states[1])


def test_readout_confuses_what_is_measured() -> None:
    circuit = Circuit(2).ry(0, 0.8).cnot(0, 1).channel("Readout", 0, 0.1, 0.3)
    probabilities = ketscale.Layer(circuit, measure="probs", dtype=F64)()
    exact = np.array([np.cos(0.4) ** 2, 0, 0, np.sin(0.4) ** 2]).reshape(2, 2)
    confusion = np.array([[0.9, 0.3], [0.1, 0.7]])
    np.testing.assert_allclose(probabilities.detach().numpy(), (confusion @ exact).flatten(), atol=1e-15)


def test_a_layer_trains_strengths_and_takes_shots() -> None:
    circuit = Circuit(2).ry(0, "x0").channel("AmplitudeDamping", 0, "w0").cnot(0, 1).rx(1, "w1")
    torch.manual_seed(0)
    layer = ketscale.Layer(circuit, dtype=F64)
    assert layer.weight[0] < 0.1
    inputs = torch.tensor([[0.5], [1.1]], dtype=F64)
    layer(inputs).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.abs().min() > 1e-3
    shots = ketscale.Layer(circuit, shots=40_000, gradient="exact", dtype=F64)
    shots.load_state_dict(layer.state_dict())
    torch.testing.assert_close(shots(inputs), layer(inputs), rtol=0, atol=6 / 200)
    compiled = torch.compile(layer, backend="eager")
    torch.testing.assert_close(compiled(inputs), layer(inputs))


def test_programs_of_torch_export_have_values_and_probabilities() -> None:
    inputs = torch.tensor([[0.5], [1.1]], dtype=F64)
    circuit = Circuit(2).ry(0, "x0").channel("AmplitudeDamping", 0, "w0").cnot(0, 1)
    for measure in ("expval", "probs"):
        layer = ketscale.Layer(circuit, measure=measure, dtype=F64)
        program = torch.export.export(layer, (inputs,)).module()
        torch.testing.assert_close(program(inputs), layer(inputs))
    with pytest.raises(UserError, match=r"which torch\.export and CUDA graphs cannot"):
        torch.export.export(ketscale.Layer(circuit, measure="density", dtype=F64), (inputs,))


FLIP = Circuit(1).channel("BitFlip", 0, "x0")
SUM = Circuit(1).channel("PauliChannel", 0, "x0", "x1", "x2")
READ = Circuit(1).channel("Readout", 0, 0.1, 0.1)


def test_gates_that_permute_basis_states_are_those_of_state_vectors() -> None:
    gates = (
        Circuit(3).ry(0, "x0").rx(1, "x1").ry(2, "w0").controlled("SWAP", (1,), (0, 2)).controlled("PauliY", (0, 2), (1,))
        .permuted((3, 1, 7, 0, 2, 6, 5, 4), 2, 0, 1).controlled("S", (2,), (0,)).controlled("CZ", (1,), (2, 0))
        .controlled("Rot", (0, 1), (2,), 0.3, "w1", 0.2).unitary(np.eye(4)[[2, 0, 1, 3]], 0, 2)
    )  # fmt: skip
    angles = drawn(gates, 2)
    noisy = density.expval(gates.channel("BitFlip", 0, 0.0), angles, WORDS)
    torch.testing.assert_close(noisy, Fused().expval(gates, angles, WORDS), rtol=0, atol=1e-12)


def test_circuits_of_which_nothing_is_measured() -> None:
    layer = ketscale.Layer(Circuit(2).channel("BitFlip", 0, "w0"), ["IZ", "II"], dtype=F64)
    torch.testing.assert_close(layer().detach(), torch.ones(2, dtype=F64))
    layer().sum().backward()
    assert layer.weight.grad == 0
    assert ketscale.Layer(Circuit(1), measure="density")()[0, 0] == 1


def test_a_damping_of_1_has_the_gradient_that_is_finite() -> None:
    strength = torch.tensor([[1.0]], dtype=F64, requires_grad=True)
    layer = ketscale.Layer(Circuit(1).h(0).channel("AmplitudeDamping", 0, "x0"), ["Z"], dtype=F64)
    (slope,) = torch.autograd.grad(layer(strength).sum(), strength)
    torch.testing.assert_close(slope, torch.ones(1, 1, dtype=F64))


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: Circuit(1).channel("BitFlip", 0, 1.2), "from 0 to 1, not 1.2"),
        (lambda: Circuit(1).channel("PauliChannel", 0, 0.5, 0.4, 0.2), "sum to 1.1"),
        (lambda: Circuit(1).channel("ThermalRelaxationError", 0, 0.0, 1.0, 3.0, 1.0), "T2 <= 2 T1"),
        (lambda: Circuit(1).channel("ThermalRelaxationError", 0, 0.0, "w0", 3.0, 1.0), "are numbers"),
        (lambda: Circuit(1).kraus([0.9 * np.eye(2)], 0), "do not preserve the trace"),
        (lambda: Circuit(1).channel("Bitflip", 0, 0.1), "unknown channel 'Bitflip'"),
        (lambda: ketscale.Layer(SUM)(torch.full((1, 3), 0.5)), "the sum of its probabilities"),
        (lambda: Circuit(1).channel("Readout", 0, 0.1, 0.1).unitary(np.eye(2), 0), "nothing acts on a wire"),
        (lambda: ketscale.Layer(READ, measure="density")(), "has no readout errors"),
        (lambda: density.expval(Circuit(20).channel("BitFlip", 0, 0.1), drawn(READ, 1), ("Z" * 20,)), "does not fit"),
        (lambda: READ.x(0), "nothing acts on a wire"),
        (lambda: ketscale.Layer(FLIP)(torch.tensor([[1.5]])), "input 0: the strength of a channel"),
        (lambda: ketscale.Layer(FLIP)(torch.tensor([[float("nan")]])), "from 0 to 1, not"),
        (lambda: ketscale.Layer(FLIP, measure="state")(torch.tensor([[0.1]])), "has channels"),
        (lambda: ketscale.Layer(FLIP, simulator="default.qubit")(torch.tensor([[0.1]])), "has channels"),
        (lambda: ketscale.Layer(FLIP, shots=9)(torch.tensor([[0.1]], requires_grad=True)), "parameter-shift"),
        (lambda: density.expval(FLIP, drawn(FLIP, 1), ("ZZ",)), "must have 1 letters"),
        (lambda: ketscale.Layer(Circuit(4).controlled("PauliX", (0, 1, 2), (3,)), measure="density")(), "at most 3"),
    ],
)  # fmt: skip
def test_what_is_no_channel_is_refused_in_words(ask: Callable[[], Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        ask()


def test_memory_that_no_machine_has_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr(density, "MOST_BYTES", 1000)
    with pytest.raises(UserError, match=r"3 qubits and \d+ passes"):
        density.expval(EVERY, drawn(EVERY, 1), WORDS)
