"""The family `eeg`: trials of several channels over time, and models that classify them."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from ketscale.config import (
    METRICS,
    MOST,
    Baseline,
    Family,
    FileModel,
    Model,
    Seed,
    Settings,
    WithTargets,
    lazily,
)
from ketscale.config.circuits import CIRCUIT_SIZES, CircuitSimulator
from ketscale.errors import UserError
from ketscale.problems.datasets import build
from ketscale.problems.own_data import File, OwnArrays, Share, SplitSeed, ValidationShare
from ketscale.problems.vectors.settings import MajoritySettings

# The database eegmmidb: https://physionet.org/content/eegmmidb/1.0.0/ (Schalk et al., IEEE Trans. Biomed. Eng. 51, 1034 (2004)).
SUBJECTS = 109
# The sampling rate of the recordings, in Hz.
RATE = 160.0
# A cue lasts 4.1 to 4.2 s, a rest as long, and then comes the next cue.
LONGEST_WINDOW_S = 8.2
# The channels in the order of the files, which pad each name with dots.
CHANNELS = (
    "Fc5", "Fc3", "Fc1", "Fcz", "Fc2", "Fc4", "Fc6", "C5", "C3", "C1", "Cz", "C2", "C4", "C6", "Cp5", "Cp3", "Cp1", "Cpz",
    "Cp2", "Cp4", "Cp6", "Fp1", "Fpz", "Fp2", "Af7", "Af3", "Afz", "Af4", "Af8", "F7", "F5", "F3", "F1", "Fz", "F2", "F4",
    "F6", "F8", "Ft7", "Ft8", "T7", "T8", "T9", "T10", "Tp7", "Tp8", "P7", "P5", "P3", "P1", "Pz", "P2", "P4", "P6", "P8",
    "Po7", "Po3", "Poz", "Po4", "Po8", "O1", "Oz", "O2", "Iz",
)  # fmt: skip


# In these runs single fists move; in the others, both fists or both feet.
CLASSES = ("left fist", "right fist")
EXECUTED, IMAGINED = frozenset({3, 7, 11}), frozenset({4, 8, 12})


def eeg_file(subject: int, run: int) -> str:
    """The file of a subject's run (a recording) in eegmmidb, e.g. S001/S001R04.edf."""
    return f"S{subject:03d}/S{subject:03d}R{run:02d}.edf"


SplitOfRecordings = Annotated[Literal["subjects", "runs"], Meta(description="subjects: 70/15/15 % of the subjects, each "
    "in one part only; runs: one subject, where the seed of a training run (modulo the number of recordings) chooses the "
    "recording that is the test")]  # fmt: skip


class SeriesWorkload(WithTargets, frozen=True, kw_only=True):
    """Labelled trials (channels x steps) and their split."""

    split: str
    split_seed: SplitSeed | None = None

    @property
    def folded(self) -> bool:
        """Whether each recording is the test of some seeds, the run's modulo the number of recordings."""
        return self.split == "runs"

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """No search chooses for all folds, since each is the test of some seeds."""
        if self.folded and settings.protocol.search is not None:
            yield f"protocol {settings.run.protocol} has a search, which would see the tests of other folds"


