"""The models: pulses whose numbers are trained, with the device that they drive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import nn

from ketscale.engines import randomness
from ketscale.engines.pulses import (
    Cosine,
    Device,
    Fluxoniums,
    Pulses,
    Segments,
    Transmons,
    cross_resonance,
    fluxonium_chain,
    rotations,
    segmented,
    together,
)
from ketscale.engines.pulses.published import ONE_QUBIT
from ketscale.engines.pulses.starts import HADAMARD_TURN, X_TURN

START = randomness.RandomStream("pulses.start")
# Standard deviation of the start from the published one, relative (amplitudes), in rad (phases) and in rad over the pulse's
# length (frequencies).
SPREAD = 0.02

CIRCUITS: dict[str, type[Fluxoniums | Transmons]] = {"fluxoniums": Fluxoniums, "transmons": Transmons}
COUPLINGS = ("capacitive", "inductive")


def start(device: Device, turn: float, pairs: Sequence[tuple[int, int]], length: float) -> dict[str, Any]:
    """The published pulses of a gate as plain values, which are kept with a model: of each drive its site, amplitude
    and frequency, rad/ns; and their length, ns.

    turn: of each qubit, if there are no pairs. Pairs have cross resonance on the first of each, the published start of a
    CNOT, and a rotation of the second, both at once and over the whole length. The drives of the first come first.

    Raises:
        UserError: a pair is not coupled, or the dressed states have no names.
    """
    if pairs:
        targets = [target for _, target in pairs]
        pulses = together(
            cross_resonance(device, pairs, length), rotations(device, HADAMARD_TURN, length, targets)
        )
        sites = [control for control, _ in pairs] + targets
    else:
        pulses = rotations(device, turn, length)
        sites = list(range(device.sites))
    return {
        "sites": sites,
        "amplitude": pulses.envelope.modulus().tolist(),
        "frequency": pulses.frequency.tolist(),
        "length": length,
    }


def described(device: Device) -> dict[str, Any]:
    """A device as plain values, which are kept with a model."""
    kind = next(name for name, circuits in CIRCUITS.items() if isinstance(device.circuits, circuits))
    circuits = {
        field.name: getattr(device.circuits, field.name).tolist() for field in fields(device.circuits)
    }
    couplings = {name: getattr(device, name) for name in COUPLINGS}
    return {
        "kind": kind,
        "circuits": circuits,
        "pairs": [list(pair) for pair in device.pairs],
        "couplings": {name: values.tolist() for name, values in couplings.items() if values is not None},
    }


class DeviceParameters(nn.Module):
    """The parameters of a device: relative changes of energies and couplings, and shifts of fluxes and offsets.

    description: see `described`. trained: whether they are.
    """

    def __init__(self, description: Mapping[str, Any], trained: bool) -> None:
        super().__init__()
        self.kind = CIRCUITS[description["kind"]]
        self.pairs = tuple((first, second) for first, second in description["pairs"])
        self._couplings = tuple(description["couplings"])
        values_of = {
            **description["circuits"],
            **{f"{n}_coupling": v for n, v in description["couplings"].items()},
        }
        for name, values in values_of.items():
            default = torch.tensor(values, dtype=torch.float64)
            self.register_buffer(f"usual_{name}", default, persistent=False)
            self.register_parameter(name, nn.Parameter(torch.zeros_like(default), requires_grad=trained))

    def forward(self) -> Device:
        """The device."""
        circuits = self.kind(**{field.name: self._value(field.name) for field in fields(self.kind)})
        couplings = {
            name: self._value(f"{name}_coupling") if name in self._couplings else None for name in COUPLINGS
        }
        return Device(circuits, self.pairs, **couplings)  # type: ignore[arg-type]

    def _value(self, name: str) -> torch.Tensor:
        # Not get_parameter: where gradients are followed, other tensors replace the parameters.
        default, change = self.get_buffer(f"usual_{name}"), getattr(self, name)
        relative = name.endswith("_coupling") or name in self.kind.energies
        return default * (1 + change) if relative else default + change


class PulseModel(nn.Module, ABC):
    """One pulse on each drive of a device.

    qubits: of the device that is made if none is given, the published chain. device: see `described`. begins: see
    `start`; if not given, X on each qubit. trains: the names of what is trained.
    """

    # A subclass makes it: the logarithm of the lengths over the usual one, of one drive each or of all.
    length: nn.Parameter

    def __init__(
        self,
        qubits: int = 1,
        device: Mapping[str, Any] | None = None,
        begins: Mapping[str, Any] | None = None,
        trains: Sequence[str] = (),
    ) -> None:
        super().__init__()
        if device is None:
            device = described(fluxonium_chain(qubits))
        self.device = DeviceParameters(device, "device" in trains)
        if begins is None:
            with torch.no_grad():
                begins = start(self.device(), X_TURN, [], ONE_QUBIT)
        self.sites: tuple[int, ...] = tuple(begins["sites"])
        self._trains = tuple(trains)
        self.usual_length: float = begins["length"]
        for name in ("amplitude", "frequency"):
            values = torch.tensor(begins[name], dtype=torch.float64)
            self.register_buffer(f"usual_{name}", values, persistent=False)
        drives = len(self.sites)
        # In rad over the usual length, and in rad.
        self.frequency = self._parameter("frequency", torch.zeros(drives))
        self.phase = self._parameter("phase", torch.zeros(drives))

    def _parameter(self, name: str, values: torch.Tensor) -> nn.Parameter:
        return nn.Parameter(values.double(), requires_grad=name in self._trains)

    @torch.no_grad()
    def scatter(self, seed: int) -> None:
        """Add a normal number times `SPREAD` to each parameter of amplitudes, frequencies and phases that is trained."""
        for number, name in enumerate(("amplitude", "frequency", "phase")):
            parameter = self.get_parameter(name)
            if parameter.requires_grad:
                index = torch.arange(parameter.numel())
                pairs = randomness.uniform(START.key(seed, 0, number), index, 2)
                # Box and Muller; 1 - u is never 0.
                normal = (-2 * (1 - pairs[:, 0]).log()).sqrt() * (2 * torch.pi * pairs[:, 1]).cos()
                parameter.add_(normal.view_as(parameter), alpha=SPREAD)

    @abstractmethod
    def envelope(self, default: bool) -> Cosine | Segments:
        """The envelopes; default: of the published pulses in this shape."""

    def forward(self) -> Pulses:
        """The pulses."""
        return self._pulses(self.envelope(default=False), self.frequency, self.phase, self.length)

    def default_pulses(self) -> Pulses:
        """The published pulses in this shape, where training begins apart from `scatter`."""
        unchanged = (torch.zeros_like(each) for each in (self.frequency, self.phase, self.length))
        return self._pulses(self.envelope(default=True), *unchanged)

    def _pulses(
        self, envelope: Cosine | Segments, frequency: torch.Tensor, phase: torch.Tensor, length: torch.Tensor
    ) -> Pulses:
        carrier = self.get_buffer("usual_frequency") + frequency / self.usual_length
        return Pulses(envelope, carrier, phase, self.usual_length * length.exp())


class CosinePulse(PulseModel):
    """Cosine ramps without a plateau. The amplitude's parameter is a relative change."""

    def __init__(
        self,
        qubits: int = 1,
        device: Mapping[str, Any] | None = None,
        begins: Mapping[str, Any] | None = None,
        trains: Sequence[str] = ("amplitude", "frequency", "phase", "length"),
    ) -> None:
        super().__init__(qubits, device, begins, trains)
        drives = len(self.sites)
        self.amplitude = self._parameter("amplitude", torch.zeros(drives))
        self.length = self._parameter("length", torch.zeros(drives))

    def envelope(self, default: bool) -> Cosine | Segments:
        """See `PulseModel.envelope`."""
        amplitude = self.get_buffer("usual_amplitude")
        return Cosine(amplitude if default else amplitude * (1 + self.amplitude))


class PiecewisePulse(PulseModel):
    """Constant segments. The amplitude's parameters are in units of the usual one; they begin as a cosine."""

    def __init__(
        self,
        qubits: int = 1,
        device: Mapping[str, Any] | None = None,
        begins: Mapping[str, Any] | None = None,
        trains: Sequence[str] = ("amplitude",),
        segments: int = 50,
    ) -> None:
        super().__init__(qubits, device, begins, trains)
        like = torch.ones(len(self.sites), dtype=torch.float64)
        self.amplitude = self._parameter("amplitude", segmented(Cosine(like), segments).amplitude)
        self.length = self._parameter("length", torch.zeros(()))

    def envelope(self, default: bool) -> Cosine | Segments:
        """See `PulseModel.envelope`."""
        amplitude = self.get_buffer("usual_amplitude")
        if default:
            return segmented(Cosine(amplitude), self.amplitude.shape[1])
        return Segments(amplitude[:, None, None] * self.amplitude)
