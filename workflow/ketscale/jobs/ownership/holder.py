"""What a process says about itself in a file of a run's folder, for others: a lease, or a sign that it waits.

People are told whether it seems to be alive; only a lease decides who may write.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ketscale import process, strict_json

# What was renewed within this many intervals is said to be alive.
_INTERVALS = 5
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Holder(msgspec.Struct, kw_only=True):
    """The process that holds a lease or waits; see `process.identity`.

    since: when it began to. at: its last sign of life. interval_s: how often it gives one.
    """

    host: str
    pid: Annotated[int, Meta(ge=1, lt=2**31)]
    started: float
    boot: str | None
    pid_namespace: str | None
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
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return _LONG_AGO
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def utc() -> str:
    """The time, for people and for differences of times on one host. Times of two hosts are never compared."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
