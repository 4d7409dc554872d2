"""What a quantum function reads from outside is never stale in from_qnode: it is followed, or refused by name."""

from __future__ import annotations

import ctypes
import os
import sys
from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial, singledispatch
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
NUMBER = ctypes.c_double(0.1)
TENSOR: Any = torch.tensor([0.3, 0.4], dtype=torch.float64)


class Axis(Enum):
    X = "x"
    Y = "y"


def z() -> Any:
    return qml.expval(qml.Z(0))


def check(function: Callable[..., Any], *changes: Callable[[], Any], trace: Any = "once") -> Any:
    """Compare with the QNode after each change, and back at what was; return the conversion."""
    qnode = qml.QNode(function, DEVICE)
    converted = from_qnode(qnode, trace)
    x = torch.tensor(0.7, dtype=torch.float64)
    values = []
    for change in (lambda: None, *changes):
        change()
        for angle in (x, x + 0.1):
            torch.testing.assert_close(converted(angle), qnode(angle), rtol=1e-12, atol=1e-12)
        values.append(float(converted(x).detach()))
    assert len({round(value, 9) for value in values}) == len(values), "each change must show"
    return converted


def test_numbers_texts_and_arrays_of_a_closure() -> None:
    angle, axis, array, nested = 0.3, "X", np.array([0.1, 0.2]), [{"a": (0.1, 0.2)}]

    def function(x: Any) -> Any:
        qml.RY(x + angle, wires=0)
        (qml.RX if axis == "X" else qml.RZ)(array[1] + nested[0]["a"][1], wires=0)
        return z()

    def number() -> None:
        nonlocal angle
        angle = 0.5

    def text() -> None:
        nonlocal axis
        axis = "Z"

    def inside() -> None:
        nested[0]["a"] = (0.1, 0.9)

    converted = check(function, number, lambda: array.__setitem__(1, 0.7), inside, text)
    array[1] = 0.2
    torch.testing.assert_close(
        converted(torch.tensor(0.7)), qml.QNode(function, DEVICE)(torch.tensor(0.7)), check_dtype=False
    )


def test_globals_and_functions_that_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        qml.RY(x + SETTINGS["angle"], wires=0)
        turn(0)
        return z()

    def other(wire: int) -> None:
        qml.RX(2 * ANGLE, wires=wire)

    module = sys.modules[__name__]
    check(
        function,
        lambda: monkeypatch.setattr(module, "ANGLE", 0.9),
        lambda: monkeypatch.setitem(SETTINGS, "angle", 0.8),
        lambda: monkeypatch.setattr(module, "turn", other),
        lambda: monkeypatch.setattr(module, "ANGLE", 0.2),
    )


def turn(wire: int) -> None:
    qml.RX(ANGLE, wires=wire)


def test_captured_tensors_are_arguments() -> None:
    weight = torch.nn.Parameter(torch.tensor([0.3, 0.4], dtype=torch.float64))
    held = {"w": [torch.tensor(0.2, dtype=torch.float64)]}
    plain: Any = torch.tensor(0.1, dtype=torch.float64)

    def function(x: Any) -> Any:
        qml.RY(x * weight[0], wires=0)
        qml.RX(weight[1] + plain, wires=0)
        qml.RZ(held["w"][0], wires=0)
        qml.RX(torch.sin(TENSOR[0]), wires=0)
        return z()

    def rebound() -> None:
        nonlocal plain
        plain = torch.tensor(1.1, dtype=torch.float64)

    converted = check(
        function,
        lambda: weight.data.add_(0.3),
        rebound,
        lambda: held.update(w=[torch.tensor(1.2, dtype=torch.float64)]),
        lambda: TENSOR.mul_(2),
    )
    x = torch.tensor(0.7, dtype=torch.float64)
    slopes = [torch.autograd.grad(each(x), weight)[0] for each in (converted, qml.QNode(function, DEVICE))]
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-12)
    assert slopes[0].abs().min() > 1e-3


