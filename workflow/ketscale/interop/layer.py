"""A circuit as a layer of torch."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import nn

from ketscale.engines.circuits.checks import check_words
from ketscale.engines.circuits.circuit import Angles, Circuit, pauli_words
from ketscale.engines.circuits.shots import Shots
from ketscale.engines.circuits.simulator import Simulator, probabilities
from ketscale.errors import UserError
from ketscale.interop.expressions import ParametrisedCircuit, check_circuit
from ketscale.shapes import Float, Shaped
from ketscale.simulators import operators  # noqa: F401, exported programs name them
from ketscale.simulators.factory import resolve_simulator

# A full-length Pauli word such as 'ZI', or a weighted sum of them such as {'ZI': 0.5, 'IZ': 0.5}.
Observable = str | Mapping[str, float]

# What a layer may return, by PennyLane's names.
Measure = Literal["expval", "probs", "state", "density", "sample"]

# The strengths of channels are drawn between 0 and this.
LARGEST_STRENGTH = 0.1


class Layer(nn.Module):
    """Angles (..., circuit.inputs) in radians -> expectation values (..., outputs), or what else `measure` says.

    Its one parameter is `weight` (circuit.weights,), drawn from [0, 2 pi) with torch's generator, and from [0, 0.1) where
    it is the strength of a channel. Fused and 'default.qubit' have derivatives of any order, also by forward mode and torch.func, but for shots; other simulators
    know neither, and all but 'default.qubit-jit' have first derivatives only.

    circuit: what is evaluated, such as `from_qiskit` gives; one without inputs is called without an argument.
    observables: one for each output: a Pauli word with a letter for every wire, such as 'ZI', or a weighted sum of
        words, such as {'ZZ': 1.0, 'XI': 0.5}. None is Z on each wire in turn. Samples are of words alone.
    measure: 'expval': expectation values of the observables, (..., outputs). 'probs': probabilities of the outcomes on
        `wires`, (..., 2**len(wires)). 'state': amplitudes (..., 2**qubits), complex. 'density': density matrices
        (..., 2**qubits, 2**qubits), complex, of circuits with channels too; by fused alone.
        'sample': `shots` outcomes without gradients, (..., shots, len(wires)) of bits, int64; or, with observables,
        of their values +1 and -1, (..., shots, outputs). The first wire is the most significant.
    wires: the wires of 'probs' and 'sample', in the order of the bits; None is all.
    simulator: an object, a usual name such as 'default.qubit', or None for fused.
    shots: how many a result is the mean of; None is exact. Words without different letters on a wire share shots. torch's
        generator determines them; in `ketscale train` the run's seed, the step and the sample.
    gradient: the gradient of results from shots. 'shift', the default, is measured with shots of its own by the parameter-shift
        rules, without bias; 'exact' is the exact gradient of the noisy value.
    trajectories: of how many random pure states, for each sample, the results of a circuit with channels are means; None is
        exact, by density matrices. `simulator.estimate` and `simulator.gradients` have standard errors.
    device, dtype: those of `weight`, as for torch's own layers; circuits take torch.float32 and torch.float64.

    Raises:
        UserError: this is no circuit, there is no such simulator, a word does not fit the circuit, a coefficient is no
            finite real number, or the arguments cannot be combined; when called, the inputs have another width, dtype
            or device than the layer, or a derivative is asked for that the simulator does not have.

    Example:
        >>> layer = ketscale.Layer(ketscale.Circuit(2).ry(0, "x0").cnot(0, 1).rx(1, "w0"), ["ZI", {"ZZ": 0.5}])
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 1), layer)
        >>> model(torch.randn(16, 8)).shape
        torch.Size([16, 2])
        >>> layer.reset_parameters(torch.Generator().manual_seed(0))
    """

    def __init__(
        self,
        circuit: Circuit | ParametrisedCircuit,
        observables: Sequence[Observable] | None = None,
        *,
        measure: Measure = "expval",
        wires: Sequence[int] | None = None,
        simulator: Simulator | str | None = None,
        shots: int | None = None,
        gradient: Literal["shift", "exact"] | None = None,
        trajectories: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_circuit(circuit, "Layer")
        self.circuit, self.measure = circuit, measure
        _check(measure, observables, wires, shots, gradient)
        self._columns = circuit.inputs  # torch's compiler cannot read what is cached
        self.simulator = resolve_simulator(simulator)
        if measure == "density" and simulator not in (None, "fused"):
            raise UserError("measure 'density' is of simulator 'fused': leave out simulator")
        if trajectories is not None:
            from ketscale.engines.noise.trajectories import Trajectories

            if measure == "density":
                raise UserError("measure 'density' is exact: leave out trajectories")
            self.simulator = Trajectories(self.simulator, trajectories)
        if shots is not None:
            self.simulator = Shots(self.simulator, shots, gradient or "shift")
        self.wires = _wires(wires, circuit.qubits)
        self.words, self._sums = read_observables(observables, circuit.qubits)
        if measure == "sample" and self._sums is not None:
            raise UserError("measure 'sample' needs distinct Pauli words, not sums of them")
        self._of_bits = measure == "probs" or (measure == "sample" and observables is None)
        if measure in ("state", "density"):
            self.outputs = 2**circuit.qubits
        elif self._of_bits:
            self.outputs = 2 ** len(self.wires) if measure == "probs" else len(self.wires)
        else:
            self.outputs = len(self.words) if self._sums is None else self._sums.shape[1]
        self.weight = nn.Parameter(torch.empty(circuit.weights, device=device, dtype=dtype))
        self.reset_parameters()

    if TYPE_CHECKING:  # what nn.Module leaves open

        def __call__(self, inputs: torch.Tensor | None = None) -> torch.Tensor:
            """See `forward`."""
            ...

    def extra_repr(self) -> str:
        """Qubits, gates and what is measured, which `print` shows."""
        circuit: Any = getattr(self.circuit, "circuit", self.circuit)
        measured = (
            "" if self.measure in ("state", "density") else list(self.wires if self._of_bits else self.words)
        )
        return f"qubits={circuit.qubits}, gates={len(circuit.gates)}, {self.measure}{measured}"

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw new weights, uniformly from [0, 2 pi), or [0, 0.1) for strengths, with torch's generator or another."""
        nn.init.uniform_(self.weight, 0, 2 * math.pi, generator=generator)
        strengths = getattr(self.circuit, "strengths", ())
        if strengths:
            with torch.no_grad():
                self.weight[list(strengths)] *= LARGEST_STRENGTH / (2 * math.pi)

    def forward(
        self, inputs: Float[torch.Tensor, "*rows {self.circuit.inputs}"] | None = None
    ) -> Shaped[torch.Tensor, "... {self.outputs}"]:
        """Expectation values (..., outputs) of inputs (..., circuit.inputs), in the weight's dtype; or see `measure`.

        Under torch.autocast inputs of another precision are converted; otherwise they are an error.
        """
        weight, columns = self.weight, self._columns
        if inputs is None and columns == 0:
            inputs = weight.new_empty(0)
        if not isinstance(inputs, torch.Tensor) or inputs.shape[-1:] != (columns,):
            what = tuple(inputs.shape) if isinstance(inputs, torch.Tensor) else type(inputs).__name__
            raise UserError(f"Layer needs a torch tensor (..., {columns}), not {what}")
        kind = weight.device.type
        mixed = torch.is_autocast_enabled(kind)
        if mixed and inputs.is_floating_point():
            inputs = inputs.to(weight.dtype)
        leading = inputs.shape[:-1]
        # A view of the same shape would cost autograd two more steps.
        rows = inputs if len(leading) == 1 else inputs.reshape(math.prod(leading), columns)
        circuit, angles = self.circuit, Angles(rows, weight)
        with torch.autocast(kind, enabled=False) if mixed else nullcontext():
            if isinstance(circuit, ParametrisedCircuit):
                angles = circuit(*angles)
                circuit = circuit.circuit
            values = self._ask(circuit, angles)
        return values if len(leading) == 1 else values.reshape(*leading, *values.shape[1:])

    def _ask(self, circuit: Circuit, angles: Angles) -> torch.Tensor:
        """What is measured, (batch, ..., outputs)."""
        simulator: Any = self.simulator
        match self.measure:
            case "expval":
                values: torch.Tensor = simulator.expval(circuit, angles, self.words)
                return values if self._sums is None else values @ self._sums.to(values)
            case "state":
                return simulator.state(circuit, angles)
            case "density":
                from ketscale.engines.noise.density import density_matrix

                return density_matrix(circuit, angles)
            case "probs":
                return probabilities(simulator, circuit, angles, self.wires)
        return simulator.sample(circuit, angles, self.wires, None if self._of_bits else self.words)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Layer:
        """As nn.Module's; the coefficients follow to the device but keep their 64 bits."""
        super()._apply(fn, recurse)
        if not self.weight.is_meta and self._sums is not None:
            self._sums = self._sums.to(self.weight.device)
        return self


