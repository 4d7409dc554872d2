"""Superconducting processors under microwave pulses: what is evolved, and what is read from the result.

    device = fluxonium_chain(2)
    system = device.system(levels=3)
    pulses = rotations(device)
    frame = dressed_frame(system)
    final = evolve(system, pulses, frame.states.T, dt=0.1)
    amplitudes = frame.amplitudes(final.T, pulses.duration).T
    rows = row_overlaps(amplitudes, gate("x", 2).T)
    infidelity = 1 - fidelity(rows, columns=4, virtual_z=True)

A column of the unitary is one evolved state, and a row of tensors that are evolved and compared: states are (columns, d**n),
their amplitudes (columns, 2**n). Any of them may be left to others: `frame.states.T[indices]` and `gate("x", 2).T[indices]`.

Angular frequencies are in rad/ns and times in ns; only the energies of circuits are in GHz. `circuits` diagonalises
circuits (`eigenstates` has the derivatives), `devices` couples them to a `System`.
`drives` makes pulses, `starts` the published ones. `integrators` evolve, in steps that
meet the segments of pulses. `frame` and `virtual_z` compare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ketscale.lazy import on_first_use

if TYPE_CHECKING:
    from ketscale.engines.gates import gate
    from ketscale.engines.pulses.circuits import Fluxoniums, Transmons, spread
    from ketscale.engines.pulses.devices import Device, fluxonium_chain, fluxonium_lattice, transmon_chain
    from ketscale.engines.pulses.drives import Bounds, Cosine, Pulses, Segments, segmented
    from ketscale.engines.pulses.frame import (
        bare_frame,
        dressed_frame,
        fidelity,
        leakage,
        row_overlaps,
    )
    from ketscale.engines.pulses.integrators import Integrator, error_estimate, evolve, integrator
    from ketscale.engines.pulses.starts import cross_resonance, rotations, together
    from ketscale.engines.pulses.virtual_z import best_angles

__all__ = [
    "Bounds", "Cosine", "Device", "Fluxoniums", "Integrator", "Pulses", "Segments", "Transmons", "bare_frame", "best_angles",
    "cross_resonance", "dressed_frame", "error_estimate", "evolve", "fidelity", "fluxonium_chain", "fluxonium_lattice",
    "gate", "integrator", "leakage", "rotations", "row_overlaps", "segmented", "spread", "together",
    "transmon_chain",
]  # fmt: skip

__getattr__ = on_first_use(
    __name__,
    {
        "ketscale.engines.gates": "gate",
        "ketscale.engines.pulses.circuits": "Fluxoniums Transmons spread",
        "ketscale.engines.pulses.devices": "Device fluxonium_chain fluxonium_lattice transmon_chain",
        "ketscale.engines.pulses.drives": "Bounds Cosine Pulses Segments segmented",
        "ketscale.engines.pulses.frame": "bare_frame dressed_frame fidelity leakage row_overlaps",
        "ketscale.engines.pulses.integrators": "Integrator error_estimate evolve integrator",
        "ketscale.engines.pulses.starts": "cross_resonance rotations together",
        "ketscale.engines.pulses.virtual_z": "best_angles",
    },
)
