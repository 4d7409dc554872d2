"""The signals by which people, launchers and SLURM stop a run."""

from __future__ import annotations

import signal
from typing import Any


class Signals:
    """A request that the trainer sees between steps: to stop (SIGTERM, SIGINT).

    A second Ctrl-C does not wait for the end of the step.
    """

    def __init__(self) -> None:
        """At first SIGTERM ends the process at once, in whatever library it waits for the other ranks."""
        self.stop = False
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def heed_stop(self) -> None:
        """From now on there may be something to save, so SIGTERM and SIGINT are requests."""
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        signal.signal(signal.SIGINT, self._ask_to_stop)

    def _ask_to_stop(self, signum: int, frame: Any) -> None:
        self.stop = True
        if signum == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
