"""Control tasks and gates in plain JAX, as a careful colleague writes them: mapped over tasks, compiled.

plain-jax takes Taylor steps of the states in a scan over segments, plain-jax-expm the exponentials of all segments at once, by
a Taylor polynomial of order 16 in six products (Paterson and Stockmeyer), scaled and squared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.dynamics import ControlTasks
from benchmarks.gates import GateTasks
from benchmarks.peers.liouville import liouvillians
from benchmarks.peers.on_jax import differentiated, imported
from benchmarks.runner import Call

TERMS, REACH, SCALED = 16, 0.8, 0.78  # terms, and the largest norms of a step, and of what is squared


def series(norm: float) -> Callable[[Any, Any], tuple[Any, Any]]:
    """A step of a scan: states after exp(G), and once more, for generators G of this norm at most."""
    jax, steps = imported("jax"), max(1, math.ceil(norm / REACH))

    def step(_: Any, given: Any) -> Any:
        states, generator = given
        term = states
        for number in range(1, TERMS + 1):
            term = generator @ term / (number * steps)
            states = states + term
        return states, generator

    def segment(states: Any, generator: Any) -> tuple[Any, Any]:
        states, _ = jax.lax.fori_loop(0, steps, step, (states, generator))
        return states, states

    return segment


def exponential(generators: Any, norm: float) -> Any:
    """exp(G) of generators (..., n, n) of this norm at most."""
    jnp, squares = imported("jax.numpy"), max(0, math.ceil(math.log2(norm / SCALED)))
    one = generators / 2.0**squares
    two = one @ one
    powers = (jnp.eye(one.shape[-1]), one, two, two @ one)
    four, result = two @ two, powers[0] / math.factorial(TERMS)
    for first in range(12, -1, -4):
        result = four @ result + sum(each / math.factorial(first + k) for k, each in enumerate(powers))
    for _ in range(squares):
        result = result @ result
    return result


class Control:
    """Overlaps with the target, at the end or at the ends of all segments."""

    most: int | None = None
    exact = True

    def __init__(self, name: str) -> None:
        imported("jax").config.update("jax_enable_x64", True)
        self._whole = name == "plain-jax-expm"

    def prepare(self, tasks: ControlTasks) -> Call:
        """See `dynamics.Own.prepare`."""
        jax, jnp, tau = imported("jax"), imported("jax.numpy"), tasks.duration / tasks.controls.shape[1]
        matrices = liouvillians(tasks)
        norms = (abs(each).sum(-1).max() for each in (matrices[0], *matrices[1], *matrices[2]))
        largest = (1.0, *abs(tasks.controls).max((0, 1)), *tasks.rates.max(0))
        norm = tau * float(sum(np.multiply(largest, [*norms])))
        drift, controlled, jumps, target = map(jnp.asarray, matrices)
        start = jnp.zeros(len(drift), dtype=complex).at[0].set(1)

        def value(controls: Any, rates: Any) -> Any:
            fixed = drift + jnp.einsum("j,jab->ab", rates, jumps)
            given = tau * (fixed + jnp.einsum("sk,kab->sab", controls, controlled))
            if self._whole:
                final, states = jax.lax.scan(lambda s, each: (each @ s,) * 2, start, exponential(given, norm))
            else:
                final, states = jax.lax.scan(series(norm), start, given)
            result = jnp.concatenate([start[None], states]) if tasks.trajectory else final
            return (result @ target).real

        return differentiated(jax.vmap(value), tasks.controls, tasks.rates)


class Gates(Control):
    """The series of the exponential, applied to all computational states."""

    def prepare(self, tasks: GateTasks) -> Call:  # type: ignore[override]
        """See `gates.Own.prepare`."""
        jax, jnp = imported("jax"), imported("jax.numpy")
        drift, operators, start = map(jnp.asarray, (tasks.drift, tasks.operators, tasks.states))
        target = jnp.asarray((tasks.target @ tasks.states).conj())
        size = float(np.linalg.norm(tasks.target)) ** 2

        def infidelity(controls: Any) -> Any:
            arguments = -1j * tasks.tau * (drift + jnp.einsum("sk,kab->sab", controls, operators))
            final, _ = jax.lax.scan(series(tasks.reach), start.astype(complex), arguments)
            return 1 - jnp.abs((target * final).sum()) ** 2 / size**2

        return differentiated(jax.vmap(infidelity), tasks.controls)
