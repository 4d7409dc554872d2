"""Qiskit's circuits, and OpenQASM through Qiskit's loaders, as circuits of KetScale.

Qiskit's qubit 0 is the least significant bit of a basis state's index and KetScale's wire 0 the most significant one:
qubit q of n is wire n - 1 - q. So states have the same order, and a Pauli word is spelt as Qiskit's label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from math import isfinite, pi
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ketscale.engines.circuits.circuit import GATES, Circuit, Column, Gate, given, order_of
from ketscale.engines.circuits.qiskit import METHODS
from ketscale.errors import UserError, damaged, short
from ketscale.interop.expressions import Expression, ParametrisedCircuit
from ketscale.optional import needed_for

if TYPE_CHECKING:
    from qiskit.circuit import Clbit, Parameter, ParameterVector, QuantumCircuit

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

# Gates with one or two, in the order of execution, up to a global phase; Qiskit defines all its others by these.
STEPS = {
    **{
        name: (PlacedGate(same, tuple(range(GATES[same].wires)), tuple(range(GATES[same].angles))),)
        for name, same in SAME.items()
    },
    "sdg": (PlacedGate("PauliZ", (0,)), PlacedGate("S", (0,))),
    "tdg": (PlacedGate("RZ", (0,), (-pi / 4,)),),
    "sx": (PlacedGate("RX", (0,), (pi / 2,)),),
    "sxdg": (PlacedGate("RX", (0,), (-pi / 2,)),),
    "u": (PlacedGate("Rot", (0,), (2, 0, 1)),),
    "u3": (PlacedGate("Rot", (0,), (2, 0, 1)),),
    "u2": (PlacedGate("Rot", (0,), (1, pi / 2, 0)),),
}


def from_qiskit(
    circuit: QuantumCircuit,
    inputs: Parameter | ParameterVector | str | Iterable[Parameter | ParameterVector | str] = (),
) -> Circuit | ParametrisedCircuit:
    """A circuit with the state of a Qiskit circuit up to a global phase, which may depend on the parameters.

    A Circuit; or where an angle is an expression, such as 2 * theta, or a vector's last elements are unused, a
    ParametrisedCircuit. `Layer` takes both.

    Angles are in radians, as in Qiskit. Final measurements, barriers and delays are ignored. A reset, or `initialize`,
    is allowed on qubits that no gate has acted on. A gate that has no counterpart is decomposed as Qiskit defines it,
    or becomes a given unitary. A PauliEvolutionGate is the product formula of its `synthesis`, as on hardware;
    Qiskit's Statevector takes the exponential in its place.

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
        raise UserError(f"from_qiskit takes a QuantumCircuit, not {short(repr(circuit))}")
    chosen = _chosen(circuit, inputs)
    others = [parameter for parameter in circuit.parameters if parameter not in chosen]
    # Columns of expressions come after those of the parameters themselves.
    columns: dict[Expression, Column] = {
        **{parameter: Column("input", place) for place, parameter in enumerate(chosen)},
        **{parameter: Column("weight", place) for place, parameter in enumerate(others)},
    }
    counts: dict[Any, int] = {"input": len(chosen), "weight": len(others)}

    def angle(expression: Expression, gate: str) -> Column:
        parameters = free(expression)
        if not parameters:
            return Column("constant", value=number(expression, gate))
        if expression not in columns:
            kind: Any = "weight" if set(chosen).isdisjoint(parameters) else "input"
            columns[expression] = Column(kind, counts[kind])
            counts[kind] += 1
        return columns[expression]

    translated = translate(circuit, angle).circuit
    # More columns are those of expressions, fewer leave out parameters that no angle has.
    if (translated.inputs, translated.weights) == (len(chosen), len(others)):
        return translated
    return ParametrisedCircuit(translated, chosen, others, columns)


def from_qasm2(source: str | Path, inputs: str | Iterable[str] = ()) -> Circuit | ParametrisedCircuit:
    """A circuit from OpenQASM 2, read by Qiskit; see `from_qiskit`.

    source: a text, which has a semicolon, or the path of a file.

    Raises:
        UserError: as for `from_qiskit`, or the text or the file cannot be read.

    Example:
        >>> text = 'OPENQASM 2.0; include "qelib1.inc"; qreg q[2]; h q[0]; cx q[0], q[1];'
        >>> len(ketscale.from_qasm2(text).gates)
        2
    """
    with needed_for("OpenQASM 2"):
        from qiskit import QuantumCircuit
    return from_qiskit(_read(source, "OpenQASM 2", QuantumCircuit.from_qasm_str), inputs)


