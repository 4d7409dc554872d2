"""Shots: joint measurements against dense matrices, moments of means and gradients, and keys."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from ketscale import Circuit, Layer
from ketscale.config.circuits import CircuitSimulator
from ketscale.engines.circuits.ansaetze import strongly_entangling_ansatz
from ketscale.engines.circuits.circuit import Angles, pauli_words
from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.shots import Shots, readouts
from ketscale.engines.circuits.superposition import Superposition, superposed
from ketscale.engines.randomness import keyed
from ketscale.errors import UserError
from ketscale.simulators.factory import build_simulator
from tests.unit.engines.circuits.dense import dense_word, final_states
from tests.unit.engines.circuits.test_simulators import (
    random_angles,
    random_circuit,
    random_words,
)

# One qubit turned by x + w: <Z> = cos, <X> = sin of it.
TURN = Circuit(1).ry(0, "x0").ry(0, "w0")
X, W = torch.tensor([[0.4], [1.9]], dtype=torch.float64), torch.tensor([0.3], dtype=torch.float64)
ALL = tuple(map("".join, itertools.product("IXYZ", repeat=2)))


@pytest.mark.parametrize("words", [ALL, random_words(4, 30), ("XIZ", "IYZ", "XYI", "III")])
def test_words_of_one_readout_are_diagonal_after_its_circuit(words: tuple[str, ...]) -> None:
    qubits = len(words[0])
    result = readouts(words)
    assert sorted(place for readout in result for place in readout.words) == list(range(len(words)))
    for readout in result:
        basis = torch.eye(2**qubits, dtype=torch.complex128)
        rotated = final_states(
            Circuit(qubits, readout.gates), basis[:, :0].real, torch.zeros(0), basis
        ).T.numpy()
        outcomes = [
            sum((index >> qubits - 1 - wire & 1) << at for at, wire in enumerate(reversed(readout.wires)))
            for index in range(2**qubits)
        ]
        for column, place in enumerate(readout.words):
            diagonal = np.diag(readout.values(torch.tensor(outcomes), torch.float64)[:, column].numpy())
            np.testing.assert_allclose(
                rotated @ dense_word(words[place]) @ rotated.conj().T, diagonal, atol=1e-12
            )
    if len(words) == 4:
        assert len(result) == 1 and result[0].wires == (0, 1, 2)


def test_words_of_one_readout_are_drawn_from_the_same_shots() -> None:
    """In a singlet YY is -1 in every shot; YI and IY are random, and opposite in each."""
    singlet = Circuit(2).x(0).x(1).h(0).cnot(0, 1)
    torch.manual_seed(0)
    layer = Layer(singlet, ["YY", "YI", "IY"], measure="sample", shots=400)
    values = layer()
    assert values.shape == (400, 3) and (values[:, 0] == -1).all()
    assert (values[:, 1] == -values[:, 2]).all() and abs(values[:, 1].mean()) < 0.2


def test_means_and_gradients_have_the_moments_of_independent_shots() -> None:
    """4,000 rows with seeds of their own: mean and variance of value and gradient in closed form, to 5 standard errors."""
    rows, shots = 4000, 10
    x = X[:1].expand(rows, 1).clone().requires_grad_()
    cosine, sine = math.cos(0.7), math.sin(0.7)
    simulator = Shots(Fused(), shots, "shift")
    with keyed(0, 0, torch.arange(rows)):
        values = simulator.expval(TURN, Angles(x, W), ["Z"])
    (slopes,) = torch.autograd.grad(values.sum(), x)
    # Each of the two shifted circuits has shots of its own: <Z> there is -sine and sine.
    for result, mean, variance in (
        (values.detach(), cosine, (1 - cosine**2) / shots),
        (slopes, -sine, 2 * 0.25 * (1 - sine**2) / shots),
    ):
        assert abs(result.mean() - mean) < 5 * math.sqrt(variance / rows)
        assert abs(result.var() / variance - 1) < 5 * math.sqrt(3 / rows)
    # The gradient's shots are not the value's.
    correlation = torch.corrcoef(torch.stack([values.detach()[:, 0], slopes[:, 0]]))[0, 1]
    assert abs(correlation) < 5 / math.sqrt(rows)


def test_shifts_of_exact_means_are_the_exact_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rule: angles that are used several times, gates with three eigenvalues, a batch of initial states."""

    def endless(measured: Any, angles: Angles) -> torch.Tensor:
        """The means of as many shots as it takes for exact ones."""
        simulator: Fused = measured.shots.simulator
        return simulator.expval(measured.circuit, angles, ["XI", "IZ", "YX"], measured.initial)

    monkeypatch.setattr("ketscale.engines.circuits.shots._Experiment.means", endless)
    circuit = Circuit(2).h(0).ry(1, 0.7).rot(1, "w0", "x0", "w1").crx(0, 1, "w0").cphase(1, 0, "w1")
    circuit = circuit.xx(0, 1, "x0").rx(0, "w0").crz(1, 0, "x0").ry(1, "w1")
    noise = torch.randn(2, 4, dtype=torch.complex128, generator=torch.Generator().manual_seed(1))
    initial = noise / noise.norm(dim=1, keepdim=True)
    weights, result = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64), []
    for simulator in (Fused(), Shots(Fused(), 20_000, "shift")):
        x = torch.tensor([[0.4], [1.1]], dtype=torch.float64, requires_grad=True)
        w = torch.tensor([0.9, -0.3], dtype=torch.float64, requires_grad=True)
        values = simulator.expval(circuit, Angles(x, w), ["XI", "IZ", "YX"], initial)
        result.append(torch.autograd.grad((values * weights).sum(), (x, w)))
    torch.testing.assert_close(*result, atol=1e-12, rtol=1e-12)


