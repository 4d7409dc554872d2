"""The settings of an integrator. Imports nothing heavy, since configs are checked with it at every start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from ketscale.config import Settings, Simulator
from ketscale.engines.dynamics.methods import Route
from ketscale.engines.pulses.schemes import DEVICES
from ketscale.engines.quantities import Step

if TYPE_CHECKING:
    Device = str
else:
    Device = Literal[DEVICES]


class PulseSimulator(Simulator, frozen=True, kw_only=True):
    """How columns are evolved under pulses, and differentiated."""

    devices: ClassVar[tuple[str, ...]] = DEVICES

    # fmt: off
    device: Annotated[Device, Meta(description="trotter2: exponential midpoint with couplings split from driven sites, "
        "in order 2; suzuki4: in order 4; interaction4: driven sites nearly exactly, so that the error is that of the "
        "couplings (of order 4 where layers of couplings commute, otherwise of order 2); whole-space: commutator-free of "
        "order 6, with the exact propagator of the whole system")]
    dt: Annotated[Step, Meta(description="Largest step, ns; all steps of a pulse are equal")]
    route: Annotated[Route, Meta(description="compiled: machine code, on the CPU; torch: torch's operators; auto: "
        "compiled on the CPU, else torch")] = "auto"
    tolerance: Annotated[float, Meta(gt=0, description="The largest relative difference of its losses from exact "
        "ones, as measured; parity allows it")]
    # fmt: on

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Compiled code computes on the CPU only."""
        run = settings.run
        if self.route == "compiled" and settings.on_gpu:
            yield (
                f"simulator {run.simulator} has route: compiled, for the CPU only, but backend {run.layout} trains on a GPU; "
                "use route: auto or torch"
            )
