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

State = Literal["missing", "refused", "stale"] | Status


@dataclass(frozen=True)
class Checked:
    """The result of checking a record.

    state: missing (also if its times are of a part of a timed run); refused (damaged, or of another run); stale (of
    other settings or data, or another version); else the status in a record that can be trusted. why: the reason in
    words, also for a run that did not complete.
    """

    state: State
    why: str = ""
    record: Record | None = None


def check(path: Path, settings: Settings, features_hash: str | None) -> Checked:
    """Check that the record at `path` is complete, belongs to the run with these settings and features, and has its
    history beside it.

    features_hash: of the prepared data in use; None if they are unknown, or the family has none.
    """
    found = read(path)
    if found.record is not None:
        found = _compared(found.record, settings)
    found = _complete(path.parent, found)
    if features_hash is not None and found.record is not None and found.record.features_hash != features_hash:
        return Checked("stale", "trained on other features: its features hash is not the manifest's")
    return found


def check_alone(path: Path, families: Families) -> tuple[Checked, Settings | None]:
    """Check the record at `path` without a config, against the settings that it has itself; these settings.

    They have this version's defaults where the code that trained did not know a setting yet.
    """
    found = read(path)
    record = found.record
    if record is None:
        return found, None
    try:
        if not record.run == record.config.get("run") == asdict(Run.parse(str(path))):
            return Checked(
                "refused", "the axes in the record differ from those in its path or settings"
            ), None
        settings = Settings.of(record.config, families, "its settings")
    except UserError as error:
        return Checked("stale", str(error)), None
    return _complete(path.parent, _timed(record, settings)), settings


def read(path: Path) -> Checked:
    """Check the record at `path` by itself, whatever settings are asked for now: its form and its digest."""
    try:
        given = strict_json.loads(path.read_bytes())
    except FileNotFoundError:
        return Checked("missing")
    except (OSError, ValueError) as error:
        return Checked("refused", f"its record cannot be read ({error})")
    version = given.get("schema") if isinstance(given, dict) else None
    if version not in SCHEMAS:
        known = " and ".join(map(str, SCHEMAS))
        return Checked("stale", f"its record has schema {version!r}, and this version reads {known}")
    return _formed(given)


def vouching(folder: Path, name: str) -> Record | None:
    """The record in a run's folder, which vouches for the folder's file of this name; None if there is no record.

    Raises:
        UserError: the record cannot be trusted, or the file is not the one that the run wrote.
    """
    found = read(folder / RECORD)
    if found.state == "missing":
        return None
    why = found.why if found.record is None else _fault(folder, found.record, name)
    if found.record is None or why:
        raise UserError(
            f"{folder / name}: {why}; bring back what the run itself left there, or train it again"
        )
    return found.record


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


def _complete(folder: Path, found: Checked) -> Checked:
    """Refuse a record whose history is not beside it."""
    if found.record is None:
        return found
    fault = _fault(folder, found.record, HISTORY)
    return Checked("refused", f"its {HISTORY} {fault}") if fault else found


def _fault(folder: Path, record: Record, name: str) -> str:
    """What is wrong with a file in the run's folder that its record vouches for; '' if nothing is."""
    expected = record.files.get(name)
    if expected is None:
        return "is not in its record"
    try:
        found = sha256(folder / name)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return "" if found == expected else "is not the one that the run wrote: edited, damaged or of another run"


def _formed(given: dict[str, Any]) -> Checked:
    """Check the digest and the form of a record."""
    try:
        # Python reads a number such as 1e999 as infinity, which has no canonical JSON.
        if _digest(given) != given.get("digest"):
            return Checked(
                "refused", "its record was edited or damaged: its digest is not that of its content"
            )
        record = msgspec.convert(given, Record)
    except (ValueError, RecursionError) as error:  # msgspec.ValidationError is a ValueError
        return Checked("refused", f"its record does not have the form that this version writes: {error}")
    return Checked(record.status, record.reason or "", record)


def _compared(record: Record, settings: Settings) -> Checked:
    """Check a record of the right form against the settings of its run."""
    if record.run != settings.content["run"]:
        return Checked("refused", "the axes in the record differ from those in its path")
    if record.config_hash != settings.hash:
        return Checked("stale", "trained with other settings: its config hash is not the config's")
    return _timed(record, settings)


def _timed(record: Record, settings: Settings) -> Checked:
    """What a record of the run with these settings counts as."""
    if settings.protocol.timed and record.resumed:  # by an earlier version
        return Checked("missing", "it is timed, but was stopped in between: its times are of the rest alone")
    return Checked(record.status, record.reason or "", record)


def _digest(record: Mapping[str, Any]) -> str:
    return config_hash({name: value for name, value in record.items() if name != "digest"})


def write(path: Path, settings: Settings, record: Mapping[str, Any]) -> None:
    """Add the digest to the record of the run with these settings, check it as a reader will, and write it atomically.

    Raises:
        ValueError: the record does not fit `Record` or the settings, or a number in it is not finite.
    """
    # A reader will have this, so that the digest is that of the text.
    plain = json.loads(json.dumps(record, allow_nan=False))
    whole = {**plain, "digest": _digest(plain)}
    found = _formed(whole)
    if found.record is not None:
        found = _compared(found.record, settings)
    if found.record is None:
        raise ValueError(f"{path}: not a record: {found.why}")
    write_atomic(path, (json.dumps(whole, indent=1, sort_keys=True) + "\n").encode())
