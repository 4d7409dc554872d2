"""`python -m benchmarks.noise`: value and gradient of a noisy circuit by `fused`, plain JAX and default.mixed, in double precision.

Three layers of Rot and a ring of CNOTs, with depolarising and damping after each Rot and depolarising of both qubits after each
CNOT. All agree first; then they take turns, and a row is the median of their times, and of their ratios with its quartiles.
`--trajectories 64` compares means over as many trajectories for each sample, which must agree within six standard errors.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pennylane as qml
import torch

from benchmarks.peers import pauli_jax, trajectories_jax
from ketscale import Circuit, Layer
from ketscale.engines.circuits.circuit import pauli_words

# Qubits and batch.
CASES = ((4, 64), (6, 16), (8, 4))
DRAWN_CASES = ((8, 4), (10, 4))
LAYERS, DEPOLARISING, DAMPING = 3, 0.01, 0.02
OURS, PLAIN, MIXED, EAGER = "fused", "plain JAX, jitted", "default.mixed, jax.jit", "default.mixed, torch"
DENSITY = "fused, density matrices"
# default.mixed takes seconds at 8 qubits.
MOST_MIXED, FEW = 6, 5
# After another way, whose memory fills the caches and whose threads still wait for work.
WARM = 3


def circuit_of(qubits: int) -> Circuit:
    """The circuit, with an RX of each input in front."""
    circuit, weight = Circuit(qubits), 0
    for qubit in range(qubits):
        circuit = circuit.rx(qubit, f"x{qubit}")
    for _ in range(LAYERS):
        for qubit in range(qubits):
            circuit = circuit.rot(qubit, *(f"w{weight + k}" for k in range(3)))
            circuit = circuit.channel("DepolarizingChannel", qubit, DEPOLARISING)
            circuit = circuit.channel("AmplitudeDamping", qubit, DAMPING)
            weight += 3
        for qubit in range(qubits):
            pair = (qubit, (qubit + 1) % qubits)
            circuit = circuit.cnot(*pair)
            for wire in pair:
                circuit = circuit.channel("DepolarizingChannel", wire, DEPOLARISING)
    return circuit


def mixed(qubits: int, interface: str) -> Callable[[Any, Any], Any]:
    """<Z> of each qubit by default.mixed, of a batch of inputs."""

    @qml.qnode(qml.device("default.mixed", wires=qubits), interface=interface, diff_method="backprop")
    def node(inputs: Any, weights: Any) -> Any:
        for gate in circuit_of(qubits).gates:
            numbers = [
                each.value if each.kind == "constant"
                else inputs[..., each.index] if each.kind == "input" else weights[each.index]
                for each in gate.columns
            ]  # fmt: skip
            getattr(qml, gate.name)(*numbers, wires=gate.wires)
        return [qml.expval(qml.Z(qubit)) for qubit in range(qubits)]

    if interface == "torch":
        return lambda inputs, weights: torch.stack(node(inputs, weights), -1)
    return lambda inputs, weights: jax.numpy.stack(node(inputs, weights), -1)


def by_torch(function: Callable[..., torch.Tensor], *given: torch.Tensor) -> Callable[[], Any]:
    """Values and gradients."""

    def called() -> Any:
        values = function(*given)
        return values.detach(), torch.autograd.grad(values.sum(), given)

    return called


def by_jax(function: Callable[[Any, Any], Any], *given: torch.Tensor) -> Callable[[], Any]:
    """The same in JAX."""
    compiled, arrays = pauli_jax.jitted(function), [x.detach().numpy() for x in given]

    def called() -> Any:
        (_, values), slopes = jax.block_until_ready(compiled(*arrays))
        return values, slopes

    return called


def timed(
    calls: dict[str, Callable[[], Any]], turns: int, warm: int
) -> tuple[dict[str, tuple[float, np.ndarray]], dict[str, list[Any]]]:
    """The seconds of each way, of its first call and in each turn after so many other calls; and its results."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    results: dict[str, list[Any]] = {name: [] for name in calls}
    for turn in range(1 + turns):
        for name, call in calls.items():
            if name == EAGER and turn > FEW:
                continue
            for _ in range(warm if turn else 0):
                call()
            begin = time.perf_counter()
            results[name].append(call())
            seconds[name].append(time.perf_counter() - begin)
    return {name: (times[0], np.array(times[1:])) for name, times in seconds.items()}, results


def measured(qubits: int, batch: int, turns: int) -> dict[str, tuple[float, np.ndarray]]:
    """The seconds of each way, whose results agree."""
    layer = Layer(circuit_of(qubits), pauli_words(qubits), dtype=torch.float64)
    inputs = torch.rand(batch, qubits, dtype=torch.float64, requires_grad=True)
    given = inputs, layer.weight
    calls = {
        OURS: by_torch(lambda x, _: layer(x), *given),
        PLAIN: by_jax(pauli_jax.expval(qubits, LAYERS, DEPOLARISING, DAMPING), *given),
    }
    if qubits <= MOST_MIXED:
        calls |= {
            MIXED: by_jax(mixed(qubits, "jax"), *given),
            EAGER: by_torch(mixed(qubits, "torch"), *given),
        }
    seconds, results = timed(calls, turns, WARM)
    for name in calls:
        (values, slopes), (expected, gradients) = results[name][0], results[OURS][0]
        for one, other in zip(gradients, slopes, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-11, err_msg=name)
        np.testing.assert_allclose(expected, values, atol=1e-12, err_msg=name)
    return seconds


def drawn(qubits: int, batch: int, turns: int, number: int) -> dict[str, tuple[float, np.ndarray]]:
    """The seconds of trajectories, whose means agree with density matrices within six standard errors, and of these."""
    layers = [
        Layer(circuit_of(qubits), pauli_words(qubits), dtype=torch.float64, trajectories=each)
        for each in (number, None)
    ]
    inputs, weights = torch.rand(batch, qubits, dtype=torch.float64, requires_grad=True), layers[0].weight
    layers[1].weight.data.copy_(weights.data)
    plain = trajectories_jax.sampled(qubits, LAYERS, DEPOLARISING, DAMPING, number)
    calls = {
        OURS: by_torch(lambda x, _: layers[0](x), inputs, weights),
        PLAIN: lambda: plain(*(x.detach().numpy() for x in (inputs, weights))),
        DENSITY: by_torch(lambda x, _: layers[1](x), inputs, layers[1].weight),
    }
    seconds, results = timed(calls, turns, 0)
    for name in (OURS, PLAIN):
        means = np.stack([np.asarray(values) for values, _ in results[name]])
        error = means.std(0, ddof=1) / np.sqrt(len(means))
        assert (np.abs(means.mean(0) - np.asarray(results[DENSITY][0][0])) / error).max() < 6, name
    return seconds


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trajectories", type=int)
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    print(
        "| qubits x batch | way | first call, ms | a call, ms | over fused (quartiles) |\n| --- | --- | ---: | ---: | ---: |"
    )
    for qubits, batch in DRAWN_CASES if asked.trajectories else CASES:
        size = (qubits, batch, asked.turns)
        found = drawn(*size, asked.trajectories) if asked.trajectories else measured(*size)
        for name, (first, times) in found.items():
            ratios = times / found[OURS][1][: len(times)]
            low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
            row = f"| {qubits} x {batch} | {name} | {1e3 * first:.4g} | {1e3 * np.median(times):.4g} |"
            print(f"{row} {middle:.3g} ({low:.3g} to {high:.3g}) |")


if __name__ == "__main__":
    main()
