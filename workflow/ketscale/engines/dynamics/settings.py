"""The settings of a propagator. Imports nothing heavy, since configs are checked with it at every start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from ketscale.config import STEP, TOLERANCE, Simulator
from ketscale.engines.dynamics.methods import USUAL, Creation, Method, Route, Scheme


class DynamicsSimulator(Simulator, frozen=True, kw_only=True):
    """How the dynamics of tasks are evaluated and differentiated."""

    devices: ClassVar[tuple[str, ...]] = tuple(dict.fromkeys(method.scheme for method in USUAL.values()))

    device: Annotated[
        Scheme,
        Meta(
            description="exact: the exponential of each segment's Liouvillian; rk4, euler: integrators with a step"
        ),
    ]
    batching: Annotated[
        Literal["broadcast", "loop"],
        Meta(
            description="broadcast: all tasks at once; loop: one after the other, step by step, as published"
        ),
    ] = "broadcast"
    dt: (
        Annotated[
            float,
            Meta(gt=0, description="Step of an integrator, a time in the same unit as the pulse's duration"),
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
                description="Of an integrator: the largest relative difference of its losses from those of exact, as "
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
    def method(self) -> Method:
        """Scheme and batching."""
        return Method(self.device, self.batching)

    @property
    def creation(self) -> Creation:
        """When tasks are created."""
        return "batch" if self.batching == "broadcast" else "once" if self.cache else "again"

    def faults(self) -> Iterator[str]:
        """An integrator has a step and a tolerance, exact has neither; only a loop has a cache, and it has no route."""
        if self.method not in USUAL.values():
            yield f"batching: {self.device} evolves all tasks at once only; use broadcast, or rk4 or euler"
        for name, value in ((STEP, self.dt), (TOLERANCE, self.tolerance)):
            if self.method.exact and value is not None:
                yield f"{name}: exact has none; leave it out"
            if not self.method.exact and value is None:
                yield f"{name}: {self.device} needs one"
        if self.batching == "loop" and self.route != "auto":
            yield "route: a loop has none; leave it out"
        if self.batching != "loop" and self.cache:
            yield "cache: only a loop creates something for each task; leave it out, or use batching: loop"
