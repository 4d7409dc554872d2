"""Qiskit's primitives on `fused`: an estimator and a sampler in place of StatevectorEstimator and StatevectorSampler.

Each angle of a circuit is a column, its value computed here for all bindings of a pub at once: an input column if it
depends on parameters, and else a weight column, so that a circuit whose parameters were bound before is compiled once,
whatever their values.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.circuits.circuit import Angles, Circuit, Column
from ketscale.engines.circuits.fused import Fused
from ketscale.errors import UserError, short
from ketscale.interop.qiskit import Expression, free, number, translate
from ketscale.optional import needed_for

with needed_for("ketscale.interop.qiskit_primitives"):
    import sympy
    from qiskit import QuantumCircuit
    from qiskit.circuit import Clbit
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
    from qiskit.primitives.containers.sampler_pub import SamplerPub, SamplerPubLike

Seed = np.random.Generator | int | None

# States that are computed at a time, in amplitudes: 64 MiB.
AMPLITUDES = 2**22

# The machine code for an expectation value grows with its Pauli words: 2 seconds to compile 1000 of them. For more words
# than these the states are computed, with code that no observable changes, and the words from them.
MANY_WORDS = 256


class FusedEstimator(BaseEstimatorV2):
    """Exact expectation values by `fused`, in double precision, with the results of Qiskit's StatevectorEstimator.

    A pub's circuit may have any expressions of parameters as angles, and no measurement. All observables and bindings
    of a pub are computed in one call.

    default_precision: the standard deviation of normal noise that is added to the values; 0 for exact values. As with
        Qiskit, a pub's or a run's precision comes before it, and the result's `stds` are 0.
    seed: of the noise. With an integer each pub gets the noise that StatevectorEstimator would give it; a Generator
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


# One thread at a time calls numpy's `Generator.spawn`, which counts the streams that it has made.
_SPAWNING = threading.Lock()


def _started(work: Any, pubs: list[tuple[Any, _Program]], seed: Seed) -> Any:
    """A job that works on pubs, whose programs no longer change with what the user gave."""
    if isinstance(seed, np.random.Generator):
        # A generator must not be shared with the threads of other runs.
        with _SPAWNING:
            (seed,) = seed.spawn(1)
    job = PrimitiveJob(lambda: PrimitiveResult([work(*pub, seed) for pub in pubs], metadata={"version": 2}))
    job._submit()
    return job


def _estimated(pub: EstimatorPub) -> _Program:
    """The program of an estimator's pub, once it is known that there is nothing to refuse."""
    program = _program(pub.circuit, pub.parameter_values)
    if program.measured:
        raise UserError(
            "FusedEstimator takes no circuit with measurements: use circuit.remove_final_measurements(inplace=False)"
        )
    for terms in np.asarray(pub.observables, dtype=object).flat:
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
        observables = list(np.asarray(pub.observables, dtype=object).flat)
        words = list(dict.fromkeys(word for terms in observables for word in terms))
        coefficients = np.array([[terms.get(word, 0.0) for word in words] for terms in observables])
        values = _expectations(program, words)
        # (bindings, observables), of which broadcasting picks some.
        table = values @ coefficients.T
        places = np.arange(len(values)).reshape(pub.parameter_values.shape)
        evs[...] = table[
            np.broadcast_arrays(places, np.arange(len(observables)).reshape(pub.observables.shape))
        ]
    if pub.precision:
        evs = np.random.default_rng(seed).normal(evs, pub.precision)
    return PubResult(
        DataBin(evs=np.asarray(evs), stds=np.zeros(pub.shape), shape=pub.shape),
        metadata={"target_precision": pub.precision, "circuit_metadata": pub.circuit.metadata},
    )


def _expectations(program: _Program, words: list[str]) -> NDArray[np.float64]:
    """Expectation values (bindings, words)."""
    if len(words) <= MANY_WORDS:
        # A simulator of its own, since a simulator keeps what it has seen.
        return Fused().expval(program.circuit, program.angles, words).numpy()
    return np.concatenate([_of_states(states, words) for states in _states(program)])


