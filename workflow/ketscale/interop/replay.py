"""A tape read into its structure and its numbers, what is computed from both, and the record from which calls get numbers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import pennylane as qml
import torch
from pennylane.devices.preprocess import validate_device_wires
from pennylane.devices.qubit.apply_operation import apply_operation
from pennylane.measurements import StateMeasurement, StateMP
from pennylane.tape import QuantumScript
from pennylane.transforms import defer_measurements
from torch.fx import GraphModule

from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.noise.density import density_matrix
from ketscale.engines.noise.trajectories import Trajectories
from ketscale.errors import UserError
from ketscale.interop import tape as tapes
from ketscale.interop.decompositions import decomposed
from ketscale.interop.entries import Picked, dependent, entries
from ketscale.private_torch import pytree


class Structure(NamedTuple):
    """A tape without its numbers.

    gates, qubits: as `tape.read` writes them. inputs, weights, phases, matrices: how many of each. batch: of the results,
    or None. prepared: whether the circuit starts from a given state. checked: whether that must be normalised. mixed: whether states are density
    matrices although there are no channels.
    measurements: in the order of the results. words, places: see `tape.Expectations`; None if a state is needed.
    spec: how the results are nested.
    """

    qubits: int
    gates: tuple[tapes.Operation, ...]
    inputs: int
    weights: int
    phases: int
    matrices: int
    prepared: bool
    checked: bool
    mixed: bool
    batch: int | None
    words: tuple[str, ...] | None
    places: tuple[tuple[int, ...], ...]
    spec: Any
    measurements: list[Any]

    def same(self, other: Structure) -> bool:
        """Whether another tape differs in numbers alone."""
        return self[:-1] == other[:-1] and (
            self.words is not None or all(map(_equal, self.measurements, other.measurements))
        )


def _equal(first: Any, second: Any) -> bool:
    """Whether measurements are equal; those of measured wires know these by numbers that are drawn at random."""
    if first.mv is None or second.mv is None:
        return bool(qml.equal(first, second))
    return type(first) is type(second) and _branches(first.mv) == _branches(second.mv)


def _branches(measured: Any) -> list[Any]:
    """The value for each outcome of what is computed from measured wires, which are in any order."""
    values = measured if isinstance(measured, list) else [measured]
    return [sorted((sorted(zip(v.wires, bits, strict=True)), x) for bits, x in v.items()) for v in values]


def read_qnode(tape: QuantumScript, device: Any, spec: Any) -> tuple[Structure, list[torch.Tensor]]:
    """A quantum function's tape: its structure and its numbers, in the order of `Evaluator`, as tensors.

    device: of the QNode. spec: how the results are nested.

    Raises:
        UserError: it has something that only the device runs.
    """
    for measured in tape.measurements:
        if not isinstance(measured, StateMeasurement):
            raise UserError(
                f"from_qnode computes exact results, and {type(measured).__name__} needs shots: "
                "call the QNode with device ketscale.fused and shots"
            )
    mixed = device.name == "default.mixed" and any(type(m) is StateMP for m in tape.measurements)
    structure, tensors = read_tape(standard(tape, device.wires, mixed), spec, checked=True, mixed=mixed)
    values = [value for m in structure.measurements if m.obs is not None for value in m.obs.data]
    if structure.words is None and any(isinstance(value, torch.Tensor) for value in values):
        raise UserError(
            "from_qnode: tensors in observables can only be coefficients of Pauli words in expectation values: "
            "call the QNode on default.qubit"
        )
    return structure, tensors


def read_tape(
    tape: QuantumScript, spec: Any, checked: bool = False, mixed: bool = False
) -> tuple[Structure, list[torch.Tensor]]:
    """The structure and the numbers of a tape on wires 0..n-1. checked, mixed: see `Structure`.

    Raises:
        UserError: a number is complex that is not to be.
    """
    qubits = tape.num_wires
    start = tapes.preparation(tape)
    gates, numbers = tapes.read(tape.operations[start is not None :], tape.batch_size is not None)
    readout = tapes.expectations(tape.measurements, qubits)
    structure = Structure(
        qubits, gates, len(numbers.inputs), len(numbers.weights), len(numbers.phases), len(numbers.matrices), start is not None,
        checked, mixed, tape.batch_size, None if readout is None else readout.words, () if readout is None else readout.places, spec,
        tape.measurements,
    )  # fmt: skip
    real = [*numbers.inputs, *numbers.weights, *numbers.phases]
    if readout is not None:
        real += [factor for row in readout.coefficients for factor in row]
    values = [*real, *numbers.matrices]
    if start is not None:
        values.append(start.state_vector(wire_order=range(qubits)).reshape(-1, 2**qubits))
    # Never by way of torch's default precision, which would round.
    tensors = [v if isinstance(v, torch.Tensor) else torch.as_tensor(np.asarray(v)) for v in values]
    if any(tensor.is_complex() for tensor in tensors[: len(real)]):
        raise UserError(tapes.COMPLEX)
    return structure, tensors


def standard(tape: QuantumScript, wires: Any, mixed: bool = False) -> QuantumScript:
    """The tape of operations that `fused` takes, or that rest on a matrix, on wires 0..n-1. mixed: see `decomposed`.

    Raises:
        UserError: it has something that only the device runs.
    """
    if any(isinstance(op, qml.ops.MidMeasure | qml.ops.Conditional) for op in tape.operations):
        if any(getattr(op, "postselect", None) is not None for op in tape.operations):
            raise UserError("from_qnode has no postselection: call the QNode on default.qubit")
        (tape,), _ = defer_measurements(tape, allow_postselect=False)
    (tape,), _ = validate_device_wires(tape, wires, name="from_qnode")
    (tape,), _ = decomposed(tape, wires, mixed)
    return tape.map_to_standard_wires()


class Evaluator:
    """Results from a tape's numbers, in one precision and on one device.

    The numbers are inputs, weights, phases, factors of Pauli words, matrices, and perhaps a prepared state (rows, 2**n).
    """

    def __init__(
        self, structure: Structure, simulator: Simulator, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.structure = structure
        self._simulator = simulator
        self._dtype = dtype
        self._device = device
        self._angled = structure.inputs + structure.weights
        self._rows = 1 if structure.batch is None else structure.batch
        self._listed = structure.spec == pytree.tree_structure([0] * len(structure.measurements))
        # The factors of the words (words, results), once they are known to be constant; plain if result i is word i.
        self._table: torch.Tensor | None = None
        self._plain = False
        self._write(structure.gates)

    def _write(self, gates: Sequence[tapes.Operation]) -> None:
        """Divide gates into circuits, each but the last followed by a matrix on wires."""
        self._parts: list[tuple[Circuit, tuple[int, ...]]] = []
        first = 0
        for place, gate in enumerate(gates):
            if gate.name == tapes.MATRIX:
                circuit = tapes.circuit(self.structure.qubits, tuple(gates[first:place]))
                self._parts.append((circuit, gate.wires))
                first = place + 1
        self._circuit = tapes.circuit(self.structure.qubits, tuple(gates[first:]))
        if self.mixed and (self._parts or self.structure.prepared):
            raise UserError(tapes.NOT_NOISY)

    def unqueued(self) -> AbstractContextManager[None]:
        """What is held while it is evaluated: nothing, unless PennyLane makes operators for that."""
        return tapes.unqueued() if self.structure.words is None or self.structure.matrices else nullcontext()

    def nested(self, results: Sequence[torch.Tensor]) -> Any:
        """The results as the quantum function nests them."""
        # A list is what most quantum functions return, and torch's way to nest takes longer than a small circuit.
        return list(results) if self._listed else pytree.tree_unflatten(list(results), self.structure.spec)

    def evaluate(self, numbers: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The results from all numbers, with a prepared state as it is."""
        return self._results(self._angles(numbers), numbers[self._angled :])

    def state(self, numbers: Sequence[torch.Tensor]) -> torch.Tensor:
        """The final states (rows, 2**n) from all numbers, or density matrices (rows, 2**n, 2**n) if it is `mixed`."""
        return self._state(self._angles(numbers), numbers[self._angled :])

    @property
    def mixed(self) -> bool:
        """Whether states are density matrices."""
        return self.structure.mixed or self._circuit.noisy or any(circuit.noisy for circuit, _ in self._parts)

    def _angles(self, numbers: Sequence[torch.Tensor]) -> Angles:
        inputs, weights = numbers[: self.structure.inputs], numbers[self.structure.inputs : self._angled]
        empty = torch.empty(self._rows, 0, dtype=self._dtype, device=self._device)
        return Angles(
            tapes.vector(inputs, self._dtype, self._device) if inputs else empty,
            tapes.vector(weights, self._dtype, self._device) if weights else empty[0],
        )

    def _results(self, angles: Angles, rest: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """rest: what is not an angle of a gate."""
        structure, batched = self.structure, self.structure.batch is not None
        if structure.words is None:
            state = self._state(angles, rest)
            raw = map(
                torch.as_tensor,
                tapes.measured(state, structure.qubits, batched, structure.measurements, self.mixed),
            )
            # PennyLane's matrices are of double precision.
            return [each.to(self._dtype.to_complex() if each.is_complex() else self._dtype) for each in raw]
        last, initial = self._before(angles, rest)
        # A sum of no words is zero.
        words = structure.words or ("I" * structure.qubits,)
        values = self._simulator.expval(self._circuit, last, words, initial)
        if not self._plain:
            values = values @ (self._factors(rest) if self._table is None else self._table)
        return values.unbind(1) if batched else values[0].unbind()

    def _state(self, angles: Angles, rest: Sequence[torch.Tensor]) -> torch.Tensor:
        if self.mixed:
            if isinstance(self._simulator, Trajectories):
                raise UserError(
                    "trajectories give expectation values of Pauli words and their sums, without shots: leave them out"
                )
            return density_matrix(self._circuit, angles, readout=True)
        state = self._simulator.state(self._circuit, *self._before(angles, rest))
        for phase in rest[: self.structure.phases]:
            state = state * torch.exp(-1j * phase.to(self._device, self._dtype)).reshape(-1, 1)
        return state

    def _before(self, angles: Angles, rest: Sequence[torch.Tensor]) -> tuple[Angles, torch.Tensor | None]:
        """The angles of the last gates, and the state from which these start."""
        structure, kind = self.structure, self._dtype.to_complex()
        initial = self._prepared(rest[-1]) if structure.prepared else None
        matrices = rest[len(rest) - structure.matrices - structure.prepared :]
        for (circuit, wires), matrix in zip(self._parts, matrices, strict=False):
            state = self._simulator.state(circuit, _first(circuit, angles), initial)
            operation = qml.QubitUnitary(matrix.to(self._device, kind), wires=wires)
            full = tapes.unflattened(state, structure.qubits, batched=True)
            after = apply_operation(operation, full, is_state_batched=True)
            initial = after.to(kind).reshape(-1, 2**structure.qubits)
        return _first(self._circuit, angles) if self._parts else angles, initial

    def _prepared(self, state: torch.Tensor) -> torch.Tensor:
        """A state (batch, 2**n), or (2**n,) where it is the same for all.

        Raises:
            UserError: it must be normalised and is not; the tolerance is PennyLane's.
        """
        # A state may be written in whole numbers.
        norms = state.detach().abs().double().square().sum(-1).sqrt()
        if self.structure.checked and not torch.allclose(norms, torch.ones_like(norms), rtol=1e-5, atol=1e-8):
            raise UserError(
                f"from_qnode: a state is prepared with norm {float(norms.flatten()[(norms - 1).abs().argmax()]):.6g}: "
                "normalise it, such as by AmplitudeEmbedding(normalize=True)"
            )
        state = state.to(self._device, self._dtype.to_complex())
        return state[0] if len(state) == 1 else state

    def _factors(self, rest: Sequence[torch.Tensor]) -> torch.Tensor:
        """The factors of the Pauli words (words, results), which come after the phases."""
        words, places = self.structure.words or ("",), self.structure.places
        rows = [place for row in places for place in row]
        columns = [number for number, row in enumerate(places) for _ in row]
        table = torch.zeros(len(words), len(places), dtype=self._dtype, device=self._device)
        if not rows:
            return table
        phases = tapes.vector(rest[self.structure.phases :][: len(rows)], self._dtype, self._device)
        return table.index_put((torch.tensor(rows), torch.tensor(columns)), phases)


def _first(circuit: Circuit, angles: Angles) -> Angles:
    """The columns that a part of all gates has."""
    return Angles(angles.inputs[:, : circuit.inputs], angles.weights[: circuit.weights])


class Replay(Evaluator):
    """How calls with one set of shapes are answered.

    graph: from the tensors to the tape's numbers. tensors: those of the first call, as many as `arguments` from the
    quantum function's arguments and then those from outside. dtype: of the results, None for the arguments'.
    """

    def __init__(
        self,
        structure: Structure,
        graph: GraphModule,
        tensors: Sequence[torch.Tensor],
        arguments: int,
        simulator: Simulator,
        dtype: torch.dtype | None = None,
    ) -> None:
        dtype = dtype or precision(tensors[:arguments] or tensors)
        super().__init__(structure, simulator, dtype, tapes.device_of(tensors))
        self._graph = graph
        # What a key knows by its identity, for as long as the record lasts.
        self.references: list[object] = []
        # By numbers of tensors, the values that have not been compared yet with what the quantum function makes of others.
        self.traced = {number: tensor.detach().clone() for number, tensor in enumerate(tensors)}
        self._rest: list[torch.Tensor] = []
        self._picked: tuple[Picked, Picked] | None = None
        *_, output = graph.graph.nodes
        results = output.args[0]
        if dependent(graph).intersection(results[self._angled :]):
            return
        self._rest = [value.detach() for value in graph(*tensors)[self._angled :]]
        output.args = (results[: self._angled],)
        graph.graph.eliminate_dead_code()
        graph.recompile()
        if structure.words is not None:
            with torch.inference_mode(False):
                self._table = self._factors(self._rest)
            self._plain = torch.equal(self._table, torch.eye(len(structure.places)).to(self._table))
        angle_columns = entries(graph, tensors, self._angled)
        if angle_columns is None:
            return
        of_inputs, of_weights = angle_columns[: structure.inputs], angle_columns[structure.inputs :]
        inputs = Picked(of_inputs, (self._rows,), tensors, self._dtype, self._device)
        weights = Picked(of_weights, (), tensors, self._dtype, self._device)
        self._picked, places = (inputs, weights), {"input": inputs.places, "weight": weights.places}
        self._write(
            [
                gate._replace(
                    columns=tuple((kind, places[kind][n]) for kind, n in gate.columns if kind in places)
                )
                for gate in structure.gates
            ]
        )

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The results of all measurements."""
        if self._picked is None:
            return self.evaluate(self.numbers(tensors))
        inputs, weights = self._picked
        return self._results(Angles(inputs(tensors), weights(tensors)), self._rest)

    def numbers(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tape's numbers, in the order of `Evaluator`."""
        return [*self._graph(*tensors), *self._rest]


def precision(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """Single if there are tensors of floating-point numbers and none is double."""
    floating = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    return torch.float32 if floating and torch.float64 not in floating else torch.float64
