"""One contract of the doors: through each of them a circuit has its closed form, in values and derivatives."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import numpy as np
import pennylane as qml
import pytest
import torch
from qiskit import QuantumCircuit
from qiskit.circuit import ParameterVector
from qiskit.quantum_info import SparsePauliOp
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

import ketscale.jax
from ketscale import Circuit, Layer, from_qiskit, from_qnode
from ketscale.errors import UserError
from ketscale.interop import tape_cache
from ketscale.interop.device import FusedDevice
from ketscale.interop.qiskit_primitives import FusedEstimator, FusedEstimatorGradient

# Forward mode starts with a part of torch that torch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

# One angle is a constant, which must never be taken for a weight.
CIRCUIT = Circuit(2).ry(0, "x0").ry(0, "w0").ry(1, "x1").ry(1, 0.3).ry(1, "w1").cnot(0, 1)
OBSERVABLES = ["ZI", "IZ", {"ZI": 0.5, "XI": -2.0}]
# Qiskit's words begin with the last qubit.
REVERSED: list[Any] = ["IZ", "ZI", {"IZ": 0.5, "IX": -2.0}]
W, X = ParameterVector("w", 2), ParameterVector("x", 2)


def closed_form(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Two turned qubits, and ZI, ZZ and XX before the CNOT."""
    a, b = x[..., 0] + w[..., 0], x[..., 1] + 0.3 + w[..., 1]
    return torch.stack([a.cos(), a.cos() * b.cos(), 0.5 * a.cos() - 2 * a.sin() * b.sin()], dim=-1)


def in_pennylane(x: Any, w: Any) -> Any:
    for wire, constant in ((0, 0.0), (1, 0.3)):
        qml.RY(x[..., wire], wires=wire)
        qml.RY(w[wire], wires=wire)
        qml.RY(constant, wires=wire)
    qml.CNOT(wires=[0, 1])
    total = qml.Hamiltonian([0.5, -2.0], [qml.Z(0), qml.X(0)])
    return qml.expval(qml.Z(0)), qml.expval(qml.Z(1)), qml.expval(total)


def in_qiskit() -> QuantumCircuit:
    circuit = QuantumCircuit(2)
    for qubit, constant in ((0, 0.0), (1, 0.3)):
        circuit.ry(X[qubit], qubit)
        circuit.ry(W[qubit] + constant, qubit)
    circuit.cx(0, 1)
    return circuit


class Outside(torch.autograd.Function):
    """What computes values and their pullback without torch."""

    @staticmethod
    def forward(ctx: Any, door: Callable[..., Any], *given: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        values, ctx.back = door(*(each.detach().numpy() for each in given))
        return torch.tensor(np.asarray(values))

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> Any:  # type: ignore[override]
        return None, *(torch.tensor(np.asarray(each)) for each in ctx.back(cotangent.numpy()))


def estimated(x: np.ndarray, w: np.ndarray) -> Any:
    circuit, rows = in_qiskit(), x.reshape(-1, 2)
    bindings = np.concatenate([np.broadcast_to(w, rows.shape), rows], 1)
    words = [each.items() if isinstance(each, dict) else [(each, 1)] for each in REVERSED]
    operators = [SparsePauliOp.from_list(list(each)) for each in words]
    values = FusedEstimator().run([(circuit, [[each] for each in operators], bindings)]).result()[0].data.evs

    def back(cotangent: np.ndarray) -> Any:
        pairs = [(one, row) for row in bindings for one in operators]
        gradient = FusedEstimatorGradient()
        result = gradient.run([circuit] * len(pairs), *zip(*pairs, strict=True)).result().gradients
        slopes = np.einsum("ro,rop->rp", cotangent.reshape(-1, 3), np.reshape(result, (-1, 3, 4)))
        return slopes[:, 2:].reshape(x.shape), slopes[:, :2].sum(0)

    return values.T.reshape(*x.shape[:-1], 3), back


def of_layer(*what: Any, **settings: Any) -> Callable[..., Any]:
    module = Layer(*what, **{"dtype": torch.float64, **settings})
    return lambda x, w: functional_call(module, {"weight": w}, (x,))


def of_qnode(qnode: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, w: torch.stack(list(qnode(x, w)), -1)


def qnode_on(device: str, **settings: Any) -> qml.QNode:
    return qml.QNode(in_pennylane, qml.device(device, wires=2), **settings)


DOORS: dict[str, Callable[..., Callable[..., torch.Tensor]]] = {
    "layer": lambda **more: of_layer(CIRCUIT, OBSERVABLES, **more),
    "layer on default.qubit": lambda: of_layer(CIRCUIT, OBSERVABLES, simulator="default.qubit"),
    "layer of Qiskit's": lambda **more: of_layer(from_qiskit(in_qiskit(), "x"), REVERSED, **more),
    "device": lambda: of_qnode(qnode_on("ketscale.fused")),
    "from_qnode": lambda: of_qnode(from_qnode(qnode_on("default.qubit"))),
    "adjoint": lambda: of_qnode(qnode_on("ketscale.fused", diff_method="adjoint")),
    "from_qnode always": lambda: of_qnode(from_qnode(qnode_on("default.qubit"), trace="always")),
    "JAX": lambda: partial(Outside.apply, partial(jax.vjp, ketscale.jax.expval(CIRCUIT, OBSERVABLES))),
    "JAX of Qiskit's": lambda: partial(
        Outside.apply, partial(jax.vjp, ketscale.jax.expval(from_qiskit(in_qiskit(), "x"), REVERSED))
    ),
    "estimator": lambda: partial(Outside.apply, estimated),
}
# The transforms of torch; the first three take any leading dimensions.
TORCH = list(DOORS)[:5]


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch, exact_jax: Any) -> None:
    """Tapes are recorded at their first call."""
    monkeypatch.setattr(tape_cache, "REPEATS", 1)


def draws(*shapes: tuple[int, ...], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]


def close(found: Any, wanted: Any, **more: Any) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-12, **more)


