"""Open quantum systems under piecewise-constant controls: their dynamics, exact or integrated, and its derivatives.

    system = qubit()
    controls = torch.randn(200, 20, 2, dtype=torch.float64, requires_grad=True)
    rho = propagator("exact").state(system, Tasks(controls, duration=1.0))
    loss = 1 - fidelity(rho, system.targets["x"]).mean()
    loss.backward()

`system` and `systems` define what evolves, `noise` its rates and `states` what is read from the result. `registry` lists the
propagators, and `factory` makes one by its name. `basis` turns the Lindblad equation into a real linear system
(`generators`), which is evolved as `evolution` says: by `cpu` with the machine code of `kernels`, or by `plain` with torch's
operators. `literal` is the published way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ketscale.engines.dynamics.factory import propagator
    from ketscale.engines.dynamics.noise import noise_rates, relaxation_rates, transition_rates
    from ketscale.engines.dynamics.states import fidelity, violations
    from ketscale.engines.dynamics.system import System
    from ketscale.engines.dynamics.systems import coupled_qubits, qubit, transmon
    from ketscale.engines.dynamics.tasks import Tasks

_MODULES = {
    "propagator": "factory",
    "noise_rates": "noise",
    "relaxation_rates": "noise",
    "transition_rates": "noise",
    "fidelity": "states",
    "violations": "states",
    "System": "system",
    "coupled_qubits": "systems",
    "qubit": "systems",
    "transmon": "systems",
    "Tasks": "tasks",
}
__all__ = [
    "System", "Tasks", "coupled_qubits", "fidelity", "noise_rates", "propagator", "qubit", "relaxation_rates",
    "transition_rates", "transmon", "violations",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a name on first use, since checks of configs need no torch."""
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
