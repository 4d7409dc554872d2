"""What the GPU's kernels compute, on a CPU: `test_fused_gpu.py` runs these tests under Triton's interpreter.

By hand: TRITON_INTERPRET=1 python -m pytest tests/unit/engines/circuits/fused_gpu_interpreted.py
"""

from __future__ import annotations

import os
import random

import pytest
import torch

from ketscale.engines.circuits.ansaetze import vqc_ansatz
from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.fused import gpu
from tests.unit.engines.circuits.test_kernels import by_matrices, compare, leaves_of, random_gates, words_of
from tests.unit.engines.circuits.test_simulators import (
    random_angles,
    random_circuit,
    random_states,
    random_words,
)

Words = tuple[str, ...]
Setting = tuple[torch.dtype, str, bool, int | None, bool]


def test_triton_interprets_its_kernels() -> None:
    assert os.environ["TRITON_INTERPRET"] == "1"


def evaluated(
    circuit: Circuit, words: Words | None, angles: Angles, start: list[torch.Tensor]
) -> torch.Tensor:
    return gpu.evaluate(circuit, *angles, words, *(start or [None]))


def chain(qubits: int) -> Circuit:
    circuit = Circuit(qubits)
    for wire in range(qubits):
        circuit = circuit.rx(wire, f"x{wire}")
        circuit = circuit if wire % 2 else circuit.crz(wire, (wire + 1) % qubits, f"w{wire}")
    return circuit.cnot(0, qubits - 1).xx(0, qubits - 1, "w1")


# The largest states within one warp, and the smallest that several share; real amplitudes; one kind of angles, or none.
CIRCUITS = {
    **{f"{qubits} qubits": chain(qubits) for qubits in (8, 9)},
    **{f"real, {qubits} qubits": vqc_ansatz(qubits, 2) for qubits in (1, 7)},
    "inputs": Circuit(2).h(0).rot(1, "x0", "x3", "x0").crx(1, 0, "x3").rz(0, "x2"),
    "weights": Circuit(2).h(0).rot(1, "w0", "w3", "w0").crx(1, 0, "w3").rz(0, "w2"),
    "rotations": Circuit(2).h(0).cnot(0, 1).unitary([[0, 1], [1j, 0]], 1),
    "moves": Circuit(2).y(1).swap(0, 1).s(0),
    "nothing": Circuit(2),
}
# Random circuits by qubits; 17 samples are no whole number of blocks, of which these circuits need several.
BATCHES = {1: 65, 2: 3, 3: 17, 4: 3, 5: 3}
# What is evaluated, in which precision, by which leaf, and whether angles are 0, where a kernel would divide by a sine of 0.
SETTINGS = [
    *((dtype, start, measured, None, False) for dtype, start, measured in (
        (torch.float64, "zero", True), (torch.float64, "each", False), (torch.float32, "one", True), (torch.float32, "each", False))),
    *((torch.float64, "one", measured, only, False) for only in range(4) for measured in (True, False)),
    (torch.float64, "each", True, None, True),
]  # fmt: skip


def check(case: str | int, setting: Setting) -> None:
    """Compare values and gradients with those of dense matrices."""
    dtype, start, measured, only, zeros = setting
    rng = random.Random(f"{case} {setting}")
    qubits = case if isinstance(case, int) else CIRCUITS[case].qubits
    circuit = random_gates(rng, "all gates", qubits, 20) if isinstance(case, int) else CIRCUITS[case]
    leaves = leaves_of(circuit, BATCHES.get(qubits, 2), dtype, start, 0)
    leaves[:2] = [leaf * 0 if zeros else leaf for leaf in leaves[:2]]
    compare(evaluated, circuit, words_of(rng, qubits)[:5] if measured else None, leaves, only)


# What any circuit may be asked, and what two qubits and special circuits show.
CASES = [
    *((case, setting) for case in BATCHES for setting in (SETTINGS if case == 2 else SETTINGS[:4])),
    *((case, setting) for case in CIRCUITS for setting in SETTINGS[:2]),
]


@pytest.mark.parametrize(("case", "setting"), CASES)
def test_values_and_gradients(case: str | int, setting: Setting) -> None:
    check(case, setting)


HIGHER = {
    "by operators": random_circuit(2, 3),
    "by shifts": Circuit(2).ry(0, "x0").crx(0, 1, "w0").rx(1, "x1").xx(0, 1, "w1").ry(0, "w0"),
    "with a move": Circuit(2).ry(0, "x0").rx(1, "w0").permuted((2, 0, 3, 1), 0, 1).ry(0, "w1"),
}


def check_higher(circuit: Circuit, words: Words | None) -> None:
    """Compare first, second and third derivatives."""
    angles, initial, results = random_angles(circuit, 2), random_states(4).requires_grad_(), []
    for evaluate in (evaluated, by_matrices):
        values, orders = evaluate(circuit, words, angles, [initial]), []
        total = (values * torch.arange(1, values.shape[1] + 1)).real.exp().sum()
        for _ in range(3):
            slopes = torch.autograd.grad(total, (*angles, initial), create_graph=True)
            total = sum((x.real.sin().sum() for x in slopes), start=torch.zeros(()))
            orders += slopes
        results.append(orders)
    torch.testing.assert_close(*results, atol=1e-9, rtol=0)


@pytest.mark.parametrize("words", [("ZX", "YI"), None])
@pytest.mark.parametrize("name", HIGHER)
def test_second_and_third_derivatives(name: str, words: Words | None) -> None:
    check_higher(HIGHER[name], words)


def test_tensors_that_are_views_conjugate_or_negative() -> None:
    circuit, words = random_circuit(2, 7), random_words(2, 7)
    stored = torch.randn(4, 3, dtype=torch.complex128, generator=torch.Generator().manual_seed(5))
    angles = Angles(stored.conj().imag.T[:, :3], random_angles(circuit, 1).weights.detach())
    initial = random_states(4).conj()
    assert angles.inputs.is_neg() and not angles.inputs.is_contiguous() and initial.is_conj()
    result, expected = (each(circuit, words, angles, [initial]) for each in (evaluated, by_matrices))
    torch.testing.assert_close(result, expected, atol=1e-10, rtol=0)
    initial.requires_grad_()
    states = (each(circuit, None, random_angles(circuit, 3), [initial]) for each in (evaluated, by_matrices))
    result, expected = (
        torch.autograd.grad(each.conj().imag.sum(), initial)[0].resolve_conj() for each in states
    )
    torch.testing.assert_close(result, expected, atol=1e-10, rtol=0)