def test_numbers_belong_to_seed_step_call_and_sample() -> None:
    simulator, samples = Shots(Fused(), 50, "shift"), torch.arange(20)
    x = torch.linspace(0, 3, 20, dtype=torch.float64)[:, None]

    def drawn(seed: int, step: int, rows: torch.Tensor, calls: int = 1) -> list[torch.Tensor]:
        result = []
        with keyed(seed, step, rows):
            for _ in range(calls):
                w = W.clone().requires_grad_()
                values = simulator.expval(TURN, Angles(x[rows], w), ["Z", "X"])
                (slope,) = torch.autograd.grad((values * values.detach()).sum(), w)
                result += [values.detach(), slope]
        return result

    complete, slope, repeat, _ = drawn(1, 2, samples, calls=2)
    assert not torch.equal(complete, repeat)
    parts = [drawn(1, 2, samples[rows]) for rows in (slice(7), slice(7, None))]
    assert torch.equal(torch.cat([part[0] for part in parts]), complete)
    torch.testing.assert_close(parts[0][1] + parts[1][1], slope, atol=1e-12, rtol=0)
    for other in (drawn(2, 2, samples), drawn(1, 3, samples)):
        assert not torch.equal(other[0], complete)
    # Several rows of one sample, as of the steps of a series, differ from each other.
    with keyed(1, 2, samples):
        rows = simulator.expval(TURN, Angles(X[:1].expand(40, 1), W), ["Z"])
    assert len(rows.unique()) > 5
    # Outside of `keyed` torch's generator decides.
    torch.manual_seed(4)
    first, other = (simulator.expval(TURN, Angles(x, W), ["Z"]) for _ in range(2))
    torch.manual_seed(4)
    assert torch.equal(first, simulator.expval(TURN, Angles(x, W), ["Z"])) and not torch.equal(first, other)


def test_a_mean_is_that_of_its_samples_and_near_the_exact_one() -> None:
    """With fewer shots than outcomes words are averaged shot by shot, with more from counts; and rows in parts."""
    circuit = random_circuit(3, 2)
    angles, words = Angles(*(x.detach() for x in random_angles(circuit, 300))), ["ZZI", "XXI", "IIZ", "YXZ"]
    exact = Fused().expval(circuit, angles, words)
    for shots in (3, 400):
        simulator = Shots(Fused(), shots)
        with keyed(0, 0, torch.arange(300)):
            values = simulator.expval(circuit, angles, words)
        with keyed(0, 0, torch.arange(300)):
            torch.testing.assert_close(values, simulator.sample(circuit, angles, None, words).mean(1))
        # 6 standard errors, of 1,200 means.
        assert (
            (values - exact).abs() <= 6 * ((1 - exact**2).clamp(min=0.01) / shots).sqrt()
        ).all() or shots == 3


