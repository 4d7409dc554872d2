"""Qiskit's estimator on `fused`, in place of StatevectorEstimator, and its gradient by the adjoint method."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.circuits.circuit import Angles, Circuit, Column
from ketscale.engines.circuits.fused import Fused
from ketscale.errors import UserError, short
from ketscale.interop.expressions import ParametrisedCircuit
from ketscale.interop.qiskit import from_qiskit
from ketscale.optional import needed_for

with needed_for("ketscale.interop.qiskit_primitives"):
    from qiskit import QuantumCircuit
    from qiskit.circuit import Parameter
    from qiskit.primitives import (
        DataBin,
        PrimitiveJob,
        PrimitiveResult,
        PubResult,
        StatevectorEstimator,
    )
    from qiskit.primitives.containers.estimator_pub import EstimatorPub, EstimatorPubLike
    from qiskit.primitives.containers.observables_array import ObservableLike

Seed = np.random.Generator | int | None


class FusedEstimator(StatevectorEstimator):
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
        default = self.default_precision if precision is None else precision
        work = [(pub, _program(pub)) for pub in (EstimatorPub.coerce(pub, default) for pub in pubs)]
        # A generator must not be shared with the threads of other runs.
        seed = self.seed.spawn(1)[0] if isinstance(self.seed, np.random.Generator) else self.seed

        def result() -> PrimitiveResult[PubResult]:
            return PrimitiveResult([_estimate(*each, seed) for each in work], metadata={"version": 2})

        job = PrimitiveJob(result)
        job._submit()
        return job


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
            KeyError, ValueError: a parameter is not one of its circuit's, these are not equally many of each, or Qiskit
                refuses them as a pub.
        """
        wanted = [None] * len(circuits) if parameters is None else parameters
        given = [*zip(circuits, observables, parameter_values, wanted, strict=True)]
        by = [list(circuit.parameters if some is None else some) for circuit, _, _, some in given]
        together: dict[int, list[int]] = {}
        for place, circuit in enumerate(circuits):
            together.setdefault(id(circuit), []).append(place)
        work = []
        for places in together.values():
            circuit, rows = circuits[places[0]], [parameter_values[place] for place in places]
            distinct = {id(observables[place]): observables[place] for place in places}
            pub = EstimatorPub.coerce((circuit, [[one] for one in distinct.values()], rows), 0.0)
            words, table = _table(pub)
            coefficients = table[[[*distinct].index(id(observables[place])) for place in places]]
            order = {parameter: column for column, parameter in enumerate(circuit.parameters)}
            columns = [[order[parameter] for parameter in by[place]] for place in places]
            work.append((places, columns, _program(pub, differentiable=True), words, coefficients))

        def result() -> EstimatorGradients:
            found = [np.zeros(0)] * len(given)
            for places, columns, program, words, coefficients in work:
                rows = _gradient(program, words, coefficients)
                for place, chosen, row in zip(places, columns, rows, strict=True):
                    found[place] = row[chosen]
            return EstimatorGradients(found, [{"parameters": parameters} for parameters in by])

        job = PrimitiveJob(result)
        job._submit()
        return job


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


class _Program(NamedTuple):
    """A circuit, its angles for all bindings, and the parameters' values (bindings, parameters) on which they depend."""

    circuit: Circuit
    angles: Angles
    values: torch.Tensor


def _program(pub: EstimatorPub, differentiable: bool = False) -> _Program:
    """The program of a pub, once it is known that there is nothing to refuse."""
    if any(item.clbits for item in pub.circuit.data):
        raise UserError(
            "FusedEstimator takes no circuit with measurements: use circuit.remove_final_measurements(inplace=False)"
        )
    for word in {word for terms in np.asarray(pub.observables).flat for word in terms}:
        if not set(word) <= set("IXYZ"):
            raise UserError(
                f"observable {short(word)}: FusedEstimator takes Pauli words; write the projector 0 as (I + Z)/2, "
                "1 as (I - Z)/2, and + - r l with X and Y likewise"
            )
    parameters = tuple(pub.circuit.parameters)
    made = from_qiskit(pub.circuit, parameters)
    circuit, numbers = _with_weights(made.circuit if isinstance(made, ParametrisedCircuit) else made)
    rows = pub.parameter_values.as_array(parameters).reshape(pub.parameter_values.size, len(parameters))
    # A caller may be in a backward pass, in which torch records nothing.
    with torch.inference_mode(False), torch.set_grad_enabled(differentiable):
        values = torch.tensor(rows, dtype=torch.float64, requires_grad=differentiable)
        weights = torch.tensor(numbers, dtype=torch.float64)
        inputs = made(values, weights[:0]).inputs if isinstance(made, ParametrisedCircuit) else values
    if not inputs.isfinite().all():
        raise UserError("an angle is not a finite real number for all bindings")
    return _Program(circuit, Angles(inputs, weights), values)


def _with_weights(circuit: Circuit) -> tuple[Circuit, list[float]]:
    """A circuit whose constants are weights, so that it is prepared once, whatever numbers were bound before."""
    numbers: list[float] = []

    def weight(column: Column) -> Column:
        if column.kind != "constant":
            return column
        numbers.append(column.value)
        return Column("weight", len(numbers) - 1)

    gates = [replace(gate, columns=tuple(map(weight, gate.columns))) for gate in circuit.gates]
    return Circuit(circuit.qubits, tuple(gates)), numbers
