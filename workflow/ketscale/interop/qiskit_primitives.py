"""Qiskit's estimator on `fused`, in place of StatevectorEstimator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ketscale.engines.circuits.circuit import Angles, Circuit, Column
from ketscale.engines.circuits.fused import Fused
from ketscale.errors import UserError
from ketscale.interop.expressions import ParametrisedCircuit
from ketscale.interop.qiskit import from_qiskit
from ketscale.optional import needed_for

with needed_for("ketscale.interop.qiskit_primitives"):
    from qiskit.primitives import DataBin, PrimitiveJob, PrimitiveResult, PubResult, StatevectorEstimator
    from qiskit.primitives.containers.estimator_pub import EstimatorPub, EstimatorPubLike


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
            TypeError, ValueError: Qiskit refuses a pub, e.g. since the shapes do not go together.
        """
        default = self.default_precision if precision is None else precision
        coerced = [EstimatorPub.coerce(pub, default) for pub in pubs]
        work = [(pub, *_translated(pub)) for pub in coerced]
        # A generator must not be shared with the threads of other runs.
        seed = self.seed.spawn(1)[0] if isinstance(self.seed, np.random.Generator) else self.seed

        def result() -> PrimitiveResult[PubResult]:
            return PrimitiveResult([_estimate(*each, seed) for each in work], metadata={"version": 2})

        job = PrimitiveJob(result)
        job._submit()
        return job


def _estimate(pub: EstimatorPub, circuit: Circuit, angles: Angles, seed: Any) -> PubResult:
    evs = np.zeros(pub.shape)
    if pub.size:
        observables = list(np.asarray(pub.observables).flat)
        words = list(dict.fromkeys(word for terms in observables for word in terms))
        coefficients = np.array([[terms.get(word, 0.0) for word in words] for terms in observables])
        # (bindings, observables), of which broadcasting picks some; a simulator of its own, since it keeps what it has seen.
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


def _translated(pub: EstimatorPub) -> tuple[Circuit, Angles]:
    """A pub's circuit and its angles for all bindings, once it is known that there is nothing to refuse."""
    if any(item.clbits for item in pub.circuit.data):
        raise UserError(
            "FusedEstimator takes no circuit with measurements: use circuit.remove_final_measurements(inplace=False)"
        )
    parameters = tuple(pub.circuit.parameters)
    made = from_qiskit(pub.circuit, parameters)
    circuit, numbers = _with_weights(made.circuit if isinstance(made, ParametrisedCircuit) else made)
    rows = pub.parameter_values.as_array(parameters).reshape(pub.parameter_values.size, len(parameters))
    with torch.inference_mode(False), torch.no_grad():
        inputs, weights = torch.tensor(rows, dtype=torch.float64), torch.tensor(numbers, dtype=torch.float64)
        if isinstance(made, ParametrisedCircuit):
            inputs = made(inputs, weights[:0]).inputs
    if not inputs.isfinite().all():
        raise UserError("an angle is not a finite real number for all bindings")
    return circuit, Angles(inputs, weights)


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