def from_qasm3(source: str | Path, inputs: str | Iterable[str] = ()) -> Circuit | ParametrisedCircuit:
    """A circuit from OpenQASM 3, read by Qiskit; see `from_qiskit`.

    source: a text, which has a semicolon, or the path of a file. Its `input` angles are the parameters.
    inputs: the names of those that become input columns, in this order.

    Raises:
        UserError: as for `from_qiskit`, or the text or the file cannot be read, or qiskit-qasm3-import is missing.

    Example:
        >>> text = 'OPENQASM 3.0; include "stdgates.inc"; input angle a; qubit[1] q; ry(a) q[0];'
        >>> ketscale.from_qasm3(text, inputs="a").inputs
        1
    """
    with needed_for("OpenQASM 3"):
        import qiskit_qasm3_import  # noqa: F401  # what Qiskit's loader needs
        from qiskit import qasm3
    return from_qiskit(_read(source, "OpenQASM 3", qasm3.loads), inputs)


def _read(source: str | Path, language: str, load: Callable[[str], QuantumCircuit]) -> QuantumCircuit:
    if isinstance(source, str) and ";" in source:
        with damaged(f"this is no {language}", "correct the text"):
            return load(source)
    with damaged(f"{short(source)} cannot be read as {language}", "give a text or the path of a file"):
        return load(Path(source).read_text("utf-8"))


class Translation(NamedTuple):
    """A circuit, and the qubit (Qiskit's number) whose final measurement each classical bit holds."""

    circuit: Circuit
    measured: dict[Clbit, int]


def translate(circuit: QuantumCircuit, angle: Angle) -> Translation:
    """A Qiskit circuit's gates, whose angles `angle` turns into columns.

    Raises:
        UserError: as for `from_qiskit`, but for expressions that `angle` takes.
    """
    translator = _Translator(circuit.num_qubits, angle)
    translator.add_all(circuit, range(circuit.num_qubits), circuit.clbits, None)
    return Translation(Circuit(circuit.num_qubits, tuple(translator.gates)), translator.measured)


def free(expression: Expression) -> Iterable[Parameter]:
    """The unbound parameters of an angle."""
    parameters: Iterable[Parameter] = getattr(expression, "parameters", ())
    return parameters


def number(expression: Expression, gate: str) -> float:
    """The value of an angle without unbound parameters.

    Raises:
        UserError: it is not a finite real number.
    """
    with suppress(TypeError, ValueError):
        value = float(expression)
        if isfinite(value):
            return value
    raise UserError(f"angle {short(expression)} of gate {gate} is not a finite real number")


class _Translator:
    """Gathers the gates of a circuit and of the definitions within it."""

    def __init__(self, qubits: int, angle: Angle) -> None:
        self.gates: list[Gate] = []
        self.measured: dict[Clbit, int] = {}
        self._qubits = qubits
        self._angle = angle
        self._touched: set[int] = set()
        # The qubits of all measurements, also of those whose bit another one overwrites.
        self._ended: set[int] = set()

    def add_all(
        self, circuit: QuantumCircuit, qubits: Sequence[int], clbits: Sequence[Clbit], within: str | None
    ) -> None:
        """Add a circuit on these qubits; `within` is the gate of the user's circuit that it defines, if any."""
        quantum = dict(zip(circuit.qubits, qubits, strict=True))
        classical = dict(zip(circuit.clbits, clbits, strict=True))
        for item in circuit.data:
            on = [quantum[qubit] for qubit in item.qubits]
            self._add(item.operation, on, [classical[bit] for bit in item.clbits], within)

    def _add(self, operation: Any, qubits: list[int], clbits: list[Clbit], within: str | None) -> None:
        whole = within or operation.name
        # First, since they are most of a circuit, and Qiskit's types take longer to tell apart.
        if steps := _steps(operation):
            for step in steps:
                on = tuple(qubits[place] for place in step.qubits)
                angles = (
                    self._angle(operation.params[angle], whole)
                    if isinstance(angle, int)
                    else Column("constant", value=angle)
                    for angle in step.angles
                )
                self._append(Gate(step.name, self._wires(on), tuple(angles)), qubits, whole)
            return
        from qiskit.circuit import Barrier, ControlFlowOp, Delay, Measure, Reset, Store
        from qiskit.circuit.library import GlobalPhaseGate, IGate

        if isinstance(operation, (Barrier, Delay, IGate, GlobalPhaseGate)):
            return
        if isinstance(operation, (ControlFlowOp, Store)):
            raise UserError(f"instruction {whole} on qubits {qubits}: control flow cannot be simulated here")
        if isinstance(operation, Measure):
            self.measured[clbits[0]] = qubits[0]
            self._ended.add(qubits[0])
        elif isinstance(operation, Reset):
            if not (self._touched | self._ended).isdisjoint(qubits):
                raise UserError(
                    f"instruction {whole} on qubits {qubits}: only qubits that are still |0> can be reset or initialised"
                )
        elif (matrix := _matrix(operation)) is not None:
            # For Qiskit the first qubit of a matrix is the least significant one.
            self._append(given(matrix, *self._wires(qubits[::-1])), qubits, whole)
        else:
            self.add_all(_definition(operation, whole), qubits, clbits, whole)

    def _wires(self, qubits: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._qubits - 1 - qubit for qubit in qubits)

    def _append(self, gate: Gate, qubits: list[int], whole: str) -> None:
        if not self._ended.isdisjoint(qubits):
            raise UserError(
                f"gate {whole} on qubits {qubits}: it acts after a measurement, and measurements must be the last"
            )
        self._touched.update(qubits)
        self.gates.append(gate)


