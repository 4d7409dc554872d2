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
_SPLIT = f"{_ROOM}.split_steps:SplitSteps"
_DENSE, _CHEBYSHEV = f"{_ROOM}.magnus:DenseMagnus", f"{_ROOM}.magnus:ChebyshevMagnus"

# published: SuperGrad's own, exponential midpoint with circuits, couplings and drives split from one another, of order 1 or 2.
# trotter: the same with only the couplings split from the driven circuits, of order 1, 2 or 4; in time it is of order 2.
# suzuki4: of order 4 in time too. interaction: the driven sites are evolved nearly exactly, so that the error is that of the
# couplings; interaction4 is of order 4 where its layers of couplings commute, otherwise of order 2 with a small error.
# magnus: of order 4 or 6, with exponentials as matrices or by Chebyshev series.
SIMULATORS: dict[str, PulseMethod] = {
    method.name: method
    for method in (
        PulseMethod("published1", _SPLIT, schemes.published(1), compiled=True),
        PulseMethod("published2", _SPLIT, schemes.published(2), compiled=True),
        PulseMethod("trotter1", _SPLIT, schemes.sequential(), compiled=True),
        PulseMethod("trotter2", _SPLIT, schemes.midpoint(), compiled=True),
        PulseMethod("trotter4", _SPLIT, schemes.midpoint(schemes.SUZUKI, frozen=True), compiled=True),
        PulseMethod("suzuki4", _SPLIT, schemes.midpoint(schemes.SUZUKI), compiled=True),
        PulseMethod("interaction2", _SPLIT, schemes.interaction((0.5, 0.5), (1.0,), 4), compiled=True),
        PulseMethod("interaction4", _SPLIT, schemes.interaction(*schemes.BLANES_MOAN, 4), compiled=True),
        PulseMethod("magnus4", _DENSE, schemes.FOURTH),
        PulseMethod("magnus6", _DENSE, schemes.SIXTH),
        PulseMethod("magnus4-chebyshev", _CHEBYSHEV, schemes.FOURTH),
        PulseMethod("magnus6-chebyshev", _CHEBYSHEV, schemes.SIXTH),
    )
}

DEVICES = tuple(SIMULATORS)
