"""`python -m benchmarks.first`: what a first call waits for, in `fused`: circuits of new structures, and a search over them.

The first calls of a precision, which compile the code that reads circuits, come before and are said apart.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch

from benchmarks.machine import keep_freed_memory
from ketscale.engines.circuits.circuit import Angles, Circuit, Column, Gate, pauli_words
from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.fused.program import Rotation, reduce
from ketscale.engines.circuits.simulator import Simulator
from ketscale.simulators.factory import named_simulator

# Qubits, layers and batch: up to 50 rotations, 200, 600; and one sample alone.
CASES = ((4, 3, 64), (6, 2, 1), (8, 7, 64), (8, 7, 1), (12, 5, 32), (8, 24, 64))
LIMITS_MS = ((50, 10), (200, 50), (600, 150))
STRUCTURES = 5


def random_circuit(qubits: int, layers: int, rng: random.Random) -> Circuit:
    """A circuit of a structure that has not been met: angles in, then layers of Rot and CNOTs between drawn wires."""
    gates = [Gate("RX", (w,), (Column("input", w),)) for w in range(qubits)]
    for layer in range(layers):
        for w in range(qubits):
            first = 3 * (layer * qubits + w)
            gates.append(Gate("Rot", (w,), tuple(Column("weight", first + i) for i in range(3))))
        gates += [Gate("CNOT", tuple(rng.sample(range(qubits), 2))) for _ in range(qubits)]
    return Circuit(qubits, tuple(gates))


def encoded(qubits: int) -> Circuit:
    """Angles in, on every wire."""
    return Circuit(qubits, tuple(Gate("RY", (w,), (Column("input", w),)) for w in range(qubits)))


def fourier(qubits: int) -> Circuit:
    """The quantum Fourier transform."""
    return encoded(qubits).qft(*range(qubits))


def grover(qubits: int) -> Circuit:
    """Three of Grover's iterations for the state of ones."""
    circuit, wires = encoded(qubits), tuple(range(qubits))
    for _ in range(3):
        circuit = circuit.controlled("PauliZ", wires[:-1], wires[-1:])
        for name in ("Hadamard", "PauliX"):
            circuit = circuit.then(*(Gate(name, (w,)) for w in wires))
        circuit = circuit.controlled("PauliZ", wires[:-1], wires[-1:])
        for name in ("PauliX", "Hadamard"):
            circuit = circuit.then(*(Gate(name, (w,)) for w in wires))
    return circuit


def counter(qubits: int) -> Circuit:
    """Adds 1 four times, each time under an angle: Xs under up to all other wires."""
    circuit = encoded(qubits)
    for turn in range(4):
        for w in range(qubits - 1):
            circuit = circuit.controlled("PauliX", range(w + 1, qubits), (w,))
        circuit = circuit.x(qubits - 1).rx(turn, f"w{turn}")
    return circuit


# What is not made of rotations and Clifford gates alone.
OTHERS = {"Fourier transform": fourier, "Grover": grover, "counter": counter}
# Their qubits.
SIZES = (6, 12)

Clock = Callable[[], float]


def seconds(call: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """How long a call takes."""
    start = clock()
    call()
    return clock() - start


def step(simulator: Simulator, circuit: Circuit, batch: int, dtype: torch.dtype) -> Callable[[], object]:
    """A value and its gradients, as of a training step."""
    inputs = torch.rand(batch, circuit.inputs, dtype=dtype, requires_grad=True)
    weights = torch.rand(circuit.weights, dtype=dtype, requires_grad=True)
    words = pauli_words(circuit.qubits)
    return lambda: simulator.expval(circuit, Angles(inputs, weights), words).sum().backward()


def main() -> None:
    """Measure and print, in milliseconds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first", description=__doc__)
    parser.add_argument("--repeats", type=int, default=15, help="timed later calls (default: 15)")
    parser.add_argument("--structures", type=int, default=200, help="of the search (default: 200)")
    parser.add_argument(
        "--cpu", action="store_true", help="time of the processor, for the table, where the machine is busy"
    )
    options = parser.parse_args()
    clock = time.thread_time if options.cpu else time.perf_counter
    keep_freed_memory()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="ketscale-first-") as cache:
        os.environ["KETSCALE_CACHE"] = cache
        _once_for_a_processor(rng)
        print("| circuit | qubits | batch | precision | gates | first calls | later | default.qubit |")
        print("| --- | ---: | ---: | --- | ---: | --- | ---: | ---: |")
        for qubits, layers, batch in CASES:
            for dtype in (torch.float32, torch.float64):
                circuits = [random_circuit(qubits, layers, rng) for _ in range(STRUCTURES)]
                _case(f"{layers} layers", circuits, batch, dtype, options.repeats, clock)
        for name, result in OTHERS.items():
            for qubits in SIZES:
                _case(name, [result(qubits)], 32, torch.float64, options.repeats, clock)
        _search(options.structures, rng)


def _once_for_a_processor(rng: random.Random) -> None:
    """The kernels of a precision: for real and complex amplitudes, in the vectors of small and of large calls."""
    for dtype in (torch.float32, torch.float64):
        calls = [
            step(Fused(), circuit, batch, dtype)
            for circuit in (random_circuit(3, 1, rng), encoded(3))
            for batch in (4, 512)
        ]
        times = ", ".join(f"{seconds(call):.2f}" for call in calls)
        print(f"once for a processor, {dtype}: {times} s")


def _case(
    name: str,
    circuits: Sequence[Circuit],
    batch: int,
    dtype: torch.dtype,
    repeats: int,
    clock: Clock,
) -> None:
    qubits = circuits[0].qubits
    simulator = Fused()
    calls = [step(simulator, circuit, batch, dtype) for circuit in circuits]
    # What the last case has left would be collected in a first call of this one.
    gc.collect()
    firsts = [1e3 * seconds(call, clock) for call in calls]
    later_s = median(seconds(calls[-1], clock) for _ in range(repeats))
    steps = reduce(circuits[0], pauli_words(qubits)).rotations
    rotations = sum(isinstance(each, Rotation) for each in steps)
    limit = next(ms for most, ms in LIMITS_MS if rotations <= most)
    peer = step(named_simulator("default.qubit"), circuits[0], batch, dtype)
    peer_s = min(seconds(peer, clock) for _ in range(3))
    print(
        f"| {name} | {qubits} | {batch} | {str(dtype)[6:]} | {len(circuits[0].gates)} "
        f"| {min(firsts):.1f} to {max(firsts):.1f} (limit {limit}) | {1e3 * later_s:.3f} "
        f"| {1e3 * peer_s:.1f} |",
        flush=True,
    )


def _search(structures: int, rng: random.Random) -> None:
    """One step of each of many structures."""
    circuits = [random_circuit(4, 3, rng) for _ in range(structures)]
    for name in ("fused", "default.qubit"):
        steps = [step(named_simulator(name), circuit, 64, torch.float32) for circuit in circuits]
        total = sum(map(seconds, steps))
        print(f"{structures} structures, one step each, {name}: {total:.2f} s")


if __name__ == "__main__":
    main()
