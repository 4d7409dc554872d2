"""default.qubit in jax.jit agrees with `fused` and with default.qubit by torch, under all that torch does with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import pytest
import torch

from ketscale.engines.circuits import jitted
from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.jitted import Jitted
from ketscale.engines.circuits.simulator import Simulator
from ketscale.simulators.factory import named_simulator

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

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
    noise = torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))
    return noise / noise.norm(dim=-1, keepdim=True) if dtype.is_complex else noise


ANGLES = Angles(some(3, 2), some(2))


def twice(function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    weights = ANGLES.weights.clone().requires_grad_()
    (first,) = torch.autograd.grad(function(weights), weights, create_graph=True)
    return torch.autograd.grad(first.square().sum(), weights)[0]


def test_what_torch_does_with_it_jax_does() -> None:
    """A gradient of a gradient."""

    def of_weights(simulator: Simulator) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda weights: simulator.expval(CIRCUIT, Angles(ANGLES.inputs, weights), WORDS).exp().sum()

    both = (twice(of_weights(named_simulator(name))) for name in ("default.qubit-jit", "default.qubit"))
    torch.testing.assert_close(*both, rtol=1e-12, atol=1e-12)


def test_one_call_of_vjp_has_the_bits_of_autograd() -> None:
    result = Jitted().vjp(CIRCUIT, ANGLES, WORDS)
    assert result is not None
    values, back = result
    leaves = [tensor.clone().requires_grad_() for tensor in ANGLES]
    expected = Jitted().expval(CIRCUIT, Angles(*leaves), WORDS)
    gradients = torch.autograd.grad(expected, leaves, values)
    assert all(map(torch.equal, (values, *back(values)), (expected, *gradients)))


def test_what_is_kept_for_the_backward_pass_gives_its_gradient_unless_it_was_changed_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leaves, slopes = [tensor.clone().requires_grad_() for tensor in ANGLES], []
    for kept_from in (10**9, 1):
        monkeypatch.setattr(jitted, "SAVED_FROM", kept_from)
        values = Jitted().expval(CIRCUIT, Angles(*leaves), WORDS)
        slopes.append(torch.autograd.grad(values.exp().sum(), leaves, retain_graph=True))
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        leaves[1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        values.sum().backward()
