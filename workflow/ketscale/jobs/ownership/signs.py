"""Signs of life: what a process says about itself in a file of a run's folder, in its lease or while it waits.

People are told whether it seems to be alive; only a lease decides who may write.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ketscale import process, strict_json
from ketscale.files import read_bytes
from ketscale.words import say

# The file in which a process says that it waits for its host, and how often it does.
WAITING = "waiting.json"
_INTERVAL_S = 10.0
# A wait that goes on is told again after this time.
_AGAIN_S = 600.0

# What was renewed within this many intervals is said to be alive.
_INTERVALS = 5
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Process(msgspec.Struct, kw_only=True, frozen=True):
    """What distinguishes a process from every other; see `process.identity`."""

    host: str
    pid: Annotated[int, Meta(ge=1, lt=2**31)]
    started: float
    boot: str | None
    pid_namespace: str | None


class Holder(Process, kw_only=True, frozen=True):
    """The process that holds a lease or waits.

    since: when it began to. at: its last sign of life. interval_s: how often it gives one.
    """

    job: str | None
    restarts: int
    cluster: str | None
    since: datetime
    at: datetime
    interval_s: Annotated[float, Meta(ge=0, le=1e6)]


def parse(raw: bytes, kind: type[Holder]) -> dict[str, Any]:
    """The content of a file of this kind; {} if it is empty or damaged."""
    try:
        content: dict[str, Any] = strict_json.loads(raw)
        msgspec.convert(content, kind)
    except ValueError:  # msgspec.ValidationError is a ValueError
        return {}
    return content


def is_alive(content: Mapping[str, Any]) -> bool | None:
    """Whether the process runs; None if this process cannot see it.

    The namespace counts too: a container may share the host's name but number its processes from 1.
    """
    me = process.identity()
    here = ("host", "boot", "pid_namespace")
    if None in (content["boot"], content["pid_namespace"]) or any(content[key] != me[key] for key in here):
        return None
    return process.is_alive(content["pid"], content["started"])


def shows_life(content: Mapping[str, Any], now: datetime, job_runs: bool = False) -> bool:
    """Whether the process seems to be alive.

    This is what people are told, and never decides who may write: it compares clocks of different hosts.
    """
    alive = is_alive(content)
    if alive is not None:
        return alive
    return job_runs or now - time_of(content["at"]) < timedelta(seconds=_INTERVALS * content["interval_s"])


def in_words(content: Mapping[str, Any]) -> str:
    """The process as people are told of it."""
    if not content:
        return "a process whose lease is empty or damaged"
    job = f", job {content['job']}" if content["job"] is not None else ""
    return f"process {content['pid']} on {content['host']}{job} (last sign of life {content['at']})"


def time_of(text: Any) -> datetime:
    """A UTC time from a lease, sign, note or record; a time long ago if there is none."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return _LONG_AGO
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def utc() -> str:
    """The time, for people and for differences of times on one host. Times of two hosts are never compared."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Waiting(Holder, frozen=True):
    """A process that waits for its host. whom: who holds that."""

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
            say(f"{wait}{again}")
            self._told = now


class Sign:
    """Says for whom a process waits: on stderr, and in a file that it renews as a lease is renewed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / WAITING
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
            strict_json.write(self._path, process.identity() | about)
            self._whom, self._renewed = whom, now

    def remove(self) -> None:
        """Remove the file, also one of an earlier process that was killed while it waited."""
        self._path.unlink(missing_ok=True)


def read_waiting(folder: Path) -> dict[str, Any] | None:
    """The sign in a run's folder; None if there is none that can be read."""
    try:
        return parse(read_bytes(folder / WAITING), Waiting) or None
    except OSError:
        return None