def test_a_circuit_without_inputs_is_measured_once_for_all_samples() -> None:
    circuit = Circuit(1).ry(0, "w0")
    values = Shots(Fused(), 7).expval(circuit, Angles(W.new_empty(3, 0), W), ["Z"])
    assert values.shape == (3, 1) and len(values.unique()) == 1
    draws = []
    for samples in ([4], [1, 2, 3], [7, 8]):  # of three ranks
        with keyed(0, 0, torch.tensor(samples)):
            angles = Angles(W.new_empty(len(samples), 0), W)
            draws.append(Shots(Fused(), 1000).expval(circuit, angles, ["Z"])[0])
    assert torch.equal(draws[0], draws[1]) and torch.equal(draws[0], draws[2])


def test_single_precision_and_outcomes_without_probability() -> None:
    """An outcome of probability 0 is never drawn, also from bounds that rounding leaves below 1; of many qubits too."""
    for circuit, shots in (
        (strongly_entangling_ansatz(3, 1).then(*Circuit(3).h(2).h(2).gates), 100_000),
        (Circuit(20), 10),
    ):
        angles = Angles(torch.zeros(2, circuit.inputs), torch.zeros(circuit.weights))
        values = Shots(Fused(), shots).expval(circuit, angles, pauli_words(circuit.qubits))
        assert values.dtype == torch.float32 and (values == 1).all()


BLOCK: dict[str, Any] = {"device": "fused", "gradient": "shift", "batching": "broadcast", "shots": 100}


def test_superpositions_are_measured_with_exact_gradients() -> None:
    circuit, words = strongly_entangling_ansatz(2, 1), ("ZI", "XX", "IY")
    angles = Angles(
        torch.rand(3, 2, dtype=torch.float64), torch.rand(6, dtype=torch.float64, requires_grad=True)
    )
    mix = Superposition(*(torch.tensor(x, dtype=torch.complex128) for x in ([0.6, 0.3j], [0.1, 0, 0.2j, 0])))
    exact = superposed(Fused(), circuit, angles, words, mix)
    noisy = superposed(Shots(Fused(), 100_000, "exact"), circuit, angles, words, mix)
    # Five standard deviations of a mean.
    torch.testing.assert_close(noisy, exact, atol=5 / 100_000**0.5, rtol=0)
    assert not torch.equal(noisy, exact)
    slopes = (torch.autograd.grad(each.sum(), angles.weights)[0] for each in (noisy, exact))
    torch.testing.assert_close(*slopes)
    with pytest.raises(UserError, match="a superposition: use gradient 'exact'"):
        superposed(Shots(Fused(), 5), circuit, angles, words, mix)


def test_what_shots_cannot_give_is_refused() -> None:
    simulator, angles = Shots(Fused(), 5), Angles(X, W)
    w, initial = W.clone().requires_grad_(), torch.tensor([1, 0], dtype=torch.complex128, requires_grad=True)
    for call in (
        lambda: simulator.state(TURN, angles),
        lambda: simulator.expval(TURN, angles, ["Z"], initial),
    ):
        with pytest.raises(UserError):
            call()
    value = simulator.expval(TURN, Angles(X, w), ["Z"]).sum()
    with pytest.raises(UserError, match="first derivatives only"):
        torch.autograd.grad(value, w, create_graph=True)


def test_probabilities_of_a_layer_are_drawn_by_a_simulator_of_the_settings() -> None:
    """So in `ketscale train`, where a model of one's own hands the run's simulator to its layers."""
    simulator = build_simulator("noisy", CircuitSimulator(**BLOCK), torch.device("cpu"))
    layer = Layer(TURN, measure="probs", simulator=simulator, dtype=torch.float64)
    frequencies = layer(X)
    counts = 100 * frequencies.detach()
    torch.testing.assert_close(counts, counts.round())
    exact = Layer(TURN, measure="probs", dtype=torch.float64)
    exact.load_state_dict(layer.state_dict())
    assert (frequencies - exact(X)).abs().max() < 0.25 and layer.weight.grad is None
    frequencies[:, 0].sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.abs() > 0