def test_captured_tensors_need_no_second_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    def function(x: Any) -> Any:
        qml.RY(x * weight, wires=0)
        return z()

    converted = check(function)
    monkeypatch.setattr(recording, "Recorder", None)
    with torch.no_grad():
        weight.add_(0.5)
        value = converted(torch.tensor(0.7, dtype=torch.float64))
    assert float(value) == pytest.approx(np.cos(0.7 * 0.8), abs=1e-12)


def test_a_captured_tensor_that_is_the_same_twice_may_become_two() -> None:
    first = torch.tensor(0.3, dtype=torch.float64)
    pair = [first, first]

    def function(x: Any) -> Any:
        qml.RY(x * pair[0], wires=0)
        qml.RX(pair[1], wires=0)
        return z()

    check(function, lambda: pair.__setitem__(1, torch.tensor(0.9, dtype=torch.float64)))


def test_a_value_of_a_captured_tensor_that_torch_does_not_see_is_found_out() -> None:
    weight = torch.tensor(0.3, dtype=torch.float64)

    def function(x: Any) -> Any:
        qml.RY(x + weight.item(), wires=0)
        return z()

    converted = from_qnode(qml.QNode(function, DEVICE))
    x = torch.tensor(0.7)
    converted(x)
    converted(2 * x)
    weight.add_(0.1)
    with pytest.raises(UserError, match="in a way that torch cannot follow"):
        converted(x)


@dataclass
class Settings:
    """Read in part by name, and as a whole."""

    angle: float = 0.3
    tensors: dict[str, torch.Tensor] = field(
        default_factory=lambda: {"a": torch.tensor(0.2, dtype=torch.float64)}
    )
    unused: Any = None


class Model(torch.nn.Module):
    """A module whose QNode is a method, as users write it."""

    scale: Any = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.depth = 1
        self.settings = Settings(unused=iter(()))
        self.weight = torch.nn.Parameter(torch.tensor([0.3, 0.1], dtype=torch.float64))
        self.linear = torch.nn.Linear(1, 1, dtype=torch.float64)
        self.open = sys.stdin  # not read by the circuit

    @property
    def twice(self) -> Any:
        return 2 * self.settings.angle

    def block(self, layer: int) -> None:
        for wire in range(2):
            qml.RX(self.weight[wire] + layer * self.settings.tensors["a"], wires=0)

    def circuit(self, x: Any) -> Any:
        qml.RY(self.scale * self.linear(x.reshape(1))[0], wires=0)
        [self.block(layer) for layer in range(self.depth)]
        qml.RZ(self.twice, wires=0)
        qml.RX(0.4, wires=0)
        return z()


def test_self(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    with torch.no_grad():
        model.linear.weight.fill_(0.6)
        model.linear.bias.fill_(0.1)
    converted = check(
        model.circuit,
        lambda: setattr(model, "depth", 3),
        lambda: setattr(model.settings, "angle", 0.9),
        lambda: model.settings.tensors.update(a=torch.tensor(0.5, dtype=torch.float64)),
        lambda: model.linear.weight.data.add_(0.2),
        lambda: monkeypatch.setattr(Model, "scale", 1.2),
        lambda: setattr(model, "settings", Settings(0.1)),
    )
    converted(torch.tensor(0.7, dtype=torch.float64)).backward()
    assert model.weight.grad is not None and model.linear.bias.grad is not None


def test_a_module_of_the_user_and_what_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("settings_of_a_user")
    module.angle = 0.3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)

    class Rotation:
        def __init__(self, angle: float) -> None:
            self.angle = angle

        def __call__(self, wire: int) -> None:
            qml.RX(self.angle + module.angle, wires=wire)

    rotation, partly = Rotation(0.2), partial(turned, angle=[0.5])

    def function(x: Any, *, more: Any = SimpleNamespace(angle=0.1)) -> Any:  # noqa: B008
        qml.RY(x, wires=0)
        rotation(0)
        partly(0)
        qml.RX(more.angle, wires=0)
        return z()

    check(
        function,
        lambda: setattr(module, "angle", 0.9),
        lambda: setattr(rotation, "angle", 0.7),
        lambda: partly.keywords["angle"].__setitem__(0, 1.4),
        lambda: setattr(function.__kwdefaults__["more"], "angle", 0.6),
    )