class Eegmmidb(SeriesWorkload, frozen=True, kw_only=True):
    """PhysioNet's EEG Motor Movement/Imagery Database, EDF files."""

    loader: ClassVar[str] = "ketscale.problems.eeg.eegmmidb:load"
    machine: ClassVar[frozenset[str]] = frozenset({"folder"})
    former: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"task": "fists", "mixed": False, "standardise": False}
    )

    split: SplitOfRecordings
    split_seed: SplitSeed
    # fmt: off
    folder: Annotated[str, Meta(description="Folder with S001/S001R04.edf and so on; without it the files are "
        "fetched")] | None = None
    subjects: Annotated[list[Annotated[int, Meta(ge=1, le=SUBJECTS)]], Meta(min_length=1, description="Numbers of "
        "the subjects")]
    runs: Annotated[list[Literal[3, 4, 7, 8, 11, 12]], Meta(min_length=1, description="Numbers of the recordings: 3, 7 "
        "and 11 are executed and 4, 8 and 12 imagined movements of the left or right fist")]
    rate: Annotated[float, Meta(gt=0, le=160, description="Sampling rate in Hz to which recordings are resampled")]
    window: Annotated[tuple[Annotated[float, Meta(ge=0, le=LONGEST_WINDOW_S)], Annotated[float, Meta(ge=0,
        le=LONGEST_WINDOW_S)]], Meta(description="Start and end of a trial in seconds after its cue")] = (1.0, 4.1)
    band: Annotated[tuple[Annotated[float, Meta(gt=0)], Annotated[float, Meta(gt=0)]], Meta(description="Low and "
        "high edge in Hz of a band-pass filter; without it nothing is filtered")] | None = None
    # fmt: on

    def faults(self) -> Iterator[str]:
        """Runs must be of one kind; window and band must be intervals that the recordings have."""
        for name, numbers in (("subjects", self.subjects), ("runs", self.runs)):
            if len(set(numbers)) < len(numbers):
                yield f"{name}: a number is given twice in {list(numbers)}; keep one"
        if not (EXECUTED.isdisjoint(self.runs) or IMAGINED.isdisjoint(self.runs)):
            yield f"runs: {list(self.runs)} are executed and imagined movements; choose one kind"
        if self.window[0] >= self.window[1]:
            yield f"window: {self.window[0]:g} to {self.window[1]:g} s is none; give its start and its end"
        # Resampling removes what is above half of the new rate, so little or nothing of such a band would be left.
        if self.band is not None and not self.band[0] < self.band[1] < self.rate / 2:
            low, high = self.band
            yield f"band: {low:g} to {high:g} Hz is none below {self.rate / 2:g} Hz, half of the rate"

    @property
    def fetched(self) -> bool:
        """Whether the EDF files are fetched: only without a folder."""
        return self.folder is None

    def fetch(self, folder: Path) -> list[Path]:
        """Fetch the EDF files through MNE."""
        pkgutil.resolve_name("ketscale.problems.eeg.eegmmidb:fetch")(folder, self.subjects, self.runs)
        return self._files(folder)

    def sources(self) -> list[Path]:
        """The EDF files in the folder."""
        if self.folder is None:
            return []
        folder = Path(self.folder).expanduser()
        files = self._files(folder)
        for file in files:
            if not file.is_file():
                raise UserError(
                    f"folder: {folder} has no {file.relative_to(folder)}; leave folder out to fetch it"
                )
        return files

    def _files(self, folder: Path) -> list[Path]:
        return [folder / eeg_file(subject, run) for subject in self.subjects for run in self.runs]


class EegSynthetic(SeriesWorkload, frozen=True, kw_only=True):
    """Generated trials in the shape of eegmmidb's. A model trained on them says nothing about brains."""

    loader: ClassVar[str] = "ketscale.problems.eeg.synthetic:load"
    generated: ClassVar[bool] = True

    split: SplitOfRecordings
    split_seed: SplitSeed
    subjects: Annotated[int, Meta(ge=1, le=MOST, description="Number of subjects")]
    trials: Annotated[int, Meta(ge=2, le=MOST, description="Trials of each subject")]
    rate: Annotated[float, Meta(gt=0, description="Sampling rate in Hz")]
    window_s: Annotated[float, Meta(gt=0, description="Length of a trial in seconds")]
    seed: Annotated[Seed, Meta(description="Seed of the generator")]
    gain: Annotated[float, Meta(gt=0, description="Factor on the signals, which with 1 have the amplitudes of real "
        "ones in millivolts")] = 1.0  # fmt: skip


class OwnSeries(OwnArrays, SeriesWorkload, frozen=True, kw_only=True):
    """A user's own trials, in an .npz file."""

    loader: ClassVar[str] = "ketscale.problems.eeg.prepared:from_arrays"
    machine: ClassVar[frozenset[str]] = frozenset({"file"})

    # fmt: off
    file: Annotated[File, Meta(description="An .npz file with signals or x (trials x channels x steps), and labels "
        "or y")] | None = None
    split: Annotated[Literal["trials", "groups", "given"], Meta(description="trials: a share of each class is "
        "drawn; groups: whole groups are drawn (such as subjects), each in one part only; given: the array split "
        "in the file gives the parts")]
    validation: ValidationShare | None = None
    test: Share | None = None
    standardise: Annotated[bool, Meta(description="Give each channel of a trial mean 0 and standard deviation 1; a "
        "constant channel becomes 0")] = False
    # fmt: on


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
