"""FusedEstimator gives what StatevectorEstimator gives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from qiskit import QuantumCircuit
from qiskit.circuit import Parameter, ParameterVector
from qiskit.circuit.library import efficient_su2, real_amplitudes, zz_feature_map
from qiskit.primitives import StatevectorEstimator
from qiskit.primitives.containers.bindings_array import BindingsArray
from qiskit.quantum_info import Pauli, SparsePauliOp

from ketscale.errors import UserError
from ketscale.interop import qiskit_primitives
from ketscale.interop.qiskit_primitives import FusedEstimator, FusedEstimatorGradient


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(6).uniform(-3, 3, shape)


def expressions() -> QuantumCircuit:
    """Angles that are expressions, some of them twice; names that sympy knows."""
    x, y = ParameterVector("x", 2), Parameter("pi")
    circuit = QuantumCircuit(3, global_phase=x[0] * 2)
    circuit.ry(x[0] * 2 + y, 0)
    circuit.rx((np.pi - x[0]) * (np.pi - x[1]), 1)
    circuit.cx(0, 2)
    circuit.cu(y.sin(), 0.3, -x[1], x[0] + y, 2, 0)
    circuit.ry(x[0] * 2 + y, 1)
    circuit.ry(0.4, 2)
    return circuit


def assert_equal_estimates(estimator: dict[str, Any], pubs: list[Any], **run: Any) -> None:
    actual, reference = (
        kind(**estimator).run(pubs, **run).result() for kind in (FusedEstimator, StatevectorEstimator)
    )
    assert actual.metadata == reference.metadata
    for result, expected in zip(actual, reference, strict=True):
        assert result.metadata == expected.metadata
        assert (result.data.shape, result.data.evs.dtype) == (expected.data.shape, expected.data.evs.dtype)
        np.testing.assert_allclose(result.data.evs, expected.data.evs, rtol=0, atol=1e-10)
        np.testing.assert_array_equal(result.data.stds, expected.data.stds)


H = SparsePauliOp(["ZZI", "IXY", "III", "YIZ"], [0.5, -1.25, 0.75, 2.0])


def test_estimates_are_those_of_qiskit() -> None:
    """Arrays are broadcast, bindings by name or in parts, and the noise for a seed is the same."""
    circuit, words, named = expressions(), ["XII", "IXI"], QuantumCircuit(2, metadata={"name": "first"})
    cases: list[tuple[tuple[int, ...], Any]] = [
        ((), Pauli("XYZ")), ((4,), [["ZII"], ["IZI"], [H]]), ((3,), [H, "XXI", {"IIZ": 0.5, "YYI": -1}]),
        ((2, 1, 3), [[H], ["ZIZ"]]), ((), [words]), ((1,), words), ((0,), ["ZZZ"]),
    ]  # fmt: skip
    assert_equal_estimates({}, [(circuit, observables, uniform(*shape, 3)) for shape, observables in cases])
    library = (zz_feature_map(3, reps=2), efficient_su2(3, reps=1))
    assert_equal_estimates({}, [(each, [[H], ["ZZX"]], uniform(4, each.num_parameters)) for each in library])
    bindings = BindingsArray({"pi": uniform(3), tuple(circuit.parameters[1:]): uniform(3, 2)})
    by_name = {"pi": 0.2, ("x[1]", "x[0]"): [1, 2]}
    pubs = [(named, "IX"), (circuit, "XXZ", bindings), (named, ["ZZ", "IX"]), (circuit, H, by_name)]
    assert_equal_estimates({}, pubs)
    pub = (circuit, [["ZII"], [H]], uniform(3, 3))
    assert_equal_estimates({"seed": 5, "default_precision": 0.2}, [pub, (circuit, "ZII", uniform(3), 0.5)])
    assert_equal_estimates({"seed": 5}, [pub, (circuit, "ZII", uniform(3))], precision=0.1)


def test_what_changes_after_the_start_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit, values = expressions(), uniform(4, 3)
    expected = StatevectorEstimator().run([(circuit, "ZZI", values)]).result()[0].data.evs
    ready, estimate = threading.Event(), qiskit_primitives._estimate

    def later(*arguments: Any) -> Any:
        assert ready.wait(10)
        return estimate(*arguments)

    monkeypatch.setattr(qiskit_primitives, "_estimate", later)
    job = FusedEstimator().run([(circuit, "ZZI", values)])
    circuit.x(0)
    values[:] = 0
    ready.set()
    np.testing.assert_allclose(job.result()[0].data.evs, expected, rtol=0, atol=1e-10)


def test_a_generator_gives_each_run_a_stream_of_its_own() -> None:
    circuit = QuantumCircuit(1)
    circuit.rx(Parameter("t"), 0)
    halves = np.full((2, 1), np.pi / 2)

    def drawn() -> list[bytes]:
        seed = np.random.default_rng(9)
        estimator = FusedEstimator(default_precision=0.1, seed=seed)
        noise = [
            result.data.evs
            for _ in range(2)
            for result in estimator.run([(circuit, "Z", halves)] * 2).result()
        ]
        # The caller's own numbers do not depend on when a job's thread draws.
        assert seed.random() == np.random.default_rng(9).random()
        return [each.tobytes() for each in noise]

    assert drawn() == drawn() and len(set(drawn())) > 1


# --- what is refused ---


def test_each_circuit_has_the_derivatives_of_its_own_observable_and_values() -> None:
    first, second = expressions(), real_amplitudes(3, reps=1)
    circuits = [first, second, first, first]
    observables = [H, SparsePauliOp("ZZZ"), Pauli("XYZ"), H]
    values = [uniform(circuit.num_parameters) / (place + 1) for place, circuit in enumerate(circuits)]
    by = [None, second.parameters[2:4], [first.parameters[2], first.parameters[0]], []]
    result = FusedEstimatorGradient().run(circuits, observables, values, parameters=by).result()
    for place, circuit in enumerate(circuits):
        parameters = circuit.parameters if by[place] is None else by[place]
        assert result.metadata[place]["parameters"] == list(parameters)
        steps = [1e-5 * np.array([p == one for p in circuit.parameters]) for one in parameters]
        pub = (circuit, observables[place], [values[place] + s * step for step in steps for s in (1, -1)])
        shifted = StatevectorEstimator().run([pub]).result()[0].data.evs if steps else np.zeros(0)
        slopes = (shifted[::2] - shifted[1::2]) / 2e-5
        np.testing.assert_allclose(result.gradients[place], slopes, rtol=0, atol=1e-8)


def test_a_gradient_in_inference_mode_and_one_of_what_has_no_angle() -> None:
    flat = QuantumCircuit(1, global_phase=Parameter("a"))
    with torch.inference_mode():
        gradients = (
            FusedEstimatorGradient().run([flat, root()], ["X", "Z"], [[0.2], [0.25]]).result().gradients
        )
    # d cos(sqrt(t)) / dt
    np.testing.assert_allclose(gradients, [[0], [-np.sin(0.5)]], rtol=1e-12)


def root() -> QuantumCircuit:
    circuit = QuantumCircuit(1)
    circuit.rx(Parameter("t") ** 0.5, 0)
    return circuit


@pytest.mark.parametrize(
    "refused",
    [
        lambda: FusedEstimator().run([(expressions().measure_all(inplace=False), H, uniform(3))]),
        lambda: FusedEstimator().run([(root(), "Z", [[1], [-1]])]),
    ],
)
def test_what_cannot_be_computed_is_refused_in_one_line(refused: Callable[[], object]) -> None:
    with pytest.raises(UserError, match=r"^[^\n]+$"):
        refused()