def turned(wire: int, angle: list[float]) -> None:
    qml.RX(angle[0], wires=wire)


@dataclass(frozen=True)
class Frozen:
    """Settings that nobody may change, as a default."""

    angle: float = 0.3


def test_a_frozen_dataclass() -> None:
    settings = Frozen()

    def function(x: Any, first: Frozen = settings) -> Any:
        qml.RX(x + first.angle + settings.angle, wires=0)
        return z()

    def other() -> None:
        nonlocal settings
        settings = Frozen(0.5)

    check(function, other)


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # in PennyLane's Hamiltonian
class Base:
    factor = 0.3
    angles = (np.array([0.3]),)

    def __init__(self) -> None:
        self.shift = 0.1

    def turned(self, x: Any) -> None:
        qml.RX(x * self.factor + self.shift + self.angles[0][0], wires=0)


class Child(Base):
    def circuit(self, x: Any) -> Any:
        super().turned(x)
        return z()

    turned = None  # type: ignore[assignment]


def test_methods_of_a_parent_that_super_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child()
    check(
        child.circuit,
        lambda: setattr(child, "shift", 0.5),
        lambda: monkeypatch.setattr(Base, "factor", 0.7),
        lambda: Base.angles[0].fill(0.9),
    )


def test_code_that_is_replaced_as_notebooks_do() -> None:
    def turned(x: Any) -> Any:
        return x * 0.3

    def edited(x: Any) -> Any:
        return x * 0.8

    def function(x: Any) -> Any:
        qml.RX(turned(x), wires=0)
        return z()

    check(function, lambda: setattr(turned, "__code__", edited.__code__))


def test_methods_functions_and_attributes_that_are_replaced() -> None:
    class Part:
        def angle(self) -> float:
            return 0.3

        @property
        def more(self) -> float:
            return 0.1

    class Angles(np.ndarray):
        """An array that carries something."""

    @singledispatch
    def chosen(_: Any) -> float:
        return 0.1

    part, angles = Part(), np.zeros(1).view(Angles)
    angles.offset = 0.2  # type: ignore[attr-defined]

    def function(x: Any) -> Any:
        qml.RX(x + part.angle() + part.more + angles.offset + chosen(1), wires=0)  # type: ignore[attr-defined]
        return z()

    check(
        function,
        lambda: setattr(Part, "angle", lambda self: 0.5),
        lambda: setattr(part, "angle", lambda: 0.8),
        lambda: setattr(Part, "more", property(lambda self: 0.4)),
        lambda: setattr(angles, "offset", 0.6),
        lambda: chosen.register(int, lambda _: 0.7),
    )


def test_a_graph() -> None:
    """Views of graphs are other objects at each look."""
    import networkx

    graph = networkx.Graph([(0, 1)])

    def function(x: Any) -> Any:
        qml.RX(x, wires=0)
        for edge in graph.edges:
            qml.IsingXX(0.3, wires=edge)
        return z(), qml.expval(qml.Z(2))

    converted = from_qnode(qml.QNode(function, DEVICE))
    x = torch.tensor(0.7, dtype=torch.float64)
    assert converted(x)[1] == 1
    graph.add_edge(1, 2)
    assert float(converted(x)[1]) == pytest.approx(float(qml.QNode(function, DEVICE)(x)[1]), abs=1e-12)


def test_keys_that_are_objects() -> None:
    angles = {Axis.X: 0.3}

    def function(x: Any) -> Any:
        for axis, angle in angles.items():
            (qml.RX if axis is Axis.X else qml.RY)(x + angle, wires=0)
        return z()

    check(function, lambda: angles.__setitem__(Axis.X, 0.7), lambda: angles.__setitem__(Axis.Y, 0.2))


