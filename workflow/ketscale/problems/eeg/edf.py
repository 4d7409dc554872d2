"""PhysioNet's EEG Motor Movement/Imagery Database: its files, tasks, channels. Imports nothing heavy.

Source: https://physionet.org/content/eegmmidb/1.0.0/ (Schalk et al., IEEE Trans. Biomed. Eng. 51, 1034 (2004)).
"""

from __future__ import annotations

from typing import NamedTuple

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


class Task(NamedTuple):
    """The movements that the cues T1 and T2 ask for, and the runs in which they are executed or imagined."""

    classes: tuple[str, str]
    executed: tuple[int, ...]
    imagined: tuple[int, ...]


TASKS = {
    "fists": Task(("left fist", "right fist"), (3, 7, 11), (4, 8, 12)),
    "fists-feet": Task(("both fists", "both feet"), (5, 9, 13), (6, 10, 14)),
}


def eeg_file(subject: int, run: int) -> str:
    """The file of a subject's run (a recording) in eegmmidb, e.g. S001/S001R04.edf."""
    return f"S{subject:03d}/S{subject:03d}R{run:02d}.edf"
