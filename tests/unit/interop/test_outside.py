"""What a quantum function reads from outside is never stale in from_qnode, one level deep: it is followed, or refused by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass
class Settings:
    angle: float = 0.3
    axis: str = "X"


def test_what_a_closure_holds() -> None:
    angle, axis, array, nested, settings = 0.3, "X", np.array([0.1, 0.2]), [{"a": (0.1, 0.2)}], Settings()

    def function(x: Any) -> Any:
        qml.RY(x + angle, wires=0)
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
        lambda: nested[0].update(a=(0.1, 0.9)),
        lambda: others(text="Z"),
        lambda: setattr(settings, "angle", 0.9),
        lambda: setattr(settings, "axis", "Z"),
        lambda: others(made=Settings(0.5)),
    )


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

    here, given = sys.modules[__name__], partial(function, first=0.2)
    check(
        given,
        lambda: monkeypatch.setattr(here, "ANGLE", 0.9),
        lambda: monkeypatch.setitem(SETTINGS, "angle", 0.8),
        lambda: monkeypatch.setattr(here, "turn", other),
        lambda: setattr(other, "__code__", edited.__code__),  # as notebooks do
        lambda: setattr(module, "angle", 0.7),
        lambda: given.keywords.update(first=0.4),
        lambda: setattr(function.__wrapped__.__defaults__[0], "angle", 0.6),
    )


def turn(wire: int) -> None:
    qml.RX(0.3, wires=wire)


def test_captured_tensors_are_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.nn.Parameter(torch.tensor([0.3, 0.4], dtype=torch.float64))
    first = torch.tensor(0.2, dtype=torch.float64)
    held = {"w": [first, first]}
    plain: Any = torch.tensor(0.1, dtype=torch.float64)

    def function(x: Any) -> Any:
        qml.RY(x * weight[0], wires=0)
        qml.RX(weight[1] + plain, wires=0)
        qml.RZ(held["w"][0], wires=0)
        qml.RX(torch.sin(TENSOR[0]) + held["w"][1], wires=0)
        return z()

    def rebound() -> None:
        nonlocal plain
        plain = torch.tensor(1.1, dtype=torch.float64)

    converted = check(
        function,
        lambda: weight.data.add_(0.3),
        rebound,
        lambda: held["w"].__setitem__(1, torch.tensor(0.9, dtype=torch.float64)),  # which were one tensor
        lambda: held.update(w=[torch.tensor(1.2, dtype=torch.float64)] * 2),
        lambda: TENSOR.mul_(2),
    )
    x = torch.tensor(0.7, dtype=torch.float64)
    converted(x)
    # Other values need no second conversion.
    monkeypatch.setattr(recording, "Recorder", None)
    weight.data.add_(0.5)
    slopes = [torch.autograd.grad(each(x), weight)[0] for each in (converted, qml.QNode(function, DEVICE))]
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-12)
    assert slopes[0].abs().min() > 1e-3


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


class Model(torch.nn.Module):
    """A module whose QNode is a method, as users write it."""

    factor = 0.3

    def __init__(self) -> None:
        super().__init__()
        self.depth = 1
        self.settings = {"angle": 0.3, "tensor": torch.tensor(0.2, dtype=torch.float64)}
        self.weight = torch.nn.Parameter(torch.tensor([0.3, 0.1], dtype=torch.float64))
        self.angles = np.array([0.3])
        # What the circuit does not name, and cannot be watched.
        self.head = torch.nn.Linear(1, 1)
        self.open = sys.stdin
        self.large = LARGE

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
        lambda: model.settings.update(tensor=torch.tensor(0.5, dtype=torch.float64)),
        lambda: model.weight.data.add_(0.2),
        lambda: setattr(model, "weight", torch.nn.Parameter(torch.tensor([0.7, 0.8]).double())),
        lambda: model.angles.fill(0.7),
        lambda: setattr(model, "factor", 0.7),
        lambda: setattr(model, "block", lambda: qml.RX(0.5, wires=0)),
    )
    assert torch.autograd.grad(converted(torch.tensor(0.7).double()), model.weight)[0].abs().max() > 0
    # Training the rest of a model needs no second conversion.
    monkeypatch.setattr(recording, "Recorder", None)
    model.head.weight.data.add_(0.1)
    converted(torch.tensor(0.9, dtype=torch.float64))


def test_a_graph() -> None:
    import networkx

    graph = networkx.Graph([(0, 1)])

    def function(x: Any) -> Any:
        qml.RX(x, wires=0)
        for edge in graph.edges:
            qml.IsingXX(0.3, wires=edge)
        return qml.expval(qml.Z(2))

    check(function, lambda: graph.add_edge(1, 2))


# PennyLane asks for the shape of a list of tensors, about which torch warns once in a process.
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")
def test_operators() -> None:
    coefficient = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    hamiltonian = qml.Hamiltonian([coefficient, 1.5], [qml.Z(0), qml.X(0) @ qml.Y(1)])
    rotations = [qml.RX(0.3, wires=0)]

    def function(x: Any) -> Any:
        qml.AngleEmbedding(x.expand(2), wires=[0, 1])
        qml.apply(rotations[0])
        return qml.expval(hamiltonian)

    check(
        function,
        lambda: coefficient.data.add_(0.4),
        lambda: rotations.__setitem__(0, qml.RX(0.8, wires=0)),
    )


def test_integers_are_compared_by_value() -> None:
    wires = torch.tensor([0, 1])

    def function(x: Any) -> Any:
        qml.RY(x, wires=int(wires[0]))
        return z()

    converted, x = from_qnode(qml.QNode(function, DEVICE)), torch.tensor(0.7, dtype=torch.float64)
    assert float(converted(x)) == pytest.approx(np.cos(0.7), abs=1e-12)
    wires[0] = 1
    assert float(converted(x)) == pytest.approx(1, abs=1e-12)


def reads_a_generator(rng: Any = np.random.default_rng(0)) -> Any:  # noqa: B008
    qml.RX(rng.random(), wires=0)
    return z()


FROZEN = torch.nn.Sequential(torch.nn.Linear(1, 1)).requires_grad_(False)
OUTER = SimpleNamespace(inner=SimpleNamespace(angle=0.3), large=LARGE)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (reads_a_generator, r"reads .*Generator.*trace='always'"),
        (lambda: (next(ITERATOR), z())[1], "reads ITERATOR"),
        (lambda: (qml.RX(LARGE[0], 0), z())[1], "reads LARGE .*more than 1 MiB"),
        (lambda: (qml.RX(FROZEN(torch.ones(1))[0], 0), z())[1], "reads FROZEN.0 .*module within"),
        (lambda: (qml.RX(OUTER.inner.angle, 0), z())[1], r"reads OUTER\.inner \(SimpleNamespace\)"),
    ],
)
def test_what_cannot_be_seen_is_refused_by_name(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_qnode(qml.QNode(function, DEVICE))()


def test_a_function_that_is_recorded_again_and_again_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a method of an object that counts its steps."""
    monkeypatch.setattr(recording, "MOST_WAYS", 3)
    counter = SimpleNamespace(step=0, angle=0.3)
    converted = from_qnode(qml.QNode(lambda x: (qml.RX(x + counter.angle, 0), z())[1], DEVICE))

    def run(steps: int) -> None:
        for counter.step in range(steps):
            converted(torch.tensor(0.3))

    run(2)
    with pytest.warns(UserWarning, match="recorded the quantum function 3 times"):
        run(5)


def test_the_function_runs_at_every_call_if_asked_to() -> None:
    weight = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    angles = iter([0.2] * 4 + [0.4] * 4)

    def function(x: Any) -> Any:
        (qml.RX if x > 1 else qml.RY)(x + weight, wires=0)
        qml.RX(float(np.sin(weight.detach().numpy())) + next(angles), wires=0)
        return z()

    qnode = qml.QNode(function, DEVICE)
    converted = from_qnode(qnode, trace="always")
    for value in (0.3, 1.3):
        x = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        pairs = [(made := each(x), torch.autograd.grad(made, (x, weight))) for each in (converted, qnode)]
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
