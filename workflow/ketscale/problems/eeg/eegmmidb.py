"""The workload eegmmidb: PhysioNet's EEG Motor Movement/Imagery Database, movements of fists and feet.

Schalk et al., IEEE Trans. Biomed. Eng. 51, 1034 (2004); Goldberger et al., Circulation 101, e215 (2000).
Each run is resampled, and trials are cut from it, 1.0 to 4.1 s after the cues T1 and T2 unless
told otherwise. Volts become millivolts. Nothing is filtered or standardised unless asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ketscale.errors import UserError
from ketscale.optional import needed_for
from ketscale.problems.eeg.edf import CHANNELS, RATE, TASKS, eeg_file
from ketscale.problems.eeg.series import Series, standardised

CUES = {"T1": 0, "T2": 1}
WINDOW_S = (1.0, 4.1)
TO_MILLIVOLTS = 1e3


def load(
    folder: Path,
    subjects: Sequence[int],
    runs: Sequence[int],
    rate: float,
    window: Sequence[float] = WINDOW_S,
    band: Sequence[float] | None = None,
    standardise: bool = False,
    task: str = "fists",
) -> Series:
    """The trials of these subjects and runs, in millivolts.

    rate: sampling rate in Hz to which runs are resampled. window: start and end of a trial in seconds after its cue.
    band: (low, high) edges in Hz of a band-pass filter before resampling.
    standardise: give each channel of each trial mean 0 and standard deviation 1 instead of its unit.
    task: of `edf.TASKS`; it names the classes of the cues.

    Raises:
        UserError: a file is missing, damaged or too short, lacks cues, or has other channels or another rate than the
            database; or MNE is not installed.
    """
    signals, labels, of_subject, of_run = [], [], [], []
    for subject in subjects:
        for run in runs:
            path = folder / eeg_file(subject, run)
            cut, cues = _trials(path, rate, window, band)
            signals.append(cut)
            labels.append(cues)
            of_subject.append(np.full(len(cues), subject))
            of_run.append(np.full(len(cues), run))
    data = np.concatenate(signals) * TO_MILLIVOLTS
    return Series(
        signals=standardised(data) if standardise else data.astype(np.float32),
        labels=np.concatenate(labels).astype(np.int64),
        classes=TASKS[task].classes,
        groups={
            "subjects": np.concatenate(of_subject).astype(np.int64),
            "runs": np.concatenate(of_run).astype(np.int64),
        },
    )


def _trials(
    path: Path, rate: float, window: Sequence[float], band: Sequence[float] | None
) -> tuple[Any, Any]:
    """Volts (trials, channels, steps) and labels (trials,) of one run."""
    with needed_for("workload eegmmidb"):
        import mne

    raw = _read(path)
    _check(path, raw)
    if band is not None:
        raw.filter(*band, verbose="ERROR")
    raw.resample(rate, verbose="ERROR")
    cues = [a for a in raw.annotations if a["description"] in CUES]
    if not cues:
        raise UserError(
            f"{path}: has no cue T1 or T2, as if it were of a run at rest; fetch or copy it again"
        )
    events, _ = mne.events_from_annotations(raw, event_id=CUES, verbose="ERROR")
    epochs = mne.Epochs(raw, events, CUES, *window, baseline=None, preload=True, proj=False, verbose="ERROR")
    if len(epochs) != len(events):
        raise UserError(
            f"{path}: ends before {window[1]} s after its last cue; shorten the window, or fetch or copy it again"
        )
    return epochs.get_data(copy=False), epochs.events[:, 2]


def _check(path: Path, raw: Any) -> None:
    """Raise UserError unless a recording has the channels and the rate of the database."""
    names = [name.rstrip(".") for name in raw.ch_names]
    if len(names) != len(CHANNELS):
        raise UserError(f"{path}: has {len(names)} channels, not {len(CHANNELS)}; fetch or copy it again")
    for number, (found, wanted) in enumerate(zip(names, CHANNELS, strict=True), 1):
        if found != wanted:
            raise UserError(
                f"{path}: channel {number} is {found}, in the database it is {wanted}; use the original file, or a "
                "workload of kind series"
            )
    if raw.info["sfreq"] != RATE:
        raise UserError(
            f"{path}: is sampled at {raw.info['sfreq']:g} Hz, not {RATE:g} (known of subjects 88, 92 and 100); leave "
            "this subject out"
        )


def _read(path: Path) -> Any:
    import mne

    if not path.is_file():
        raise UserError(
            f"{path}: is missing; put it into the workload's folder, or leave folder out to fetch it"
        )
    try:
        raw = mne.io.read_raw_edf(path, preload=True, verbose="ERROR")
    # MNE's parser raises errors of any type on a damaged header.
    except Exception as error:
        raise UserError(
            f"{path}: is not a readable EDF file ({type(error).__name__}: {error}); fetch or copy it again"
        ) from error
    promised = int(path.read_bytes()[236:244])
    if promised * raw.info["sfreq"] > raw.n_times + raw.info["sfreq"]:
        raise UserError(f"{path}: is shorter than its header says; fetch or copy it again")
    return raw


def fetch(folder: Path, subjects: Sequence[int], runs: Sequence[int]) -> list[Path]:
    """Download runs into `folder` with MNE, which verifies their checksums, and return the paths of the files.

    Files that are there and intact are kept.

    Raises:
        UserError: the network or the disk fails, or MNE is not installed.
    """
    with needed_for("workload eegmmidb"):
        import mne

    folder.mkdir(parents=True, exist_ok=True)
    for subject in subjects:
        try:
            files = mne.datasets.eegbci.load_data(
                subjects=subject, runs=list(runs), path=folder, update_path=False, verbose="ERROR"
            )
        except (OSError, ValueError) as error:
            raise UserError(
                f"PhysioNet's subject {subject} cannot be fetched ({error}); "
                "fetch it elsewhere and set the workload's folder"
            ) from error
        for file in map(Path, files):
            target = folder / f"S{subject:03d}" / file.name
            target.parent.mkdir(exist_ok=True)
            if not target.exists():
                target.hardlink_to(file)
    return [folder / eeg_file(subject, run) for subject in subjects for run in runs]
