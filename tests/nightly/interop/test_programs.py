"""Every operation, template and measurement of PennyLane gives what default.qubit gives, or is refused in words."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pennylane as qml
import pytest
import torch
from pennylane.exceptions import DeviceError
from pennylane.operation import CV, Channel, CVOperation, Operator

from ketscale.errors import UserError
from ketscale.interop.qnode import from_qnode
from ketscale.private_torch import pytree
from tests.nightly.interop.programs import OPERATIONS, PREPARED, PROGRAMS

WIRES = 8
POINT = np.array([0.4, -0.7, 1.1, 0.25])
ALONG = np.array([0.3, -0.5, 0.2, 0.7])

LOOKS = "looks at the value of a tensor"
# `from_qnode` once and always; what it looks at is given to `always`.
REFUSED = {
    "SelectPauliRot": (LOOKS, None),
    "StatePrep of angles": (LOOKS, None),
    "evolve with factors": (LOOKS, None),
    "expval of SparseHamiltonian": ("does not measure it in torch",) * 2,
}

# PennyLane's own templates do not take torch's tensors.
NO_TORCH = {"HilbertSchmidt", "LocalHilbertSchmidt"}

# What no circuit of qubits runs: observables, mixed states, qutrits, continuous variables, other packages' gates; and what
# PennyLane has no decomposition of, nor default.qubit a way to run.
OTHERS = {
    "GellMann", "Hermitian", "LinearCombination", "Projector", "SparseHamiltonian", "QubitDensityMatrix", "FromBloq",
    "CVNeuralNetLayers", "DisplacementEmbedding", "SqueezingEmbedding", "TensorN", "TAdd", "TClock", "THadamard", "THermitian",
    "TRX", "TRY", "TRZ", "TSWAP", "TShift", "ControlledQutritUnitary", "SumOfSlatersPrep",
}  # fmt: skip


def operators() -> list[str]:
    """The names in PennyLane of all operators of qubits."""
    found = [name for name, each in vars(qml).items() if inspect.isclass(each) and issubclass(each, Operator)]
    return [name for name in found if not issubclass(getattr(qml, name), CV | CVOperation | Channel)]


def numbers(results: Any) -> list[Any]:
    return [each.detach() if isinstance(each, torch.Tensor) else each for each in pytree.tree_leaves(results)]


def slope(results: Any) -> Any:
    """A real number that depends on all results."""
    leaves = [torch.as_tensor(each) for each in pytree.tree_leaves(results)]
    total = sum((each.reshape(-1) * torch.arange(1.0, each.numel() + 1)).sum() for each in leaves)
    return total.abs() if leaves[0].numel() > 1 and total.is_complex() else total.real


def expected(program: Callable[[Any], Any]) -> tuple[list[Any], float]:
    """default.qubit's results, and the derivative along a line by differences: its own drops some gradients."""
    qnode = qml.QNode(program, qml.device("default.qubit", wires=WIRES), diff_method=None)

    def near(step: float) -> float:
        return float(slope(qnode(POINT + step * ALONG)))

    h = 2e-3
    return numbers(qnode(POINT)), (8 * (near(h) - near(-h)) - (near(2 * h) - near(-2 * h))) / (12 * h)


def same(qnode: Callable[[Any], Any], values: list[Any], derivative: float) -> None:
    t = torch.tensor(POINT, requires_grad=True)
    results = qnode(t)
    for mine, theirs in zip(numbers(results), values, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-7)
    (gradient,) = torch.autograd.grad(slope(results), t, allow_unused=True, materialize_grads=True)
    assert float(gradient @ torch.tensor(ALONG)) == pytest.approx(derivative, rel=1e-7, abs=1e-7)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_default_qubit_gives(name: str) -> None:
    program = PROGRAMS[name]
    values, derivative = expected(program)
    fused, default = (qml.device(device, wires=WIRES) for device in ("ketscale.fused", "default.qubit"))
    for mine, theirs in zip(numbers(qml.QNode(program, fused)(POINT)), values, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-7)
    if name in NO_TORCH:
        return
    same(qml.QNode(program, fused, interface="torch"), values, derivative)
    for trace, words in zip(("once", "always"), REFUSED.get(name, (None, None)), strict=True):
        converted = from_qnode(qml.QNode(program, default), trace=trace)
        if words is None:
            same(converted, values, derivative)
        else:
            with pytest.raises((UserError, DeviceError), match=words):
                same(converted, values, derivative)


def test_every_operator_of_pennylane_is_tried() -> None:
    """The list is PennyLane's own: what a new version brings is missing here."""
    tried = set()
    for each in [*OPERATIONS.values(), *PREPARED.values()]:
        with warnings.catch_warnings(), qml.queuing.AnnotatedQueue() as queue:
            warnings.simplefilter("ignore")
            each(POINT)
        tried |= {type(operation).__name__ for operation in queue.queue}
    names = {getattr(qml, name).__name__ for name in operators()}
    assert {name for name in names - tried if not name.startswith("Qutrit")} - OTHERS == set()
