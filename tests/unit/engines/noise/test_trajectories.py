"""Quantum trajectories against density matrices, closed forms and dampings by torch's operators."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ketscale
from ketscale import Circuit
from ketscale.config.circuits import CircuitSimulator, Noise
from ketscale.engines import randomness
from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.simulator import probabilities
from ketscale.engines.noise import density, trajectories
from ketscale.engines.noise.damping import Dampings
from ketscale.engines.noise.trajectories import Trajectories
from ketscale.errors import UserError
from ketscale.simulators.factory import build_simulator

# Means are within so many standard errors of the density matrix; with normal errors one of 40 numbers is beyond once in 9,000.
SIGMAS, NUMBER = 4.5, 4000
WORDS = ("ZII", "XYI", "ZZZ", "IXX", "IIZ")

START = Circuit(3).ry(0, "x0").rx(1, "x1").h(2).cnot(0, 1).crx(1, 2, "w0").s(1)
DAMPING = [[[1, 0], [0, 0.6]], [[0, 0.8], [0, 0]]]
FLIP = [[[0.8**0.5, 0], [0, 0.8**0.5]], [[0, 0.2**0.5], [0.2**0.5, 0]]]
CIRCUITS = {
    "flips": START.channel("BitFlip", 0, "w1").channel("PhaseFlip", 1, 0.2).rot(0, "w2", "x1", 0.3).cz(0, 2),
    "depolarising": (
        START.channel("DepolarizingChannel", 0, "w1").channel("DepolarizingChannel", (1, 2), "x2").rot(0, "w2", "x1", 0.3)
        .cz(0, 2).swap(1, 2).channel("DepolarizingChannel", (0, 2), 0.2).xx(0, 1, "w3").yy(1, 2, 0.4).zz(0, 2, "x0")
    ),
    "Pauli channel before Toffoli": (
        START.channel("PauliChannel", 0, "w1", 0.1, "x2").channel("PhaseDamping", 1, "w4").rot(1, "w2", "x1", 0.3)
        .toffoli(0, 1, 2).ry(2, 0.3)
    ),
    "damping": (
        START.channel("AmplitudeDamping", 0, "w1").channel("AmplitudeDamping", 1, 0.4).rot(0, "w2", "x1", 0.3).cnot(0, 2)
        .channel("AmplitudeDamping", 2, "x2").h(2)
    ),
    "generalised damping of flipped qubits": (
        START.channel("BitFlip", 0, 0.3).channel("GeneralizedAmplitudeDamping", 0, "w1", 0.3)
        .channel("GeneralizedAmplitudeDamping", 1, 0.4, "x2").rot(0, "w2", "x1", 0.3).cnot(0, 2)
    ),
    "reset and relaxation": (
        START.channel("ResetError", 0, "w1", 0.2).rot(0, "w2", "x1", 0.3).channel("ResetError", 0, 0.3, 0.0).cnot(0, 2)
        .channel("ThermalRelaxationError", 2, 0.3, 1.0, 1.2, 0.7).h(2)
    ),
    "readout": (
        START.channel("DepolarizingChannel", 0, "w1").channel("Readout", 0, "w4", 0.2).channel("Readout", 2, 0.05, "x2")
    ),
    "given channel": START.kraus(FLIP, 1).channel("DepolarizingChannel", 0, 0.1).rot(1, "w2", "x1", 0.3),
    "given damping": START.kraus(DAMPING, 1).channel("BitFlip", 1, 0.2).kraus(DAMPING, 1).h(1).cnot(1, 2),
    "a strength of 0": START.channel("BitFlip", 0, "w4").channel("AmplitudeDamping", 1, "w4").rot(0, "w2", "x1", 0.3),
}  # fmt: skip


def angles_of(circuit: Circuit, dtype: torch.dtype = torch.float64) -> Angles:
    inputs = torch.tensor([[0.3, 1.1, 0.05], [0.7, -0.4, 0.2], [2.0, 0.2, 0.1]], dtype=dtype)
    weights = torch.tensor([0.4, 0.15, 1.2, 0.7, 0.25], dtype=dtype)
    if circuit == CIRCUITS["a strength of 0"]:
        weights[4] = 0.0
    return Angles(inputs[:, : circuit.inputs], weights[: circuit.weights])


def distance(estimate: trajectories.Estimate, exact: torch.Tensor) -> float:
    """In standard errors; those below 1e-12 are rounding."""
    return float(((estimate.mean - exact).abs() / (estimate.error + 1e-12)).max())


@pytest.mark.parametrize("name", CIRCUITS)
def test_means_and_gradients_are_those_of_the_density_matrix(name: str) -> None:
    circuit, angles = CIRCUITS[name], angles_of(CIRCUITS[name])
    torch.manual_seed(1)
    given = [each.clone().requires_grad_() for each in angles]
    exact = density.expval(circuit, Angles(*given), WORDS)
    cotangent = torch.randn(exact.shape, dtype=torch.float64)
    by_inputs, by_weights = torch.autograd.grad((exact * cotangent).sum(), given)
    simulator = Trajectories(Fused(), NUMBER)
    values = simulator.estimate(circuit, angles, WORDS)
    assert distance(values, exact.detach()) < SIGMAS
    assert float(values.error.max()) < 0.02
    for gradient, expected in zip(
        simulator.gradients(circuit, angles, WORDS, cotangent), (by_inputs, by_weights), strict=True
    ):
        assert distance(gradient, expected) < SIGMAS
        assert float(gradient.error.max()) < 0.25
    # Without its channels the circuit would be found wrong.
    ideal = Circuit(3, tuple(gate for gate in circuit.gates if not gate.is_channel))
    if name != "a strength of 0":
        assert distance(values, Fused().expval(ideal, angles, WORDS)) > 3 * SIGMAS


@pytest.mark.parametrize("strength", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_damping_has_a_gradient_at_its_ends(strength: float, dtype: torch.dtype) -> None:
    """<Z> of |1> after damping g is 2 g - 1."""
    circuit = Circuit(1).x(0).channel("AmplitudeDamping", 0, "w0")
    angles = torch.empty(1, 0, dtype=dtype), torch.tensor([strength], dtype=dtype)
    torch.manual_seed(9)
    _, by_weights = Trajectories(Fused(), 20_000).gradients(
        circuit, angles, ("Z",), torch.ones(1, 1, dtype=dtype)
    )
    assert float(by_weights.error) < 0.3
    assert distance(by_weights, torch.tensor([2.0], dtype=dtype)) < SIGMAS


@pytest.mark.parametrize("trained", [False, True])
def test_many_channels_keep_the_norm(trained: bool) -> None:
    circuit = Circuit(2).ry(0, 0.4).cnot(0, 1)
    for _ in range(300):
        circuit = circuit.channel("DepolarizingChannel", 0, "w0").channel("AmplitudeDamping", 1, "w0")
    weights = torch.tensor([1e-3], dtype=torch.float64, requires_grad=trained)
    torch.manual_seed(10)
    estimate = Trajectories(Fused(), 1000).estimate(
        circuit, (torch.empty(1, 0, dtype=torch.float64), weights), ("II",)
    )
    assert float(estimate.mean) == pytest.approx(1, abs=0.1 if trained else 1e-9)


def test_dampings_have_first_derivatives_alone() -> None:
    layer = ketscale.Layer(Circuit(1).ry(0, "w0").channel("AmplitudeDamping", 0, 0.1), trajectories=10)
    with pytest.raises(UserError, match="first derivatives only"):
        torch.autograd.grad(layer().sum(), layer.weight, create_graph=True)


def test_autograd_has_the_mean_of_the_gradients() -> None:
    circuit = CIRCUITS["damping"]
    inputs, weights = (each.clone().requires_grad_() for each in angles_of(circuit))
    simulator, cotangent = Trajectories(Fused(), 50), torch.ones(3, len(WORDS), dtype=torch.float64)
    torch.manual_seed(3)
    values = simulator.expval(circuit, Angles(inputs, weights), WORDS)
    found = torch.autograd.grad(values.sum(), (inputs, weights))
    torch.manual_seed(3)
    by_inputs, by_weights = simulator.gradients(circuit, Angles(inputs, weights), WORDS, cotangent)
    torch.testing.assert_close(found, (by_inputs.mean, by_weights.mean))


def test_errors_are_those_of_repeated_estimates() -> None:
    circuit, angles = CIRCUITS["damping"], angles_of(CIRCUITS["damping"])
    torch.manual_seed(2)
    repeats = [Trajectories(Fused(), 100).estimate(circuit, angles, WORDS) for _ in range(200)]
    scatter = torch.stack([each.mean for each in repeats]).std(0)
    stated = torch.stack([each.error for each in repeats]).mean(0)
    assert float((scatter.square().mean() / stated.square().mean()).sqrt()) == pytest.approx(1, abs=0.1)


def test_many_qubits_by_closed_form() -> None:
    """GHZ states of 12 qubits after damping: the all-ones half decays qubit by qubit, and coherence with it."""
    qubits, strength = 12, 0.1
    circuit = Circuit(qubits).h(0)
    for wire in range(1, qubits):
        circuit = circuit.cnot(wire - 1, wire)
    for wire in range(qubits):
        circuit = circuit.channel("AmplitudeDamping", wire, strength)
    words = ("Z" + "I" * (qubits - 1), "ZZ" + "I" * (qubits - 2), "X" * qubits)
    torch.manual_seed(4)
    found = Trajectories(Fused(), 2000).estimate(circuit, Angles(torch.empty(1, 0), torch.empty(0)), words)
    exact = torch.tensor([[strength, 1 - 2 * strength * (1 - strength), (1 - strength) ** (qubits / 2)]])
    assert distance(found, exact) < SIGMAS


def test_draws_depend_on_seed_step_and_sample_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = CIRCUITS["damping"]
    inputs, weights = (each.clone().requires_grad_() for each in angles_of(circuit))
    simulator = Trajectories(Fused(), 20)

    def drawn(rows: list[int], step: int = 0) -> tuple[torch.Tensor, ...]:
        with randomness.keyed(7, step, torch.tensor(rows)):
            values = simulator.expval(circuit, Angles(inputs[rows], weights), WORDS)
        return values, *torch.autograd.grad(values.sum(), (inputs, weights))

    whole, some = drawn([0, 1, 2]), drawn([2, 0])
    torch.testing.assert_close(some[0], whole[0][[2, 0]], rtol=0, atol=1e-14)
    assert not torch.equal(drawn([0, 1, 2], step=1)[0], whole[0])
    monkeypatch.setattr(trajectories, "MOST_KEPT", 2**13)  # a few trajectories at a time
    torch.testing.assert_close(drawn([0, 1, 2]), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_kernel_of_dampings_is_what_torch_computes(dtype: torch.dtype) -> None:
    torch.manual_seed(5)
    rows, wires, even = 21, [2, 0, 2], [0.0, 0.3, 0.05]
    state = torch.randn(rows, 8, dtype=dtype.to_complex())
    state = (state / state.norm(dim=1, keepdim=True)).requires_grad_()
    strengths = torch.rand(3, rows, dtype=dtype).requires_grad_()
    up, uniform = torch.rand(3, rows) < 0.3, torch.rand(3, rows, dtype=torch.float64) * 0.5

    def by_torch() -> tuple[torch.Tensor, torch.Tensor]:
        after, quotient = state, torch.ones(rows, dtype=dtype)
        for wire, strength, reverse, u, mixed in zip(
            wires, strengths, up, uniform.to(dtype), even, strict=True
        ):
            zero, one = after.unflatten(1, (2**wire, 2, -1)).unbind(2)
            flip = reverse[:, None, None]
            lower, upper = torch.where(flip, one, zero), torch.where(flip, zero, one)
            excited = upper.abs().square().sum((1, 2))
            odds = ((strength * (1 - mixed) + mixed / 2) * excited).detach()
            jumps = u < odds
            chance = torch.where(jumps, strength * excited, 1 - strength * excited)
            quotient = quotient * chance / torch.where(jumps, odds, 1 - odds)
            root = torch.where(jumps, excited, 1 - strength * excited).sqrt()[:, None, None]
            jumped = jumps[:, None, None]
            lower = torch.where(jumped, upper, lower) / root
            upper = torch.where(jumped, 0, upper * (1 - strength).sqrt()[:, None, None]) / root
            after = torch.stack(
                [torch.where(flip, upper, lower), torch.where(flip, lower, upper)], 2
            ).flatten(1)
        return after, quotient

    by_state, by_quotient = torch.randn_like(state), torch.randn(rows, dtype=dtype)
    results = []
    for after, quotient in (by_torch(), Dampings.apply(state, strengths, wires, up, uniform, even)):
        total = (after * by_state.conj()).real.sum() + (quotient * by_quotient).sum()
        results.append((after, quotient, *torch.autograd.grad(total, (state, strengths))))
    tight = {"rtol": 1e-11, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-3, "atol": 1e-4}
    torch.testing.assert_close(results[1], results[0], **tight)


def test_a_layer_trains_by_trajectories_with_shots_on_top() -> None:
    circuit = CIRCUITS["depolarising"]
    inputs, weights = angles_of(circuit)
    exact = density.expval(circuit, Angles(inputs, weights), WORDS)
    torch.manual_seed(6)
    for more in ({}, {"shots": 2000, "gradient": "exact"}):
        layer = ketscale.Layer(circuit, WORDS, trajectories=2000, dtype=torch.float64, **more)  # type: ignore[arg-type]
        layer.weight.data.copy_(weights)
        values = layer(inputs)
        torch.testing.assert_close(values, exact, rtol=0, atol=SIGMAS * 0.04)
        values.sum().backward()
        assert layer.weight.grad is not None
        assert float(layer.weight.grad.abs().min()) > 0
    layer = ketscale.Layer(circuit, measure="probs", trajectories=2000, dtype=torch.float64)
    layer.weight.data.copy_(weights)
    expected = probabilities(Fused(), circuit, Angles(inputs, weights), (0, 1, 2))
    torch.testing.assert_close(layer(inputs), expected, rtol=0, atol=SIGMAS * 0.02)


def test_a_config_names_them() -> None:
    usual: dict[str, Any] = {"device": "fused", "gradient": "adjoint", "batching": "broadcast"}
    settings = CircuitSimulator(**usual, noise=Noise(one_qubit=0.05, damping=0.1), trajectories=3000)
    assert not [*settings.faults()]
    assert settings.mode == "noise 0.05, 0, 0.1, 0, 0, 3000 trajectories"
    assert not settings.stacks
    assert "trajectories" not in CircuitSimulator(**usual, noise=Noise(damping=0.1)).content()
    exact = build_simulator("noisy", CircuitSimulator(**usual, noise=settings.noise), torch.device("cpu"))
    circuit = Circuit(2).ry(0, "x0").cnot(0, 1)
    angles = Angles(torch.tensor([[0.3], [1.2]], dtype=torch.float64), torch.empty(0, dtype=torch.float64))
    torch.manual_seed(8)
    found = build_simulator("drawn", settings, torch.device("cpu")).expval(circuit, angles, ("ZI", "XX"))
    torch.testing.assert_close(
        found, exact.expval(circuit, angles, ("ZI", "XX")), rtol=0, atol=SIGMAS / 3000**0.5
    )
    for wrong in (
        {"trajectories": 5},
        {"trajectories": 5, "noise": settings.noise, "shots": 3, "gradient": "exact"},
    ):
        assert any("trajectories" in fault for fault in CircuitSimulator(**(usual | wrong)).faults())


def test_what_has_no_trajectories_is_refused() -> None:
    simulator, circuit = Trajectories(Fused(), 4), CIRCUITS["damping"]
    angles = angles_of(circuit)
    with pytest.raises(UserError, match="whole number from 2"):
        Trajectories(Fused(), 1)
    with pytest.raises(UserError, match=r"begin with \|0"):
        simulator.expval(circuit, angles, WORDS, torch.ones(8, dtype=torch.complex128) / 8**0.5)
    with pytest.raises(UserError, match=r"torch\.func"):
        torch.func.grad(
            lambda inputs: simulator.expval(circuit, Angles(inputs, angles.weights), WORDS).sum()
        )(angles.inputs)
    with pytest.raises(UserError, match=r"weight 1.* from 0 to 1, not 1\.5"):
        simulator.expval(circuit, Angles(angles.inputs, angles.weights.clone().fill_(1.5)), WORDS)
    turned = torch.tensor([[1, 1], [1, -1]]) / 2**0.5
    damping = Circuit(1).kraus([(turned @ each @ turned).tolist() for each in torch.tensor(DAMPING)], 0)
    with pytest.raises(UserError, match="mixtures of Pauli words"):
        simulator.expval(damping, Angles(angles.inputs[:, :0], angles.weights[:0]), ("Z",))
    with pytest.raises(UserError, match=r"density.* exact"):
        ketscale.Layer(circuit, measure="density", trajectories=4)
