"""Qiskit's primitives on `fused`: an estimator and a sampler in place of StatevectorEstimator and StatevectorSampler.

An estimator's gradient comes by the adjoint method. Each angle of a circuit is a column, its value computed for all
bindings of a pub at once: an input column if it depends on parameters, and else a weight column, so that a circuit whose
parameters were bound before is prepared once, whatever their values.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.circuits.circuit import Angles, Circuit, Column
from ketscale.engines.circuits.fused import Fused
from ketscale.errors import UserError, short
from ketscale.interop.expressions import Expression, Expressions
from ketscale.interop.qiskit import free, number, translate
from ketscale.optional import needed_for

with needed_for("ketscale.interop.qiskit_primitives"):
    from qiskit import QuantumCircuit
    from qiskit.circuit import Clbit, Parameter
    from qiskit.primitives import (
        BaseEstimatorV2,
        BaseSamplerV2,
        BitArray,
        DataBin,
        PrimitiveJob,
        PrimitiveResult,
        PubResult,
        SamplerPubResult,
    )
    from qiskit.primitives.containers.bindings_array import BindingsArray
    from qiskit.primitives.containers.estimator_pub import EstimatorPub, EstimatorPubLike
    from qiskit.primitives.containers.observables_array import ObservableLike
    from qiskit.primitives.containers.sampler_pub import SamplerPub, SamplerPubLike

Seed = np.random.Generator | int | None

# States that are computed at a time, in amplitudes: 64 MiB.
AMPLITUDES = 2**22


class FusedEstimator(BaseEstimatorV2):
    """Exact expectation values by `fused`, in double precision, with the results of Qiskit's StatevectorEstimator.

    A pub's circuit may have any expressions of parameters as angles, and no measurement. All observables and bindings
    of a pub are computed in one call.

    default_precision: the standard deviation of normal noise that is added to the values; 0 for exact values. As with
        Qiskit, a pub's or a run's precision comes before it, and the result's `stds` are 0.
    seed: the noise's seed. With an integer each pub gets the noise that StatevectorEstimator would give it; a Generator
        gives each run a stream of its own.

    Example:
        >>> bell = qiskit.QuantumCircuit(2)
        >>> _ = bell.h(0), bell.cx(0, 1)
        >>> job = ketscale.FusedEstimator().run([(bell, ["XX", "ZI"])])
        >>> job.result()[0].data.evs.round(6).tolist()
        [1.0, 0.0]
    """

    def __init__(self, *, default_precision: float = 0.0, seed: Seed = None) -> None:
        self._default_precision = default_precision
        self._seed = seed

    @property
    def default_precision(self) -> float:
        """The precision of pubs and runs that give none."""
        return self._default_precision

    @property
    def seed(self) -> Seed:
        """The seed of the noise."""
        return self._seed

    def run(
        self, pubs: Iterable[EstimatorPubLike], *, precision: float | None = None
    ) -> PrimitiveJob[PrimitiveResult[PubResult]]:
        """Start a job in a thread of its own; a pub is (circuit, observables, parameter values, precision).

        In the result, `data.evs` and `data.stds` have the shape to which Qiskit broadcasts the arrays of observables
        and of parameter values.

        Raises:
            UserError: a circuit cannot be translated (see `interop.qiskit.from_qiskit`) or has a measurement; an angle is
                not a finite real number; or an observable has other terms than Pauli words.
            TypeError, ValueError: Qiskit refuses a pub, e.g. since the shapes do not go together.
        """
        default = self._default_precision if precision is None else precision
        coerced = [EstimatorPub.coerce(pub, default) for pub in pubs]
        return _started(_estimate, [(pub, _estimated(pub)) for pub in coerced], self._seed)


class EstimatorGradients(NamedTuple):
    """What a gradient's job gives: for each circuit the derivatives by its parameters, and which these are."""

    gradients: list[NDArray[np.float64]]
    metadata: list[dict[str, Any]]


