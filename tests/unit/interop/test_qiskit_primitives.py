"""FusedEstimator and FusedSampler give what StatevectorEstimator and StatevectorSampler give."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from qiskit import ClassicalRegister, QuantumCircuit, QuantumRegister
from qiskit.circuit import Clbit, Parameter, ParameterVector
from qiskit.circuit.library import efficient_su2, real_amplitudes, zz_feature_map
from qiskit.circuit.random import random_circuit
from qiskit.primitives import StatevectorEstimator, StatevectorSampler
from qiskit.primitives.containers.bindings_array import BindingsArray
from qiskit.quantum_info import Pauli, SparsePauliOp, random_pauli_list

from ketscale.errors import UserError
from ketscale.interop import qiskit_primitives
from ketscale.interop.qiskit_primitives import FusedEstimator, FusedEstimatorGradient, FusedSampler


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(6).uniform(-3, 3, shape)


def expressions() -> QuantumCircuit:
    """Angles of every function that Qiskit's expressions have, some of them twice; names that sympy knows."""
    x, y = ParameterVector("x", 2), Parameter("pi")
    circuit = QuantumCircuit(3, global_phase=x[0] * 2)
    circuit.ry(x[0] * 2 + y, 0)
    circuit.rx((np.pi - x[0]) * (np.pi - x[1]), 1)
    circuit.cx(0, 2)
    circuit.u(x[0].sin(), y.cos() / 2, (y / 7).tan(), 2)
    circuit.rzz(y.exp() - x[1] ** 2, 0, 1)
    circuit.cp((x[0] / 4).arcsin() + (x[1] / 4).arccos() - y.arctan(), 1, 2)
    circuit.rx((y.abs() + 1).log() * y.sign(), 0)
    circuit.ry(x[0] * 2 + y, 1)
    circuit.cu(y, 0.3, -x[1], x[0] + y, 2, 0)
    circuit.ry(0.4, 2)
    return circuit


def assert_equal_estimates(estimator: dict[str, Any], pubs: list[Any], **run: Any) -> None:
    ours, theirs = (
        kind(**estimator).run(pubs, **run).result() for kind in (FusedEstimator, StatevectorEstimator)
    )
    assert ours.metadata == theirs.metadata
    for found, expected in zip(ours, theirs, strict=True):
        assert found.metadata == expected.metadata
        assert (found.data.shape, found.data.evs.dtype) == (expected.data.shape, expected.data.evs.dtype)
        np.testing.assert_allclose(found.data.evs, expected.data.evs, rtol=0, atol=1e-10)
        np.testing.assert_array_equal(found.data.stds, expected.data.stds)
        assert found.data.evs.shape == expected.data.evs.shape


H = SparsePauliOp(["ZZI", "IXY", "III", "YIZ"], [0.5, -1.25, 0.75, 2.0])


def test_arrays_are_broadcast_as_by_qiskit() -> None:
    circuit, words = expressions(), ["XII", "IXI"]
    cases: list[tuple[tuple[int, ...], Any]] = [
        ((), Pauli("XYZ")),
        ((4,), [["ZII"], ["IZI"], [H]]),
        ((3,), [H, "XXI", {"IIZ": 0.5, "YYI": -1}]),
        ((2, 1, 3), [[H], ["ZIZ"]]),
        ((), [words]),
        ((1,), words),
        ((0,), ["ZZZ"]),
    ]
    pubs = [(circuit, observables, uniform(*shape, 3)) for shape, observables in cases]
    assert_equal_estimates({}, pubs)
    library = (zz_feature_map(3, reps=2), efficient_su2(3, reps=1))
    assert_equal_estimates({}, [(each, [[H], ["ZZX"]], uniform(4, each.num_parameters)) for each in library])


def test_random_circuits_several_pubs_and_bindings_by_name_in_parts() -> None:
    for seed in range(5):
        qubits = 1 + seed % 4
        circuit = random_circuit(qubits, 5, max_operands=min(3, qubits), seed=seed)
        words = random_pauli_list(qubits, 6, seed=seed, phase=False).to_labels()
        assert_equal_estimates({}, [(circuit, words)])
    named, circuit = QuantumCircuit(2, metadata={"name": "first"}), expressions()
    bindings = BindingsArray({"pi": uniform(3), tuple(circuit.parameters[1:]): uniform(3, 2)})
    by_name = {"pi": 0.2, ("x[1]", "x[0]"): [1, 2]}
    pubs = [(named, "IX"), (circuit, "XXZ", bindings), (named, ["ZZ", "IX"]), (circuit, H, by_name)]
    assert_equal_estimates({}, pubs)