def _check(
    measure: str,
    observables: Sequence[Observable] | None,
    wires: Sequence[int] | None,
    shots: int | None,
    gradient: str | None,
) -> None:
    """Raise UserError if arguments of a layer cannot be combined."""
    if measure not in get_args(Measure):
        raise UserError(f"measure is one of {', '.join(get_args(Measure))}, not {measure!r}")
    if observables is not None and measure in ("probs", "state", "density"):
        raise UserError(f"measure {measure!r} has no observables: leave them out")
    if wires is not None and (measure not in ("probs", "sample") or observables is not None):
        raise UserError("wires are for measure 'probs', and for 'sample' without observables: leave them out")
    if measure == "sample" and shots is None:
        raise UserError("measure 'sample' needs shots, such as shots=1000")
    if measure in ("state", "density") and shots is not None:
        raise UserError(f"measure {measure!r} is exact: leave out shots")
    if gradient is not None and (shots is None or measure == "sample"):
        raise UserError("gradient is for results from shots: give shots, or leave it out")


def _wires(wires: Sequence[int] | None, qubits: int) -> tuple[int, ...]:
    try:
        order = tuple(range(qubits)) if wires is None else tuple(map(operator.index, wires))
    except TypeError:  # such as a number alone, or a name
        order = ()
    if not order or len({*order}) < len(order) or not {*order} <= {*range(qubits)}:
        raise UserError(f"wires must be a list of different ones from 0 to {qubits - 1}, not {wires!r}")
    return order


