"""Qiskit's estimator on `fused`, in place of StatevectorEstimator, and its adjoint gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.circuits.circuit import Angles, Circuit, Column
from ketscale.engines.circuits.fused import Fused
from ketscale.errors import UserError
from ketscale.interop.expressions import ParametrisedCircuit
from ketscale.interop.qiskit import from_qiskit
from ketscale.optional import needed_for

with needed_for("ketscale.interop.qiskit_primitives"):
    from qiskit.primitives import DataBin, PrimitiveJob, PrimitiveResult, PubResult, StatevectorEstimator
    from qiskit.primitives.containers.estimator_pub import EstimatorPub, EstimatorPubLike

if TYPE_CHECKING:
    from qiskit import QuantumCircuit
    from qiskit.circuit import Parameter
    from qiskit.primitives.containers.observables_array import ObservableLike


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
            UserError: a circuit cannot be translated (see `interop.qiskit.from_qiskit`) or has a measurement, or an angle is
                not a finite real number; and in the job's result, an observable has other terms than Pauli words.
            TypeError, ValueError: Qiskit rejects a pub, e.g. since the shapes cannot be combined.
        """
        default = self.default_precision if precision is None else precision
        coerced = [EstimatorPub.coerce(pub, default) for pub in pubs]
        work = [(pub, *_translated(pub)[:2]) for pub in coerced]
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
            ValueError: these are not equally many of each, a parameter is not one of its circuit's, or Qiskit rejects
                them as a pub.
        """
        lists = [None] * len(circuits) if parameters is None else parameters
        by = [list(c.parameters if some is None else some) for c, some in zip(circuits, lists, strict=True)]
        columns = [
            [[*c.parameters].index(each) for each in some] for c, some in zip(circuits, by, strict=True)
        ]
        groups: dict[int, list[Any]] = {}
        for place, each in enumerate(zip(circuits, observables, parameter_values, strict=True)):
            groups.setdefault(id(circuits[place]), []).append((place, *each))
        work = list[tuple[Any, ...]]()
        for group in groups.values():
            places, (circuit, *_), ones, rows = zip(*group, strict=True)
            pub = EstimatorPub.coerce((circuit, list(ones), np.asarray(rows)), 0.0)
            work.append((places, pub, *_translated(pub, differentiated=True)))

        def result() -> EstimatorGradients:
            rows: dict[int, NDArray[np.float64]] = {}
            for places, *of_pub in work:
                for place, row in zip(places, _slopes(*of_pub), strict=True):
                    rows[place] = row[columns[place]]
            return EstimatorGradients(
                [rows[place] for place in range(len(circuits))], [{"parameters": one} for one in by]
            )

        job = PrimitiveJob(result)
        job._submit()
        return job


def _slopes(pub: EstimatorPub, circuit: Circuit, angles: Angles, rows: torch.Tensor) -> NDArray[np.float64]:
    """The derivatives (bindings, parameters) of each binding's own observable."""
    words, coefficients = _words(pub)
    values = Fused().expval(circuit, angles, words)
    (slopes,) = torch.autograd.grad(
        values, rows, torch.tensor(coefficients), allow_unused=True, materialize_grads=True
    )
    return slopes.numpy()


def _words(pub: EstimatorPub) -> tuple[list[str], NDArray[np.float64]]:
    """The Pauli words of a pub's observables, and their coefficients (observables, words)."""
    observables = list(np.asarray(pub.observables).flat)
    words = list(dict.fromkeys(word for terms in observables for word in terms))
    return words, np.array([[terms.get(word, 0.0) for word in words] for terms in observables])


def _estimate(pub: EstimatorPub, circuit: Circuit, angles: Angles, seed: Any) -> PubResult:
    evs = np.zeros(pub.shape)
    if pub.size:
        words, coefficients = _words(pub)
        # (bindings, observables), of which broadcasting picks some; a simulator of its own, since it caches.
        table = Fused().expval(circuit, angles, words).numpy() @ coefficients.T
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


def _translated(pub: EstimatorPub, differentiated: bool = False) -> tuple[Circuit, Angles, torch.Tensor]:
    """A pub's circuit, its angles for all bindings, and these, after Qiskit's own checks."""
    if any(item.clbits for item in pub.circuit.data):
        raise UserError(
            "FusedEstimator does not support measurements: use circuit.remove_final_measurements(inplace=False)"
        )
    parameters = tuple(pub.circuit.parameters)
    pair = from_qiskit(pub.circuit, parameters)
    circuit, numbers = _with_weights(pair.circuit if isinstance(pair, ParametrisedCircuit) else pair)
    values = pub.parameter_values.as_array(parameters).reshape(pub.parameter_values.size, len(parameters))
    with torch.inference_mode(False), torch.set_grad_enabled(differentiated):
        rows = torch.tensor(values, dtype=torch.float64, requires_grad=differentiated)
        inputs, weights = rows, torch.tensor(numbers, dtype=torch.float64)
        if isinstance(pair, ParametrisedCircuit):
            inputs = pair(inputs, weights[:0]).inputs
    if not inputs.isfinite().all():
        raise UserError("an angle is not a finite real number for all bindings")
    return circuit, Angles(inputs, weights), rows


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
