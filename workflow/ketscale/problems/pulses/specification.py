"""The family `pulses`: gates of superconducting processors, made by microwave pulses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from ketscale.config import Data, Family, Metric, Model, Settings, SizeAxis
from ketscale.config.circuits import CIRCUIT_SIZES
from ketscale.problems.pulses.workloads import (
    FluxoniumChain,
    FluxoniumLattice,
    PulseSimulator,
    PulseWorkload,
    TransmonChain,
)

if TYPE_CHECKING:
    import torch

    from ketscale.problems.problem import Problem

Trained = Annotated[tuple[Literal["amplitude", "frequency", "phase", "length", "device"], ...], Meta(min_length=1,
    description="What is trained. amplitude, frequency, phase, length: of the pulses; device: all energies, fluxes and "
    "couplings of the device")]  # fmt: skip


class PulseSettings(Model, frozen=True, kw_only=True):
    """One pulse on each drive, which begins as the published one."""

    former: ClassVar[Mapping[str, Any]] = MappingProxyType({"start_spread": 0.02})

    # Subclasses have it with a default of their own.
    trains: tuple[str, ...]

    def faults(self) -> Iterator[str]:
        """Each is named once."""
        if len(set(self.trains)) < len(self.trains):
            yield "trains: names something twice; leave it out once"


class CosineSettings(PulseSettings, frozen=True, kw_only=True):
    """Cosine ramps up to an amplitude and down again, without a plateau, on a carrier."""

    implementation: ClassVar[str] = "ketscale.problems.pulses.shapes:CosinePulse"
    former: ClassVar[Mapping[str, Any]] = MappingProxyType({**PulseSettings.former, "ramp": 0.5})

    trains: Trained = ("amplitude", "frequency", "phase", "length")


class PiecewiseSettings(PulseSettings, frozen=True, kw_only=True):
    """Segments of constant amplitude, in phase and in quadrature with a carrier; one length for all drives."""

    implementation: ClassVar[str] = "ketscale.problems.pulses.shapes:PiecewisePulse"
    control: ClassVar[str | None] = "cosine_pulse"

    trains: Trained = ("amplitude",)
    # fmt: off
    segments: Annotated[int, Meta(ge=1, le=10_000, description="Segments of an envelope, of equal length")] = 50
    # fmt: on


def build(settings: Settings, data: Data, device: torch.device) -> Problem:
    """The gate of a run, with its model and integrator.

    Raises:
        UserError: the device or the gate's pairs are impossible.
    """
    from ketscale.engines.pulses.starts import HADAMARD_TURN, X_TURN
    from ketscale.problems import models
    from ketscale.problems.pulses.gate import GateProblem
    from ketscale.problems.pulses.shapes import PulseModel, described, start

    workload, simulator = settings.workload, settings.simulator
    assert isinstance(workload, PulseWorkload)
    assert isinstance(simulator, PulseSimulator)
    qubits, levels = settings.sizes["qubits"], settings.sizes["levels"]
    chip = workload.device(qubits)
    turn = X_TURN if workload.gate in ("x", "y") else HADAMARD_TURN
    arguments: dict[str, Any] = {
        "device": described(chip),
        "begins": start(chip, turn, workload.pairs if workload.on_pairs else (), workload.start_length),
    }
    model = models.of_settings(settings, None, **arguments)
    assert isinstance(model, PulseModel)
    model.scatter(settings.run.seed)
    return GateProblem(model, workload, simulator, qubits, levels, arguments)


def work(sizes: Mapping[str, int]) -> float:
    """Amplitudes of a column."""
    return float(sizes["levels"] ** sizes["qubits"])


WORKLOADS: dict[str, type[PulseWorkload]] = {
    "fluxonium-chain": FluxoniumChain,
    "fluxonium-lattice": FluxoniumLattice,
    "transmon-chain": TransmonChain,
}

FAMILY = Family(
    name="pulses",
    title="pulses",
    samples="columns",
    sizes=(CIRCUIT_SIZES[0], SizeAxis("d", "levels", "levels")),
    sampler="all",
    workloads=dict(WORKLOADS),
    models={"cosine_pulse": CosineSettings, "piecewise_pulse": PiecewiseSettings},
    simulators=(PulseSimulator,),
    metrics=(
        Metric("infidelity", "infidelity", "", "down", chance="data"),
        Metric("leakage", "population outside the qubits' states", "", "down"),
        # The run's integrator makes it; see `GateProblem`.
        Metric("simulator_error", "largest error of a column", "", "down", about="error"),
    ),
    build=build,
    work=work,
)
