"""`transmon-ring`: transmons in a ring, each coupled with both of its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ketscale.config import Seed
from ketscale.problems.pulses.workloads import PulseWorkload

if TYPE_CHECKING:
    from ketscale.engines.pulses import Device


class TransmonRing(PulseWorkload, frozen=True, kw_only=True):
    """E_J falls by a step from each circuit to the next, so that their frequencies differ; none is made exactly."""

    charging: Annotated[float, Meta(gt=0, description="E_C, GHz")] = 0.2
    josephson: Annotated[float, Meta(gt=0, description="E_J of the first circuit, GHz")] = 18.0
    falls: Annotated[float, Meta(gt=0, lt=1, description="Step of E_J, as a share of the first")] = 0.1
    coupling: Annotated[float, Meta(description="J_C of neighbours, GHz")] = 0.01
    spread: Annotated[float, Meta(ge=0, lt=0.1, description="Relative deviation of the energies")] = 0.01
    seed: Annotated[Seed, Meta(description="Of the spread")] = 0

    def device(self, qubits: int) -> Device:
        import torch

        from ketscale.engines.pulses import Device
        from ketscale.engines.pulses.circuits import Transmons, spread

        number = torch.arange(qubits, dtype=torch.float64)
        planned = Transmons(
            torch.full_like(number, self.charging),
            self.josephson * (1 - self.falls) ** number,
            torch.zeros_like(number),
        )
        pairs = tuple(sorted({tuple(sorted((site, (site + 1) % qubits))) for site in range(qubits)}))
        strengths = torch.full((len(pairs),), self.coupling, dtype=torch.float64)
        return Device(spread(planned, self.spread, self.seed), pairs, strengths, None)