def _of_states(states: NDArray[np.complex128], words: list[str]) -> NDArray[np.float64]:
    """Expectation values (rows, words) of states (rows, 2**n).

    A word takes basis state k to k ^ x, times i for each Y and -1 for each bit of k that is set in z, where x has the
    bits of its letters X and Y, and z of its letters Y and Z. Words of one x share a product of amplitudes.
    """
    groups: dict[int, list[int]] = {}
    for column, word in enumerate(words):
        groups.setdefault(_mask(word, "XY"), []).append(column)
    index = np.arange(states.shape[1])
    values = np.empty((len(states), len(words)))
    for x, columns in groups.items():
        products = states[:, index ^ x].conj() * states
        for column in columns:
            word = words[column]
            signs = 1.0 - 2.0 * (np.bitwise_count(index & _mask(word, "YZ")) & 1)
            values[:, column] = (1j ** word.count("Y") * (products @ signs)).real
    return values


def _mask(word: str, letters: str) -> int:
    return int("".join("01"[letter in letters] for letter in word), 2)


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
    n = program.circuit.qubits
    others = tuple(1 + n - 1 - qubit for qubit in range(n) if qubit not in qubits)
    for states in _states(program):
        squares = (states.real**2 + states.imag**2).reshape(len(states), *[2] * n)
        for row in squares.sum(axis=others).reshape(len(states), 2 ** len(qubits)):
            yield row / row.sum()


def _states(program: _Program) -> Iterator[NDArray[np.complex128]]:
    """The states (rows, 2**n) for all bindings, some rows at a time."""
    inputs, weights = program.angles
    simulator = Fused()
    for some in inputs.split(max(1, AMPLITUDES >> program.circuit.qubits)):
        yield simulator.state(program.circuit, Angles(some, weights)).numpy()


class _Program(NamedTuple):
    """A circuit whose angles are all columns, their values for all bindings, and the qubit that a bit holds."""

    circuit: Circuit
    angles: Angles
    measured: dict[Clbit, int]


def _program(circuit: QuantumCircuit, bindings: BindingsArray) -> _Program:
    varying: dict[Expression, int] = {}
    fixed: list[float] = []

    def angle(expression: Expression, gate: str) -> Column:
        if free(expression):
            return Column("input", varying.setdefault(expression, len(varying)))
        fixed.append(number(expression, gate))
        return Column("weight", len(fixed) - 1)

    translated, measured = translate(circuit, angle)
    parameters = tuple(circuit.parameters)
    values = bindings.as_array(parameters).reshape(prod(bindings.shape), len(parameters))
    inputs = torch.from_numpy(_evaluated(tuple(varying), parameters, values))
    return _Program(translated, Angles(inputs, torch.tensor(fixed, dtype=torch.float64)), measured)


def _evaluated(
    expressions: tuple[Expression, ...], parameters: tuple[Any, ...], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The expressions (rows, expressions) at values (rows, parameters) of the parameters.

    Raises:
        UserError: a value is not a finite real number.
    """
    places = {parameter: place for place, parameter in enumerate(parameters)}
    compound = tuple(expression for expression in expressions if expression not in places)
    with np.errstate(all="ignore"):
        computed = iter(_function(compound, parameters)(*values.T) if compound else ())
    result = np.empty((len(values), len(expressions)))
    for column, expression in enumerate(expressions):
        angle = values[:, places[expression]] if expression in places else next(computed)
        if np.iscomplexobj(angle) or not np.isfinite(angle).all():
            raise UserError(f"angle {short(expression)} is not a finite real number for all bindings")
        result[:, column] = angle
    return result


@lru_cache(maxsize=256)
def _function(expressions: tuple[Expression, ...], parameters: tuple[Any, ...]) -> Any:
    """A function of the parameters' values that gives the expressions' values; of arrays, elementwise."""
    symbols = [parameter.sympify() for parameter in parameters]
    return sympy.lambdify(symbols, [expression.sympify() for expression in expressions], "numpy")
