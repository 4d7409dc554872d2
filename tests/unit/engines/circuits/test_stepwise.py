"""Circuits beyond the GPU kernels' size, rotation by rotation in torch operations; these also run on a CPU."""

from __future__ import annotations

import pytest
import torch

from ketscale.engines.circuits.ansaetze import strongly_entangling_ansatz
from ketscale.engines.circuits.fused import gpu
from tests.unit.engines.circuits.fused_gpu_interpreted import CASES, HIGHER, Setting, check, check_higher
from tests.unit.engines.circuits.test_simulators import random_angles, simulator, slopes


@pytest.mark.parametrize(("case", "setting"), CASES)
def test_values_and_gradients(case: str | int, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every circuit were too large for the kernels."""
    monkeypatch.setattr(gpu, "MOST_QUBITS", 0)
    check(case, setting)


@pytest.mark.parametrize("words", [("ZX", "YI"), None])
def test_second_and_third_derivatives(words: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "MOST_QUBITS", 0)
    check_higher(HIGHER["by operators"], words)


def test_thirteen_qubits_run_without_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_kernels", lambda: pytest.fail("a kernel was asked for"))
    circuit, words = strongly_entangling_ansatz(13, 1), ("Z" * 13, "XY" + "I" * 11)
    angles = random_angles(circuit, 2)
    result, expected = (
        slopes(values, [*angles])
        for values in (
            gpu.evaluate(circuit, *angles, words, None),
            simulator("default.qubit").expval(circuit, angles, words),
        )
    )
    torch.testing.assert_close(result, expected, atol=1e-10, rtol=0)