def read_observables(
    observables: Sequence[Observable] | None, qubits: int
) -> tuple[tuple[str, ...], torch.Tensor | None]:
    """The words to measure, and the coefficients (words, outputs) of the outputs, None if each is one word."""
    if observables is None:
        return pauli_words(qubits), None
    if isinstance(observables, (str, Mapping)) or not isinstance(observables, Collection) or not observables:
        raise UserError(f"observables must be a list with one for each output, not {observables!r}")
    for item in observables:
        if not isinstance(item, (str, Mapping)):
            raise UserError(
                f"observable {item!r}: write a Pauli word such as 'ZI', or a sum such as {{'ZI': 0.5}}"
            )
    sums = [{item: 1.0} if isinstance(item, str) else dict(item) for item in observables]
    words = tuple(dict.fromkeys(name for terms in sums for name in terms))
    check_words(words, qubits)
    if all(isinstance(item, str) for item in observables) and len(words) == len(sums):
        return words, None
    # On the CPU and in 64 bits, whatever torch's defaults are.
    table = torch.zeros(len(words), len(sums), dtype=torch.float64, device="cpu")
    for output, terms in enumerate(sums):
        for measured, coefficient in terms.items():
            value: Any = coefficient
            # A number of torch's, NumPy's or JAX's has one of Python's.
            number = value.item() if getattr(value, "ndim", None) == 0 else value
            if not isinstance(number, int | float) or not math.isfinite(number):
                raise UserError(
                    f"the coefficient of Pauli word {measured!r} is {coefficient}: it must be a finite real number"
                )
            # A tensor may be trained.
            table[words.index(measured), output] = value if isinstance(value, torch.Tensor) else number
    return words, table
