"""Gates are those of PennyLane, alone and on a register."""

from __future__ import annotations

from typing import Any

import numpy as np
import pennylane as qml
import pytest
import torch
from scipy.stats import unitary_group

from ketscale.engines.gates import GATES, gate
from ketscale.errors import UserError

OPERATIONS: dict[str, Any] = {
    "x": qml.X, "y": qml.Y, "z": qml.Z, "h": qml.H, "hadamard": qml.H, "s": qml.S, "t": qml.T, "sqrt_x": qml.SX,
    "cz": qml.CZ, "cnot": qml.CNOT, "swap": qml.SWAP, "iswap": qml.ISWAP, "sqrt_iswap": qml.SISWAP,
}  # fmt: skip


@pytest.mark.parametrize("name", GATES)
def test_gates_are_those_of_pennylane_alone_and_on_a_register(name: str) -> None:
    operation = OPERATIONS[name]
    if len(GATES[name]) == 2:
        np.testing.assert_allclose(gate(name), qml.matrix(operation(0)), atol=1e-15)
        every = qml.prod(*(operation(wire) for wire in range(3)))
        np.testing.assert_allclose(gate(name, 3), qml.matrix(every, wire_order=range(3)), atol=1e-15)
        return
    np.testing.assert_allclose(gate(name), qml.matrix(operation([0, 1])), atol=1e-15)
    # The first pair acts first.
    both = qml.prod(operation([3, 1]), operation([2, 0]), operation([0, 3]))
    expected = qml.matrix(both, wire_order=range(4))
    np.testing.assert_allclose(gate(name, 4, [(0, 3), (2, 0), (3, 1)]), expected, atol=1e-15)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_matrix_acts_on_each_qubit_on_pairs_or_on_all(size: int) -> None:
    own = unitary_group.rvs(size, random_state=size)
    wires = {2: [[0], [1], [2]], 4: [[2, 0]], 8: [[0, 1, 2]]}[size]
    expected = qml.matrix(qml.prod(*(qml.QubitUnitary(own, each) for each in wires)), wire_order=range(3))
    np.testing.assert_allclose(gate(own, 3, [(2, 0)]), expected, atol=1e-14)


@pytest.mark.parametrize(
    "call",
    [
        lambda: gate("cx"), lambda: gate("cnot", 2, [(0, 2)]), lambda: gate([[1, 1], [0, 1]]), lambda: gate(np.eye(3)),
        lambda: gate([["a", "b"], ["c", "d"]]), lambda: gate("x", 0), lambda: gate(torch.eye(8), 2),
    ],
)  # fmt: skip
def test_what_is_no_gate_is_refused(call: Any) -> None:
    with pytest.raises(UserError, match=r"^(gate|pairs|qubits): "):
        call()
