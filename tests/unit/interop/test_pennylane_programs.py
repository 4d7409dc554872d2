"""One contract of the ways from PennyLane, the device and from_qnode: a program gives what default.qubit gives, with gradients.

`make test` has the programs of which something is special here; `make test-nightly` every operation, template and measurement.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pennylane as qml
import pytest
import torch
from pennylane import numpy as pnp
from pennylane.exceptions import DeviceError
from pennylane.operation import CV, Channel, CVOperation, Operator
from qiskit import QuantumCircuit
from qiskit.circuit.library import UnitaryGate

from ketscale import from_qiskit, from_qnode
from ketscale.errors import UserError
from ketscale.interop import tape_cache
from ketscale.interop.device import FusedDevice
from ketscale.private_torch import pytree
from tests.unit.interop.programs import (
    DEGENERATE,
    GIVEN,
    MEASUREMENTS,
    OPERATIONS,
    PREPARED,
    PROGRAMS,
    SINGLY,
    draws,
    midway,
)

# PennyLane warns of torch's numbers in a QNode of autograd.
pytestmark = pytest.mark.filterwarnings("ignore")

WIRES = 8
POINT, ALONG = np.array([0.4, -0.7, 1.1, 0.25]), np.array([0.3, -0.5, 0.2, 0.7])

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

# Gates that `fused` takes as they are.
NATIVE = (
    "MultiControlledX", "CSWAP", "CCZ", "CH", "ctrl", "ctrl of IsingXX", "ctrl of Hadamard", "permutation",
)  # fmt: skip
# What autograd and JAX differentiate, too.
ELSEWHERE = (
    "expval of Hamiltonian", "expval of Hermitian", "state", "several", "purity", "GlobalPhase", "QubitUnitary",
    "StatePrep at the start",
)  # fmt: skip
BATCHED = {*DEGENERATE, *MEASUREMENTS} - {
    "expval of Projector on a state", "expval of SparseHamiltonian", "vn_entropy", "vn_entropy in bits", "mutual_info",
}  # fmt: skip
QUICK = {
    *DEGENERATE, *GIVEN, *SINGLY, *NATIVE, *ELSEWHERE, "QubitUnitary", "ctrl of layers", "GlobalPhase", "measure twice", "StatePrep",
    "StatePrep at the start", "AmplitudeEmbedding, padded at the start", "expval of a product", "expval of nothing",
    "expval of Projector", "var of a sum", "probs", "probs of a product", "density_matrix", "vn_entropy", "purity", "nested",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tapes that can be recorded are, at their first call."""
    monkeypatch.setattr(tape_cache, "REPEATS", 1)


def numbers(results: Any) -> list[Any]:
    return [each.detach() if isinstance(each, torch.Tensor) else each for each in pytree.tree_leaves(results)]


def slope(results: Any, library: Any = torch) -> Any:
    """A real number that depends on all results."""
    leaves = [torch.as_tensor(x) if library is torch else x for x in pytree.tree_leaves(results)]
    sizes = [int(np.prod(each.shape)) for each in leaves]
    factors = [library.asarray(np.arange(1.0, size + 1)) for size in sizes]
    total = sum((library.reshape(x, (-1,)) * f).sum() for x, f in zip(leaves, factors, strict=True))
    return abs(total) if sizes[0] > 1 and "complex" in str(total.dtype) else library.real(total)


def expected(function: Callable[[Any], Any], at: Any, in_torch: bool = False) -> tuple[list[Any], float]:
    """default.qubit's results, and the derivative along a line by differences: its own drops some gradients.

    in_torch: whether it has torch's numbers, beside which it takes zeros of controls for ones where the others are NumPy's.
    """
    device = qml.device("default.qubit", wires=WIRES)
    plain = qml.QNode(function, device, **({} if in_torch else {"diff_method": None}))

    def qnode(at: Any) -> Any:
        return plain(torch.tensor(at) if in_torch else at)

    along, h = ALONG.reshape(-1, *[1] * (at.ndim - 1)), 2e-3

    def near(step: float) -> float:
        return float(slope(qnode(at + step * along)))

    return numbers(qnode(at)), (8 * (near(h) - near(-h)) - (near(2 * h) - near(-2 * h))) / (12 * h)


def same(qnode: Callable[[Any], Any], at: Any, values: list[Any], derivative: float | None = None) -> None:
    """Compare results, and in torch their derivative along the line."""
    t = at if derivative is None else torch.tensor(at, requires_grad=True)
    results = qnode(t)
    for mine, expected in zip(numbers(results), values, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-7)
    if derivative is None:
        return
    (gradient,) = torch.autograd.grad(slope(results), t, allow_unused=True, materialize_grads=True)
    result = float(ALONG @ gradient.numpy().reshape(len(ALONG), -1).sum(1))
    assert result == pytest.approx(derivative, rel=1e-7, abs=1e-7)


def doors(function: Callable[..., Any]) -> dict[str, Any]:
    fused, default = FusedDevice(wires=WIRES), qml.device("default.qubit", wires=WIRES)
    return {
        "device": qml.QNode(function, fused, interface="torch"),
        "once": from_qnode(qml.QNode(function, default)),
        "always": from_qnode(qml.QNode(function, default), trace="always"),
    }


