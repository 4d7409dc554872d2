"""PhysioNet's EDF files, fetched through MNE."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ketscale.errors import UserError
from ketscale.optional import needed_for


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
                f"PhysioNet's subject {subject} cannot be fetched ({error}); "
                "fetch it elsewhere and set the workload's folder"
            ) from error
        for file in map(Path, files):
            target = folder / f"S{subject:03d}" / file.name
            target.parent.mkdir(exist_ok=True)
            if not target.exists():
                target.hardlink_to(file)
