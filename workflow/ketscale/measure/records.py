"""The record of a run: written last, atomically, or not at all; read with its schema checked."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ketscale.errors import UserError

SCHEMA_VERSION = 2
SCHEMA = Path(__file__).with_name("record.schema.yaml")


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data` so that a reader, or a crash, sees the old or the new file, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Check the record against its schema and write it atomically."""
    problem = _problem(record)
    if problem:
        raise ValueError(f"{path}: the record breaks its schema: {problem}")
    write_atomic(path, (json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())


def read(path: Path) -> dict[str, Any]:
    """The record at `path`.

    Raises:
        UserError: the file is missing, is not JSON, or does not follow the schema of this version.
    """
    try:
        record = json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{path}: no such record; name it as a Snakemake target to train it") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a record ({error}); delete the file and run it again") from None
    problem = _problem(record)
    if problem:
        raise UserError(f"{path}: {problem}; delete the file and run it again")
    return record


def _problem(record: Any) -> str | None:
    version = record.get("schema") if isinstance(record, Mapping) else None
    if version != SCHEMA_VERSION:
        return f"record schema {version!r}, this version writes {SCHEMA_VERSION}"
    error = next(_validator().iter_errors(record), None)
    return error and f"{'.'.join(map(str, error.absolute_path)) or 'record'}: {error.message}"


@functools.cache
def _validator() -> Any:
    import jsonschema
    import yaml

    return jsonschema.Draft202012Validator(yaml.safe_load(SCHEMA.read_text()))
