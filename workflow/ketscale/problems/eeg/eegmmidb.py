"""The workload eegmmidb: PhysioNet's EEG Motor Movement/Imagery Database, movements of one fist.

Schalk et al., IEEE Trans. Biomed. Eng. 51, 1034 (2004); Goldberger et al., Circulation 101, e215 (2000).
Each run is resampled, and trials are cut from it, 1.0 to 4.1 s after the cues T1 and T2 unless
told otherwise. Volts become millivolts. Nothing is filtered by default.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ketscale.errors import UserError, damaged
from ketscale.optional import needed_for
from ketscale.problems.eeg import overlaps
from ketscale.problems.eeg.prepared import folds
from ketscale.problems.eeg.specification import CHANNELS, CLASSES, RATE, eeg_file
from ketscale.problems.samples import Samples

if TYPE_CHECKING:
    from ketscale.problems.eeg.specification import Eegmmidb

CUES = {"T1": 0, "T2": 1}
TO_MILLIVOLTS = 1e3


def load(workload: Eegmmidb, fetched: Path | None) -> Samples:
    """The trials of a workload and the folds of their split, from its folder or from the fetched files.

    Raises:
        UserError: there is neither; or as for `recorded`.
    """
    folder = Path(workload.folder).expanduser() if workload.folder is not None else fetched
    if folder is None:
        raise UserError("workloads: eegmmidb needs its EDF files; run the rule fetch, or set folder")
    trials = recorded(workload, folder)
    return replace(trials, folds=folds(trials, workload.split, workload.split_seed))


def recorded(workload: Eegmmidb, folder: Path) -> Samples:
    """The trials of a workload's subjects and runs, in millivolts, from the files in a folder.

    Raises:
        UserError: a file is missing, damaged or too short, lacks cues, or has other channels or another rate than the
            database; or MNE is not installed.
    """
    signals, labels, of_subject, of_run = [], [], [], []
    for subject in workload.subjects:
        for run in workload.runs:
            signal, cues = _trials(workload, folder / eeg_file(subject, run))
            signals.append(signal)
            labels.append(cues)
            of_subject.append(np.full(len(cues), subject))
            of_run.append(np.full(len(cues), run))
    data = (np.concatenate(signals) * TO_MILLIVOLTS).astype(np.float32)
    return Samples(
        values=data,
        targets=np.concatenate(labels).astype(np.int64),
        names=CLASSES,
        groups={
            "subjects": np.concatenate(of_subject).astype(np.int64),
            "runs": np.concatenate(of_run).astype(np.int64),
        },
        marks=overlaps.marks(data),
    )


def _trials(workload: Eegmmidb, path: Path) -> tuple[Any, Any]:
    """Volts (trials, channels, steps) and labels (trials,) of one run."""
    window = workload.window
    with needed_for("workload eegmmidb"):
        import mne

    # MNE raises errors of any type on damaged files.
    with damaged(f"{path}: is not a readable EDF file", "fetch or copy it again"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # A file that is shorter than its header says would have fewer trials.
            warnings.filterwarnings("error", "Number of records from the header")
            raw = mne.io.read_raw_edf(path, preload=True, verbose="WARNING")
        _check_recording(path, raw)
        if not any(each["description"] in CUES for each in raw.annotations):
            raise UserError(f"{path}: has no cue T1 or T2; fetch or copy it again")
        if workload.band is not None:
            raw.filter(*workload.band, verbose="ERROR")
        raw.resample(workload.rate, verbose="ERROR")
        events, _ = mne.events_from_annotations(raw, event_id=CUES, verbose="ERROR")
        epochs = mne.Epochs(
            raw, events, CUES, *window, baseline=None, preload=True, proj=False, verbose="ERROR"
        )
        if len(epochs) != len(events):
            raise UserError(f"{path}: ends before {window[1]} s after its last cue; shorten the window")
        return epochs.get_data(copy=False), epochs.events[:, 2]


def _check_recording(path: Path, raw: Any) -> None:
    """Raise UserError unless a recording has the channels and the rate of the database, and numbers in each."""
    if tuple(name.rstrip(".") for name in raw.ch_names) != CHANNELS:
        raise UserError(f"{path}: its channels are not those of the database; bring it as kind: series")
    if raw.info["sfreq"] != RATE:
        raise UserError(
            f"{path}: is sampled at {raw.info['sfreq']:g} Hz, not {RATE:g}; leave this subject out"
        )
    for channel, signal in zip(CHANNELS, raw.get_data(), strict=True):
        if not np.isfinite(signal).all():
            raise UserError(f"{path}: channel {channel} has NaN or infinity; fetch or copy it again")


def fetch(folder: Path, subjects: Sequence[int], runs: Sequence[int]) -> None:
    """Download runs into `folder` with MNE, which verifies their checksums, as S001/S001R04.edf and so on.

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
                f"PhysioNet's subject {subject} cannot be fetched ({error}); set folder"
            ) from error
        for file in map(Path, files):
            target = folder / f"S{subject:03d}" / file.name
            target.parent.mkdir(exist_ok=True)
            if not target.exists():
                target.hardlink_to(file)
