"""The file names of PhysioNet's EEG Motor Movement/Imagery Database. Imports nothing heavy."""

from __future__ import annotations


def eeg_file(subject: int, run: int) -> str:
    """The file of a subject's run (a recording) in eegmmidb, e.g. S001/S001R04.edf."""
    return f"S{subject:03d}/S{subject:03d}R{run:02d}.edf"