def test_noise_is_that_of_qiskit_for_a_seed() -> None:
    circuit = expressions()
    pub = (circuit, [["ZII"], [H]], uniform(3, 3))
    assert_equal_estimates({"seed": 5, "default_precision": 0.2}, [pub, (circuit, "ZII", uniform(3), 0.5)])
    assert_equal_estimates({"seed": 5}, [pub, (circuit, "ZII", uniform(3))], precision=0.1)


def test_a_generator_gives_each_run_a_stream_of_its_own() -> None:
    pub = (QuantumCircuit(1), ["Z"] * 3)

    def noise() -> list[list[float]]:
        estimator = FusedEstimator(default_precision=0.1, seed=np.random.default_rng(9))
        return [result.data.evs.tolist() for _ in range(2) for result in estimator.run([pub, pub]).result()]

    assert noise() == noise()
    assert len({tuple(values) for values in noise()}) == 4
    # The caller's own numbers do not depend on when a job's thread draws.
    generator = np.random.default_rng(9)
    FusedEstimator(default_precision=0.1, seed=generator).run([pub]).result()
    assert generator.random() == np.random.default_rng(9).random()


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


def test_many_jobs_at_a_time_give_what_one_after_the_other_gives() -> None:
    circuits = [random_circuit(3, 4, max_operands=2, seed=seed) for seed in range(4)]
    pubs = [(circuit, ["ZZI", "XIY"]) for circuit in circuits] + [(expressions(), H, uniform(5, 3))]
    estimator = FusedEstimator(default_precision=0.1, seed=3)
    alone = [estimator.run([pub]).result()[0].data.evs for pub in pubs]
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda number: estimator.run([pubs[number % 5]]), range(40)))
    for number, job in enumerate(jobs):
        np.testing.assert_array_equal(job.result()[0].data.evs, alone[number % 5])


# --- gradients ---


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


def test_a_gradient_within_a_backward_pass_and_one_of_what_has_no_angle() -> None:
    circuit = QuantumCircuit(1, global_phase=Parameter("a"))
    with torch.inference_mode():
        flat = FusedEstimatorGradient().run([circuit], ["X"], [[0.2]]).result()
        steep = FusedEstimatorGradient().run([root()], ["Z"], [[0.25]]).result()
    assert flat.gradients[0].tolist() == [0]
    # d cos(sqrt(t)) / dt
    np.testing.assert_allclose(steep.gradients[0], [-np.sin(0.5)], rtol=1e-12)


# --- the sampler ---


def measured(circuit: QuantumCircuit) -> QuantumCircuit:
    return circuit.measure_all(inplace=False)


def registers() -> QuantumCircuit:
    """Two classical registers in disorder: a qubit that is held twice, one not at all, a bit that nothing writes."""
    q, a, b = QuantumRegister(4, "q"), ClassicalRegister(9, "a"), ClassicalRegister(2, "b")
    circuit = QuantumCircuit(q, a, b, metadata={"n": 4})
    circuit.ry(Parameter("t") * 2 + 0.3, 0)
    circuit.cx(0, 1)
    circuit.ry(1.1, 2)
    circuit.x(3)
    circuit.measure(3, a[8])
    circuit.barrier()
    circuit.measure(0, a[2])
    circuit.measure(2, b[0])
    circuit.measure(0, b[1])
    # The last one counts.
    circuit.measure(2, a[5])
    circuit.measure(3, a[5])
    return circuit


def loose() -> QuantumCircuit:
    """A bit that two registers share, one of no register, and a register of no bits."""
    bits = [Clbit(), Clbit(), Clbit()]
    circuit = QuantumCircuit([*QuantumRegister(2, "q")], bits)
    for name, held in (("first", bits[:2]), ("second", bits[1:2]), ("empty", [])):
        circuit.add_register(ClassicalRegister(bits=held, name=name))
    circuit.h(0)
    circuit.cx(0, 1)
    circuit.measure([0, 1], [bits[1], bits[2]])
    return circuit


