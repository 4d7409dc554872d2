"""The benchmarks on a GPU, as far as a CPU can tell: steps that can be captured as graphs, and train the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks import circuits, steps
from benchmarks.circuits import CircuitCase, create, loss_of
from benchmarks.steps import ModelCase
from ketscale.engines import randomness
from ketscale.engines.circuits.fused import gpu
from ketscale.layers.dropout import MASKS

CPU = torch.device("cpu")


def test_a_device_step_has_the_keys_of_the_step_that_it_is_set_to() -> None:
    step, samples = randomness.DeviceStep(CPU), torch.arange(5)
    tensors = set()
    for number in (0, 3, 4, 2**40):
        step.set(number)
        key = MASKS.key(7, step, 11)
        tensors.add(id(key))
        expected = randomness.keep_mask(MASKS.key(7, number, 11), samples, 6, 0.5)
        assert torch.equal(randomness.keep_mask(key, samples, 6, 0.5), expected)
        assert torch.equal(
            randomness.uniform(key, samples, 3), randomness.uniform(MASKS.key(7, number, 11), samples, 3)
        )
        assert int(step) == number
    assert len(tensors) == 1


MODEL_CASES = [
    ModelCase("hydra", 2, 3),
    ModelCase("mamba_hybrid", 2, 3),
    ModelCase("superposition_transformer", 4, steps.SENTENCES),
]


@pytest.mark.parametrize("case", MODEL_CASES, ids=lambda case: case.model)
def test_a_replayable_step_trains_as_the_step_does(case: ModelCase) -> None:
    eager, (call, before) = steps.step(case, "fused"), steps.replayable(case, "fused", CPU)
    for _ in range(4):
        before()
        assert float(call()) == float(eager())


META = torch.device("meta")


class OnDevice(TorchDispatchMode):
    """Fails at an operator that touches the CPU's memory, or that has to wait for a result."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
        assert all(tensor.device == META for tensor in tensors), f"{func} touches the CPU"
        assert func not in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default), func
        return result


class NotFromTheHost(TorchFunctionMode):
    """Fails where Python's numbers become a tensor on the device: by `torch.tensor`, or as indices."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func not in (torch.tensor, torch.as_tensor, torch.from_numpy), func
        if func is torch.Tensor.__getitem__:
            assert not any(isinstance(index, (tuple, list)) for index in parts_of(args[1])), args[1]
        return func(*args, **(kwargs or {}))


def parts_of(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def assert_capturable(call: Callable[[], Any]) -> None:
    """The second call, after the first has made tables, computes on the device alone."""
    call()
    with OnDevice(), NotFromTheHost():
        call()


@pytest.fixture
def meta(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is no CPU and computes nothing, in the place of a GPU."""

    class World(steps.Single):
        def __init__(self, run: Any) -> None:
            self.device = META

    monkeypatch.setattr(steps, "Single", World)
    monkeypatch.setattr(gpu, "_launch", lambda *_, **__: None)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())


STEPS = [(model, arm) for model in steps.MODELS for arm in steps.CAPTURABLE if arm in steps.arms(model)]


@pytest.mark.usefixtures("meta")
@pytest.mark.parametrize(("model", "arm"), STEPS)
def test_a_step_that_is_captured_takes_nothing_from_the_host(model: str, arm: str) -> None:
    qubits = 0 if steps.MODELS[model].classical else 4
    call, before = steps.replayable(ModelCase(model, qubits, steps.SENTENCES), arm, META)
    before()
    assert_capturable(call)


@pytest.mark.usefixtures("meta")
@pytest.mark.parametrize("ansatz", circuits.ANSAETZE)
@pytest.mark.parametrize("name", ["fused", "kronecker"])
def test_a_simulator_that_is_captured_takes_nothing_from_the_host(name: str, ansatz: str) -> None:
    subject = create(name, META)
    assert subject.uncapturable is None
    assert_capturable(subject.prepare(loss_of(CircuitCase(ansatz, 5, 4, 2), np.float32)))


@pytest.mark.usefixtures("meta")
def test_a_step_that_takes_indices_from_the_host_is_found() -> None:
    call, before = steps.replayable(
        ModelCase("superposition_transformer", 4, steps.SENTENCES), "closed-form", META
    )
    before()
    with pytest.raises(AssertionError, match=r"\(0, 3, 2, 1\)"):
        assert_capturable(call)
