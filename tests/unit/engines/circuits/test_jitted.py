"""default.qubit in jax.jit agrees with `fused` and with default.qubit by torch, under all that torch does with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.func import grad, jacfwd, vmap

from ketscale.engines.circuits import jitted
from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.jitted import Jitted
from ketscale.engines.circuits.simulator import Simulator
from ketscale.simulators.factory import named_simulator

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),
]

jax = pytest.importorskip("jax", reason="JAX is not installed: make setup")

CIRCUIT = (
    Circuit(2).ry(0, "x0").rot(1, "w0", 0.3, "x1").cnot(0, 1).unitary([[0, 1j], [1, 0]], 1).crx(1, 0, "w1")
)
WORDS = ("ZI", "XY")


@pytest.fixture(autouse=True, scope="module")
def hurried() -> Iterator[None]:
    """JAX's compiler in a hurry; the setting is global."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def some(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def state(*shape: int) -> torch.Tensor:
    rows = some(*shape, dtype=torch.complex128)
    return rows / rows.norm(dim=-1, keepdim=True)


ANGLES = Angles(some(3, 2), some(2))


KEPT, AGAIN = 1, 10**9


@pytest.mark.parametrize(
    "words, kept_from, initial",
    [
        (WORDS, KEPT, None),
        (WORDS, AGAIN, state(3, 4)),
        (None, KEPT, state(4)),
    ],
)
def test_values_and_gradients_are_those_of_fused(
    words: tuple[str, ...] | None,
    kept_from: int,
    initial: torch.Tensor | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jitted, "KEPT_FROM", kept_from)
    found = []
    for name in ("default.qubit-jit", "fused"):
        tensors = [tensor.clone().requires_grad_() for tensor in (*ANGLES, initial) if tensor is not None]
        simulator, angles, start = named_simulator(name), Angles(*tensors[:2]), [None, *tensors[2:]][-1]
        values = (
            simulator.expval(CIRCUIT, angles, words, start)
            if words
            else simulator.state(CIRCUIT, angles, start)
        )
        cotangent = some(*values.shape, dtype=values.dtype)
        found.append([values.detach(), *torch.autograd.grad(values, tensors, cotangent)])
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-12)


def of_weights(simulator: Simulator) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda weights: simulator.expval(CIRCUIT, Angles(ANGLES.inputs, weights), WORDS).exp().sum()


def twice(function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    weights = ANGLES.weights.clone().requires_grad_()
    (first,) = torch.autograd.grad(function(weights), weights, create_graph=True)
    return torch.autograd.grad(first.square().sum(), weights)[0]


TRANSFORMS: dict[str, Callable[[Any], torch.Tensor]] = {
    "gradients of members": lambda f: vmap(grad(f))(some(4, 2)),
    "gradient by members": lambda f: grad(lambda weights: vmap(f)(weights).sum())(some(4, 2)),
    "forward mode": lambda f: jacfwd(f)(ANGLES.weights),
    "gradient of a gradient": twice,
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_what_torch_does_with_it_jax_does(transform: Callable[[Any], torch.Tensor]) -> None:
    found, expected = (
        transform(of_weights(named_simulator(name))) for name in ("default.qubit-jit", "default.qubit")
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_one_call_of_vjp_has_the_bits_of_autograd() -> None:
    found = Jitted().vjp(CIRCUIT, ANGLES, WORDS)
    assert found is not None
    values, back = found
    leaves = [tensor.clone().requires_grad_() for tensor in ANGLES]
    expected = Jitted().expval(CIRCUIT, Angles(*leaves), WORDS)
    gradients = torch.autograd.grad(expected, leaves, values)
    assert all(map(torch.equal, (values, *back(values)), (expected, *gradients)))


def test_what_is_changed_in_place_before_the_backward_pass_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jitted, "KEPT_FROM", KEPT)
    weights = ANGLES.weights.clone().requires_grad_()
    values = Jitted().expval(CIRCUIT, Angles(ANGLES.inputs, weights), WORDS)
    with torch.no_grad():
        weights.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        values.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_either_precision_leaves_jax_as_it_is_set(dtype: torch.dtype) -> None:
    before = jax.numpy.ones(1).dtype
    leaves = [tensor.to(dtype).requires_grad_() for tensor in ANGLES]
    values = Jitted().expval(CIRCUIT, Angles(*leaves), WORDS)
    assert {values.dtype, *(g.dtype for g in torch.autograd.grad(values.sum(), leaves))} == {dtype}
    assert jax.numpy.ones(1).dtype == before


def test_a_batch_without_samples() -> None:
    weights = ANGLES.weights.clone().requires_grad_()
    angles = Angles(ANGLES.inputs[:0], weights)
    values = Jitted().expval(CIRCUIT, angles, WORDS)
    assert values.shape == (0, 2) and Jitted().state(CIRCUIT, angles).shape == (0, 4)
    assert not torch.autograd.grad(values.sum(), weights)[0].any()
