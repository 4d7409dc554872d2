"""The family `eeg`: trials of several channels over time, and models that classify them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from ketscale.config import (
    Data,
    Family,
    Metric,
    Model,
    Positive,
    Seed,
    Settings,
    SizeAxis,
    Workload,
)
from ketscale.engines.circuits.settings import CircuitSimulator
from ketscale.errors import UserError

if TYPE_CHECKING:
    import torch

    from ketscale.problems.eeg.series import Series
    from ketscale.problems.problem import Problem


def eeg_file(subject: int, run: int) -> str:
    """The file of a run of eegmmidb, e.g. S001/S001R04.edf."""
    return f"S{subject:03d}/S{subject:03d}R{run:02d}.edf"


class SeriesWorkload(Workload, frozen=True, kw_only=True):
    """Labelled trials (channels x steps), split by subject or by run."""

    split: Annotated[
        Literal["subjects", "runs"],
        Meta(
            description="subjects: 70/15/15 of them, none in two; runs: of a single subject, a run's seed says which "
            "recording is the test (seed modulo their number)"
        ),
    ]
    split_seed: Annotated[Seed, Meta(description="Seed of the split")]

    def load(self, fetched: Path | None) -> Series:
        """The trials; `fetched` is the folder of what was fetched.

        Raises:
            UserError: the data are missing, damaged or do not fit.
        """
        raise NotImplementedError


class Eegmmidb(SeriesWorkload, frozen=True, kw_only=True):
    """PhysioNet's EEG Motor Movement/Imagery Database, EDF files."""

    machine: ClassVar[frozenset[str]] = frozenset({"folder"})

    folder: (
        Annotated[
            str, Meta(description="Folder with S001/S001R04.edf and so on; without it the files are fetched")
        ]
        | None
    ) = None
    subjects: Annotated[list[Positive], Meta(min_length=1, description="Numbers of the subjects")]
    runs: Annotated[
        list[Positive],
        Meta(
            min_length=1,
            description="Numbers of the recordings: 4, 8 and 12 are imagined left and right fists",
        ),
    ]
    rate: Annotated[
        float, Meta(gt=0, le=160, description="Sampling rate in Hz to which recordings are resampled")
    ]
    window: Annotated[
        tuple[Annotated[float, Meta(ge=0)], Annotated[float, Meta(ge=0)]],
        Meta(description="Start and end of a trial in seconds after its cue"),
    ] = (1.0, 4.1)
    band: (
        Annotated[
            tuple[Annotated[float, Meta(gt=0)], Annotated[float, Meta(gt=0)]],
            Meta(description="Low and high edge in Hz of a band-pass; without it nothing is filtered"),
        ]
        | None
    ) = None
    standardise: Annotated[bool, Meta(description="Each channel of a trial to mean 0 and deviation 1")] = (
        False
    )

    def faults(self) -> Iterator[str]:
        """Numbers that are given twice."""
        for name, numbers in (("subjects", self.subjects), ("runs", self.runs)):
            if len(set(numbers)) < len(numbers):
                yield f"{name}: a number is given twice in {list(numbers)}; keep one"

    @property
    def fetched(self) -> bool:
        """The EDF files are, where no folder has them."""
        return self.folder is None

    def fetch(self, folder: Path) -> list[Path]:
        """Fetch the EDF files through MNE."""
        from ketscale.problems.eeg import eegmmidb

        return eegmmidb.fetch(folder, self.subjects, self.runs)

    def sources(self) -> list[Path]:
        """The EDF files in the folder."""
        if self.folder is None:
            return []
        folder = Path(self.folder).expanduser()
        files = [folder / eeg_file(subject, run) for subject in self.subjects for run in self.runs]
        for file in files:
            if not file.is_file():
                raise UserError(
                    f"folder: {folder} has no {file.relative_to(folder)}, which subjects and runs need; "
                    "name another folder, ask for less, or leave folder out to fetch the files"
                )
        return files

    def load(self, fetched: Path | None) -> Series:
        """From the folder, or from what was fetched."""
        from ketscale.problems.eeg import eegmmidb

        folder = Path(self.folder).expanduser() if self.folder is not None else fetched
        if folder is None:
            raise UserError("workloads: eegmmidb needs its EDF files: run the rule fetch, or set folder")
        return eegmmidb.load(
            folder, self.subjects, self.runs, self.rate, self.window, self.band, self.standardise
        )


class EegSynthetic(SeriesWorkload, frozen=True, kw_only=True):
    """Generated trials of the shape of eegmmidb. Nothing that is trained on them says anything about brains."""

    generated: ClassVar[bool] = True

    subjects: Annotated[int, Meta(ge=1, description="How many")]
    trials: Annotated[int, Meta(ge=2, description="Of each subject")]
    rate: Annotated[float, Meta(gt=0, description="Sampling rate in Hz")]
    window_s: Annotated[float, Meta(gt=0, description="Length of a trial in seconds")]
    seed: Annotated[Seed, Meta(description="Of the generator")]
    gain: Annotated[
        float,
        Meta(gt=0, description="Factor on the signals, which otherwise have the millivolts of real ones"),
    ] = 1.0

    def load(self, fetched: Path | None) -> Series:
        """Generate them."""
        from ketscale.problems.eeg import eeg_synthetic

        return eeg_synthetic.generate(
            self.subjects, self.trials, self.rate, self.window_s, self.seed, self.gain
        )