@pytest.mark.parametrize("name", DOORS)
def test_values_and_gradients(name: str) -> None:
    """Each call has a new batch, and some sizes come again."""
    door, shapes = DOORS[name](), [(), (5,), (1,), (5,), ()]
    if name in TORCH[:3] or "JAX" in name:
        shapes += [(3, 4), (0,), (2, 0)]
    for seed, shape in enumerate(shapes):
        x, w = draws((*shape, 2), (2,), seed=seed)
        values, expected = door(x, w), closed_form(x, w)
        close(values, expected)
        slopes = (torch.autograd.grad(each.pow(3).sum(), (x, w)) for each in (values, expected))
        close(*slopes)


def cubed(f: Any) -> Any:
    return lambda w, x: f(w, x).pow(3).sum()


def twice(f: Any) -> Any:
    def curved(w: torch.Tensor, x: torch.Tensor) -> Any:
        w = w.detach().requires_grad_()
        (slope,) = torch.autograd.grad(cubed(f)(w, x), w, create_graph=True)
        return torch.autograd.grad(slope.sum(), w)

    return curved


def dual(f: Any) -> Any:
    def moved(w: torch.Tensor, x: torch.Tensor) -> Any:
        with forward_ad.dual_level():
            result = f(forward_ad.make_dual(w, w.cos()), forward_ad.make_dual(x, x.sin()))
            return forward_ad.unpack_dual(result).tangent.detach()

    return moved


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "vmap": lambda f: vmap(f, (None, 0)),
    "vmap of weights": lambda f: lambda w, x: vmap(f, (0, None))(w + x, x),
    "vmap of both, by other dimensions": lambda f: lambda w, x: vmap(f, (1, 1), 1)((w + x).T, x.T),
    "vmap of vmap": lambda f: lambda w, x: vmap(vmap(f, (None, 0)), (0, None))(w + x, x),
    "vmap in chunks": lambda f: vmap(f, (None, 0), chunk_size=3),
    "grad": lambda f: grad(cubed(f), (0, 1)),
    "vmap of grad": lambda f: vmap(grad(cubed(f), (0, 1)), (None, 0)),
    "vmap of grad by both": lambda f: lambda w, x: vmap(grad(cubed(f)))(w + x, x),
    "jacrev": lambda f: jacrev(f, (0, 1)),
    "vmap of jacrev": lambda f: vmap(jacrev(f, 1), (None, 0)),
    "grad of vmap": lambda f: grad(lambda w, x: vmap(f, (None, 0))(w, x).pow(3).sum(), (0, 1)),
    "twice": twice,
    "hessian": lambda f: hessian(cubed(f), (0, 1)),
    "functional hessian": lambda f: lambda w, x: torch.autograd.functional.hessian(cubed(f), (w, x)),
    "jacfwd": lambda f: jacfwd(f, (0, 1)),
    "dual": dual,
    "jacrev of jacrev": lambda f: jacrev(jacrev(cubed(f))),
    "jvp of grad": lambda f: lambda w, x: jvp(lambda w: grad(cubed(f))(w, x), (w,), (w.cos(),)),
    "third": lambda f: jacrev(hessian(cubed(f), 1)),
    "vmap of hessian": lambda f: lambda w, x: vmap(hessian(cubed(f)), (0, None))(w + x, x),
}


