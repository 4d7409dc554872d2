"""The family `eeg`: trials of several channels over time, and models that classify them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from ketscale.config import METRICS, Baseline, Family, FileModel, Model, lazily
from ketscale.config.simulators.circuits import CIRCUIT_SIZES, CircuitSimulator
from ketscale.problems.datasets import build
from ketscale.problems.eeg.workloads import Eegmmidb, EegSynthetic, OwnSeries
from ketscale.problems.vectors.settings import MajoritySettings


class Classifier(Model, frozen=True, kw_only=True):
    """A classifier of trials."""

    has_dropout: ClassVar[bool] = True


class _Simplified(Classifier, frozen=True, kw_only=True):
    """A classifier whose published circuits are simplified exactly."""

    former: ClassVar[Mapping[str, Any]] = MappingProxyType({"literal": False})


class HydraSettings(_Simplified, frozen=True, kw_only=True):
    """Three circuit branches for each time step, in superposition."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.hydra:Hydra"
    control: ClassVar[str | None] = "classical_hydra"


class HydraHybridSettings(_Simplified, frozen=True, kw_only=True):
    """The branches of `hydra`, measured separately and mixed."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.hydra:HydraHybrid"
    control: ClassVar[str | None] = "classical_hydra"


class MambaSettings(Classifier, frozen=True, kw_only=True):
    """A convolution, the mean over time, and three circuits on amplitudes."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.mamba:Mamba"
    control: ClassVar[str | None] = "classical_mamba"


class MambaHybridSettings(_Simplified, frozen=True, kw_only=True):
    """A convolution, the mean over time, and three circuits on angles."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.mamba:MambaHybrid"
    control: ClassVar[str | None] = "classical_mamba"


class MambaLiteSettings(Classifier, frozen=True, kw_only=True):
    """The circuits of `mamba` for each time step."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.mamba:MambaLite"
    control: ClassVar[str | None] = "classical_mamba"


class MambaHybridLiteSettings(_Simplified, frozen=True, kw_only=True):
    """The circuits of `mamba_hybrid` for each time step."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.mamba:MambaHybridLite"
    control: ClassVar[str | None] = "classical_mamba"


class ClassicalMambaSettings(Classifier, frozen=True, kw_only=True):
    """Selective state-space blocks."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.state_space:ClassicalMamba"
    classical: ClassVar[bool] = True


class ClassicalHydraSettings(Classifier, frozen=True, kw_only=True):
    """State-space blocks in both directions of time."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.state_space:ClassicalHydra"
    classical: ClassVar[bool] = True


class CSPSettings(Baseline, frozen=True, kw_only=True):
    """Common spatial patterns with a linear discriminant."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.csp:CSP"


FAMILY = Family(
    name="eeg",
    title="EEG",
    samples="trials",
    sizes=CIRCUIT_SIZES,
    sampler="shuffled",
    workloads={"eegmmidb": Eegmmidb, "eeg-synthetic": EegSynthetic, "series": OwnSeries},
    models={
        "hydra": HydraSettings,
        "hydra_hybrid": HydraHybridSettings,
        "mamba": MambaSettings,
        "mamba_hybrid": MambaHybridSettings,
        "mamba_lite": MambaLiteSettings,
        "mamba_hybrid_lite": MambaHybridLiteSettings,
        "classical_mamba": ClassicalMambaSettings,
        "classical_hydra": ClassicalHydraSettings,
        "csp": CSPSettings,
        "majority": MajoritySettings,
    },
    simulators=(CircuitSimulator,),
    metrics=METRICS["classes"],
    build=build,
    own=FileModel,
    prepare=lazily("ketscale.problems.eeg.prepared:prepare"),
    read=lazily("ketscale.problems.eeg.prepared:read"),
)  # fmt: skip
