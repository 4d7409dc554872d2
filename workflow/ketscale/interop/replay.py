"""A quantum function's tape without its numbers, and the record from which each call gets them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import pennylane as qml
import torch
from torch.fx import GraphModule

from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.circuits.simulator import Simulator
from ketscale.interop import tape as tapes
from ketscale.interop.entries import Picked, dependent, entries
from ketscale.private_torch import pytree


class Structure(NamedTuple):
    """A tape without its numbers.

    gates, qubits: as `tape.read` writes them. inputs, weights, phases: how many of each. batch: of the results, or None.
    measurements: in the order of the results. words, places: see `tape.Expectations`; None if a state is needed.
    spec: how the results are nested.
    """

    qubits: int
    gates: tuple[tapes.Written, ...]
    inputs: int
    weights: int
    phases: int
    prepared: bool
    batch: int | None
    words: tuple[str, ...] | None
    places: tuple[tuple[int, ...], ...]
    spec: Any
    measurements: list[Any]

    def same(self, other: Structure) -> bool:
        """Whether another tape differs in numbers alone."""
        return self[:-1] == other[:-1] and (
            self.words is not None
            or all(qml.equal(a, b) for a, b in zip(self.measurements, other.measurements, strict=True))
        )


class Replay:
    """How calls with one set of shapes are answered.

    structure: of the tape. graph: from the tensors among the arguments to the tape's numbers.
    """

    def __init__(
        self, structure: Structure, graph: GraphModule, tensors: Sequence[torch.Tensor], simulator: Simulator
    ) -> None:
        self.structure = structure
        self._listed = structure.spec == pytree.tree_structure([0] * len(structure.measurements))
        self.graph = graph
        # Until a call with other values has been compared with the quantum function itself.
        self.traced: Sequence[torch.Tensor] | None = tensors
        self._simulator = simulator
        floating = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
        self._dtype = torch.float32 if floating and torch.float64 not in floating else torch.float64
        self._device = tapes.device_of(tensors)
        counts = (structure.inputs, structure.weights)
        *_, output = graph.graph.nodes
        moving, results = dependent(graph), output.args[0][sum(counts) :]
        found = None if moving.intersection(results) else entries(graph, tensors, sum(counts))
        gates = structure.gates
        self._inputs = self._weights = None
        if found is not None:
            self._inputs = Picked(
                found[: counts[0]], (1 if structure.batch is None else structure.batch,), tensors, self._dtype
            )
            self._weights = Picked(found[counts[0] :], (), tensors, self._dtype)
            self._rest = [value.detach() for value in graph(*tensors)[sum(counts) :]]
            places = {"input": self._inputs.places, "weight": self._weights.places}
            gates = tuple(
                (name, wires, tuple((kind, places[kind][place]) for kind, place in columns))
                for name, wires, columns in gates
            )
        self._circuit = tapes.written(structure.qubits, gates)

    @property
    def gathers(self) -> bool:
        """Whether the record is not needed: all angles are entries of the arguments."""
        return self._inputs is not None

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The QNode's results."""
        structure = self.structure
        angles, rest = self._numbers(tensors)
        initial = rest[-1].to(self._device, self._dtype.to_complex()) if structure.prepared else None
        if initial is not None and len(initial) == 1:
            initial = initial[0]
        if structure.words is not None:
            results = self._expectations(angles, self._factors(rest), initial)
        else:
            state = self._simulator.state(self._circuit, angles, initial)
            for phase in rest[: structure.phases]:
                state = state * torch.exp(-1j * phase.to(self._device, self._dtype)).reshape(-1, 1)
            found = tapes.measured(
                state, structure.qubits, structure.batch is not None, structure.measurements
            )
            # PennyLane's matrices are of double precision.
            results = [self._in_precision(result) for result in found]
        # A list is what most quantum functions return, and torch's way to nest results takes longer than a small circuit.
        return list(results) if self._listed else pytree.tree_unflatten(results, structure.spec)

    def _in_precision(self, result: Any) -> torch.Tensor:
        tensor = torch.as_tensor(result)
        return tensor.to(self._dtype.to_complex() if tensor.is_complex() else self._dtype)

    def _numbers(self, tensors: Sequence[torch.Tensor]) -> tuple[Angles, Sequence[torch.Tensor]]:
        """The angles, and the other numbers."""
        if self._inputs is not None and self._weights is not None:
            return Angles(self._inputs(tensors), self._weights(tensors)), self._rest
        inputs, weights = self.structure.inputs, self.structure.weights
        values = self.graph(*tensors)
        batch = 1 if self.structure.batch is None else self.structure.batch
        nothing = torch.empty(batch, 0, dtype=self._dtype, device=self._device)
        return Angles(
            tapes.vector(values[:inputs], self._dtype, self._device) if inputs else nothing,
            tapes.vector(values[inputs : inputs + weights], self._dtype, self._device)
            if weights
            else nothing[0],
        ), values[inputs + weights :]

    def _factors(self, rest: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The factors of the Pauli words, which are between the phases and a prepared state."""
        return rest[self.structure.phases :][: sum(map(len, self.structure.places))]

    def _expectations(
        self, angles: Angles, factors: Sequence[torch.Tensor], initial: torch.Tensor | None
    ) -> Sequence[torch.Tensor]:
        words, places = self.structure.words or (), self.structure.places
        values = self._simulator.expval(
            self._circuit, angles, words or ("I" * self.structure.qubits,), initial
        )
        if not self._plain:
            rows = [place for row in places for place in row]
            columns = [number for number, row in enumerate(places) for _ in row]
            matrix = values.new_zeros(values.shape[1], len(places))
            if factors:
                given = tapes.vector(factors, self._dtype, self._device)
                matrix = matrix.index_put((torch.tensor(rows), torch.tensor(columns)), given)
            values = values @ matrix
        return values[0].unbind() if self.structure.batch is None else values.unbind(1)

    @cached_property
    def _plain(self) -> bool:
        """Whether result i is the value of word i."""
        factors = self._factors(self._rest) if self.gathers else ()
        alone = self.structure.places == tuple((place,) for place in range(len(self.structure.words or ())))
        return alone and len(factors) == len(self.structure.places) and all(factor == 1 for factor in factors)
