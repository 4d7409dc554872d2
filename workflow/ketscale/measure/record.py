"""Writes the record of a run, and says whether a record can be trusted.

Training, status, tables and the report all use `check`. A record has a digest of its own content, which damage and
edits change. Imports nothing heavy, so that thousands of records take about a second.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from ketscale import strict_json
from ketscale.config import Families, Settings
from ketscale.errors import UserError
from ketscale.files import sha256, write_atomic
from ketscale.grid import HISTORY, RECORD, Run, config_hash
from ketscale.measure.form import SCHEMAS, Record, Status

Word = Literal["missing", "refused", "stale"] | Status


@dataclass(frozen=True)
class State:
    """The result of checking a record.

    state: missing (also if its times are of a part of a timed run); refused (damaged, or of another run); stale (of
    other settings or data, or another version); else the status in a record that can be trusted. why: the reason in
    words, also for a run that did not complete.
    """

    state: Word
    why: str = ""
    record: Record | None = None


def check(path: Path, settings: Settings, features_hash: str | None) -> State:
    """Check that the record at `path` is complete, belongs to the run with these settings and features, and has its
    history next to it.

    features_hash: of the prepared data in use; None if they are unknown, or the family has none.
    """
    state = read(path)
    if state.record is not None:
        state = _compared(state.record, settings)
    state = _complete(path.parent, state)
    if features_hash is not None and state.record is not None and state.record.features_hash != features_hash:
        return State("stale", "trained on other features: its features hash is not the manifest's")
    return state


def check_single(path: Path, families: Families) -> tuple[State, Settings | None]:
    """Check the record at `path` without a config, against the settings that it has itself; these settings.

    They have this version's defaults where the code that trained did not know a setting yet.
    """
    result = read(path)
    record = result.record
    if record is None:
        return result, None
    try:
        if not record.run == record.config.get("run") == asdict(Run.parse(str(path))):
            return State("refused", "the axes in the record differ from those in its path or settings"), None
        settings = Settings.of(record.config, families, "its settings")
    except UserError as error:
        return State("stale", str(error)), None
    return _complete(path.parent, _of_timing(record, settings)), settings


def read(path: Path) -> State:
    """Check the record at `path` by itself, whatever settings are asked for now: its form and its digest."""
    try:
        content = strict_json.loads(path.read_bytes())
    except FileNotFoundError:
        return State("missing")
    except (OSError, ValueError) as error:
        return State("refused", f"its record cannot be read ({error})")
    version = content.get("schema") if isinstance(content, dict) else None
    if version not in SCHEMAS:
        versions = " and ".join(map(str, SCHEMAS))
        return State("stale", f"its record has schema {version!r}, and this version reads {versions}")
    return _formed(content)


def vouching(folder: Path, name: str) -> Record | None:
    """The record in a run's folder, which vouches for the folder's file of this name; None if there is no record.

    Raises:
        UserError: the record cannot be trusted, or the file is not the one that the run wrote.
    """
    result = read(folder / RECORD)
    if result.state == "missing":
        return None
    why = result.why if result.record is None else _fault(folder, result.record, name)
    if result.record is None or why:
        raise UserError(f"{folder / name}: {why}; bring back what the run left, or train it again")
    return result.record


class _Head(msgspec.Struct):
    """What shows without the rest of a record that it cannot be used."""

    schema: Any = None
    config_hash: str | None = None
    features_hash: str | None = None
    resumed: int = 0


def outdated(path: Path, settings: Settings, features_hash: str | None) -> bool:
    """Whether the record at `path` is damaged, of another version, other settings or features, or of a timed run that went
    on from a checkpoint, so that its run is trained again. No `check`: it reads thousands in a second.
    """
    try:
        head = msgspec.json.decode(path.read_bytes(), type=_Head)
    except OSError:
        return False
    except ValueError:
        return True
    return head.schema is not None and (
        head.schema not in SCHEMAS
        or head.config_hash != settings.hash
        or features_hash not in (None, head.features_hash)
        or (settings.protocol.timed and head.resumed > 0)
    )


def _complete(folder: Path, result: State) -> State:
    """Refuse a record whose history is missing."""
    if result.record is None:
        return result
    fault = _fault(folder, result.record, HISTORY)
    return State("refused", f"its {HISTORY} {fault}") if fault else result


def _fault(folder: Path, record: Record, name: str) -> str:
    """What is wrong with a file in the run's folder that its record vouches for; '' if nothing is."""
    expected = record.files.get(name)
    if expected is None:
        return "is not in its record"
    try:
        now = sha256(folder / name)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return "" if now == expected else "is not the one that the run wrote: edited, damaged or of another run"


def _formed(content: dict[str, Any]) -> State:
    """Check the digest and the form of a record."""
    try:
        # Python reads a number such as 1e999 as infinity, which has no canonical JSON.
        if _digest(content) != content.get("digest"):
            return State("refused", "its record was edited or damaged: its digest is not that of its content")
        record = msgspec.convert(content, Record)
    except (ValueError, RecursionError) as error:  # msgspec.ValidationError is a ValueError
        return State("refused", f"its record does not have the form that this version writes: {error}")
    return State(record.status, record.reason or "", record)


def _compared(record: Record, settings: Settings) -> State:
    """Check a record of the right form against the settings of its run."""
    if record.run != settings.content["run"]:
        return State("refused", "the axes in the record differ from those in its path")
    if record.config_hash != settings.hash:
        return State("stale", "trained with other settings: its config hash is not the config's")
    return _of_timing(record, settings)


def _of_timing(record: Record, settings: Settings) -> State:
    """What a record of the run with these settings counts as."""
    if settings.protocol.timed and record.resumed:  # by an earlier version
        return State("missing", "it is timed, but was stopped in between: its times are of the rest alone")
    return State(record.status, record.reason or "", record)


def _digest(record: Mapping[str, Any]) -> str:
    return config_hash({name: value for name, value in record.items() if name != "digest"})


def write(path: Path, settings: Settings, record: Mapping[str, Any]) -> None:
    """Add the digest to the record of the run with these settings, check it as a reader will, and write it atomically.

    Raises:
        ValueError: the record does not fit `Record` or the settings, or a number in it is not finite.
    """
    # A reader will have this, so that the digest is that of the text.
    plain = json.loads(json.dumps(record, allow_nan=False))
    full = {**plain, "digest": _digest(plain)}
    result = _formed(full)
    if result.record is not None:
        result = _compared(result.record, settings)
    if result.record is None:
        raise ValueError(f"{path}: not a record: {result.why}")
    write_atomic(path, (json.dumps(full, indent=1, sort_keys=True) + "\n").encode())
