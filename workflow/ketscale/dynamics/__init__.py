"""The dynamics of small quantum systems, closed or open, and their derivatives: what a notebook imports.

    from ketscale import dynamics as kd

    system = kd.transmon(levels=3)
    controls = torch.randn(64, 40, 2, dtype=torch.float64, requires_grad=True)
    qubit = system.computational_states
    final = kd.evolve(system, controls, 20.0, kind="unitary", initial=qubit)
    loss = 1 - kd.average_gate_fidelity(final, kd.gate("x"), qubit).mean()
    loss.backward()

`chains` makes systems of sites, `evolution` evolves them, `gates` and `frames` say what is aimed at, and `fidelities` how
well it was met. `pulses` has pulses ready-made, and `optimise` finds their numbers. Systems and kernels are those of `engines.dynamics`. Units are the caller's: hbar is 1, and an angular
frequency times a duration is an angle; the ready-made systems have rad/ns and ns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ketscale.dynamics.chains import chain, embedded, from_device
    from ketscale.dynamics.evolution import error_estimate, evolve
    from ketscale.dynamics.fidelities import average_gate_fidelity, ket_fidelity, leakage, process_fidelity
    from ketscale.dynamics.frames import Frame, bare_frame, dressed_frame
    from ketscale.dynamics.gates import gate
    from ketscale.dynamics.optimisation import optimise, optimise_each
    from ketscale.dynamics.optimised import Optimised
    from ketscale.dynamics.pulses import Cosine, Drag, Fourier, Gaussian, Piecewise, Pulse
    from ketscale.engines.dynamics.noise import noise_rates, relaxation_rates, transition_rates
    from ketscale.engines.dynamics.states import fidelity, violations
    from ketscale.engines.dynamics.system import System
    from ketscale.engines.dynamics.systems import coupled_qubits, qubit, transmon
    from ketscale.engines.pulses.devices import fluxonium_chain, transmon_chain
    from ketscale.engines.pulses.limits import Limits

_FRONT, _ENGINE = "ketscale.dynamics", "ketscale.engines.dynamics"
_HOMES = {
    "Cosine": f"{_FRONT}.pulses",
    "Drag": f"{_FRONT}.pulses",
    "Fourier": f"{_FRONT}.pulses",
    "Frame": f"{_FRONT}.frames",
    "Gaussian": f"{_FRONT}.pulses",
    "Limits": "ketscale.engines.pulses.limits",
    "Optimised": f"{_FRONT}.optimised",
    "Piecewise": f"{_FRONT}.pulses",
    "Pulse": f"{_FRONT}.pulses",
    "System": f"{_ENGINE}.system",
    "average_gate_fidelity": f"{_FRONT}.fidelities",
    "bare_frame": f"{_FRONT}.frames",
    "chain": f"{_FRONT}.chains",
    "coupled_qubits": f"{_ENGINE}.systems",
    "dressed_frame": f"{_FRONT}.frames",
    "embedded": f"{_FRONT}.chains",
    "error_estimate": f"{_FRONT}.evolution",
    "evolve": f"{_FRONT}.evolution",
    "fidelity": f"{_ENGINE}.states",
    "fluxonium_chain": "ketscale.engines.pulses.devices",
    "from_device": f"{_FRONT}.chains",
    "gate": f"{_FRONT}.gates",
    "ket_fidelity": f"{_FRONT}.fidelities",
    "leakage": f"{_FRONT}.fidelities",
    "noise_rates": f"{_ENGINE}.noise",
    "optimise": f"{_FRONT}.optimisation",
    "optimise_each": f"{_FRONT}.optimisation",
    "process_fidelity": f"{_FRONT}.fidelities",
    "qubit": f"{_ENGINE}.systems",
    "relaxation_rates": f"{_ENGINE}.noise",
    "transition_rates": f"{_ENGINE}.noise",
    "transmon": f"{_ENGINE}.systems",
    "transmon_chain": "ketscale.engines.pulses.devices",
    "violations": f"{_ENGINE}.states",
}
__all__ = [
    "Cosine", "Drag", "Fourier", "Frame", "Gaussian", "Limits", "Optimised", "Piecewise", "Pulse", "System",
    "average_gate_fidelity", "bare_frame", "chain", "coupled_qubits", "dressed_frame", "embedded",
    "error_estimate", "evolve", "fidelity", "fluxonium_chain", "from_device", "gate", "ket_fidelity", "leakage", "noise_rates",
    "optimise", "optimise_each", "process_fidelity", "qubit", "relaxation_rates", "transition_rates", "transmon", "transmon_chain",
    "violations",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a name on first use, since it brings torch."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
