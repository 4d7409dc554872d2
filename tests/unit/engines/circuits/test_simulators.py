"""Every simulator gives the same values and gradients, and default.qubit agrees with dense matrices."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from scipy.stats import unitary_group

from ketscale.config.simulators.circuits import CircuitSimulator
from ketscale.engines.circuits.ansaetze import vqc_ansatz
from ketscale.engines.circuits.circuit import (
    GATES,
    Angles,
    Circuit,
    Column,
    Gate,
    given,
    pauli_words,
)
from ketscale.engines.circuits.registry import SIMULATORS
from ketscale.engines.circuits.simulator import Simulator
from ketscale.errors import UserError
from ketscale.simulators.factory import build_simulator
from ketscale.simulators.placement import Placed
from ketscale.spans import Recorder, recording
from tests.unit.engines.circuits.dense import final_states, means

CPU = torch.device("cpu")
FUSED = CircuitSimulator.usual("fused")
# What needs a GPU, and what takes seconds to compile each circuit: `test_jitted` has that.
ELSEWHERE = ("lightning.gpu", "default.qubit-jit")
SETTINGS = {
    **{name: CircuitSimulator.usual(name) for name in SIMULATORS if name not in ELSEWHERE},
    "fused-matrix": replace(FUSED, route="matrix"),
}
OTHERS = [name for name in SETTINGS if name != "default.qubit"]
ONCE = [name for name in SETTINGS if SETTINGS[name].gradient != "backprop"]
LIMITED = [name for name in ONCE if SETTINGS[name].device != "fused"]


@cache
def simulator(name: str) -> Simulator:
    return build_simulator(name, SETTINGS[name], CPU)


def random_circuit(qubits: int, seed: int) -> Circuit:
    """Every gate that fits and two given unitaries, on random wires, over few columns that several gates share."""
    rng = random.Random(seed)
    names = [name for name, kind in GATES.items() if kind.wires <= qubits]
    rng.shuffle(names)
    columns = [Column("input", i) for i in range(3)] + [Column("weight", i) for i in range(4)]
    columns += [Column("constant", value=0.7), Column("constant", value=-2.1)]
    gates = [
        Gate(
            name,
            tuple(rng.sample(range(qubits), GATES[name].wires)),
            tuple(rng.choice(columns) for _ in range(GATES[name].angles)),
        )
        for name in ["Hadamard", *names]
    ]
    # PennyLane's Rot takes tensors alone or numbers alone.
    gates.append(Gate("Rot", (0,), tuple(rng.sample([columns[0], columns[3], columns[7]], 3))))
    for wires in range(1, min(qubits, 2) + 1):
        matrix = unitary_group.rvs(2**wires, random_state=seed)
        gates.insert(rng.randrange(len(gates)), given(matrix, *rng.sample(range(qubits), wires)))
    return Circuit(qubits, tuple(gates))


def random_words(qubits: int, seed: int) -> tuple[str, ...]:
    """Three random Pauli words, the identity, and one word a second time."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("IXYZ", k=qubits)) for _ in range(3)]
    return (*words, "I" * qubits, words[0])


def random_angles(circuit: Circuit, batch: int, dtype: torch.dtype = torch.float64) -> Angles:
    generator = torch.Generator().manual_seed(7)
    inputs, weights = (
        torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype).requires_grad_()
        for shape in ((batch, circuit.inputs), (circuit.weights,))
    )
    return Angles(inputs, weights)


def random_states(*shape: int, dtype: torch.dtype = torch.complex128) -> torch.Tensor:
    states = torch.randn(*shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(11))
    return (states / states.norm(dim=-1, keepdim=True)).to(dtype)


def detached(angles: Angles) -> Angles:
    return Angles(*(tensor.detach() for tensor in angles))


def values_and_gradients(
    name: str, circuit: Circuit, angles: Angles, words: tuple[str, ...], initial: torch.Tensor | None = None
) -> list[torch.Tensor]:
    """Expectation values, and the gradients of a scalar that is not linear in them."""
    values = simulator(name).expval(circuit, angles, words, initial)
    scale = torch.arange(1, len(words) + 1, dtype=values.dtype)
    scalar = (torch.exp(values) * scale).sum() + values.prod(dim=1).sum()
    gradients = torch.autograd.grad(scalar, list(angles), allow_unused=True, materialize_grads=True)
    return [values.detach(), *gradients]


