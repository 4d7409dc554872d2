"""What an optimisation of a pulse found: numbers and arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.dynamics.evolution import evolve
from ketscale.dynamics.pulses import Pulse, split
from ketscale.engines.dynamics.system import System
from ketscale.shapes import Float64


@dataclass(frozen=True, eq=False)
class Optimised:
    """The best pulse of all starts, and what became of each.

    system: with the parameters and rates that were given, of an ensemble their means, of a list of systems the first.
    pulses: what was optimised. numbers: their parameters (starts, the sum of their sizes).
    durations, infidelities: at the end, (starts,). history: infidelities that each start had reached, (evaluations, starts).
        Of a cost these are its values.
    initial: the ket (d,) that begins, or of a gate the computational states (d, D). method, dt: see `evolve`.
    quantity: what was minimised, `infidelity` or `cost`.

    Example:
        >>> from ketscale import dynamics as kd
        >>> found = kd.optimise(kd.qubit(), "x", kd.Gaussian(segments=20), 1.0, starts=2, progress=False)
        >>> list(found.parameters[0])
        ['amplitude']
        >>> list(found.arrays())
        ['time', 'x', 'y', 'population_0', 'population_1', 'population_outside']
    """

    system: System
    pulses: tuple[Pulse, ...]
    numbers: torch.Tensor
    durations: torch.Tensor
    infidelities: torch.Tensor
    history: torch.Tensor
    initial: torch.Tensor
    method: str
    dt: float | None
    quantity: str

    def __repr__(self) -> str:
        """What was found: tensors would fill the screen."""
        evaluations, starts = self.history.shape
        return (
            f"Optimised({self.quantity}={self.infidelity:.3g}, duration={self.duration:g}, starts={starts}, "
            f"evaluations={evaluations}, method={self.method!r}, pulses={self.pulses})"
        )

    @cached_property
    def best(self) -> int:
        """The number of the best start."""
        return int(self.infidelities.nan_to_num(nan=torch.inf).argmin())

    @cached_property
    def controls(self) -> Float64[torch.Tensor, "segments controls"]:
        """The best start's."""
        parts = split(self.pulses, self.numbers[self.best])
        return torch.cat([pulse(part, self.duration) for pulse, part in parts], -1)

    @property
    def infidelity(self) -> float:
        """The best start's."""
        return float(self.infidelities[self.best])

    @property
    def duration(self) -> float:
        """The best pulse's."""
        return float(self.durations[self.best])

    @property
    def parameters(self) -> list[dict[str, torch.Tensor]]:
        """The parameters of each of the best pulses by name, see `Pulse.named`."""
        parts = split(self.pulses, self.numbers[self.best])
        return [pulse.named(part, self.durations[self.best]) for pulse, part in parts]

    @torch.no_grad()
    def populations(self, column: int = -1) -> dict[str, NDArray[np.float64]]:
        """The populations of the computational states over time, each (segments + 1,), by their bits, and `outside`.

        A gate's are those of its frame, a state's the bare ones; of a cost with columns, those of its `initial`, by number.

        column: with which computational state a gate begins; -1, the last, has each qubit in |1>, and 0 has each in |0>.
        """
        own = torch.from_numpy(self.system.computational_states.copy())
        ket, states = (
            (self.initial, own) if self.initial.ndim == 1 else (self.initial[:, column], self.initial)
        )
        states_of = evolve(
            self.system,
            self.controls,
            self.duration,
            initial=ket,
            method=self.method,
            dt=self.dt,
            trajectory=True,
        )
        if states_of.ndim == 2:
            shares = (states_of @ states.conj()).abs().square()
        else:
            shares = torch.einsum("dk,tde,ek->tk", states.conj(), states_of, states).real
        bits = (shares.shape[1] - 1).bit_length()
        shares_of = {f"{number:0{bits}b}": share.numpy() for number, share in enumerate(shares.T)}
        return {**shares_of, "outside": (1 - shares.sum(1)).numpy()}

    def arrays(self, column: int = -1) -> dict[str, NDArray[np.float64]]:
        """Over time, each (segments + 1,): `time`, the controls by name, and `populations` as `population_BITS`.

        A control is constant from its time to the next; at the end it is 0. column: see `populations`.
        """
        controls = np.pad(self.controls.numpy(), ((0, 1), (0, 0)))
        return {
            "time": np.linspace(0, self.duration, len(controls)),
            **dict(zip(self.system.controls, controls.T, strict=True)),
            **{f"population_{name}": values for name, values in self.populations(column).items()},
        }
