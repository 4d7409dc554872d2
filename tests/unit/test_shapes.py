"""Shapes in the types of public functions are checked while tests run, and are plain tensors at run time."""

from __future__ import annotations

import importlib
import types
import typing

import jaxtyping
import pytest
import torch

from ketscale import Circuit, Layer
from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.circuits.fused import Fused
from ketscale.errors import UserError
from tests import shapes

SOURCE = """
from __future__ import annotations
import torch
from ketscale.shapes import Float

def total(rows: Float[torch.Tensor, "rows columns"], kept: int = 1) -> Float[torch.Tensor, " rows"]:
    if rows.ndim == 1:
        raise ValueError("rows: must have columns")
    return rows.sum(1)[:len(rows) if kept else 1]
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    result = types.ModuleType("made")
    exec(SOURCE, vars(result))
    monkeypatch.setitem(shapes.CHECKED, "made", ("total",))
    shapes.check(result)
    return result


def test_a_result_of_another_shape_fails(module: types.ModuleType) -> None:
    assert torch.equal(module.total(torch.ones(2, 3)), torch.full((2,), 3.0))
    with pytest.raises(jaxtyping.TypeCheckError, match="return value of made"):
        module.total(torch.ones(2, 3), kept=0)


def test_a_fault_in_a_simulator_or_a_layer_fails_their_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = Circuit(2).ry(0, "x0").ry(1, "w0")
    layer, angles = Layer(circuit), Angles(torch.zeros(3, 1), torch.zeros(1))
    run, evaluate = Fused._run, Layer._ask
    monkeypatch.setattr(Fused, "_run", lambda *given: run(*given).T)
    with pytest.raises(jaxtyping.TypeCheckError, match=r"return value of .*Fused\.expval"):
        Fused().expval(circuit, angles, ("ZI",))
    monkeypatch.undo()
    monkeypatch.setattr(Layer, "_ask", lambda *given: evaluate(*given)[..., :1])
    with pytest.raises(jaxtyping.TypeCheckError, match=r"return value of .*Layer\.forward"):
        layer(torch.zeros(3, 1))
    monkeypatch.undo()
    with pytest.raises(UserError, match="Layer needs a torch tensor"):
        layer(torch.zeros(3, 2))


@pytest.mark.parametrize("name", shapes.CHECKED)
def test_a_function_that_is_checked_states_a_shape_that_is_a_tensor_at_run_time(name: str) -> None:
    module = importlib.import_module(name)
    for place in shapes.CHECKED[name]:
        result = typing.cast(typing.Any, module)
        for part in place.split("."):
            result = getattr(result, part)
        stated = [text for text in result.__annotations__.values() if shapes.STATES_A_SHAPE.search(text)]
        assert stated
        for text in stated:
            assert "jaxtyping" not in repr(eval(text, {**vars(module), "torch": torch}))