SAMPLED: dict[str, tuple[QuantumCircuit, tuple[int, ...]]] = {
    "expressions": (measured(expressions()), (2, 3)),
    "zz_feature_map": (measured(zz_feature_map(3)), (4,)),
    "none": (measured(zz_feature_map(3)), (0,)),
    "registers": (registers(), (3,)),
    "loose": (loose(), ()),
    "random": (measured(random_circuit(4, 5, max_operands=3, seed=3)), ()),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_samples_are_those_of_qiskit_for_a_seed(name: str) -> None:
    circuit, shape = SAMPLED[name]
    pub = (circuit, uniform(*shape, circuit.num_parameters)) if circuit.num_parameters else (circuit,)
    ours, theirs = (
        sampler(seed=8, default_shots=50).run([pub, (*pub, None, 7) if len(pub) == 1 else (*pub, 7)]).result()
        for sampler in (FusedSampler, StatevectorSampler)
    )
    assert ours.metadata == theirs.metadata
    for found, expected, shots in zip(ours, theirs, (50, 7), strict=True):
        assert found.metadata == expected.metadata and found.metadata["shots"] == shots
        assert found.data.shape == expected.data.shape == shape
        assert list(found.data) == list(expected.data) and len(found.data) > 0
        for register in expected.data:
            assert found.data[register].num_bits == expected.data[register].num_bits
            np.testing.assert_array_equal(found.data[register].array, expected.data[register].array)


def test_shots_of_the_run_and_states_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qiskit_primitives, "AMPLITUDES", 16)
    circuit = measured(expressions())
    pub = (circuit, uniform(5, 3))
    ours, theirs = (p(seed=1).run([pub], shots=20).result()[0] for p in (FusedSampler, StatevectorSampler))
    assert ours.data.meas.num_shots == 20
    np.testing.assert_array_equal(ours.data.meas.array, theirs.data.meas.array)


def test_a_generator_gives_each_binding_samples_of_its_own() -> None:
    circuit = QuantumCircuit(1)
    circuit.rx(Parameter("t"), 0)
    pub = (measured(circuit), np.full((2, 1), np.pi / 2))

    def samples() -> np.ndarray:
        sampler = FusedSampler(seed=np.random.default_rng(3), default_shots=64)
        return np.stack([sampler.run([pub]).result()[0].data.meas.array for _ in range(2)])

    first = samples()
    np.testing.assert_array_equal(first, samples())
    assert len(np.unique(first.reshape(4, -1), axis=0)) == 4


def test_a_circuit_without_classical_registers_gives_an_empty_result_and_a_warning() -> None:
    circuit = QuantumCircuit(1)
    circuit.h(0)
    with pytest.warns(UserWarning, match="no classical register"):
        result = FusedSampler().run([circuit]).result()
    assert len(result[0].data) == 0


# --- what is refused ---


def mid_circuit() -> QuantumCircuit:
    circuit = QuantumCircuit(1, 1)
    circuit.h(0)
    circuit.measure(0, 0)
    circuit.h(0)
    return circuit


def root() -> QuantumCircuit:
    circuit = QuantumCircuit(1)
    circuit.rx(Parameter("t") ** 0.5, 0)
    return circuit


REFUSED: dict[str, Callable[[], object]] = {
    "no circuit with measurements": lambda: FusedEstimator().run([(measured(expressions()), H, uniform(3))]),
    "is not a finite real number for all bindings": lambda: FusedEstimator().run([(root(), "Z", [[1], [-1]])]),
    "it acts after a measurement": lambda: FusedSampler().run([mid_circuit()]),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_computed_is_refused_in_one_line(message: str) -> None:
    with pytest.raises(UserError) as caught:
        REFUSED[message]()
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("primitive", [FusedEstimator, StatevectorEstimator])
@pytest.mark.parametrize("pub", [(expressions(), [H, H], uniform(3, 3)), (QuantumCircuit(1), H)])
def test_what_qiskit_refuses_is_refused_as_by_qiskit(primitive: type, pub: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        primitive().run([pub])
