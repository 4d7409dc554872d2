"""The integrators, one line each. Imports nothing heavy, since configs are checked with it at every start."""

from __future__ import annotations

from dataclasses import dataclass

from ketscale.engines.pulses import schemes


@dataclass(frozen=True)
class PulseMethod:
    """A way to evolve columns under pulses.

    name: in configs (`device`) and in Python. implementation: what builds an `evolution.SteppingMethod`, as 'package.module:Name';
    it takes those of `scheme` and `route` that it names as arguments. scheme: its coefficients. compiled: whether there is
    machine code for it, so that it takes `route: compiled`.
    """

    name: str
    implementation: str
    scheme: schemes.Scheme | schemes.MagnusScheme
    compiled: bool = False


_ROOM = "ketscale.engines.pulses"
_SPLIT = f"{_ROOM}.splitting:SplitSteps"

# published: SuperGrad's own, exponential midpoint with circuits, couplings and drives split from one another, of order 1 or 2.
# trotter: the same with only the couplings split from the driven circuits. suzuki4: of order 4, in time too.
# interaction: the driven sites are evolved nearly exactly, so that the error is that of the couplings; interaction4 is of
# order 4 where its layers of couplings commute, otherwise of order 2 with a small error.
# magnus6: commutator-free, with exponentials of the whole Hamiltonian as matrices: slower, and an independent reference.
SIMULATORS: dict[str, PulseMethod] = {
    method.name: method
    for method in (
        PulseMethod("published1", _SPLIT, schemes.published(1), compiled=True),
        PulseMethod("published2", _SPLIT, schemes.published(2), compiled=True),
        PulseMethod("trotter1", _SPLIT, schemes.sequential(), compiled=True),
        PulseMethod("trotter2", _SPLIT, schemes.midpoint(), compiled=True),
        PulseMethod("suzuki4", _SPLIT, schemes.midpoint(schemes.SUZUKI), compiled=True),
        PulseMethod("interaction2", _SPLIT, schemes.interaction((0.5, 0.5), (1.0,), 4), compiled=True),
        PulseMethod("interaction4", _SPLIT, schemes.interaction(*schemes.BLANES_MOAN, 4), compiled=True),
        PulseMethod("magnus6", f"{_ROOM}.magnus:DenseMagnus", schemes.SIXTH),
    )
}

DEVICES = tuple(SIMULATORS)

# Names of earlier versions, and what has a smaller error in less time.
REPLACED = {
    "trotter4": "suzuki4",
    "magnus4": "interaction4",
    "magnus4-chebyshev": "interaction4",
    "magnus6-chebyshev": "interaction4",
}
