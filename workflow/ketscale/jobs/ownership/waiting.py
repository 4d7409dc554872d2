"""What a process says while it waits: on stderr, and for its host by a sign in its run's folder, for `ketscale status`."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

from ketscale import process
from ketscale.files import read_bytes, write_atomic
from ketscale.jobs.ownership.holder import Holder, parse, utc

NAME = "waiting.json"
_INTERVAL_S = 10.0
# How often a wait that goes on is told again.
_AGAIN_S = 600.0


class SignContent(Holder):
    """The content of a sign's file. whom: who holds the host."""

    whom: str


class Notice:
    """Tells on stderr for whom a process waits: at once, and then every ten minutes with since when."""

    def __init__(self) -> None:
        self.since = utc()
        self._told: float | None = None

    def tell(self, wait: str) -> None:
        """Call this often while waiting, with what is waited for, in words."""
        now = time.monotonic()
        if self._told is None or now - self._told >= _AGAIN_S:
            again = "" if self._told is None else f" (since {self.since})"
            print(f"ketscale: {wait}{again}", file=sys.stderr, flush=True)
            self._told = now


class Sign:
    """Says for whom a process waits: on stderr, and in a file that it renews as a lease is renewed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._notice = Notice()
        self._whom: str | None = None
        self._renewed = -math.inf

    def show(self, whom: str) -> None:
        """Call this often while waiting, with who holds the host.

        Raises:
            OSError: the file cannot be written.
        """
        self._notice.tell(f"waiting for this host, which is held by {whom}")
        now = time.monotonic()
        if whom != self._whom or now - self._renewed >= _INTERVAL_S:
            about = {"since": self._notice.since, "at": utc(), "interval_s": _INTERVAL_S, "whom": whom}
            write_atomic(self._path, (json.dumps(process.identity() | about, indent=1) + "\n").encode())
            self._whom, self._renewed = whom, now

    def remove(self) -> None:
        """Remove the file, also one of an earlier process that was killed while it waited."""
        self._path.unlink(missing_ok=True)


def read(folder: Path) -> dict[str, Any] | None:
    """The sign in a run's folder; None if there is none that can be read."""
    try:
        return parse(read_bytes(folder / NAME), SignContent) or None
    except OSError:
        return None
