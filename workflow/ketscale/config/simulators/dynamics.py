"""The settings of a propagator. Imports nothing heavy, since configs are checked with it at every start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from ketscale.config import Simulator
from ketscale.engines.dynamics.methods import DEVICES, SIMULATORS, Batching, Creation, DynamicsMethod, Route
from ketscale.engines.quantities import Step

if TYPE_CHECKING:
    Device = str
else:
    Device = Literal[DEVICES]

_IN_WORDS: dict[Batching, str] = {"broadcast": "all tasks at once", "loop": "one task after the other"}


class DynamicsSimulator(Simulator, frozen=True, kw_only=True):
    """How the dynamics of tasks are evaluated and differentiated."""

    devices: ClassVar[tuple[str, ...]] = DEVICES

    # fmt: off
    device: Annotated[Device, Meta(description="exact: the exponential of each segment's Liouvillian; rk4, euler: "
        "integrators with a step")]
    batching: Annotated[Batching, Meta(description="broadcast: all tasks at once; loop: one after the other, step by "
        "step, as published")] = "broadcast"
    dt: Annotated[Step, Meta(description="Step of an integrator, a time in the same unit as the pulse's duration: "
        "with broadcast the longest one, with loop as many as fit into a segment, as published")] | None = None
    route: Annotated[Route, Meta(description="With broadcast. compiled: machine code, on the CPU; torch: torch's "
        "operators; auto: compiled on the CPU, else torch")] = "auto"
    cache: Annotated[bool, Meta(description="With loop. true: what is created for a task (rates from its spectrum, "
        "operators) is kept for its next evaluations, as published; false: it is created again in each")] = False
    tolerance: Annotated[float, Meta(gt=0, description="The largest relative difference of an integrator's losses "
        "from those of exact, as measured; parity allows it")] | None = None
    # fmt: on

    @property
    def stacks(self) -> bool:
        """Whether several runs' tasks are one batch: a loop would take as long for them as before."""
        return self.batching == "broadcast"

    @property
    def method(self) -> DynamicsMethod | None:
        """The propagator with this device and batching; None if there is none."""
        key = (self.device, self.batching)
        return next((each for each in SIMULATORS.values() if (each.device, each.batching) == key), None)

    @property
    def creation(self) -> Creation:
        """When tasks are created."""
        return "batch" if self.batching == "broadcast" else "once" if self.cache else "again"

    def faults(self) -> Iterator[str]:
        """An integrator has a step and a tolerance, exact has neither; only some have a route, and only a loop a cache."""
        method = self.method
        if method is None:
            others = [each for each in SIMULATORS.values() if each.device == self.device]
            yield f"batching: {self.device} evolves {' or '.join(_IN_WORDS[each.batching] for each in others)} only"
            return
        for name, value in (("dt", self.dt), ("tolerance", self.tolerance)):
            if method.exact and value is not None:
                yield f"{name}: {self.device} does not support it; leave it out"
            if not method.exact and value is None:
                yield f"{name}: {self.device} needs one"
        if not method.routes and self.route != "auto":
            yield f"route: {self.device} with batching: {self.batching} does not support it; leave it out"
        if self.batching != "loop" and self.cache:
            yield "cache: only a loop creates something for each task; leave it out, or use batching: loop"
