"""Qiskit's circuits as circuits of KetScale.

Qiskit's qubit 0 is the least significant bit of a basis state's index and KetScale's wire 0 the most significant one:
qubit q of n is wire n - 1 - q. So states have the same order, and a Pauli word is spelt as Qiskit's label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import isfinite, pi
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ketscale.engines.circuits.circuit import GATES, Circuit, Column, Gate, given, order_of
from ketscale.engines.circuits.qiskit import METHODS
from ketscale.errors import UserError, short
from ketscale.interop.expressions import Expression, ParametrisedCircuit
from ketscale.optional import needed_for

if TYPE_CHECKING:
    from qiskit.circuit import Parameter, ParameterVector, QuantumCircuit

# The column of an angle; the text names the gate, for an error.
Angle = Callable[[Expression, str], Column]


class PlacedGate(NamedTuple):
    """A gate of KetScale on some of a Qiskit gate's qubits; an angle is the number of a parameter, or a constant."""

    name: str
    qubits: tuple[int, ...]
    angles: tuple[int | float, ...] = ()


# Gates with one counterpart: its name, for the same qubits and parameters in the same order.
SAME = {method: name for name, method in METHODS.items()}
SAME |= {"u1": "PhaseShift", "cu1": "ControlledPhaseShift"}

# Gates with a counterpart, up to a global phase; Qiskit defines all its others by these.
PLACED = {
    **{
        name: PlacedGate(same, tuple(range(GATES[same].wires)), tuple(range(GATES[same].angles)))
        for name, same in SAME.items()
    },
    "sx": PlacedGate("RX", (0,), (pi / 2,)),
    "u": PlacedGate("Rot", (0,), (2, 0, 1)),
}


def from_qiskit(
    circuit: QuantumCircuit,
    inputs: Parameter | ParameterVector | str | Iterable[Parameter | ParameterVector | str] = (),
) -> Circuit | ParametrisedCircuit:
    """A circuit with the state of a Qiskit circuit up to a global phase, which may depend on the parameters.

    A Circuit; or where an angle is an expression, such as 2 * theta, or a vector's last elements are unused, a
    ParametrisedCircuit. `Layer` accepts both.

    Angles are in radians, as in Qiskit. Final measurements, barriers and delays are ignored. A reset, or `initialize`,
    is allowed on qubits that no gate has acted on. A gate that has no counterpart is decomposed as Qiskit defines it,
    or becomes a given unitary. A PauliEvolutionGate is the product formula of its `synthesis`, as on hardware;
    Qiskit's Statevector uses the exponential instead.

    inputs: the parameters that become input columns, in this order: parameters, vectors (all their elements, whether
        the circuit uses them or not), or their names. All other parameters become weight columns, in the order of
        `circuit.parameters`.

    Raises:
        UserError: this is no QuantumCircuit; an input is not a parameter of it, or is given twice; an angle is complex;
            there is a measurement before the end, a reset of a qubit in use, control flow, or an instruction that is
            no gate; or Qiskit is not installed.

    Example:
        >>> written = qiskit.QuantumCircuit(2)
        >>> _ = written.ry(Parameter("x"), 0), written.rz(Parameter("t"), 0)
        >>> circuit = ketscale.from_qiskit(written, inputs="x")
        >>> circuit.inputs, circuit.weights
        (1, 1)
    """
    with needed_for("from_qiskit"):
        from qiskit import QuantumCircuit
    if not isinstance(circuit, QuantumCircuit):
        raise UserError(f"from_qiskit needs a QuantumCircuit, not {short(repr(circuit))}")
    picks = _selection(circuit, inputs)
    among = set(picks)
    others = [parameter for parameter in circuit.parameters if parameter not in among]
    # Columns of expressions come after those of the parameters themselves.
    columns: dict[Expression, Column] = {
        **{parameter: Column("input", place) for place, parameter in enumerate(picks)},
        **{parameter: Column("weight", place) for place, parameter in enumerate(others)},
    }
    counts: dict[Any, int] = {"input": len(picks), "weight": len(others)}

    def angle(expression: Expression, gate: str) -> Column:
        parameters = getattr(expression, "parameters", ())
        if not parameters:
            return Column("constant", value=_number(expression, gate))
        if expression not in columns:
            kind: Any = "weight" if among.isdisjoint(parameters) else "input"
            columns[expression] = Column(kind, counts[kind])
            counts[kind] += 1
        return columns[expression]

    translator = _Translator(circuit.num_qubits, angle)
    translator.add_all(circuit, range(circuit.num_qubits), None)
    translated = Circuit(circuit.num_qubits, tuple(translator.gates))
    # More columns are those of expressions, with fewer, some parameters are in no angle.
    if (translated.inputs, translated.weights) == (len(picks), len(others)):
        return translated
    return ParametrisedCircuit(translated, picks, others, columns)


