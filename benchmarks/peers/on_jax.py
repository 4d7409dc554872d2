"""What the peers on JAX share: the device, and one compiled value-and-gradient."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.circuits import Call, Loss
from ketscale.errors import UserError
from ketscale.optional import needed_for


def imported(name: str) -> Any:
    """A module of the environment of dynamics; raises UserError where its package is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(f"{name} is not here ({error}): make env-dynamics-bench has it") from None


def differentiated(function: Callable[..., Any], *arguments: Any) -> Call:
    """A compiled call in double precision: one or several real numbers, and the gradient of their sum.

    The gradient is by the first of the arguments, and flat where there is one number.
    """
    jax = imported("jax")
    jax.config.update("jax_enable_x64", True)

    def total(*arguments: Any) -> tuple[Any, Any]:
        result = function(*arguments)
        return result.sum(), result

    compiled = jax.jit(jax.value_and_grad(total, has_aux=True))
    inputs = [jax.numpy.asarray(each) for each in arguments]

    def call() -> tuple[Any, Any]:
        (_, result), gradient = compiled(*inputs)
        numbers, gradient = np.asarray(result), np.asarray(gradient)
        return (numbers, gradient) if numbers.ndim else (float(numbers), gradient.flatten())

    return call


def amplitude_of(pulse: Any, duration: Any) -> Callable[[Any], Any]:
    """A cosine pulse times the duration, as a function of the part of it that has passed."""
    jnp = imported("jax.numpy")
    amplitude, frequency, phase, length = pulse

    def value(part: Any) -> Any:
        t = part * duration
        rising = (1 - jnp.cos(2 * jnp.pi * t / length)) / 2
        return jnp.where(t <= length, duration * amplitude * rising * jnp.cos(frequency * t + phase), 0.0)

    return value


class Jax:
    """JAX with the computations of a circuit's loss on one device.

    Raises:
        UserError: JAX is not installed, or has no such device.
    """

    def __init__(self, simulator: str, device: str) -> None:
        # Otherwise JAX takes most of a GPU's memory at its start, and leaves none to torch.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")
        with needed_for(f"simulator {simulator}"):
            import jax
        self.jax: Any = jax
        try:
            self._device = jax.devices(device)[0]
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"simulator {simulator}: JAX has no {device} device ({reason})") from None
        # Products of fp32 matrices would lose digits on a GPU's tensor cores.
        jax.config.update("jax_default_matmul_precision", "highest")

    def call(self, loss: Loss, values: Callable[[Any, Any], Any]) -> Call:
        """See `Simulator.prepare`; `values` gives the expectation values (words,) of one row of inputs and weights."""
        jax = self.jax
        inputs, weights, coefficients = (
            jax.device_put(part, self._device) for part in (loss.inputs, loss.weights, loss.coefficients)
        )

        def total(inputs: Any, weights: Any) -> Any:
            return (jax.vmap(values, (0, None))(inputs, weights) * coefficients).sum()

        function = jax.jit(jax.value_and_grad(total, argnums=(0, 1)))

        def call() -> tuple[Any, ...]:
            value, gradients = jax.block_until_ready(function(inputs, weights))
            return value, *gradients

        return call
