"""What the simulators on JAX share: the device, and one compiled value-and-gradient of a case."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ketscale.bench.cases import Call, Case
from ketscale.errors import UserError
from ketscale.optional import needed_for


class Xla:
    """JAX with its computations on one device.

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

    def allow_double(self, allowed: bool) -> None:
        """Let arrays be in fp64; global, so a call must be made before another simulator changes it."""
        self.jax.config.update("jax_enable_x64", allowed)

    def call(self, case: Case, values: Callable[[Any, Any], Any]) -> Call:
        """See `Subject.prepare`; `values` gives the expectation values (words,) of one row of inputs and weights."""
        jax = self.jax
        inputs, weights, coefficients = (
            jax.device_put(part, self._device) for part in (case.inputs, case.weights, case.coefficients)
        )

        def loss(inputs: Any, weights: Any) -> Any:
            return (jax.vmap(values, (0, None))(inputs, weights) * coefficients).sum()

        function = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))

        def call() -> tuple[Any, ...]:
            value, gradients = jax.block_until_ready(function(inputs, weights))
            return value, *gradients

        return call
