"""dynamiqs in double precision, as its documentation says for batches: compiled, and differentiated by JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.dynamics import ControlTasks
from benchmarks.gates import GateTasks
from benchmarks.peers.on_jax import amplitude_of, differentiated, imported
from benchmarks.pulses import DrivenChain
from benchmarks.runner import Call

# The adaptive integrator's tolerance for a gate, for an error below that of 5,000 midpoint steps.
GATE_TOLERANCE = 1e-9


class Control:
    """One batched and compiled `mesolve`, as dynamiqs-expm or dynamiqs-tsit5 with its tolerance behind it."""

    most: int | None = None

    def __init__(self, name: str) -> None:
        self._dynamiqs = imported("dynamiqs")
        self.exact = name == "dynamiqs-expm"
        self._tolerance = None if self.exact else float(name.removeprefix("dynamiqs-tsit5-"))

    def prepare(self, tasks: ControlTasks) -> Call:
        """See `dynamics.Own.prepare`."""
        dq = self._dynamiqs
        dq.set_precision("double")
        jnp, system = imported("jax.numpy"), tasks.system
        tolerances = {"rtol": self._tolerance, "atol": self._tolerance}
        method = dq.method.Expm() if self.exact else dq.method.Tsit5(**tolerances)
        drift = sum(system.parameters[name] * each for name, each in system.drift.items())
        times = np.linspace(0, tasks.duration, tasks.controls.shape[1] + 1)
        start = dq.asqarray(np.diag([1.0 + 0j] + [0.0] * (system.dimension - 1)))
        target = jnp.asarray(system.projector(tasks.target))

        def values(controls: Any, rates: Any) -> Any:
            hamiltonian = dq.asqarray(drift)
            for number, operator in enumerate(system.controls.values()):
                hamiltonian = hamiltonian + dq.pwc(times, controls[:, :, number], dq.asqarray(operator))
            jumps = [
                dq.asqarray(jnp.sqrt(rates[:, number])[:, None, None] * operator)
                for number, operator in enumerate(system.jumps.values())
            ]
            arguments = hamiltonian, jumps, start, np.array([0.0, tasks.duration])
            result = dq.mesolve(*arguments, method=method, cartesian_batching=False, progress_meter=False)
            return jnp.einsum("bij,ji->b", result.final_state.to_jax(), target).real

        return differentiated(values, tasks.controls, tasks.rates)


class Gates:
    """One batched and compiled `sepropagator` of gates without noise, by the exponential of each segment."""

    def __init__(self, name: str) -> None:
        self._dynamiqs = imported("dynamiqs")

    def prepare(self, tasks: GateTasks) -> Call:
        """See `gates.Own.prepare`."""
        dq = self._dynamiqs
        dq.set_precision("double")
        jnp, segments = imported("jax.numpy"), tasks.controls.shape[1]
        times = tasks.tau * np.arange(segments + 1)
        target, size = jnp.asarray(tasks.target.conj()), float(np.linalg.norm(tasks.target)) ** 2

        def infidelities(controls: Any) -> Any:
            hamiltonian = dq.asqarray(tasks.drift)
            for number, operator in enumerate(tasks.operators):
                hamiltonian = hamiltonian + dq.pwc(times, controls[:, :, number], dq.asqarray(operator))
            made = dq.sepropagator(hamiltonian, times[[0, -1]], method=dq.method.Expm(), progress_meter=False)
            overlaps = jnp.einsum("ij,bij->b", target, made.final_propagator.to_jax())
            return 1 - jnp.abs(overlaps) ** 2 / size**2

        return differentiated(infidelities, tasks.controls)


class Gate:
    """One compiled `sesolve` of all columns by Tsit5. It is given matrices, so that it differentiates by the pulses alone."""

    steps: int | None = None

    def __init__(self, name: str) -> None:
        self._dynamiqs = imported("dynamiqs")

    def prepare(self, chain: DrivenChain) -> Call:
        """See `pulses.Own.prepare`. The time is counted in pulse lengths, as the length is one of the parameters."""
        dq, (undriven, drives, places) = self._dynamiqs, chain.matrices()
        dq.set_precision("double")
        jnp = imported("jax.numpy")
        states = [dq.asqarray(np.eye(len(undriven), dtype=complex)[:, [place]]) for place in places]
        method = dq.method.Tsit5(rtol=GATE_TOLERANCE, atol=GATE_TOLERANCE, max_steps=10**6)

        def infidelity(pulses: Any) -> Any:
            duration = pulses[3].max()
            hamiltonian = dq.constant(duration * dq.asqarray(undriven))
            for number, drive in enumerate(drives):
                amplitude = amplitude_of(pulses[:, number], duration)
                hamiltonian = hamiltonian + dq.modulated(amplitude, dq.asqarray(drive))
            span = np.array([0.0, 1.0])
            result = dq.sesolve(hamiltonian, dq.stack(states), span, method=method, progress_meter=False)
            final = result.final_state.to_jax()[:, :, 0]
            overlap = final[jnp.arange(len(places)), jnp.asarray(places[::-1])].mean()
            return 1 - jnp.abs(overlap) ** 2

        return differentiated(infidelity, np.stack([each.numpy() for each in chain.driven]))
