"""Small EDF+ files, written by hand from the format's definition (Kemp and Olivan, Clin. Neurophysiol. 114, 1755)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ketscale.problems.eeg.specification import CHANNELS

RATE, ANNOTATION_BYTES = 160, 120
PHYSICAL_UV, DIGITAL = 3276.7, 32767


def write_edf(
    path: Path,
    microvolts: NDArray[np.float64],
    cues: Sequence[tuple[float, str]],
    names: Sequence[str] = CHANNELS,
    rate: int = RATE,
) -> None:
    """A recording (channels, seconds * rate) with cues (onset in seconds, text), in records of one second."""
    channels, samples = microvolts.shape
    seconds = samples // rate
    signals = channels + 1

    def field(values: Sequence[object], width: int) -> bytes:
        return b"".join(str(value).encode().ljust(width)[:width] for value in values)

    header = field(["0"], 8) + field(["X X X X"], 80) + field(["Startdate 01-JAN-2020 X X X"], 80)
    header += field(["01.01.20", "00.00.00", 256 * (signals + 1)], 8) + field(["EDF+C"], 44)
    header += field([seconds, 1], 8) + field([signals], 4)
    header += field([name.ljust(4, ".") for name in names[:channels]] + ["EDF Annotations"], 16)
    header += field([""] * signals, 80) + field(["uV"] * channels + [""], 8)
    header += field([-PHYSICAL_UV] * channels + [-1], 8) + field([PHYSICAL_UV] * channels + [1], 8)
    header += field([-DIGITAL] * channels + [-32768], 8) + field([DIGITAL] * channels + [32767], 8)
    header += field([""] * signals, 80) + field([rate] * channels + [ANNOTATION_BYTES // 2], 8)
    header += field([""] * signals, 32)
    digital = np.round(microvolts / PHYSICAL_UV * DIGITAL).astype("<i2")
    body = b""
    for second in range(seconds):
        body += digital[:, second * rate : (second + 1) * rate].tobytes()
        notes = f"+{second}\x14\x14\x00"
        notes += "".join(
            f"+{onset}\x15{4.1}\x14{text}\x14\x00" for onset, text in cues if second <= onset < second + 1
        )
        body += notes.encode().ljust(ANNOTATION_BYTES, b"\x00")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + body)
