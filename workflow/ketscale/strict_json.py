"""JSON in files that may be damaged: what is not JSON is an error of one type, whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ketscale.files import write_atomic


def loads(text: str | bytes) -> Any:
    """The value of JSON text.

    Raises:
        ValueError: it is not JSON, has NaN or infinity by name or a key twice, or is nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_refuse, object_pairs_hook=_distinct)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def of_note(path: Path) -> dict[str, Any]:
    """The JSON object in a file that can be made again; empty if there is none, or it cannot be read."""
    try:
        content = loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write(path: Path, value: Any) -> None:
    """Replace the content of `path` with a value, one part a line, as `files.write_atomic` does."""
    write_atomic(path, (json.dumps(value, indent=1) + "\n").encode())


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    block = dict(pairs)
    if len(block) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is given twice")
    return block