def points(name: str) -> list[Any]:
    """The second one has a record of the first, a batch one of its own; there are angles at which matrices are degenerate."""
    values = [POINT, 0.7 * POINT] if name in QUICK else [POINT]
    if name in DEGENERATE or name in SINGLY:
        values += [0 * POINT, np.array([np.pi, 0.0, 0.3, -0.2])]
    return [*values, np.stack([POINT, 0.3 * POINT, -POINT], 1)] if name in BATCHED & QUICK else values


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.nightly) for name in PROGRAMS]
)
def test_a_program_gives_what_default_qubit_gives(name: str, exact_jax: Any) -> None:
    function, jax, fused = PROGRAMS[name], exact_jax, FusedDevice(wires=WIRES)
    ways, words = doors(function), (None, *REFUSED.get(name, (None, None)))
    for at in points(name):
        values, derivative = expected(function, at, name.endswith("of torch"))
        same(qml.QNode(function, fused), at, values)
        for (way, qnode), message in zip(ways.items(), words, strict=True):
            # PennyLane puts what depends on several measured wires in an order by chance, which `once` may refuse.
            if name in NO_TORCH or (name, way) == ("measure twice", "once"):
                continue
            if message is None:
                same(qnode, at, values, derivative)
            else:
                with pytest.raises((UserError, DeviceError), match=message):
                    same(qnode, at, values, derivative)
        if name in GIVEN:
            adjoint = qml.QNode(function, fused, interface="autograd", diff_method="adjoint")
            same(adjoint, pnp.array(at, requires_grad=True), values)
        if name not in ELSEWHERE:
            continue
        kinds: list[tuple[str, Any, Callable[[Any], Any]]] = [
            ("autograd", pnp, lambda f, at=at: qml.grad(f)(pnp.array(at, requires_grad=True))),
            ("jax", jax.numpy, lambda f, at=at, grad=jax.grad: grad(f)(at)),
            ("jax", jax.numpy, lambda f, at=at, grad=jax.grad, jit=jax.jit: jit(grad(f))(at)),
        ]
        for interface, library, result in kinds if at is POINT else [kinds[0], kinds[2]]:
            qnode = qml.QNode(function, fused, interface=interface)
            gradient = np.asarray(result(lambda t, qnode=qnode, library=library: slope(qnode(t), library)))
            value = ALONG @ gradient.reshape(len(ALONG), -1).sum(1)
            assert value == pytest.approx(derivative, rel=1e-7, abs=1e-7)


def test_every_operator_of_pennylane_is_tried() -> None:
    """The list is PennyLane's own: what a new version brings is missing here."""
    value = [name for name, each in vars(qml).items() if inspect.isclass(each) and issubclass(each, Operator)]
    qubits = [name for name in value if not issubclass(getattr(qml, name), CV | CVOperation | Channel)]
    checked_ones = set()
    for each in [*OPERATIONS.values(), *PREPARED.values()]:
        with warnings.catch_warnings(), qml.queuing.AnnotatedQueue() as queue:
            warnings.simplefilter("ignore")
            each(POINT)
        checked_ones |= {type(operation).__name__ for operation in queue.queue}
    names = {getattr(qml, name).__name__ for name in qubits}
    assert {name for name in names - checked_ones if not name.startswith("Qutrit")} - OTHERS == set()


@pytest.mark.parametrize("name", NATIVE)
def test_controlled_gates_and_permutations_are_taken_as_they_are(name: str) -> None:
    with qml.queuing.AnnotatedQueue() as queue:
        OPERATIONS[name](POINT)
    script = qml.tape.QuantumScript(list(queue.queue), [qml.state()])
    (tape,), _ = FusedDevice(wires=WIRES).preprocess_transforms()((script,))
    assert tape.operations == script.operations


@pytest.mark.parametrize("matrix", [np.array, torch.tensor], ids=["NumPy", "torch"])
def test_a_matrix_in_single_precision_is_right_to_single_precision(matrix: Callable[[Any], Any]) -> None:
    """As it is given, or as the unitary matrix that it is rounded from, which is decomposed."""
    exact = qml.Rot(0.3, 0.7, 1.1, wires=0).matrix()
    values, _ = expected(lambda t: midway(lambda _: qml.QubitUnitary(exact, 0), t), POINT)
    for qnode in doors(
        lambda t: midway(lambda _: qml.QubitUnitary(matrix(exact.astype(np.complex64)), 0), t)
    ).values():
        for mine, reference in zip(numbers(qnode(torch.tensor(POINT))), values, strict=True):
            np.testing.assert_allclose(mine, reference, rtol=0, atol=1e-6)


def test_a_record_follows_a_matrix_that_ceases_to_be_unitary() -> None:
    def function(x: Any, m: Any) -> Any:
        qml.RY(x, wires=0)
        qml.ctrl(qml.QubitUnitary(m, wires=1), control=0)
        return qml.probs(wires=[0, 1])

    x, ways = torch.tensor(0.9, dtype=torch.float64), doors(function)
    for number in range(10):
        for name, qnode in ways.items():
            after = qnode(x, torch.tensor(np.diag([1, 1 - 0.04 * number])))[[0, 2]]
            assert after == pytest.approx([np.cos(0.45) ** 2, np.sin(0.45) ** 2], abs=1e-12), name


@pytest.mark.parametrize(
    "operation, error",
    [
        (lambda _: qml.Projector([1], 0), DeviceError),
        (lambda _: qml.DiagonalQubitUnitary(torch.tensor([1, 0.5]), 0), ValueError),
        (lambda _: qml.ctrl(qml.DiagonalQubitUnitary(np.array([1, 0.5]), 0), 1), ValueError),
    ],
)
def test_what_default_qubit_refuses_or_normalises_is_refused(
    operation: Callable[[Any], Any], error: type[Exception]
) -> None:
    for qnode in doors(lambda t: midway(operation, t)).values():
        with pytest.raises(error):
            qnode(torch.tensor(POINT))


def test_qiskit_synthesises_no_matrix_that_is_not_unitary() -> None:
    for qubits in (1, 2, 3):
        circuit = QuantumCircuit(3)
        circuit.append(UnitaryGate(draws(2**qubits), check_input=False), range(qubits))
        with pytest.raises(UserError, match="not unitary"):
            from_qiskit(circuit)
