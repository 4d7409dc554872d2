"""The pulses from which training begins: the published amplitudes, in resonance with the dressed qubits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ketscale.engines.operators import check_pairs, embedded
from ketscale.engines.pulses.circuits import TWO_PI
from ketscale.engines.pulses.devices import Device
from ketscale.engines.pulses.drives import Cosine, Pulses
from ketscale.engines.pulses.frame import Frame, dressed_frame
from ketscale.engines.pulses.published import CROSS_RESONANCE, ONE_QUBIT
from ketscale.errors import UserError

# How far the published start of a gate rotates each qubit, in turns.
X_TURN = 0.5
HADAMARD_TURN = 0.25


@torch.no_grad()
def rotations(
    device: Device, turn: float = X_TURN, length: float = ONE_QUBIT, sites: Sequence[int] | None = None
) -> Pulses:
    """A resonant cosine pulse on each of the sites (None: all), whose area rotates its qubit by this turn; phase 0.

    amplitude = turn 2 (2 pi) / (length |phi_01|). The frequency and the matrix element phi_01 of the drive are those of
    the dressed states with all other qubits in 0, at two levels a site.

    Raises:
        UserError: a site does not exist, or the dressed states have no names (see `frame.dressed_frame`).
    """
    system = device.system(2, sites)
    frame = dressed_frame(system)
    driven = system.terms("controls").values()
    elements = torch.stack(
        [_element(frame, drive.operator, drive.sites[0], device.sites).abs() for drive in driven]
    )
    frequency = torch.stack([_frequency(frame, drive.sites[0], device.sites) for drive in driven])
    return _at_once(turn * 2 * TWO_PI / (length * elements), frequency, length)


@torch.no_grad()
def cross_resonance(
    device: Device, pairs: Sequence[tuple[int, int]], length: float = CROSS_RESONANCE
) -> Pulses:
    """A cosine pulse on the control of each pair, at the frequency of its target; phase 0.

    amplitude = (pi / 2) detuning / (J length), where J = |J_C n_01 n_01' + J_L phi_01 phi_01'| is the pair's effective
    coupling, of dressed states as in `rotations`. The pulses are on the controls, in the order of the pairs.

    Such a pulse rotates the target to and fro. For a CNOT up to virtual Z, the target needs a rotation of its own beside
    it: `together` with `rotations` of the targets.

    Raises:
        UserError: a pair is not coupled, or as for `rotations`.
    """
    check_pairs(pairs, device.sites)
    frame = dressed_frame(device.system(2))
    terms = device.terms(device.circuits.levels(2))
    amplitude, frequency = [], []
    for control, target in pairs:
        places = [place for place, pair in enumerate(device.pairs) if set(pair) == {control, target}]
        if not places:
            raise UserError(
                f"pairs: {control} and {target} are not coupled; choose from {', '.join(map(str, device.pairs))}"
            )
        coupling = terms[0][1].new_zeros(())
        for strength, operators in terms:
            elements = [_element(frame, operators[site], site, device.sites) for site in (control, target)]
            coupling = coupling + strength[places[0]] * elements[0] * elements[1]
        if coupling == 0:
            raise UserError(
                f"pairs: the coupling of {control} and {target} is 0; give them another, or choose another pair"
            )
        resonance = _frequency(frame, target, device.sites)
        detuning = (resonance - _frequency(frame, control, device.sites)).abs()
        amplitude.append(math.pi / 2 * detuning / (coupling.abs() * length))
        frequency.append(resonance)
    return _at_once(torch.stack(amplitude), torch.stack(frequency), length)


def together(first: Pulses, second: Pulses) -> Pulses:
    """Cosine pulses on the drives of the first, and then on those of the second, all of which begin at once.

    Raises:
        UserError: the envelopes are not cosines of one kind of ramp.
    """
    one, other = first.envelope, second.envelope
    if not (isinstance(one, Cosine) and isinstance(other, Cosine) and one.ramp == other.ramp):
        raise UserError("together: joins cosine pulses whose ramps are the same fraction of their length")
    return Pulses(
        Cosine(torch.cat([one.amplitude, other.amplitude]), one.ramp),
        *(
            torch.cat([getattr(first, name), getattr(second, name)])
            for name in ("frequency", "phase", "length")
        ),
    )


def _frequency(frame: Frame, site: int, qubits: int) -> torch.Tensor:
    """The frequency of the dressed qubit, all others in 0; rad/ns."""
    return frame.energies[_single(qubits, site)] - frame.energies[0]


def _element(frame: Frame, operator: torch.Tensor, site: int, qubits: int) -> torch.Tensor:
    """<0|operator|1> of the dressed qubit, all others in 0."""
    image = embedded(operator, (site,), (2,) * qubits) @ frame.states[:, _single(qubits, site)]
    element: torch.Tensor = frame.states[:, 0].conj() @ image
    return element


def _single(qubits: int, site: int) -> int:
    """The number of the computational state in which only this qubit is 1."""
    return 1 << (qubits - 1 - site)


def _at_once(amplitude: torch.Tensor, frequency: torch.Tensor, length: float) -> Pulses:
    return Pulses(
        Cosine(amplitude), frequency, torch.zeros_like(frequency), torch.full_like(frequency, length)
    )
