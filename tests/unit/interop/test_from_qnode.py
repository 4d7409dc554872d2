"""from_qnode gives what the QNode gives, or says why it cannot: never numbers frozen at the first call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pennylane as qml
import pytest
import torch

from ketscale import from_qnode
from ketscale.errors import UserError
from tests.unit.interop.test_doors import draws

WIRES = 3
DEVICE = qml.device("default.qubit", wires=WIRES)


def cosine(x: Any) -> Any:
    qml.RX(x, wires=0)
    return qml.expval(qml.Z(0))


QNODE = qml.QNode(cosine, DEVICE)


def loss(results: Any) -> torch.Tensor:
    rows = [torch.view_as_real(r) if r.is_complex() else r for r in torch.utils._pytree.tree_leaves(results)]
    return sum((row * torch.arange(1, row.numel() + 1).reshape(row.shape).cos()).sum() for row in rows)


def same(
    function: Callable[..., Any], *shapes: tuple[int, ...], gathered: bool | None = None, calls: int = 3
) -> Any:
    """Compare several calls, each with new values, with default.qubit; return the conversion."""
    qnode = qml.QNode(function, DEVICE)
    converted = from_qnode(qnode)
    for seed in range(calls):
        arguments = draws(*shapes, seed=seed)
        pairs = []
        for each in (converted, qnode):
            results = each(*arguments)
            slopes = torch.autograd.grad(loss(results), arguments, allow_unused=True, materialize_grads=True)
            pairs.append((results, slopes))
        torch.testing.assert_close(*pairs, rtol=1e-9, atol=1e-10)
        assert len({torch.utils._pytree.tree_structure(results) for results, _ in pairs}) == 1
    if gathered is not None:
        assert [way._picked is not None for way in converted._records.ways.values()] == [gathered]
    return converted


def layers(x: Any, w: Any) -> None:
    qml.AngleEmbedding(x, wires=range(WIRES), rotation="Y")
    qml.StronglyEntanglingLayers(w, wires=range(WIRES))


@pytest.mark.parametrize("batch", [(), (4,)])
def test_angles_that_are_entries_are_gathered(batch: tuple[int, ...]) -> None:
    def function(x: Any, w: Any) -> Any:
        layers(x, w)
        qml.RX(2 * x[..., 1] - 0.5, wires=0)
        qml.RZ(-w[0, 0, 0] / 3, wires=1)
        qml.IsingXX(x[..., 1], wires=[2, 0])
        return [qml.expval(qml.Z(i)) for i in range(WIRES)]

    def prepared(x: Any, w: Any) -> Any:
        qml.BasisState(np.array([1, 0, 1]), wires=range(WIRES))
        qml.GlobalPhase(0.3)
        qml.RY(x[..., 0], wires=1)
        qml.CNOT(wires=[1, 2])
        return qml.expval(qml.Z(1)), qml.expval(0.5 * qml.Z(2) - qml.X(1))

    for each in (function, prepared):
        same(each, (*batch, WIRES), (2, WIRES, 3), gathered=True)


OUTSIDE = torch.tensor([0.2, 0.4, 0.6], dtype=torch.float64)


def written_into(x: Any) -> Any:
    constant, zeros = torch.tensor([1.0, 2.0, 3.0]), torch.zeros_like(x)
    zeros[..., 1:] = x[..., 1:]
    zeros[..., 0].add_(x[..., 2])
    constant[1] = 5
    return zeros * constant


def reordered(x: Any) -> Any:
    largest, places = x.sort(-1, descending=True)
    first, *others = x.split([1, 2], -1)
    return largest.gather(-1, places) + torch.cat([*others, first], -1) + torch.stack(x.unbind(-1)[::-1], -1)


def differentiated(x: Any) -> Any:
    leaf = x.detach().requires_grad_()
    # Its gradient has parts that nobody asks for, which are None.
    normed = torch.nn.functional.layer_norm(leaf, (3,))
    (slope,) = torch.autograd.grad((normed * leaf.exp()).sum(), leaf)
    return slope + torch.func.grad(lambda y: y.square().sum())(x) + torch.func.vmap(torch.cos)(x)


WRITTEN: list[Callable[[torch.Tensor], torch.Tensor]] = [
    torch.relu,
    lambda x: x.clamp(-0.5, 0.5),
    lambda x: x % 1.0,
    lambda x: x + x.flip(-1),
    lambda x: x.float().double(),
    lambda x: x.detach() + 0 * x,
    lambda x: torch.nn.functional.linear(x, torch.arange(9.0, dtype=x.dtype).reshape(3, 3)),
    lambda x: x * OUTSIDE + OUTSIDE.cumsum(0) + (x @ OUTSIDE).exp()[..., None],
    written_into,
    reordered,
    differentiated,
]


@pytest.mark.parametrize("written", WRITTEN)
def test_functions_of_arguments_are_replayed(written: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Among these are some that look like the identity near most points."""

    def function(x: Any, w: Any) -> Any:
        layers(written(x), w)
        return qml.expval(qml.Z(0) @ qml.Y(1))

    same(function, (4, WIRES), (1, WIRES, 3), gathered=False)