def _number(expression: Expression, gate: str) -> float:
    with suppress(TypeError, ValueError):
        value = float(expression)
        if isfinite(value):
            return value
    raise UserError(f"angle {short(expression)} of gate {gate} is not a finite real number")


class _Translator:
    """Gathers the gates of a circuit and of the definitions within it."""

    def __init__(self, qubits: int, angle: Angle) -> None:
        self.gates: list[Gate] = []
        self._measured: set[int] = set()
        self._qubits = qubits
        self._angle = angle
        self._touched: set[int] = set()

    def add_all(self, circuit: QuantumCircuit, qubits: Sequence[int], within: str | None) -> None:
        """Add a circuit on these qubits; `within` is the gate of the user's circuit that it defines, if any."""
        places = dict(zip(circuit.qubits, qubits, strict=True))
        for item in circuit.data:
            self._add(item.operation, [places[qubit] for qubit in item.qubits], within)

    def _add(self, operation: Any, qubits: list[int], within: str | None) -> None:
        name = within or operation.name
        # First, since they are most of a circuit, and Qiskit's types take longer to distinguish.
        if steps := _steps(operation):
            for step in steps:
                on = tuple(qubits[place] for place in step.qubits)
                angles = (
                    self._angle(operation.params[angle], name)
                    if isinstance(angle, int)
                    else Column("constant", value=angle)
                    for angle in step.angles
                )
                self._append(Gate(step.name, self._wires(on), tuple(angles)), qubits, name)
            return
        from qiskit.circuit import Barrier, ControlFlowOp, Delay, Measure, Reset, Store
        from qiskit.circuit.library import GlobalPhaseGate, IGate

        if isinstance(operation, (Barrier, Delay, IGate, GlobalPhaseGate)):
            return
        if isinstance(operation, (ControlFlowOp, Store)):
            raise UserError(f"instruction {name} on qubits {qubits}: control flow cannot be simulated here")
        if isinstance(operation, Measure):
            self._measured.update(qubits)
        elif isinstance(operation, Reset):
            if not (self._touched | self._measured).isdisjoint(qubits):
                raise UserError(
                    f"instruction {name} on qubits {qubits}: only qubits that are still |0> can be reset or initialised"
                )
        elif (matrix := _matrix(operation)) is not None:
            # For Qiskit the first qubit of a matrix is the least significant one.
            self._append(given(matrix, *self._wires(qubits[::-1])), qubits, name)
        else:
            self.add_all(_definition(operation, name), qubits, name)

    def _wires(self, qubits: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._qubits - 1 - qubit for qubit in qubits)

    def _append(self, gate: Gate, qubits: list[int], name: str) -> None:
        if not self._measured.isdisjoint(qubits):
            raise UserError(
                f"gate {name} on qubits {qubits}: it acts after a measurement, and measurements must be the last"
            )
        self._touched.update(qubits)
        self.gates.append(gate)


