"""The family `gates`: piecewise-constant pulses that make a cyclic shift of the levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from ketscale.config import Data, Family, Metric, Model, Settings, Simulator, SizeAxis, Workload

if TYPE_CHECKING:
    import torch

    from ketscale.problems.problem import Problem


class Shift(Workload, frozen=True, kw_only=True):
    """Level j goes to level j + 1, the last to the first."""

    time: Annotated[float, Meta(gt=0, description="Of the whole gate, in units of the inverse coupling")] = (
        4.0
    )
    effort: Annotated[float, Meta(ge=0, description="Weight of the mean squared amplitude in the loss")] = 0.0


class Pulses(Model, frozen=True, kw_only=True):
    """Two amplitudes a segment, each with its own Hermitian operator."""

    implementation: ClassVar[str] = "ketscale.problems.gates.problem:Pulses"


class Propagator(Simulator, frozen=True, kw_only=True):
    """How a segment's Hamiltonian is exponentiated."""

    devices: ClassVar[tuple[str, ...]] = ("matrix-exponential", "eigenbasis")

    device: Literal["matrix-exponential", "eigenbasis"]


def build(settings: Settings, data: Data, device: torch.device) -> Problem:
    """The gate of the run."""
    from ketscale.problems.gates.problem import Gate

    return Gate(settings)


FAMILY = Family(
    name="gates",
    title="gates",
    samples="columns",
    sizes=(SizeAxis("d", "levels", "levels"), SizeAxis("s", "segments", "control segments")),
    sampler="all",
    workloads={"shift": Shift},
    models={"pulses": Pulses},
    simulators=(Propagator,),
    metrics=(Metric("infidelity", "infidelity", "", "down"),),
    build=build,
)
