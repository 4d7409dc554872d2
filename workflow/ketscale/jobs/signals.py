"""The signals by which people, launchers and SLURM tell a run to stop or to save."""

from __future__ import annotations

import signal
from typing import Any


class Signals:
    """Requests that the trainer sees between steps: stop (SIGTERM, SIGINT), or save a checkpoint and go on (SIGUSR1).

    A second Ctrl-C does not wait for the end of the step.
    """

    def __init__(self) -> None:
        """Take note of SIGUSR1. SIGTERM ends the process at once, in whatever library it waits for the other ranks."""
        self.stop = False
        self._save = False
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, self._ask_to_save)

    def heed_stop(self) -> None:
        """From now on there may be something to save, so SIGTERM and SIGINT are requests."""
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        signal.signal(signal.SIGINT, self._ask_to_stop)

    def _ask_to_stop(self, signum: int, frame: Any) -> None:
        self.stop = True
        if signum == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _ask_to_save(self, signum: int, frame: Any) -> None:
        self._save = True

    def save(self) -> bool:
        """Whether a checkpoint was requested since the last call of this method."""
        asked, self._save = self._save, False
        return asked