def _steps(operation: Any) -> tuple[PlacedGate, ...]:
    """How a gate of Qiskit's own is made of KetScale's, if it is; one that is controlled by a |0> has another name."""
    if _is_standard(operation) and operation.name in PLACED:
        return (PLACED[operation.name],)
    from qiskit.circuit import ControlledGate

    if not isinstance(operation, ControlledGate) or not _is_standard(operation.base_gate):
        return ()
    name, count = SAME.get(operation.base_gate.name), operation.num_ctrl_qubits
    if name is None or count + operation.base_gate.num_qubits < operation.num_qubits:  # others help
        return ()
    zeros = tuple(PlacedGate("PauliX", (q,)) for q in range(count) if not operation.ctrl_state >> q & 1)
    angles = tuple(range(len(operation.params)))
    return (*zeros, PlacedGate(f"C({name})", tuple(range(operation.num_qubits)), angles), *zeros)


def _is_standard(operation: Any) -> bool:
    """Whether a gate is one of Qiskit's own: a gate of the user's may have the name of one of them."""
    module: str = getattr(operation, "base_class", type(operation)).__module__
    return module.startswith("qiskit.circuit.library.standard_gates.")


def _matrix(operation: Any) -> Any:
    """The matrix of a gate that `given` takes, if it has one and no unbound parameter."""
    from qiskit.circuit import Gate as QiskitGate
    from qiskit.circuit.library import PauliEvolutionGate, UnitaryGate

    if isinstance(operation, UnitaryGate):
        matrix = operation.to_matrix()
        if order_of(matrix) is not None:
            return matrix
        # Qiskit synthesises larger ones, and assumes what `check_input=False` leaves unchecked.
        if not np.allclose(matrix @ matrix.conj().T, np.eye(len(matrix)), rtol=0, atol=1e-6):
            raise UserError(f"the matrix of {short(repr(operation.name))} is not unitary")
    if not isinstance(operation, QiskitGate) or operation.num_qubits not in (1, 2):
        return None
    # A product by its definition, and not the exponential, whatever the number of qubits; rotations are faster than matrices.
    if isinstance(operation, PauliEvolutionGate) or _is_standard(operation):
        return None
    if not hasattr(operation, "__array__") or any(
        getattr(each, "parameters", ()) for each in operation.params
    ):
        return None
    return operation.to_matrix()


def _definition(operation: Any, name: str) -> QuantumCircuit:
    """The circuit that Qiskit gives for an operation."""
    from qiskit import QuantumCircuit, transpile
    from qiskit.exceptions import QiskitError

    try:
        definition = getattr(operation, "definition", None)
        if definition is not None:
            return definition
        # Cliffords and modified gates have none; Qiskit synthesises them.
        single = QuantumCircuit(operation.num_qubits, operation.num_clbits)
        single.append(operation, single.qubits, single.clbits)
        return transpile(single, basis_gates=[*SAME], optimization_level=0)
    except (QiskitError, TypeError, ValueError) as error:
        raise UserError(
            f"instruction {name}: Qiskit cannot decompose it into gates ({short(error)}); bind its parameters or "
            "replace it"
        ) from None


def _selection(circuit: QuantumCircuit, inputs: Any) -> list[Parameter]:
    """The parameters that become input columns, in their order.

    A vector has elements that the circuit need not use, so that the columns of a data set keep their places.
    """
    from qiskit.circuit import Parameter, ParameterVector

    parameters = {parameter.name: [parameter] for parameter in circuit.parameters}
    vectors = {p.vector.name: list(p.vector) for p in circuit.parameters if hasattr(p, "vector")}
    picks: list[Parameter] = []
    for item in [inputs] if isinstance(inputs, (str, Parameter, ParameterVector)) else inputs:
        names = parameters if isinstance(item, Parameter) else parameters | vectors
        if isinstance(item, ParameterVector):
            names = vectors
        name = getattr(item, "name", item)
        if name not in names:
            raise UserError(
                f"inputs: the parameters of this circuit are {short(list(names), 400)}, not {short(name)}"
            )
        picks += names[name]
    if len(set(picks)) < len(picks):
        raise UserError("inputs: a parameter is given twice")
    return picks
