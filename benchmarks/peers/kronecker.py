"""`kronecker`: batched state vectors in plain torch, one-qubit gates fused into matrices by Kronecker products.

What can be had without a kernel of one's own: the gates of a layer on up to `MOST_WIRES` neighbouring wires are one
matrix, which a matrix product applies to all samples; runs of CNOT and SWAP are one permutation; autograd does the
rest. It shares nothing with `fused`, so it is also the reference where PennyLane is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import groupby, zip_longest

import numpy as np
import torch
from numpy.typing import ArrayLike

from benchmarks.circuits import Call, Loss, torch_call
from benchmarks.peers.gates import Turned, rotation, steps_of
from ketscale.engines.circuits.circuit import Angles, Circuit, Gate

# More wires need fewer passes over the state, and more multiplications for each of its numbers.
MOST_WIRES = 4
PERMUTING = ("CNOT", "SWAP")
IDENTITY = Turned(np.eye(2, dtype=complex), np.zeros((2, 2)), np.zeros((2, 2)))

# From angles and states, complex (batch, 2**n), or None for |0...0>, to states.
Step = Callable[[Angles, "torch.Tensor | None"], torch.Tensor]
# From angles to the matrices of gates side by side, complex (gates, k, k), or (batch, gates, k, k) with an input.
MatricesOf = Callable[[Angles], torch.Tensor]


class Kronecker:
    """The simulator on a device."""

    uncapturable: str | None = None

    def __init__(self, name: str, device: torch.device) -> None:
        self._device = device

    def prepare(self, loss: Loss) -> Call:
        """See `Simulator.prepare`."""
        real = torch.tensor(loss.inputs).dtype
        return torch_call(loss, Steps(loss.circuit, loss.words, real, self._device).expval, self._device)


class Steps:
    """A circuit and its words as steps, with all constants on the device: a call copies nothing from the host."""

    def __init__(
        self, circuit: Circuit, words: Sequence[str], real: torch.dtype, device: torch.device
    ) -> None:
        self._qubits, self._weights, self._device = circuit.qubits, circuit.weights, device
        self._real, self._complex = real, real.to_complex()
        self._steps = [self._step(run) for run in runs(circuit.gates)]
        self._values = Values(circuit.qubits, words, self._complex, device)

    def expval(self, angles: Angles) -> torch.Tensor:
        """Expectation values (batch, words)."""
        state: torch.Tensor | None = None
        for step in self._steps:
            state = step(angles, state)
        if state is None:
            state = self._zero()
        return self._values(state.expand(len(angles.inputs), -1))

    def _step(self, run: list[Gate]) -> Step:
        kinds = {"permutation": self._permutation, "pairs": self._pairs, "layer": self._layer}
        return kinds[_kind(run[0])](run)

    def _permutation(self, run: list[Gate]) -> Step:
        index = np.arange(2**self._qubits)
        order = index
        for gate in reversed(run):
            a, b = (self._qubits - 1 - w for w in gate.wires)
            if gate.name == "CNOT":
                order = order ^ ((order >> a & 1) << b)
            else:
                differ = (order >> a ^ order >> b) & 1
                order = order ^ (differ << a | differ << b)
        places = self._indices(order)
        return lambda _, state: self._started(state).index_select(1, places)

    def _pairs(self, run: list[Gate]) -> Step:
        """Gates on two wires, anywhere, one after the other: the wires become the last ones for a product."""
        matrices_of, shape = (
            self._matrices([part for gate in run for part in steps_of(gate)]),
            (2,) * self._qubits,
        )
        axes = [[1 + w for w in gate.wires] for gate in run]

        def step(angles: Angles, state: torch.Tensor | None) -> torch.Tensor:
            state = self._started(state)
            for wires, matrix in zip(axes, matrices_of(angles).unbind(-3), strict=True):
                states = state.unflatten(1, shape).movedim(wires, (-2, -1))
                product = states.reshape(len(states), -1, 4) @ matrix.mT
                state = product.reshape(-1, *shape).movedim((-2, -1), wires).flatten(1)
            return state

        return step

    def _layer(self, run: list[Gate]) -> Step:
        """Gates on one wire each, any number on a wire."""
        of_wire: list[list[Turned]] = [[] for _ in range(self._qubits)]
        for gate in run:
            of_wire[gate.wires[0]] += steps_of(gate)
        # The first gates of all wires side by side, then the second ones.
        rows = [self._matrices(row) for row in zip_longest(*of_wire, fillvalue=IDENTITY)]

        def step(angles: Angles, state: torch.Tensor | None) -> torch.Tensor:
            matrices = reduce(lambda result, row: row @ result, [row(angles) for row in rows]).unbind(-3)
            if state is None:
                # |0...0> selects the first column of each: a product state.
                product = reduce(_kron, [matrix[..., :1] for matrix in matrices])
                return product.reshape(-1, 2**self._qubits)
            for first in range(0, self._qubits, MOST_WIRES):
                group = matrices[first : first + MOST_WIRES]
                if any(of_wire[first : first + MOST_WIRES]):
                    state = self._product(reduce(_kron, group), state, 2 ** (first + len(group)))
            return state

        return step

    def _product(self, matrix: torch.Tensor, state: torch.Tensor, high: int) -> torch.Tensor:
        """A matrix on neighbouring wires; the wires up to its last one have `high` values."""
        size = matrix.shape[-1]
        rest = 2**self._qubits // high
        if rest == 1:
            # The last wires: one product for a matrix that all samples share.
            return (state.unflatten(1, (-1, size)) @ matrix.mT).flatten(1)
        parts = state.unflatten(1, (high // size, size, rest))
        return ((matrix[:, None] if matrix.ndim == 3 else matrix) @ parts).flatten(1)

    def _matrices(self, row: Sequence[Turned]) -> MatricesOf:
        """The matrices of gates side by side."""
        one, turn, square = (self._constant(np.stack(parts)) for parts in list(zip(*row, strict=True))[:3])
        factors = torch.tensor([gate.factor for gate in row], dtype=self._real, device=self._device)
        columns = [gate.column for gate in row]
        kinds = {column.kind for column in columns if column}
        if not kinds:
            return lambda _: one
        # The weights are before the inputs. A gate without an angle takes any, times 0.
        shift = {"weight": 0, "input": self._weights}
        places = self._indices([column.index + shift[column.kind] if column else 0 for column in columns])

        def matrices(angles: Angles) -> torch.Tensor:
            inputs, weights = angles
            if kinds == {"weight"}:
                columns = weights.index_select(0, places)
            else:
                every = torch.cat([weights[: self._weights].expand(len(inputs), -1), inputs], 1)
                columns = every.index_select(1, places)
            half = (columns * factors)[..., None, None]
            result: torch.Tensor = rotation(torch.cos(half), torch.sin(half), one, turn, square)
            return result

        return matrices

    def _started(self, state: torch.Tensor | None) -> torch.Tensor:
        return self._zero() if state is None else state

    def _zero(self) -> torch.Tensor:
        state = torch.zeros(1, 2**self._qubits, dtype=self._complex, device=self._device)
        state[:, 0] = 1
        return state

    def _constant(self, values: ArrayLike) -> torch.Tensor:
        return torch.tensor(np.asarray(values), dtype=self._complex, device=self._device)

    def _indices(self, values: ArrayLike) -> torch.Tensor:
        return _indices(values, self._device)


class Values:
    """The expectation values (batch, words) of states, complex (batch, 2**n), with all constants on the device."""

    def __init__(self, qubits: int, words: Sequence[str], dtype: torch.dtype, device: torch.device) -> None:
        groups: dict[int, list[int]] = {}
        for number, word in enumerate(words):
            groups.setdefault(_mask(word, "XY"), []).append(number)
        index = np.arange(2**qubits)
        # For words with the same flips the flipped indices and signs (2**n, words).
        self._observables: list[tuple[torch.Tensor | None, torch.Tensor]] = []
        for flips, numbers in groups.items():
            columns = []
            for number in numbers:
                odd = np.bitwise_count((index ^ flips) & _mask(words[number], "YZ")) % 2
                columns.append(1j ** words[number].count("Y") * (1 - 2.0 * odd))
            flip = _indices(index ^ flips, device) if flips else None
            signs = torch.tensor(np.stack(columns, 1), dtype=dtype, device=device)
            self._observables.append((flip, signs))
        self._places = _indices(np.argsort([n for numbers in groups.values() for n in numbers]), device)

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        parts = []
        for flip, signs in self._observables:
            if flip is None:
                parts.append((states.real.square() + states.imag.square()) @ signs.real)
            else:
                parts.append(((states.conj() * states.index_select(1, flip)) @ signs).real)
        return torch.cat(parts, 1).index_select(1, self._places)


def _indices(values: ArrayLike, device: torch.device) -> torch.Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.int64, device=device)


def runs(gates: Sequence[Gate]) -> Iterator[list[Gate]]:
    """The gates in order: neighbours of one kind together."""
    return (list(run) for _, run in groupby(gates, _kind))


def _kind(gate: Gate) -> str:
    if gate.name in PERMUTING:
        return "permutation"
    return "layer" if len(gate.wires) == 1 else "pairs"


def _kron(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The Kronecker product of the last two dimensions."""
    product = a[..., :, None, :, None] * b[..., None, :, None, :]
    return product.flatten(-4, -3).flatten(-2)


def _mask(word: str, letters: str) -> int:
    """The bits of the wires that have one of the letters; wire 0 is the highest."""
    return sum(1 << (len(word) - 1 - wire) for wire, letter in enumerate(word) if letter in letters)
