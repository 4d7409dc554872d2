"""`jax`: the whole training step of `vqc` in JAX, one compiled function: head, default.qubit, classifier, clipping, Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks import steps
from ketscale.engines.circuits.jitted import sample_function
from ketscale.optional import needed_for
from ketscale.training.optimiser import BETAS, EPSILON
from ketscale.training.updates import TINY

# Steps that are compared with the trainer's, without dropout; losses are of the same weights and samples in fp32.
COMPARED = 20
TOLERANCE = 1e-4


def step(case: steps.ModelCase, dropout: float | None = None) -> Callable[[], Any]:
    """The step on all samples, from the weights of `steps.step`; it gives the loss, and waits for it.

    Everything is in one `jax.jit` whose arguments are reused, the circuit under `vmap`. Dropout's masks are JAX's own.

    Raises:
        UserError: JAX or PennyLane is not installed.
    """
    with needed_for("simulator jax"):
        import jax
        import jax.numpy as jnp
    problem, protocol = steps.problem_of(case, "fused", steps.CPU)
    model: Any = problem.model
    rate = protocol.dropout if dropout is None else dropout
    jax.config.update("jax_enable_x64", False)
    circuit = jax.vmap(sample_function(model.circuit, model.paulis), (0, None))
    samples, targets = (_array(jnp, problem.get_buffer(name)) for name in ("inputs", "targets"))

    numbers = {
        "head": _linear(jnp, model.head),
        "weights": _array(jnp, model.weights),
        "classifier": _linear(jnp, model.classifier),
    }
    widths = [len(bias) for part in ("head", "classifier") for _, bias in numbers[part][:-1]]

    def masks_of(key: Any) -> Any:
        """The factors of dropout for the values between linear layers, of one call of the generator."""
        if not rate:
            return [1.0] * len(widths)
        mask = jax.random.bernoulli(key, 1 - rate, (len(samples), sum(widths)))
        return jnp.split(mask / (1 - rate), np.cumsum(widths)[:-1], 1)

    def layers(parts: list[tuple[Any, Any]], values: Any, masks: Any) -> Any:
        """Linear, and between two of them ReLU and dropout."""
        for number, (weight, bias) in enumerate(parts):
            if number:
                values = jax.nn.relu(values) * masks[number - 1]
            values = values @ weight.T + bias
        return values

    def loss_of(numbers: dict[str, Any], key: Any) -> Any:
        masks, between = masks_of(key), len(numbers["head"]) - 1
        angles = jnp.tanh(layers(numbers["head"], samples, masks[:between]))
        logits = layers(numbers["classifier"], circuit(angles, numbers["weights"]), masks[between:])
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], 1).mean()

    def take(numbers: Any, means: Any, squares: Any, count: Any, key: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(numbers, jax.random.fold_in(key, count))
        norm = jnp.sqrt(sum((part**2).sum() for part in jax.tree.leaves(gradients)))
        limit = protocol.clip_norm or jnp.inf
        scale, (first, second) = jnp.minimum(1, limit / (norm + TINY)), BETAS
        rates = protocol.learning_rate / (1 - first ** (count + 1)), (1 - second ** (count + 1)) ** -0.5
        means = jax.tree.map(lambda m, g: first * m + (1 - first) * scale * g, means, gradients)
        squares = jax.tree.map(lambda s, g: second * s + (1 - second) * (scale * g) ** 2, squares, gradients)
        numbers = jax.tree.map(
            lambda p, m, s: p - rates[0] * m / (jnp.sqrt(s) * rates[1] + EPSILON), numbers, means, squares
        )
        return loss, numbers, means, squares, count + 1

    compiled = jax.jit(take, donate_argnums=(0, 1, 2, 3))
    state = [numbers, *(jax.tree.map(jnp.zeros_like, numbers) for _ in range(2)), jnp.zeros(())]
    key = jax.random.key(steps.SEED)

    def call() -> Any:
        loss, *state[:] = compiled(*state, key)
        return loss.block_until_ready()

    return call


def disagreement(case: steps.ModelCase) -> str | None:
    """Why its losses are not those of the trainer's steps, without dropout; None where they are."""
    reference, actual = step(case, 0.0), steps.step(case, "fused", dropout=0.0)
    for number in range(COMPARED):
        loss, expected = float(reference()), float(actual())
        if not abs(loss - expected) <= TOLERANCE * abs(expected):
            return f"loss {number}: {loss:.6g}, the trainer has {expected:.6g}"
    return None


def _linear(jnp: Any, layers: torch.nn.Sequential) -> list[tuple[Any, Any]]:
    return [
        (_array(jnp, layer.weight), _array(jnp, layer.bias))
        for layer in layers
        if isinstance(layer, torch.nn.Linear)
    ]


def _array(jnp: Any, tensor: torch.Tensor) -> Any:
    return jnp.array(tensor.detach().numpy())