# --- values and gradients ---


@pytest.mark.parametrize("qubits", [1, 2, 3, 4])
def test_default_qubit_agrees_with_dense_matrices(qubits: int) -> None:
    for seed in range(2):
        circuit, words = random_circuit(qubits, seed), random_words(qubits, seed)
        angles = detached(random_angles(circuit, 3))
        starts = random_states(3, 2**qubits)
        for initial in (None, starts[0], starts):
            state = simulator("default.qubit").state(circuit, angles, initial)
            values = simulator("default.qubit").expval(circuit, angles, words, initial)
            expected = final_states(circuit, *angles, initial)
            torch.testing.assert_close(
                [state, values], [expected, means(expected, words)], atol=1e-12, rtol=0
            )


@pytest.mark.parametrize("name", SETTINGS)
def test_a_product_of_ry_rotations_has_its_closed_form(name: str) -> None:
    circuit = Circuit(
        2, tuple(Gate("RY", (w,), (Column(kind, w),)) for w in range(2) for kind in ("input", "weight"))
    )
    angles = random_angles(circuit, 2)
    values = simulator(name).expval(circuit, angles, ("ZI", "IZ", "XX"))
    gradients = torch.autograd.grad((values**2).sum(), list(angles))
    a, b = (angles.inputs + angles.weights).detach().unbind(1)
    expected = torch.stack([a.cos(), b.cos(), a.sin() * b.sin()], dim=1)
    slope = torch.stack(
        [
            -(2 * a).sin() + (2 * a).sin() * b.sin() ** 2,
            -(2 * b).sin() + (2 * b).sin() * a.sin() ** 2,
        ],
        dim=1,
    )
    torch.testing.assert_close(values.detach(), expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(gradients[0], slope, atol=1e-12, rtol=0)
    torch.testing.assert_close(gradients[1], slope.sum(0), atol=1e-12, rtol=0)


@pytest.mark.parametrize("qubits, batch, start", [(1, 1, None), (2, 3, "shared"), (4, 2, "own")])
@pytest.mark.parametrize("name", OTHERS)
def test_every_simulator_gives_the_same_values_and_gradients(
    name: str, qubits: int, batch: int, start: str | None
) -> None:
    circuit, words = random_circuit(qubits, 20 + qubits), random_words(qubits, 20 + qubits)
    angles = random_angles(circuit, batch)
    initial = random_states(*(batch, 2**qubits)[start == "shared" :]) if start else None
    found = values_and_gradients(name, circuit, angles, words, initial)
    expected = values_and_gradients("default.qubit", circuit, angles, words, initial)
    assert [tuple(t.shape) for t in found] == [(batch, 5), (batch, circuit.inputs), (circuit.weights,)]
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    states = (simulator(each).state(circuit, detached(angles), initial) for each in (name, "default.qubit"))
    torch.testing.assert_close(*states, atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", sorted(set(SETTINGS) - set(LIMITED)))
def test_the_initial_state_is_differentiated(name: str) -> None:
    circuit, word = random_circuit(3, 6), "XYZ"
    angles = detached(random_angles(circuit, 2))
    initial = random_states(2, 8).requires_grad_()
    found, expected = (
        torch.autograd.grad(values.sum(), initial)
        for values in (
            simulator(name).expval(circuit, angles, (word,), initial),
            means(final_states(circuit, *angles, initial), (word,)),
        )
    )
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", SETTINGS)
def test_only_the_angles_that_need_it_get_a_gradient(name: str) -> None:
    circuit, words = random_circuit(2, 9), random_words(2, 9)
    angles = random_angles(circuit, 2)
    _, _, expected = values_and_gradients("default.qubit", circuit, angles, words)
    fixed_inputs = Angles(angles.inputs.detach(), angles.weights)
    values = simulator(name).expval(circuit, fixed_inputs, words)
    scale = torch.arange(1, len(words) + 1, dtype=values.dtype)
    ((torch.exp(values) * scale).sum() + values.prod(dim=1).sum()).backward()
    torch.testing.assert_close(angles.weights.grad, expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_circuit_without_inputs_still_has_a_row_per_sample(name: str) -> None:
    circuit = Circuit(2, (Gate("RY", (1,), (Column("weight", 0),)), Gate("CNOT", (1, 0))))
    weights = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    angles = Angles(torch.zeros(3, 0, dtype=torch.float64), weights)
    values = simulator(name).expval(circuit, angles, ("ZI",))
    (gradient,) = torch.autograd.grad(values.sum(), weights)
    torch.testing.assert_close(values, torch.full((3, 1), np.cos(0.3), dtype=torch.float64))
    torch.testing.assert_close(gradient, torch.full((1,), -3 * np.sin(0.3), dtype=torch.float64))


@pytest.mark.parametrize("name", SETTINGS)
def test_a_circuit_without_angles_is_evaluated(name: str) -> None:
    circuit = Circuit(2, (Gate("PauliX", (1,)),))
    angles = Angles(torch.zeros(2, 0), torch.zeros(0))
    assert simulator(name).expval(circuit, angles, ("ZI", "IZ")).tolist() == [[1, -1]] * 2
    torch.testing.assert_close(simulator(name).state(circuit, angles).abs(), torch.eye(4)[[1, 1]])


@pytest.mark.parametrize("name", SETTINGS)
def test_an_empty_batch_gives_no_rows_and_zero_gradients(name: str) -> None:
    circuit, words = vqc_ansatz(2, 1), pauli_words(2)
    angles = random_angles(circuit, 0)
    values, inputs, weights = values_and_gradients(name, circuit, angles, words)
    assert values.shape == (0, 2) and inputs.shape == (0, 2)
    assert torch.equal(weights, torch.zeros(2, dtype=torch.float64))
    assert simulator(name).state(circuit, detached(angles)).shape == (0, 4)


@pytest.mark.parametrize("name", SETTINGS)
def test_samples_that_do_not_count_have_zero_gradients(name: str) -> None:
    """As on a rank without samples, which evaluates one and multiplies its sums by 0; words may cancel out, too.

    What counts little, as a sample that is all but learned, counts.
    """
    circuit, starts = vqc_ansatz(2, 1), random_states(3, 4)
    inputs, weights = random_angles(circuit, 3)
    values = simulator(name).expval(circuit, Angles(inputs, weights), ("ZI", "IX", "ZI"), starts)
    count = torch.tensor([[0.0, 0, 0], [1e-9, 2e-9, 3e-9], [1, 0, -1]], dtype=torch.float64)
    (values * count).sum().backward()
    alone = random_angles(circuit, 3)
    simulator(name).expval(circuit, Angles(alone.inputs[1:2], alone.weights), ("ZI", "IX"), starts[1:2]).mul(
        count.new_tensor([4e-9, 2e-9])
    ).sum().backward()
    zero = torch.zeros(2, dtype=torch.float64)
    expected = torch.stack([zero, alone.inputs.grad[1], zero])
    torch.testing.assert_close(inputs.grad, expected, rtol=1e-9, atol=1e-20)
    torch.testing.assert_close(weights.grad, alone.weights.grad, rtol=1e-9, atol=1e-20)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_angles_precision_is_kept(name: str) -> None:
    circuit, words = random_circuit(2, 3), random_words(2, 3)
    angles = random_angles(circuit, 2, torch.float32)
    initial = random_states(4, dtype=torch.complex64)
    found = values_and_gradients(name, circuit, angles, words, initial)
    assert {tensor.dtype for tensor in found} == {torch.float32}
    assert simulator(name).state(circuit, detached(angles), initial).dtype == torch.complex64
    exact = Angles(*(tensor.detach().double().requires_grad_() for tensor in angles))
    expected = values_and_gradients("default.qubit", circuit, exact, words, initial.to(torch.complex128))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4, check_dtype=False)
    assert torch.get_default_dtype() == torch.float32


# --- what is refused ---


@pytest.mark.parametrize("name", LIMITED)
def test_a_gradient_that_a_simulator_cannot_give_is_refused(name: str) -> None:
    circuit = vqc_ansatz(2, 1)
    angles = random_angles(circuit, 1)
    with pytest.raises(UserError, match="cannot differentiate a state: use"):
        simulator(name).state(circuit, angles)
    with pytest.raises(UserError, match="cannot differentiate an initial state: use"):
        simulator(name).expval(circuit, angles, ("ZZ",), random_states(4).requires_grad_())


@pytest.mark.parametrize("name", LIMITED)
def test_second_derivatives_are_refused_where_they_would_be_left_out(name: str) -> None:
    inputs, weights = random_angles(vqc_ansatz(2, 1), 2)
    values = simulator(name).expval(vqc_ansatz(2, 1), Angles(inputs, weights), ("ZZ",))
    with pytest.raises(UserError, match=r"first derivatives only: .*create_graph=True.*'default\.qubit'"):
        torch.autograd.grad(values.sum() + weights.pow(3).sum(), weights, create_graph=True)


@pytest.mark.parametrize("name", ONCE)
def test_several_gradients_at_once_are_refused(name: str) -> None:
    inputs, weights = random_angles(vqc_ansatz(2, 1), 1)
    values = simulator(name).expval(vqc_ansatz(2, 1), Angles(inputs, weights), ("ZI", "IX"))
    directions = torch.eye(2, dtype=torch.float64)
    with pytest.raises(UserError, match="one gradient at a time: leave out is_grads_batched=True"):
        torch.autograd.grad(values[0], weights, directions, is_grads_batched=True)


@pytest.mark.parametrize("name", SETTINGS)
def test_requests_that_do_not_fit_the_circuit_are_refused(name: str) -> None:
    circuit = vqc_ansatz(2, 1)
    angles = detached(random_angles(circuit, 3))
    for words in ((), ("Z",), ("ZZZ",), ("ZA",), ("zz",)):
        with pytest.raises(UserError, match="Pauli word"):
            simulator(name).expval(circuit, angles, words)
    for initial in (random_states(2), random_states(2, 4), random_states(4, dtype=torch.complex64)):
        with pytest.raises(UserError, match="initial"):
            simulator(name).state(circuit, angles, initial)
    with pytest.raises(UserError, match="inputs must be"):
        simulator(name).expval(circuit, Angles(angles.inputs[:, :1], angles.weights), ("ZZ",))


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            replace(SETTINGS["qiskit"], gradient="adjoint"),
            "qiskit cannot do adjoint .*; it can do parameter-shift",
        ),
        (replace(SETTINGS["qiskit"], route="auto"), "route: only fused has routes"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: CircuitSimulator, message: str) -> None:
    with pytest.raises(UserError, match=rf"^simulators\.mine.*{message}"):
        build_simulator("mine", settings, CPU)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_missing_gpu_is_an_error() -> None:
    with pytest.raises(UserError, match="placement 'gpu' needs a CUDA GPU"):
        build_simulator("default.qubit", replace(SETTINGS["default.qubit"], placement="gpu"), CPU)


# --- placement ---


@pytest.mark.parametrize("name", ["lightning.qubit", "qiskit"])
def test_a_host_simulator_beside_a_gpu_model_must_be_placed_on_the_cpu(name: str) -> None:
    model = torch.device("cuda")
    with pytest.raises(UserError, match="set placement: cpu"):
        build_simulator(name, SETTINGS[name], model)
    placed = build_simulator(name, replace(SETTINGS[name], placement="cpu"), model)
    assert isinstance(placed, Placed) and placed.device == CPU
    assert not isinstance(build_simulator(name, replace(SETTINGS[name], placement="cpu"), CPU), Placed)


def test_a_placed_simulator_gives_the_same_and_times_its_transfers_both_ways() -> None:
    circuit, words = random_circuit(2, 4), random_words(2, 4)
    angles, initial = random_angles(circuit, 2), random_states(4).requires_grad_()
    placed, plain = Placed(simulator("default.qubit"), CPU), simulator("default.qubit")
    found, expected = (s.expval(circuit, angles, words, initial) for s in (placed, plain))
    everything = [*angles, initial]
    torch.testing.assert_close(
        [found, *torch.autograd.grad(found.square().sum(), everything)],
        [expected, *torch.autograd.grad(expected.square().sum(), everything)],
    )
    recorder = Recorder(CPU)
    with recording(recorder):
        placed.state(circuit, angles).abs().sum().backward()
        placed.state(circuit, Angles(angles.inputs.detach(), angles.weights)).abs().sum().backward()
    transfers = [event.name for event in recorder.events].count("transfer")
    # Two angles and one result go there and back; inputs without a gradient do not come back.
    assert transfers == 6 + 5
