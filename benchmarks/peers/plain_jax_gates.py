"""Gates in plain JAX, as one would write them: Taylor steps in a scan over segments, mapped over pulses, compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.gates import GateTasks
from benchmarks.peers.on_jax import differentiated, imported
from benchmarks.runner import Call

# Terms of the series, and the largest norm of a step that they are exact for.
TERMS, REACH = 16, 0.8


class Gates:
    """The series of the exponential, applied to all computational states in steps of equal length."""

    def __init__(self, name: str) -> None:
        imported("jax")

    def prepare(self, tasks: GateTasks) -> Call:
        """See `gates.Own.prepare`."""
        jax = imported("jax")
        jax.config.update("jax_enable_x64", True)
        jnp, steps = jax.numpy, math.ceil(tasks.reach / REACH)
        drift, operators, start = map(jnp.asarray, (tasks.drift, tasks.operators, tasks.states))
        target = jnp.asarray((tasks.target @ tasks.states).conj())
        size = float(np.linalg.norm(tasks.target)) ** 2

        def infidelity(controls: Any) -> Any:
            def step(columns: Any, amplitudes: Any) -> tuple[Any, None]:
                hamiltonian = drift + jnp.einsum("k,kab->ab", amplitudes, operators)
                term = columns
                for number in range(1, TERMS + 1):
                    term = (-1j * tasks.tau / steps / number) * (hamiltonian @ term)
                    columns = columns + term
                return columns, None

            final = jax.lax.scan(step, start, jnp.repeat(controls, steps, 0))[0]
            return 1 - jnp.abs((target * final).sum()) ** 2 / size**2

        return differentiated(jax.vmap(infidelity), tasks.controls)