class _WithLiteral(Model, frozen=True, kw_only=True):
    """A model whose published circuits can be reduced exactly."""

    literal: Annotated[
        bool, Meta(description="Run the published circuits for every row, without the exact reductions")
    ] = False


class HydraSettings(_WithLiteral, frozen=True, kw_only=True):
    """Three branches of a circuit for each time step, in superposition."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.hydra:Hydra"
    control: ClassVar[str | None] = "classical_hydra"


class HydraHybridSettings(_WithLiteral, frozen=True, kw_only=True):
    """The branches of `hydra`, measured one by one."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.hydra:HydraHybrid"
    control: ClassVar[str | None] = "classical_hydra"


class MambaSettings(Model, frozen=True, kw_only=True):
    """A convolution, the mean over time, and three circuits on amplitudes."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.mamba:Mamba"
    control: ClassVar[str | None] = "classical_mamba"


class MambaHybridSettings(_WithLiteral, frozen=True, kw_only=True):
    """A convolution, the mean over time, and three circuits on angles."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.mamba:MambaHybrid"
    control: ClassVar[str | None] = "classical_mamba"


class MambaLiteSettings(Model, frozen=True, kw_only=True):
    """The circuits of `mamba` for each time step."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.mamba:MambaLite"
    control: ClassVar[str | None] = "classical_mamba"


class MambaHybridLiteSettings(_WithLiteral, frozen=True, kw_only=True):
    """The circuits of `mamba_hybrid` for each time step."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.mamba:MambaHybridLite"
    control: ClassVar[str | None] = "classical_mamba"


class ClassicalMambaSettings(Model, frozen=True, kw_only=True):
    """Selective state-space blocks."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.state_space:ClassicalMamba"
    classical: ClassVar[bool] = True


class ClassicalHydraSettings(Model, frozen=True, kw_only=True):
    """State-space blocks in both directions of time."""

    implementation: ClassVar[str] = "ketscale.problems.eeg.state_space:ClassicalHydra"
    classical: ClassVar[bool] = True


def prepare(workload: Workload, manifest: Path, fetched: Path | None) -> None:
    """Put the trials into arrays, and split them."""
    from ketscale.problems.eeg import series

    assert isinstance(workload, SeriesWorkload)
    series.prepare(workload, manifest, fetched)


def read(settings: Settings, manifest: Path) -> Data:
    """Open and verify the trials, with the split of the run's seed."""
    from ketscale.problems.eeg.build import Fold
    from ketscale.problems.eeg.series import Prepared

    prepared = Prepared.open(manifest)
    splits, split = prepared.fold(settings.run.seed)
    return Data(Fold(prepared.series, splits), split, prepared.data_hash, prepared.hash)


def build(settings: Settings, data: Data, device: torch.device) -> Problem:
    """The classification of the run."""
    from ketscale.problems.eeg import build

    return build.problem(settings, data.content, device)


FAMILY = Family(
    name="eeg",
    title="EEG",
    sample="trial",
    samples="trials",
    sizes=(SizeAxis("q", "qubits", "qubits"), SizeAxis("l", "layers", "circuit layers")),
    sampler="shuffled",
    workloads={"eegmmidb": Eegmmidb, "eeg-synthetic": EegSynthetic},
    models={
        "hydra": HydraSettings,
        "hydra_hybrid": HydraHybridSettings,
        "mamba": MambaSettings,
        "mamba_hybrid": MambaHybridSettings,
        "mamba_lite": MambaLiteSettings,
        "mamba_hybrid_lite": MambaHybridLiteSettings,
        "classical_mamba": ClassicalMambaSettings,
        "classical_hydra": ClassicalHydraSettings,
    },
    simulators=(CircuitSimulator,),
    metrics=(
        Metric("accuracy", "accuracy", "share correct", "up"),
        Metric("auc", "AUC", "", "up"),
        Metric("f1", "F1", "", "up"),
    ),
    tiny={
        "workloads": {
            "eeg-synthetic": {
                "subjects": 4, "trials": 8, "rate": 20, "window_s": 0.5, "seed": 0, "gain": 20,
                "split": "subjects", "split_seed": 0,
            }
        },
        "axes": {"workload": "eeg-synthetic", "model": "hydra", "qubits": 2, "layers": 1, "batch": 8},
        "control": {"model": "classical_hydra", "qubits": 0, "layers": 0, "simulator": "none"},
        "simulators": {
            "fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast"},
            "default.qubit": {"device": "default.qubit", "gradient": "backprop", "batching": "broadcast"},
        },
    },
    build=build,
    prepare=prepare,
    read=read,
)  # fmt: skip