class FusedEstimatorGradient:
    """Exact derivatives of expectation values by the adjoint method, for EstimatorQNN and VQE of Qiskit's own packages.

    It is what they take as `gradient`, in place of a parameter-shift gradient: all circuits that are the same object are
    differentiated in one call, and an evaluation costs a few circuits, however many parameters there are.

    Example:
        >>> written = qiskit.QuantumCircuit(1)
        >>> _ = written.ry(Parameter("t"), 0)
        >>> job = ketscale.FusedEstimatorGradient().run([written], ["Z"], [[np.pi / 2]])
        >>> job.result().gradients[0].round(6)
        array([-1.])
    """

    def run(
        self,
        circuits: Sequence[QuantumCircuit],
        observables: Sequence[ObservableLike],
        parameter_values: Sequence[Sequence[float]] | NDArray[np.float64],
        parameters: Sequence[Sequence[Parameter] | None] | None = None,
    ) -> PrimitiveJob[EstimatorGradients]:
        """Start a job in a thread of its own that differentiates each observable's expectation value in its circuit.

        parameter_values: for each circuit the values of `circuit.parameters`.
        parameters: for each circuit, the parameters of its derivatives, in the order of the result; None means all.

        Raises:
            UserError: as for `FusedEstimator.run`.
            ValueError: these are not equally many of each, a parameter is not one of its circuit's, or Qiskit refuses
                them as a pub.
        """
        wanted = [None] * len(circuits) if parameters is None else parameters
        if not len(circuits) == len(observables) == len(parameter_values) == len(wanted):
            raise ValueError(
                "FusedEstimatorGradient takes equally many circuits, observables, values and parameters"
            )
        pairs = zip(circuits, wanted, strict=True)
        by = [circuit.parameters if some is None else some for circuit, some in pairs]
        together: dict[int, list[int]] = {}
        for place, circuit in enumerate(circuits):
            together.setdefault(id(circuit), []).append(place)
        work = []
        for places in together.values():
            circuit, rows = circuits[places[0]], [parameter_values[place] for place in places]
            distinct = {id(observables[place]): observables[place] for place in places}
            pub = EstimatorPub.coerce((circuit, [[one] for one in distinct.values()], rows), 0.0)
            rows_of = {key: number for number, key in enumerate(distinct)}
            words, table = _table(pub)
            coefficients = table[[rows_of[id(observables[place])] for place in places]]
            order = {parameter: column for column, parameter in enumerate(circuit.parameters)}
            if strangers := {one for place in places for one in by[place]} - order.keys():
                raise ValueError(
                    f"{short(strangers.pop())} is not a parameter of circuit {short(circuit.name)}"
                )
            columns = [[order[parameter] for parameter in by[place]] for place in places]
            work.append((places, columns, _estimated(pub, differentiable=True), words, coefficients))

        def result() -> EstimatorGradients:
            found: dict[int, NDArray[np.float64]] = {}
            for places, columns, program, words, coefficients in work:
                rows = _gradient(program, words, coefficients)
                found.update(
                    (place, row[chosen]) for place, chosen, row in zip(places, columns, rows, strict=True)
                )
            return EstimatorGradients(
                [found[place] for place in range(len(circuits))], [{"parameters": list(one)} for one in by]
            )

        job = PrimitiveJob(result)
        job._submit()
        return job


