"""Superconducting processors under microwave pulses: circuits, devices, and pulses with carriers; `ketscale.dynamics` evolves them.

    device = fluxonium_chain(2)
    system, pulses = device.system(levels=3), rotations(device)
    frame = kd.dressed_frame(system)
    final = kd.evolve(system, pulses, kind="unitary", initial=frame.states, method="interaction4", dt=0.1)
    amplitudes = frame.amplitudes(final, pulses.duration)
    infidelity = 1 - kd.process_fidelity(amplitudes, kd.gate("x", 2), virtual_z=True)

Angular frequencies are in rad/ns and times in ns; only the energies of circuits are in GHz. `circuits` diagonalises
circuits (`eigenstates` has the derivatives), `devices` couples them to a `System`.
`drives` makes pulses, `starts` the published ones. `integrators` evolve, in steps that
meet the segments of pulses. `frame` has the states in which a gate is read, `virtual_z` the phases that software corrects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ketscale.lazy import on_first_use

if TYPE_CHECKING:
    from ketscale.engines.pulses.circuits import Fluxoniums, Transmons, spread
    from ketscale.engines.pulses.devices import Device, fluxonium_chain, fluxonium_lattice, transmon_chain
    from ketscale.engines.pulses.drives import Cosine, Pulses, Segments, segmented
    from ketscale.engines.pulses.starts import cross_resonance, rotations, together
    from ketscale.engines.pulses.virtual_z import best_angles

__all__ = [
    "Cosine", "Device", "Fluxoniums", "Pulses", "Segments", "Transmons", "best_angles", "cross_resonance",
    "fluxonium_chain", "fluxonium_lattice", "rotations", "segmented", "spread", "together", "transmon_chain",
]  # fmt: skip

__getattr__ = on_first_use(
    __name__,
    {
        "ketscale.engines.pulses.circuits": "Fluxoniums Transmons spread",
        "ketscale.engines.pulses.devices": "Device fluxonium_chain fluxonium_lattice transmon_chain",
        "ketscale.engines.pulses.drives": "Cosine Pulses Segments segmented",
        "ketscale.engines.pulses.starts": "cross_resonance rotations together",
        "ketscale.engines.pulses.virtual_z": "best_angles",
    },
)
