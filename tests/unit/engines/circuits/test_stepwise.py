"""Circuits beyond the GPU kernels' size, rotation by rotation in torch operations; these also run on a CPU."""

from __future__ import annotations

import pytest
import torch

from ketscale.engines.circuits.ansaetze import strongly_entangling_ansatz, vqc_ansatz
from ketscale.engines.circuits.circuit import Circuit, Column, Gate
from ketscale.engines.circuits.fused import gpu
from tests.unit.engines.circuits.fused_gpu_interpreted import (
    assert_as_expected,
    assert_higher_as_expected,
    found,
    start,
)
from tests.unit.engines.circuits.test_simulators import (
    random_angles,
    random_circuit,
    random_states,
    random_words,
)


@pytest.fixture
def stepwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every circuit were too large for the kernels."""
    monkeypatch.setattr(gpu, "MOST_QUBITS", 0)


@pytest.mark.usefixtures("stepwise")
@pytest.mark.parametrize("kind", ["zero", "shared", "own"])
@pytest.mark.parametrize("qubits", [1, 3, 5])
@pytest.mark.parametrize("states", [False, True])
def test_values_and_gradients(states: bool, qubits: int, kind: str) -> None:
    words = None if states else random_words(qubits, qubits)
    assert_as_expected(random_circuit(qubits, qubits), 3, words, start(kind, qubits, 3))


@pytest.mark.usefixtures("stepwise")
def test_circuits_of_real_amplitudes() -> None:
    assert_as_expected(vqc_ansatz(3, 2), 5, ("ZZZ", "XXX", "YII"))


@pytest.mark.usefixtures("stepwise")
@pytest.mark.parametrize("kind", ["input", "weight"])
def test_circuits_with_one_kind_of_angles(kind: str) -> None:
    gates = (
        Gate("Hadamard", (0,)),
        Gate("CRX", (1, 0), (Column(kind, 3),)),
        Gate("RZ", (0,), (Column(kind, 2),)),
    )
    assert_as_expected(Circuit(2, gates), 3, ("ZX", "YI"))


@pytest.mark.usefixtures("stepwise")
@pytest.mark.parametrize("kind", ["zero", "shared", "own"])
@pytest.mark.parametrize("words", [None, ("ZXY", "IZZ")])
def test_moves_of_amplitudes(words: tuple[str, ...] | None, kind: str) -> None:
    circuit = Circuit(3).ry(0, "x0").toffoli(0, 2, 1).rx(2, "w0").s(1)
    circuit = circuit.permuted((2, 0, 3, 1), 2, 0).controlled("CRX", (1,), (0, 2), "x1").cnot(0, 1)
    assert_as_expected(circuit, 3, words, start(kind, 3, 3))


@pytest.mark.usefixtures("stepwise")
def test_single_precision_is_kept() -> None:
    circuit = random_circuit(2, 8)
    for words in (("ZX",), None):
        single = found(circuit, random_angles(circuit, 3, torch.float32), words)
        assert {t.dtype for t in single} <= {torch.float32, torch.complex64}


@pytest.mark.usefixtures("stepwise")
@pytest.mark.parametrize("states", [False, True])
def test_second_and_third_derivatives(states: bool) -> None:
    assert_higher_as_expected(
        random_circuit(2, 3), None if states else ("ZX", "YI"), random_states(4).requires_grad_()
    )


def test_thirteen_qubits_run_without_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_kernels", lambda: pytest.fail("a kernel was asked for"))
    assert_as_expected(strongly_entangling_ansatz(13, 1), 2, ("Z" * 13, "XY" + "I" * 11))