class FusedSampler(BaseSamplerV2):
    """Samples from the exact final states of `fused`, with the results of Qiskit's StatevectorSampler.

    A pub's circuit may have any expressions of parameters as angles. Its measurements must be the last on their
    qubits; classical bits without one are 0. The states of all bindings of a pub are computed together.

    default_shots: the samples of each binding, where neither the pub nor the run says how many.
    seed: with an integer each binding gets the samples that StatevectorSampler would give it, so that all bindings
        share one stream of random numbers; a Generator gives each run a stream of its own, and each binding its part.

    Example:
        >>> one = qiskit.QuantumCircuit(1)
        >>> _ = one.x(0), one.measure_all()
        >>> ketscale.FusedSampler(seed=0).run([one], shots=100).result()[0].data.meas.get_counts()
        {'1': 100}
    """

    def __init__(self, *, default_shots: int = 1024, seed: Seed = None) -> None:
        self._default_shots = default_shots
        self._seed = seed

    @property
    def default_shots(self) -> int:
        """The shots of pubs and runs that give none."""
        return self._default_shots

    @property
    def seed(self) -> Seed:
        """The seed of the samples."""
        return self._seed

    def run(
        self, pubs: Iterable[SamplerPubLike], *, shots: int | None = None
    ) -> PrimitiveJob[PrimitiveResult[SamplerPubResult]]:
        """Start a job in a thread of its own; a pub is a circuit, or (circuit, parameter values, shots).

        In the result, `data` has a BitArray for each classical register, of the shape of the parameter values.

        Raises:
            UserError: a circuit cannot be translated (see `interop.qiskit.from_qiskit`), or an angle is not a finite real
                number.
            TypeError, ValueError: Qiskit refuses a pub.
        """
        coerced = [SamplerPub.coerce(pub, self._default_shots if shots is None else shots) for pub in pubs]
        if not all(pub.circuit.cregs for pub in coerced):
            warnings.warn(
                "a circuit has no classical register, so its result is empty: add measurements", stacklevel=2
            )
        return _started(
            _sample, [(pub, _program(pub.circuit, pub.parameter_values)) for pub in coerced], self._seed
        )


def _started(work: Any, pubs: list[tuple[Any, _Program]], seed: Seed) -> Any:
    """A job that works on pubs, whose programs no longer change with what the user gave."""
    if isinstance(seed, np.random.Generator):
        # A generator must not be shared with the threads of other runs.
        (seed,) = seed.spawn(1)
    job = PrimitiveJob(lambda: PrimitiveResult([work(*pub, seed) for pub in pubs], metadata={"version": 2}))
    job._submit()
    return job


def _estimated(pub: EstimatorPub, differentiable: bool = False) -> _Program:
    """The program of an estimator's pub, once it is known that there is nothing to refuse."""
    program = _program(pub.circuit, pub.parameter_values, differentiable)
    if program.measured:
        raise UserError(
            "FusedEstimator takes no circuit with measurements: use circuit.remove_final_measurements(inplace=False)"
        )
    for terms in np.asarray(pub.observables).flat:
        for word in terms:
            if not set(word) <= set("IXYZ"):
                raise UserError(
                    f"observable {short(word)}: FusedEstimator takes Pauli words; write the projector 0 as (I + Z)/2, "
                    "1 as (I - Z)/2, and + - r l with X and Y likewise"
                )
    return program


def _estimate(pub: EstimatorPub, program: _Program, seed: Seed) -> PubResult:
    evs = np.zeros(pub.shape)
    if pub.size:
        words, coefficients = _table(pub)
        # (bindings, observables), of which broadcasting picks some.
        table = _expectations(program, words).numpy() @ coefficients.T
        places = np.arange(len(table)).reshape(pub.parameter_values.shape)
        evs[...] = table[
            np.broadcast_arrays(places, np.arange(len(coefficients)).reshape(pub.observables.shape))
        ]
    if pub.precision:
        evs = np.random.default_rng(seed).normal(evs, pub.precision)
    return PubResult(
        DataBin(evs=np.asarray(evs), stds=np.zeros(pub.shape), shape=pub.shape),
        metadata={"target_precision": pub.precision, "circuit_metadata": pub.circuit.metadata},
    )


def _table(pub: EstimatorPub) -> tuple[list[str], NDArray[np.float64]]:
    """All Pauli words of a pub, and their coefficients (observables, words)."""
    observables = list(np.asarray(pub.observables).flat)
    words = list(dict.fromkeys(word for terms in observables for word in terms))
    return words, np.array([[terms.get(word, 0.0) for word in words] for terms in observables])


