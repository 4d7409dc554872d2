"""Control tasks in plain JAX, as one would write them: Taylor steps in a scan over segments, mapped over tasks, compiled."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.dynamics import ControlTasks
from benchmarks.peers.liouville import liouvillians
from benchmarks.peers.on_jax import differentiated, imported
from benchmarks.runner import Call

# Terms of the series, and the largest norm of a step that they are exact for.
TERMS, REACH = 16, 1.0


class Control:
    """The series of the exponential, applied to the state in steps of equal length."""

    most: int | None = None
    exact = True

    def __init__(self, name: str) -> None:
        imported("jax")

    def prepare(self, tasks: ControlTasks) -> Call:
        """See `dynamics.Own.prepare`."""
        jax = imported("jax")
        jax.config.update("jax_enable_x64", True)
        jnp, tau = jax.numpy, tasks.duration / tasks.controls.shape[1]
        drift, controlled, jumps, target = map(jnp.asarray, liouvillians(tasks))
        sizes = (jnp.abs(each).sum(-1).max() for each in (drift, *controlled, *jumps))
        weights = (1.0, *abs(tasks.controls).max((0, 1)), *tasks.rates.max(0))
        steps = math.ceil(tau * sum(w * size for w, size in zip(weights, sizes, strict=True)) / REACH)
        start = jnp.zeros(len(drift), dtype=complex).at[0].set(1)

        def value(controls: Any, rates: Any) -> Any:
            fixed = drift + jnp.einsum("j,jab->ab", rates, jumps)

            def step(state: Any, amplitudes: Any) -> tuple[Any, None]:
                generator = tau / steps * (fixed + jnp.einsum("k,kab->ab", amplitudes, controlled))
                term = state
                for number in range(1, TERMS + 1):
                    term = generator @ term / number
                    state = state + term
                return state, None

            return (jax.lax.scan(step, start, jnp.repeat(controls, steps, 0))[0] @ target).real

        return differentiated(jax.vmap(value), tasks.controls, tasks.rates)
