"""What a quantum function reads from outside is never stale in from_qnode, one level deep: it is followed, or refused by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pennylane as qml
import pytest
import torch

from ketscale import from_qnode
from ketscale.errors import UserError
from ketscale.interop import recording

DEVICE = qml.device("default.qubit", wires=3)

ANGLE: Any = 0.3
SETTINGS: dict[str, Any] = {"angle": 0.3, "layers": [1, 2]}
ITERATOR = iter([0.1])
LARGE = np.zeros(2**17 + 1)
TENSOR: Any = torch.tensor([0.3, 0.4], dtype=torch.float64)
HERE = sys.modules[__name__]


def z() -> Any:
    return qml.expval(qml.Z(0))


def number(value: float, grad: bool = False) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=grad)


def check(function: Callable[..., Any], *changes: Callable[[], Any]) -> Any:
    """Compare with the QNode after each change, which must show; return the conversion."""
    qnode = qml.QNode(function, DEVICE)
    converted, values = from_qnode(qnode), []
    for change in (lambda: None, *changes):
        change()
        for angle in (number(0.7), number(0.8)):
            torch.testing.assert_close(converted(angle), qnode(angle), rtol=1e-12, atol=1e-12)
        values.append(float(converted(angle).detach()))
    assert len({round(value, 9) for value in values}) == len(values), "each change must show"
    return converted


def test_what_a_closure_holds() -> None:
    angle, axis, array, nested = 0.3, "X", np.array([0.1, 0.2]), [{"a": (0.1, 0.2)}]
    wires, settings = torch.tensor([0, 1]), SimpleNamespace(angle=0.3, axis="X")

    def function(x: Any) -> Any:
        qml.RY(x + angle, wires=int(wires[0]))
        (qml.RX if axis == "X" else qml.RZ)(array[1] + nested[0]["a"][1], wires=0)
        (qml.RY if settings.axis == "X" else qml.RX)(settings.angle, wires=0)
        return z()

    def others(number: float = 0.5, text: str = "X", made: Any = settings) -> None:
        nonlocal angle, axis, settings
        angle, axis, settings = number, text, made

    check(
        function,
        others,
        lambda: array.__setitem__(1, 0.7),
        lambda: wires.__setitem__(0, 1),  # whole numbers are compared
        lambda: wires.__setitem__(0, 0) or others(0.9),
        lambda: nested[0].update(a=(0.1, 0.9)),
        lambda: others(text="Z"),
        lambda: setattr(settings, "angle", 0.9),
        lambda: setattr(settings, "axis", "Z"),
        lambda: others(made=SimpleNamespace(angle=0.5, axis="X")),
    )


def turn(wire: int) -> None:
    qml.RX(0.3, wires=wire)


def test_globals_modules_defaults_and_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("settings_of_a_user")
    module.angle = 0.3  # type: ignore[attr-defined]

    def doubled(function: Callable[..., Any], factor: float = 2.0) -> Callable[..., Any]:
        return wraps(function)(lambda x, **more: function(factor * x, **more))

    @doubled
    def function(x: Any, more: Any = SimpleNamespace(angle=0.1), *, first: float) -> Any:  # noqa: B008
        qml.RY(x + SETTINGS["angle"] + module.angle, wires=0)
        [qml.RX(ANGLE, wires=wire) for wire in range(2)]
        turn(0)
        qml.RX(more.angle + first, wires=0)
        return z()

    def other(wire: int) -> None:
        qml.RX(0.6, wires=wire)

    def edited(wire: int) -> None:
        qml.RX(0.9, wires=wire)

    arguments = partial(function, first=0.2)
    check(
        arguments,
        lambda: monkeypatch.setattr(HERE, "ANGLE", 0.9),
        lambda: monkeypatch.setitem(SETTINGS, "angle", 0.8),
        lambda: monkeypatch.setattr(HERE, "turn", other),
        lambda: setattr(other, "__code__", edited.__code__),  # as notebooks do
        lambda: setattr(module, "angle", 0.7),
        lambda: arguments.keywords.update(first=0.4),
        lambda: setattr(function.__wrapped__.__defaults__[0], "angle", 0.6),
    )


# PennyLane asks for the shape of a list of tensors, about which torch warns once in a process.
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")
def test_captured_tensors_are_arguments_also_in_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, first, plain = torch.nn.Parameter(torch.tensor([0.3, 0.4]).double()), number(0.2), number(0.1)
    captured, coefficient, rotations = {"w": [first, first]}, number(0.5, grad=True), [qml.RX(0.3, wires=0)]
    hamiltonian = qml.Hamiltonian([coefficient, 1.5], [qml.Z(0), qml.X(0) @ qml.Y(1)])

    def function(x: Any) -> Any:
        qml.RY(x * weight[0], wires=0)
        qml.RX(weight[1] + plain, wires=0)
        qml.RZ(captured["w"][0], wires=0)
        qml.RX(torch.sin(TENSOR[0]) + captured["w"][1], wires=0)
        qml.apply(rotations[0])
        return qml.expval(hamiltonian)

    def rebound() -> None:
        nonlocal plain
        plain = number(1.1)

    converted = check(
        function,
        lambda: weight.data.add_(0.3),
        rebound,
        lambda: captured["w"].__setitem__(1, number(0.9)),  # which were one tensor
        lambda: captured.update(w=[number(1.2)] * 2),
        lambda: TENSOR.mul_(2),
        lambda: coefficient.data.add_(0.4),
        lambda: rotations.__setitem__(0, qml.RX(0.8, wires=0)),
    )
    # Other values need no second conversion.
    monkeypatch.setattr(recording, "Recorder", None)
    weight.data.add_(0.5)
    both = converted, qml.QNode(function, DEVICE)
    slopes = [torch.cat([x.flatten() for x in torch.autograd.grad(f(number(0.7)), (weight, coefficient))]) for f in both]  # fmt: skip
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-12)
    assert slopes[0].abs().min() > 1e-3


def test_a_value_of_a_captured_tensor_that_torch_does_not_see_is_found_out() -> None:
    weight = number(0.3)
    converted = from_qnode(qml.QNode(lambda x: (qml.RY(x + weight.item(), wires=0), z())[1], DEVICE))
    converted(number(0.7))
    converted(number(1.4))
    weight.add_(0.1)
    with pytest.raises(UserError, match="in a way that torch cannot follow"):
        converted(number(0.7))


class Model(torch.nn.Module):
    """A module whose QNode is a method, as users write it."""

    factor = 0.3

    def __init__(self) -> None:
        super().__init__()
        self.depth = 1
        self.settings = {"angle": 0.3, "tensor": number(0.2)}
        self.weight = torch.nn.Parameter(torch.tensor([0.3, 0.1], dtype=torch.float64))
        self.angles = np.array([0.3])
        # What the circuit does not name, and cannot be watched.
        self.head, self.open, self.large = torch.nn.Linear(1, 1), sys.stdin, LARGE

    def block(self) -> None:
        qml.RX(self.weight[1] + self.angles[0], wires=0)

    def circuit(self, x: Any) -> Any:
        qml.RY(x * self.weight[0] + self.settings["angle"], wires=0)
        [self.block() for _ in range(self.depth)]
        qml.RZ(self.settings["tensor"], wires=0)
        qml.RX(x * self.factor, wires=0)
        return z()


def test_self_and_what_its_methods_read_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    converted = check(
        model.circuit,
        lambda: setattr(model, "depth", 3),
        lambda: model.settings.update(angle=0.9),
        lambda: model.settings.update(tensor=number(0.5)),
        lambda: model.weight.data.add_(0.2),
        lambda: setattr(model, "weight", torch.nn.Parameter(torch.tensor([0.7, 0.8]).double())),
        lambda: model.angles.fill(0.7),
        lambda: setattr(model, "factor", 0.7),
        lambda: setattr(model, "block", lambda: qml.RX(0.5, wires=0)),
    )
    assert torch.autograd.grad(converted(number(0.7)), model.weight)[0].abs().max() > 0
    # Training the rest of a model needs no second conversion.
    monkeypatch.setattr(recording, "Recorder", None)
    model.head.weight.data.add_(0.1)
    converted(number(0.9))


FROZEN = torch.nn.Sequential(torch.nn.Linear(1, 1)).requires_grad_(False)
OUTER = SimpleNamespace(inner=SimpleNamespace(angle=0.3), large=LARGE)
RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda: (qml.RX(RANDOM.random(), wires=0), z())[1], "RANDOM"),
        (lambda: (next(ITERATOR), z())[1], "ITERATOR"),
        (lambda: (qml.RX(LARGE[0], 0), z())[1], "LARGE"),
        (lambda: (qml.RX(FROZEN(torch.ones(1))[0], 0), z())[1], r"FROZEN\.0"),
        (lambda: (qml.RX(OUTER.inner.angle, 0), z())[1], r"OUTER\.inner"),
    ],
)
def test_what_cannot_be_seen_is_refused_by_name(function: Callable[..., Any], name: str) -> None:
    with pytest.raises(UserError, match=rf"reads {name}.*trace='always'"):
        from_qnode(qml.QNode(function, DEVICE))()


@pytest.mark.parametrize("trace", ["once", "always"])
def test_states_must_be_normalised_at_every_call(trace: Any) -> None:
    def function(x: Any) -> Any:
        qml.AmplitudeEmbedding(x, wires=[0, 1], normalize=False, validate_norm=False)
        return z()

    converted = from_qnode(qml.QNode(function, DEVICE), trace)
    state = torch.tensor([[0.6, 0.8, 0, 0], [1, 0, 0, 0]])
    converted(state)
    converted(state.flip(0))
    with pytest.raises(UserError, match=r"with norm 1\.5: normalise it"):
        converted(torch.tensor([[1, 1.5], [1, 1]]).prod(0, keepdim=True).T * state)
