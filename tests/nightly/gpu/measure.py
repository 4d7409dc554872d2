"""What `check` measures, part by part: `python -m tests.nightly.gpu.measure PART` writes one JSON line for each finding.

The environment says where (KETSCALE_GPU_OUT) and for how long (KETSCALE_GPU_SECONDS). A part starts with what matters
most and looks at the clock before each further piece, so that its limit ends it between pieces.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

# Kept for writing what was found.
RESERVE_S = 4.0


class Part:
    """The place of a part's findings, and how much of its time is left."""

    def __init__(self, out: Path, seconds: float) -> None:
        self.out = out
        self._end = time.monotonic() + seconds - RESERVE_S

    def left(self) -> float:
        """Seconds until the part must be finished."""
        return self._end - time.monotonic()

    def say(self, **finding: Any) -> None:
        """Write a finding now."""
        with self.out.open("a") as file:
            file.write(json.dumps(finding) + "\n")


def main(name: str) -> None:
    """Run a part: the function `measure` of the module of its name."""
    measure: Callable[[Part], None] = import_module(f"tests.nightly.gpu.parts.{name}").measure
    measure(Part(Path(os.environ["KETSCALE_GPU_OUT"]), float(os.environ["KETSCALE_GPU_SECONDS"])))


if __name__ == "__main__":
    main(sys.argv[1])
