"""Noise models: the channels that they add, and simulators with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ketscale.config.circuits import CircuitSimulator, Noise
from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.superposition import Superposition
from ketscale.engines.noise import density
from ketscale.engines.noise.model import NoiseModel, with_noise
from ketscale.errors import UserError
from ketscale.simulators.factory import build_simulator

CPU = torch.device("cpu")
MODEL = NoiseModel(0.01, 0.05, 0.02, (0.1, 0.2))
CIRCUIT = Circuit(2).ry(0, "x0").cnot(0, 1)
BY_HAND = (
    Circuit(2).ry(0, "x0").channel("DepolarizingChannel", 0, 0.01).channel("AmplitudeDamping", 0, 0.02).cnot(0, 1)
    .channel("DepolarizingChannel", (0, 1), 0.05).channel("AmplitudeDamping", 0, 0.02).channel("AmplitudeDamping", 1, 0.02)
    .channel("Readout", 0, 0.1, 0.2).channel("Readout", 1, 0.1, 0.2)
)  # fmt: skip
ANGLES = Angles(torch.tensor([[0.3], [1.2]], dtype=torch.float64), torch.empty(0, dtype=torch.float64))


def settings(**more: Any) -> CircuitSimulator:
    noise = Noise(one_qubit=0.01, two_qubits=0.05, damping=0.02, readout=(0.1, 0.2))
    usual: dict[str, Any] = {
        "device": "fused",
        "gradient": "adjoint",
        "batching": "broadcast",
        "noise": noise,
    }
    return CircuitSimulator(**(usual | more))


def test_channels_come_after_each_gate_and_readout_at_the_end() -> None:
    assert with_noise(CIRCUIT, MODEL) == BY_HAND
    assert with_noise(CIRCUIT, NoiseModel()) == CIRCUIT


def test_a_simulator_with_noise_is_that_of_the_circuit_with_channels() -> None:
    simulator = build_simulator("noisy", settings(), CPU)
    expected = density.expval(BY_HAND, ANGLES, ("ZI", "IZ"))
    torch.testing.assert_close(simulator.expval(CIRCUIT, ANGLES, ("ZI", "IZ")), expected)
    sampled = build_simulator("noisy", settings(gradient="shift", shots=20_000), CPU)
    torch.testing.assert_close(
        sampled.expval(CIRCUIT, ANGLES, ("ZI", "IZ")), expected, rtol=0, atol=6 / 20_000**0.5
    )


def test_noise_in_evaluation_alone_leaves_training_ideal() -> None:
    simulator = build_simulator("noisy", settings(noise_in_training=False), CPU)
    ideal, noisy = Fused().expval(CIRCUIT, ANGLES, ("ZI",)), density.expval(BY_HAND, ANGLES, ("ZI",))
    torch.testing.assert_close(simulator.expval(CIRCUIT, ANGLES, ("ZI",)), ideal)
    with torch.no_grad():
        torch.testing.assert_close(simulator.expval(CIRCUIT, ANGLES, ("ZI",)), noisy)
    assert "in evaluation alone" in str(settings(noise_in_training=False).mode)
    (fault,) = settings(noise=None, noise_in_training=False).faults()
    assert fault == "noise_in_training: there is no noise; leave it out"


def test_states_starts_and_superpositions_are_refused() -> None:
    simulator = build_simulator("noisy", settings(), CPU)
    state = torch.zeros(4, dtype=torch.complex128)
    nothing = Superposition(*(torch.zeros(size, dtype=torch.complex128) for size in (2, 4)))
    for ask, words in (
        (lambda: simulator.state(CIRCUIT, ANGLES), "no state vector"),
        (lambda: simulator.expval(CIRCUIT, ANGLES, ("ZI",), state), "begin with"),
        (lambda: simulator.superposed(CIRCUIT, ANGLES, ("ZI",), nothing), "superpositions"),  # type: ignore[attr-defined]
    ):
        with pytest.raises(UserError, match=words):
            ask()


def test_noise_is_for_fused_and_in_no_hash_without_it() -> None:
    assert "noise" not in settings(noise=None).content()
    assert settings().content()["noise"]["readout"] == [0.1, 0.2]
    other = settings(device="default.qubit", gradient="backprop")
    assert any(fault.startswith("noise:") for fault in other.faults())
    assert "CPU only" in " ".join(settings(trajectories=10, placement="gpu").faults())
    assert settings().mode == "noise 0.01, 0.05, 0.02, 0.1, 0.2"