# PennyLane asks for the shape of a list of tensors, about which torch warns once in a process.
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")
def test_operators() -> None:
    coefficient = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    hamiltonian = qml.Hamiltonian([coefficient, 1.5], [qml.Z(0), qml.X(0) @ qml.Y(1)])
    rotations = [qml.RX(0.3, wires=0)]
    wires = qml.wires.Wires([0, 1])

    def function(x: Any) -> Any:
        qml.AngleEmbedding(x.expand(2), wires=wires)
        qml.apply(rotations[0])
        return qml.expval(hamiltonian)

    check(
        function,
        lambda: coefficient.data.add_(0.4),
        lambda: rotations.__setitem__(0, qml.RX(0.8, wires=0)),
        lambda: setattr(rotations[0], "data", (0.1,)),
    )


def test_integers_are_compared_by_value() -> None:
    wires = torch.tensor([0, 1])

    def function(x: Any) -> Any:
        qml.RY(x, wires=wires[0])
        qml.RX(0.4, wires=0)
        qml.CNOT(wires=torch.tensor([1, 0]))
        return z()

    converted = from_qnode(qml.QNode(function, DEVICE))
    x = torch.tensor(0.7, dtype=torch.float64)
    assert float(converted(x)) == pytest.approx(np.cos(0.7) * np.cos(0.4), abs=1e-12)
    wires[0] = 1
    assert float(converted(x)) == pytest.approx(np.cos(0.7) * np.cos(0.4), abs=1e-12)


def reads_a_generator(rng: Any = np.random.default_rng(0)) -> Any:  # noqa: B008
    qml.RX(rng.random(), wires=0)
    return z()


def calls() -> Any:
    global ANGLE
    ANGLE = 0.3
    return z()


class Counter:
    """Counts its calls."""

    count = 0

    def circuit(self) -> Any:
        self.count += 1
        return z()


class Fresh(UserDict[str, Any]):
    """Gives another list at each look."""

    def __getitem__(self, key: str) -> list[Any]:
        return [TENSOR[0]]


FRESH = Fresh(angle=0)


def reads_a_module() -> Any:
    import settings_of_a_user  # noqa: F401

    return z()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (reads_a_generator, r"reads .*Generator.*trace='always'"),
        (lambda: (eval("0"), z())[1], r"reads eval\(\)"),
        (calls, "writes to ANGLE"),
        (Counter().circuit, "writes to self.count"),
        (reads_a_module, "reads the module settings_of_a_user"),
        (lambda: (next(ITERATOR), z())[1], "reads ITERATOR"),
        (lambda: (os.getenv("HOME"), z())[1], r"reads os\.getenv"),
        (lambda: (NUMBER.value, z())[1], r"reads NUMBER.* \(c_double\)"),
        (lambda: (qml.RX(FRESH["angle"][0], 0), z())[1], "gives others at each call"),
    ],
)
def test_what_cannot_be_seen_is_refused_by_name(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_qnode(qml.QNode(function, DEVICE))()


def test_the_function_runs_at_every_call_if_asked_to() -> None:
    weight = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    angles = iter([0.2] * 4 + [0.4] * 4)

    def function(x: Any) -> Any:
        (qml.RX if x > 1 else qml.RY)(x + weight, wires=0)
        qml.RX(float(np.sin(weight.detach().numpy())) + next(angles), wires=0)
        return z(), qml.probs(wires=0)

    qnode = qml.QNode(function, DEVICE)
    converted = from_qnode(qnode, trace="always")
    for value in (0.3, 1.3):
        x = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        pairs = [
            (results := each(x), torch.autograd.grad(results[0] + results[1][0], (x, weight)))
            for each in (converted, qnode)
        ]
        torch.testing.assert_close(*pairs, rtol=1e-12, atol=1e-12)
    with pytest.raises(UserError, match="trace is 'once' or 'always'"):
        from_qnode(qnode, "never")  # type: ignore[arg-type]


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
