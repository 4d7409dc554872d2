"""Tables and words of the generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; nothing if it has no rows."""
    lines = [_row(heading), "|" + "---|" * len(heading), *map(_row, rows)]
    return "\n".join(lines) if len(lines) > 2 else ""


def _row(cells: Sequence[str]) -> str:
    # A bar ends a cell, even in code.
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


def code(text: object) -> str:
    """Text as code."""
    return f"`{text}`"


def sentence(text: str) -> str:
    """Text that begins with a capital letter and ends with a full stop."""
    text = " ".join(text.split())
    first = text.split(" ", 1)[0].rstrip(",:;")
    # Not the name of a file or an option.
    text = text[:1].upper() + text[1:] if first.isalpha() else text
    return text + ("" if not text or text.endswith((".", ":", "?")) else ".")
