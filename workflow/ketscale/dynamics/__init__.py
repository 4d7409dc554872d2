"""The dynamics of small quantum systems, closed or open, and their derivatives: what a notebook imports.

    from ketscale import dynamics as kd

    system = kd.transmon(levels=3)
    controls = torch.randn(64, 40, 2, dtype=torch.float64, requires_grad=True)
    qubit = system.computational_states
    final = kd.evolve(system, controls, 20.0, kind="unitary", initial=qubit)
    loss = 1 - kd.average_gate_fidelity(final, kd.gate("x"), qubit).mean()
    loss.backward()

`chains` makes systems of sites, `evolution` evolves them and says how axes are ordered, `steady` has their steady states, and
`fidelities` says how well a target was met. `pulses` has pulses ready-made, and `optimise` finds their numbers. Systems and
kernels are those of `engines.dynamics`, and of `engines.pulses` for chains and pulses with carriers. Units are the caller's:
hbar is 1, and an angular frequency times a duration is an angle; the ready-made systems have rad/ns and ns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ketscale.lazy import on_first_use

if TYPE_CHECKING:
    from ketscale.dynamics.chains import chain
    from ketscale.dynamics.evolution import error_estimate, evolve
    from ketscale.dynamics.fidelities import (
        average_gate_fidelity,
        fidelity,
        ket_fidelity,
        leakage,
        process_fidelity,
        violations,
    )
    from ketscale.dynamics.optimisation import optimise, optimise_each
    from ketscale.dynamics.optimised import Optimised
    from ketscale.dynamics.pulses import Drag, Fourier, Gaussian, Piecewise, Pulse
    from ketscale.dynamics.steady import steady_state
    from ketscale.engines.dynamics.system import System
    from ketscale.engines.dynamics.systems import (
        noise_rates,
        qubit,
        relaxation_rates,
        transmon,
    )
    from ketscale.engines.gates import gate
    from ketscale.engines.operators import Term
    from ketscale.engines.pulses.devices import fluxonium_chain, transmon_chain
    from ketscale.engines.pulses.drives import Limits
    from ketscale.engines.pulses.frame import Frame, bare_frame, dressed_frame

__all__ = [
    "Drag", "Fourier", "Frame", "Gaussian", "Limits", "Optimised", "Piecewise", "Pulse", "System", "Term",
    "average_gate_fidelity", "bare_frame", "chain", "dressed_frame",
    "error_estimate", "evolve", "fidelity", "fluxonium_chain", "gate", "ket_fidelity", "leakage", "noise_rates",
    "optimise", "optimise_each", "process_fidelity", "qubit", "relaxation_rates", "steady_state", "transmon",
    "transmon_chain", "violations",
]  # fmt: skip

__getattr__ = on_first_use(
    __name__,
    {
        "ketscale.dynamics.chains": "chain",
        "ketscale.dynamics.evolution": "error_estimate evolve",
        "ketscale.dynamics.fidelities": "average_gate_fidelity fidelity ket_fidelity leakage process_fidelity violations",
        "ketscale.dynamics.optimisation": "optimise optimise_each",
        "ketscale.dynamics.optimised": "Optimised",
        "ketscale.dynamics.pulses": "Drag Fourier Gaussian Piecewise Pulse",
        "ketscale.dynamics.steady": "steady_state",
        "ketscale.engines.dynamics.system": "System",
        "ketscale.engines.dynamics.systems": "noise_rates qubit relaxation_rates transmon",
        "ketscale.engines.pulses.devices": "fluxonium_chain transmon_chain",
        "ketscale.engines.gates": "gate",
        "ketscale.engines.operators": "Term",
        "ketscale.engines.pulses.frame": "Frame bare_frame dressed_frame",
        "ketscale.engines.pulses.drives": "Limits",
    },
)