def _gradient(program: _Program, words: list[str], coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
    """The derivatives (rows, parameters) of each row's sum of words, by the row's values."""
    values = _expectations(program, words) * torch.from_numpy(coefficients)
    (found,) = torch.autograd.grad(values.sum(), program.values, materialize_grads=True)
    return found.numpy()


def _expectations(program: _Program, words: list[str]) -> torch.Tensor:
    """Expectation values (bindings, words), by a simulator of their own, since a simulator keeps what it has seen."""
    return Fused().expval(program.circuit, program.angles, words)


def _sample(pub: SamplerPub, program: _Program, seed: Seed) -> SamplerPubResult:
    qubits = sorted(set(program.measured.values()))
    outcomes = np.zeros((pub.size, pub.shots), dtype=np.int64)
    if qubits:
        for row, probabilities in enumerate(_probabilities(program, qubits)):
            outcomes[row] = np.random.default_rng(seed).choice(len(probabilities), pub.shots, p=probabilities)
    registers = {}
    for register in pub.circuit.cregs:
        values = np.zeros((*outcomes.shape, len(register)), dtype=bool)
        for place, bit in enumerate(register):
            if bit in program.measured:
                values[..., place] = outcomes >> qubits.index(program.measured[bit]) & 1
        shaped = values.reshape(*pub.shape, pub.shots, len(register))
        registers[register.name] = BitArray.from_bool_array(shaped, order="little")
    return SamplerPubResult(
        DataBin(**registers, shape=pub.shape),
        metadata={"shots": pub.shots, "circuit_metadata": pub.circuit.metadata},
    )


def _probabilities(program: _Program, qubits: list[int]) -> Iterator[NDArray[np.float64]]:
    """For each binding the probabilities of the 2**m outcomes of m qubits, the first the least significant bit."""
    n, (inputs, weights), simulator = program.circuit.qubits, program.angles, Fused()
    others = tuple(1 + n - 1 - qubit for qubit in range(n) if qubit not in qubits)
    for some in inputs.split(max(1, AMPLITUDES >> n)):
        states = simulator.state(program.circuit, Angles(some, weights)).numpy()
        squares = (states.real**2 + states.imag**2).reshape(len(states), *[2] * n)
        for row in squares.sum(axis=others).reshape(len(states), 2 ** len(qubits)):
            yield row / row.sum()


class _Program(NamedTuple):
    """A circuit whose angles are all columns, these angles for all bindings, and the qubit that a bit holds.

    values: the parameters' (bindings, parameters), on which the angles depend.
    """

    circuit: Circuit
    angles: Angles
    measured: dict[Clbit, int]
    values: torch.Tensor


def _program(circuit: QuantumCircuit, bindings: BindingsArray, differentiable: bool = False) -> _Program:
    varying: dict[Expression, int] = {}
    fixed: list[float] = []

    def angle(expression: Expression, gate: str) -> Column:
        if free(expression):
            return Column("input", varying.setdefault(expression, len(varying)))
        fixed.append(number(expression, gate))
        return Column("weight", len(fixed) - 1)

    translated, measured = translate(circuit, angle)
    parameters = tuple(circuit.parameters)
    rows = bindings.as_array(parameters).reshape(prod(bindings.shape), len(parameters))
    # A caller may be in a backward pass, in which torch records nothing.
    with torch.inference_mode(False), torch.set_grad_enabled(differentiable):
        values = torch.tensor(rows, dtype=torch.float64, requires_grad=differentiable)
        inputs = _expressions(tuple(varying), parameters)(values)
        weights = torch.tensor(fixed, dtype=torch.float64)
    finite = inputs.isfinite().all(0).tolist()
    if not all(finite):
        bad = next(expression for expression, fine in zip(varying, finite, strict=True) if not fine)
        raise UserError(f"angle {short(bad)} is not a finite real number for all bindings")
    return _Program(translated, Angles(inputs, weights), measured, values)


_expressions = lru_cache(maxsize=256)(Expressions)