@pytest.mark.parametrize("name", TORCH)
def test_transforms_of_torch_and_second_derivatives(name: str) -> None:
    door = DOORS[name]()
    x, w = (each.detach() for each in draws((4, 2), (2,)))
    for transform, result in TRANSFORMS.items():
        value, expected = (result(lambda w, x, f=f: f(x, w))(w, x) for f in (door, closed_form))
        close(value, expected, msg=lambda message, transform=transform: f"{transform}: {message}")


@pytest.mark.parametrize("name", TORCH)
def test_the_first_call_may_be_without_gradients(name: str) -> None:
    x, w = draws((5, 2), (2,))
    for context in (torch.no_grad, torch.inference_mode):
        door = DOORS[name]()
        with context():
            assert not door(x, w).requires_grad
        close(*(torch.autograd.grad(f(x, w).sum(), (x, w)) for f in (door, closed_form)))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_threads_may_call_first_at_once(number: int) -> None:
    x, w = draws((3, 2), (2,))
    result, call = duplicable(x, w)[number]
    rows = (1, 2, 3, 1, 2, 3)
    with ThreadPoolExecutor(6) as pool:
        values = list(pool.map(lambda count: call(result, x[:count]), rows))
    close(values, [closed_form(x[:count], w) for count in rows])


@pytest.mark.parametrize("name", ["layer", "layer of Qiskit's", "device", "from_qnode"])
def test_single_precision_is_right_and_autocast_does_not_round(name: str) -> None:
    """A QNode on the device has double precision, as on default.qubit."""
    x, w = (each.detach().float() for each in draws((5, 2), (2,)))
    door = DOORS[name](dtype=torch.float32) if "layer" in name else DOORS[name]()
    values = door(x, w)
    assert values.dtype == (torch.float64 if name == "device" else torch.float32)
    torch.testing.assert_close(values.float(), closed_form(x, w), atol=1e-6, rtol=0)
    with torch.autocast("cpu"):
        assert torch.equal(door(x, w), values)


def duplicable(
    x: torch.Tensor, w: torch.Tensor
) -> list[tuple[Any, Callable[[Any, torch.Tensor], torch.Tensor]]]:
    """Objects that hold a circuit, and how they are called; torch's functional_call is for one thread."""
    layers = (
        Layer(CIRCUIT, OBSERVABLES, dtype=x.dtype),
        Layer(from_qiskit(in_qiskit(), "x"), REVERSED, dtype=x.dtype),
    )
    for layer in layers:
        layer.load_state_dict({"weight": w})
    return [
        *((layer, lambda layer, x: layer(x)) for layer in layers),
        (from_qnode(qnode_on("default.qubit")), lambda converted, x: of_qnode(converted)(x, w)),
        (FusedDevice(wires=2), lambda device, x: of_qnode(qml.QNode(in_pennylane, device))(x, w)),
    ]


def test_copies_and_pickles() -> None:
    x, w = draws((5, 2), (2,))
    for result, call in duplicable(x, w):
        # Before and after its first calls.
        for _ in range(3):
            for duplicate in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
                close(call(duplicate, x), closed_form(x, w))
            close(call(result, x), closed_form(x, w))


@pytest.mark.parametrize("name", [name for name in DOORS if name != "estimator"])
def test_complex_angles_are_refused(name: str) -> None:
    with pytest.raises((UserError, ValueError)):
        DOORS[name]()(torch.full((2,), 0.3 + 0.2j), draws((2,))[0].detach())
