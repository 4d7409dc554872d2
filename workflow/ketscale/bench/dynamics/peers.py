"""Other packages under test, each used as its documentation says for batches, in double precision."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from ketscale.bench.dynamics.case import Array, Call, Case
from ketscale.errors import UserError

# Tolerance of adaptive integrators, for an error of about 1e-9.
TOLERANCE = 1e-11


def imported(name: str) -> Any:
    """The module of this name; raises UserError where its package is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(f"{name} is not here ({error}): make env-dynamics-bench has it") from None


class Qutip:
    """QuTiP: the exponential of each segment's Liouvillian, task by task. It has no gradients: only values are timed."""

    most: int | None = 2

    def __init__(self) -> None:
        self._qutip = imported("qutip")

    def prepare(self, case: Case) -> Call:
        """See `Subject.prepare`."""
        qutip, system = self._qutip, case.system
        drift = sum(system.parameters[name] * qutip.Qobj(each) for name, each in system.drift.items())
        controls = [qutip.liouvillian(qutip.Qobj(each)) for each in system.controls.values()]
        jumps = [qutip.lindblad_dissipator(qutip.Qobj(each)) for each in system.jumps.values()]
        fixed = qutip.liouvillian(drift)
        start = qutip.operator_to_vector(qutip.Qobj(np.diag([1.0] + [0.0] * (system.dimension - 1))))
        target = qutip.Qobj(system.projector(case.target))
        tau = case.duration / case.controls.shape[1]

        def value(amplitudes: Array, rates: Array) -> float:
            noise = fixed + sum(rate * each for rate, each in zip(rates.tolist(), jumps, strict=True))
            state = start
            for row in amplitudes.tolist():
                generator = noise + sum(u * each for u, each in zip(row, controls, strict=True))
                state = (tau * generator).expm() * state
            return float((qutip.vector_to_operator(state) * target).tr().real)

        def call() -> tuple[Array, None]:
            return np.array([value(*each) for each in zip(case.controls, case.rates, strict=True)]), None

        return call


class Dynamiqs:
    """dynamiqs: one batched and compiled `mesolve`, differentiated by JAX."""

    most: int | None = None

    def __init__(self, method: str) -> None:
        self._dynamiqs = imported("dynamiqs")
        self._method = method

    def prepare(self, case: Case) -> Call:
        """See `Subject.prepare`."""
        dq = self._dynamiqs
        dq.set_precision("double")
        jnp, system = imported("jax.numpy"), case.system
        method = (
            dq.method.Expm() if self._method == "expm" else dq.method.Tsit5(rtol=TOLERANCE, atol=TOLERANCE)
        )
        drift = sum(system.parameters[name] * each for name, each in system.drift.items())
        times = np.linspace(0, case.duration, case.controls.shape[1] + 1)
        start = dq.asqarray(np.diag([1.0 + 0j] + [0.0] * (system.dimension - 1)))
        target = jnp.asarray(system.projector(case.target))

        def values(controls: Any, rates: Any) -> Any:
            hamiltonian = dq.asqarray(drift)
            for number, operator in enumerate(system.controls.values()):
                hamiltonian = hamiltonian + dq.pwc(times, controls[:, :, number], dq.asqarray(operator))
            jumps = [
                dq.asqarray(jnp.sqrt(rates[:, number])[:, None, None] * operator)
                for number, operator in enumerate(system.jumps.values())
            ]
            result = dq.mesolve(
                hamiltonian,
                jumps,
                start,
                np.array([0.0, case.duration]),
                method=method,
                cartesian_batching=False,
                progress_meter=False,
            )
            return jnp.einsum("bij,ji->b", result.final_state.to_jax(), target).real

        return _jax_call(case, values)


class QiskitDynamics:
    """Qiskit Dynamics: a vectorised Lindblad solver with JAX, mapped over tasks, exact for constant segments."""

    most: int | None = None

    def __init__(self) -> None:
        self._solver = imported("qiskit_dynamics")

    def prepare(self, case: Case) -> Call:
        """See `Subject.prepare`."""
        jax, system = imported("jax"), case.system
        jax.config.update("jax_enable_x64", True)
        jnp, dynamics = jax.numpy, self._solver
        tau = case.duration / case.controls.shape[1]
        solver = dynamics.Solver(
            static_hamiltonian=sum(system.parameters[name] * each for name, each in system.drift.items()),
            hamiltonian_operators=np.array(list(system.controls.values())),
            dissipator_operators=np.array(list(system.jumps.values())),
            array_library="jax",
            vectorized=True,
        )
        d = system.dimension
        start = jnp.zeros(d * d, dtype=complex).at[0].set(1)
        # Columns are stacked: Tr(rho sigma) is the product with the transpose's columns.
        target = jnp.asarray(system.projector(case.target).T.flatten(order="F"))

        def value(controls: Any, rates: Any) -> Any:
            signals = [dynamics.DiscreteSignal(tau, controls[:, k]) for k in range(controls.shape[1])]
            noise = [dynamics.Signal(rates[k]) for k in range(rates.shape[0])]
            result = solver.solve(
                t_span=[0.0, case.duration],
                y0=start,
                signals=(signals, noise),
                convert_results=False,
                method="jax_expm",
                max_dt=tau,
            )
            return (result.y[-1] @ target).real

        return _jax_call(case, jax.vmap(value))


def _jax_call(case: Case, values: Callable[[Any, Any], Any]) -> Call:
    jax = imported("jax")

    def total(controls: Any, rates: Any) -> tuple[Any, Any]:
        found = values(controls, rates)
        return found.sum(), found

    compiled = jax.jit(jax.value_and_grad(total, has_aux=True))
    controls, rates = jax.numpy.asarray(case.controls), jax.numpy.asarray(case.rates)

    def call() -> tuple[Array, Array]:
        (_, found), gradient = compiled(controls, rates)
        return np.asarray(found), np.asarray(gradient)

    return call