def test_results_are_nested_and_coefficients_of_observables_may_be_arguments() -> None:
    def function(x: Any, c: Any) -> Any:
        layers(x, c.expand(1, WIRES, 3))
        qml.GlobalPhase(x[..., 0])
        observables = qml.Hamiltonian(c, [qml.Z(0), qml.X(1), qml.Z(1)]), qml.Z(1) + 0.5 * qml.Z(0)
        return {"a": qml.expval(qml.Z(1)), "b": (qml.expval(observables[0]), [qml.expval(observables[1])])}

    def state(x: Any, c: Any) -> Any:
        layers(x, c.expand(1, WIRES, 3))
        qml.GlobalPhase(x[..., 0])
        return {"a": qml.state(), "b": (qml.probs(wires=0), [qml.purity(wires=[1])])}

    for shape in ((WIRES,), (4, WIRES)):
        same(function, shape, (WIRES,))
        same(state, shape, (WIRES,))


def test_arguments_in_containers_and_by_name_and_numbers_that_are_equal_are_told_apart() -> None:
    def function(first: Any, *, named: Any, times: Any = 1) -> Any:
        for _ in range(int(times)):
            qml.RX(first[0], wires=0)
            qml.RY(first[1]["y"], wires=0)
            qml.CRZ(named, wires=[0, 1])
        if times is True:
            qml.X(0)
        return qml.expval(qml.Z(0)), qml.expval(qml.X(1))

    qnode = qml.QNode(function, DEVICE)
    converted = from_qnode(qnode)
    for seed, times in enumerate((1, 2, True, 1.0, 1)):
        a, b, c = draws((), (), (), seed=seed)
        results = [each([a, {"y": b}], named=c, times=times) for each in (converted, qnode)]
        slopes = [torch.autograd.grad(sum(each), [a, b], allow_unused=True) for each in results]
        torch.testing.assert_close(*zip(results, slopes, strict=True), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(converted([a.detach().numpy(), {"y": b}], named=c, times=1), results[0])
    assert len(converted._records.ways) == 4


def stopped(x: Any, w: Any) -> None:
    with torch.no_grad():
        y = 2 * x[0]
    qml.RY(y + x[0], wires=0)


def viewed(x: Any, w: Any) -> None:
    zeros = torch.zeros(2, dtype=x.dtype)
    first = zeros[0]
    zeros[0] = x[0]
    qml.RX(x[0] * float(first), wires=0)


HIDDEN: dict[str, Callable[..., Any]] = {
    "NumPy": lambda x, w: qml.AngleEmbedding(torch.as_tensor(x.detach().numpy() * 2), wires=range(WIRES)),
    "lists": lambda x, w: qml.AngleEmbedding(torch.as_tensor(x.tolist()) * 1.0, wires=range(WIRES)),
    "chance": lambda x, w: qml.AngleEmbedding(x + torch.rand(WIRES, dtype=x.dtype), wires=range(WIRES)),
    # Another tensor than the first.
    "weights": lambda x, w: [qml.RY(x[0], wires=0), qml.RX(float(np.sin(w.detach().numpy())), wires=0)],
    "stopped": stopped,
    "looked at": lambda x, w: qml.X(0) if x[0] > 0 else qml.Y(0),
    "as a number": lambda x, w: qml.RX(x[0] * float(x[0]), wires=0),
    "compared": lambda x, w: qml.RX(x[0] if torch.equal(x, OUTSIDE) else -x[0], wires=0),
    "chance as a number": lambda x, w: qml.RX(x[0] * torch.rand(1).item(), wires=0),
    "a generator": lambda x, w: qml.RX(x[0] * torch.rand((), generator=torch.Generator()), wires=0),
    "a view": viewed,
}


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
def test_what_torch_does_not_see_is_found_out(hidden: Callable[..., Any]) -> None:
    """At the first call, where it is tried with other values too."""

    def function(x: Any, w: Any) -> Any:
        hidden(x, w)
        return qml.expval(qml.Z(0))

    converted = from_qnode(qml.QNode(function, DEVICE))
    with pytest.raises(UserError, match=r"^from_qnode: the "):
        converted(*draws((WIRES,), ()))


def test_measurements_that_depend_on_hidden_values_are_found_out() -> None:
    def function(x: Any) -> Any:
        qml.AngleEmbedding(x, wires=range(WIRES))
        return qml.expval(qml.Z(0) if x.tolist()[0] > 0 else qml.X(0))

    converted = from_qnode(qml.QNode(function, DEVICE))
    converted(torch.ones(WIRES, dtype=torch.float64))
    with pytest.raises(UserError, match="changes with its arguments"):
        converted(-torch.ones(WIRES, dtype=torch.float64))


def test_mixed_precisions_are_computed_in_the_higher_one() -> None:
    converted = from_qnode(
        qml.QNode(lambda x, y: (qml.RX(x[0], 0), qml.RY(y, 0), qml.expval(qml.Z(0)))[2], DEVICE)
    )
    for x in (torch.ones(1), torch.ones(1, dtype=torch.int64)):
        for y in (torch.tensor(2.0).double(), torch.tensor(4.0).double(), torch.tensor(2)):
            value = converted(x, y)
            assert value.dtype == (
                torch.float32 if x.is_floating_point() and y.dtype == torch.int64 else torch.float64
            )
            assert float(value) == pytest.approx(np.cos(1) * np.cos(float(y)), abs=1e-6)


def test_a_circuit_may_depend_on_the_batch_size() -> None:
    def function(x: Any) -> Any:
        qml.RX(x / (len(x) if len(x) < 5 else 2 * len(x)), wires=0)
        if len(x) == 6:
            qml.RX(0.3, wires=0)
        return qml.expval(qml.Z(0))

    converted = from_qnode(qml.QNode(function, DEVICE))
    for batch in (2, 3, 4, 6, 8, 4):
        (x,) = draws((batch,), seed=batch)
        torch.testing.assert_close(converted(x), qml.QNode(function, DEVICE)(x), rtol=1e-10, atol=1e-12)


def postselected(x: Any) -> Any:
    qml.RX(x, wires=0)
    qml.measure(0, postselect=1)
    return qml.expval(qml.Z(0))


def unordered(x: Any) -> Any:
    return (qml.expval(qml.Z(0)), qml.expval(qml.Z(1)))[::-1]


@pytest.mark.parametrize(
    "refused",
    [
        lambda: from_qnode(cosine),
        lambda: from_qnode(QNODE, "never"),  # type: ignore[arg-type]
        lambda: from_qnode(qml.QNode(cosine, qml.device("null.qubit", wires=1))),
        lambda: from_qnode(qml.set_shots(QNODE, 10)),
        lambda: from_qnode(qml.transforms.merge_rotations(QNODE)),
        # An object that would be equal to itself whatever it holds.
        lambda: from_qnode(QNODE)(object()),
        *(lambda x=x: from_qnode(QNODE)(x) for x in (torch.tensor([0.3j]), np.complex128(0.3j), 0.3j)),
        *(
            lambda function=function: from_qnode(qml.QNode(function, DEVICE))(*draws(()))
            for function in (unordered, postselected, lambda x: x, lambda _: qml.sample(wires=0))
        ),
    ],
)
def test_what_it_cannot_follow_is_refused(refused: Callable[[], object]) -> None:
    with pytest.raises(UserError):
        refused()


def test_a_layer_of_pennylane() -> None:
    def function(inputs: Any, weights: Any, angle: Any) -> Any:
        layers(inputs, weights)
        qml.RX(angle, wires=0)
        return [qml.expval(qml.Z(i)) for i in range(WIRES)]

    qnode, shapes = qml.QNode(function, DEVICE), {"weights": (1, WIRES, 3), "angle": ()}
    expected = qml.qnn.TorchLayer(qnode, shapes)
    for result in (from_qnode(qnode), qml.QNode(function, qml.device("ketscale.fused", wires=WIRES))):
        actual = qml.qnn.TorchLayer(result, shapes)
        actual.load_state_dict(expected.state_dict())
        for shape in ((WIRES,), (4, WIRES), (2, 4, WIRES)):
            x = torch.randn(shape)
            torch.testing.assert_close(actual(x), expected(x), atol=1e-6, rtol=1e-5)
        actual(x).sum().backward()
        assert actual.weights.grad is not None


# At a break of its graph torch's own compiler asks a tensor that is no leaf for its gradient.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_model_breaks_its_graph_at_a_converted_qnode_and_nowhere_inside() -> None:
    converted = from_qnode(QNODE)
    breaks = torch._dynamo.explain(lambda x: converted(x.sin()).cos())(torch.tensor(0.3)).graph_break_count
    assert breaks == 1
    compiled = torch.compile(lambda x: converted(x.sin()).cos(), backend="eager")
    torch.testing.assert_close(compiled(torch.tensor(0.3)), torch.tensor(0.3).sin().cos().cos())
