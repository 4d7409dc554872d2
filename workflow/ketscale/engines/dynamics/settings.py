"""The propagators, one line each, their settings, and limits. Imports nothing heavy, since configs are checked with it at every start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from ketscale.config import STEP, TOLERANCE, Simulator
from ketscale.engines.quantities import Step

Batching = Literal["broadcast", "loop"]


@dataclass(frozen=True)
class DynamicsMethod:
    """A way to evolve tasks.

    name: its usual name, in Python. device, batching: the settings that choose it in a config; broadcast: all tasks of a
    batch at once, loop: one after the other. implementation: what builds a `propagators.Propagator`, as
    'package.module:Name'; it takes those of the settings, of `scheme` (the device) and of `strict` that it names as arguments.
    exact: whether its only error is rounding; otherwise it has steps of length `dt` and a tolerance. routes: whether it takes
    the setting `route`.
    """

    name: str
    device: str
    batching: Batching
    implementation: str
    exact: bool = False
    routes: bool = False


_ROOM = "ketscale.engines.dynamics"
_BATCHED, _PUBLISHED = f"{_ROOM}.propagators:Batched", f"{_ROOM}.literal:PublishedLoop"

SIMULATORS: dict[str, DynamicsMethod] = {
    method.name: method
    for method in (
        DynamicsMethod("exact", "exact", "broadcast", _BATCHED, exact=True, routes=True),
        DynamicsMethod("rk4", "rk4", "broadcast", _BATCHED, routes=True),
        DynamicsMethod("euler", "euler", "broadcast", _BATCHED, routes=True),
        DynamicsMethod("literal", "rk4", "loop", _PUBLISHED),
        DynamicsMethod("literal-euler", "euler", "loop", _PUBLISHED),
    )
}

DEVICES = tuple(dict.fromkeys(method.device for method in SIMULATORS.values()))


if TYPE_CHECKING:
    Device = str
else:
    Device = Literal[DEVICES]

# The fidelity with a pure target; see `ketscale.dynamics.fidelity`.
Form = Literal["overlap", "squared"]
Route = Literal["auto", "compiled", "torch"]
# When what is made of tasks' numbers is created: for all tasks at once; or for each by itself, once (published, with its
# cache) or again in each evaluation (without).
Creation = Literal["batch", "once", "again"]

# More steps in a segment are taken for a mistake in `dt`: a single pulse would take minutes.
MOST_STEPS = 1_000_000
# The same of `exact`, which divides long segments by itself: a single pulse takes seconds, in which a state turns by
# 350,000 radians (fp32: 220,000).
MOST_EXACT_STEPS = 100_000

_IN_WORDS: dict[Batching, str] = {"broadcast": "all tasks at once", "loop": "one task after the other"}


class DynamicsSimulator(Simulator, frozen=True, kw_only=True):
    """How the dynamics of tasks are evaluated and differentiated."""

    devices: ClassVar[tuple[str, ...]] = DEVICES

    device: Annotated[
        Device,
        Meta(
            description="exact: the exponential of each segment's Liouvillian; rk4, euler: integrators with a step"
        ),
    ]
    batching: Annotated[
        Batching,
        Meta(
            description="broadcast: all tasks at once; loop: one after the other, step by step, as published"
        ),
    ] = "broadcast"
    dt: (
        Annotated[
            Step,
            Meta(
                description="Step of an integrator, a time in the same unit as the pulse's duration: with broadcast the longest "
                "one, with loop as many as fit into a segment, as published",
            ),
        ]
        | None
    ) = None
    route: Annotated[
        Route,
        Meta(
            description="With broadcast. compiled: machine code, on the CPU; torch: torch's operators; auto: compiled "
            "on the CPU, else torch"
        ),
    ] = "auto"
    cache: Annotated[
        bool,
        Meta(
            description="With loop. true: what is created for a task (rates from its spectrum, operators) is kept for its "
            "next evaluations, as published; false: it is created again in each"
        ),
    ] = False
    tolerance: (
        Annotated[
            float,
            Meta(
                gt=0,
                description="The largest relative difference of an integrator's losses from those of exact, as "
                "measured; parity allows it",
            ),
        ]
        | None
    ) = None

    @property
    def stacks(self) -> bool:
        """Whether several runs' tasks are one batch: a loop would take as long for them as before."""
        return self.batching == "broadcast"

    @property
    def method(self) -> DynamicsMethod | None:
        """The propagator with this device and batching; None if there is none."""
        chosen = (self.device, self.batching)
        return next((each for each in SIMULATORS.values() if (each.device, each.batching) == chosen), None)

    @property
    def creation(self) -> Creation:
        """When tasks are created."""
        return "batch" if self.batching == "broadcast" else "once" if self.cache else "again"

    def faults(self) -> Iterator[str]:
        """An integrator has a step and a tolerance, exact has neither; only some have a route, and only a loop a cache."""
        method = self.method
        if method is None:
            yield from self._without_method()
            return
        for name, value in ((STEP, self.dt), (TOLERANCE, self.tolerance)):
            if method.exact and value is not None:
                yield f"{name}: {self.device} has none; leave it out"
            if not method.exact and value is None:
                yield f"{name}: {self.device} needs one"
        if not method.routes and self.route != "auto":
            yield f"route: {self.device} with batching: {self.batching} has none; leave it out"
        if self.batching != "loop" and self.cache:
            yield "cache: only a loop creates something for each task; leave it out, or use batching: loop"

    def _without_method(self) -> Iterator[str]:
        """The device has the other batching only."""
        others = [each.device for each in SIMULATORS.values() if each.batching == self.batching]
        for each in SIMULATORS.values():
            if each.device == self.device:
                yield (
                    f"batching: {self.device} evolves {_IN_WORDS[each.batching]} only; use {each.batching}, or device "
                    f"{' or '.join(others)}"
                )