@cache
def _standard() -> dict[str, type]:
    """Qiskit's own gates: a gate of the user's may have the name of one of them."""
    from qiskit.circuit.library import get_standard_gate_name_mapping

    return {name: gate.base_class for name, gate in get_standard_gate_name_mapping().items()}


def _steps(operation: Any) -> tuple[PlacedGate, ...] | None:
    """How a gate of Qiskit's own is made of KetScale's, if it is; one that is controlled by a |0> has another name."""
    if _is_standard(operation) and operation.name in STEPS:
        return STEPS[operation.name]
    from qiskit.circuit import ControlledGate

    if not isinstance(operation, ControlledGate) or not _is_standard(operation.base_gate):
        return None
    name, count = SAME.get(operation.base_gate.name), operation.num_ctrl_qubits
    if name is None or count + operation.base_gate.num_qubits < operation.num_qubits:  # others help
        return None
    zeros = tuple(PlacedGate("PauliX", (q,)) for q in range(count) if not operation.ctrl_state >> q & 1)
    angles = tuple(range(len(operation.params)))
    return (*zeros, PlacedGate(f"C({name})", tuple(range(operation.num_qubits)), angles), *zeros)


def _is_standard(operation: Any) -> bool:
    return operation.name in _standard() and operation.base_class is _standard()[operation.name]


def _matrix(operation: Any) -> Any:
    """The matrix of a gate that `given` takes, if it has one and no unbound parameter."""
    from qiskit.circuit import Gate as QiskitGate
    from qiskit.circuit.library import PauliEvolutionGate, UnitaryGate

    if isinstance(operation, UnitaryGate):
        matrix = operation.to_matrix()
        if order_of(matrix) is not None:
            return matrix
        # Qiskit synthesises larger ones, and takes for granted what `check_input=False` leaves unchecked.
        if not np.allclose(matrix @ matrix.conj().T, np.eye(len(matrix)), rtol=0, atol=1e-6):
            raise UserError(f"the matrix of {short(repr(operation.name))} is not unitary")
    if not isinstance(operation, QiskitGate) or operation.num_qubits not in (1, 2):
        return None
    # A product by its definition, and not the exponential, whatever the number of qubits; rotations are faster than matrices.
    if isinstance(operation, PauliEvolutionGate) or _is_standard(operation):
        return None
    if not hasattr(operation, "__array__") or any(free(parameter) for parameter in operation.params):
        return None
    return operation.to_matrix()


def _definition(operation: Any, whole: str) -> QuantumCircuit:
    """The circuit that Qiskit gives for an operation."""
    from qiskit import QuantumCircuit, transpile
    from qiskit.exceptions import QiskitError

    try:
        definition = getattr(operation, "definition", None)
        if definition is not None:
            return definition
        # Cliffords and modified gates have none; Qiskit synthesises them.
        alone = QuantumCircuit(operation.num_qubits, operation.num_clbits)
        alone.append(operation, alone.qubits, alone.clbits)
        return transpile(alone, basis_gates=[*SAME], optimization_level=0)
    except (QiskitError, TypeError, ValueError) as error:
        raise UserError(
            f"instruction {whole}: Qiskit cannot decompose it into gates ({short(error)}); bind its parameters or "
            "replace it"
        ) from None


def _chosen(circuit: QuantumCircuit, inputs: Any) -> list[Parameter]:
    """The parameters that become input columns, in their order."""
    from qiskit.circuit import Parameter, ParameterVector

    alone = isinstance(inputs, (str, Parameter, ParameterVector))
    asked = [inputs] if alone else inputs
    chosen = [parameter for wanted in asked for parameter in _named(circuit, wanted)]
    if len(set(chosen)) < len(chosen):
        raise UserError("inputs: a parameter is given twice")
    return chosen


def _named(circuit: QuantumCircuit, wanted: Any) -> list[Parameter]:
    """The parameters that an input means.

    A vector has elements that the circuit need not use, so that the columns of a data set keep their places.
    """
    from qiskit.circuit import Parameter, ParameterVector

    vectors = {p.vector.name: p.vector for p in circuit.parameters if hasattr(p, "vector")}
    parameters = {p.name: p for p in circuit.parameters}
    if isinstance(wanted, ParameterVector) and not set(wanted).isdisjoint(circuit.parameters):
        return list(wanted)
    if isinstance(wanted, str) and wanted in vectors:
        return list(vectors[wanted])
    if isinstance(wanted, str) and wanted in parameters:
        return [parameters[wanted]]
    if isinstance(wanted, Parameter) and wanted in circuit.parameters:
        return [wanted]
    names = ", ".join(map(str, parameters)) or "none"
    raise UserError(
        f"inputs: {short(wanted)} is not a parameter of this circuit, which has {short(names, 400)}"
    )
