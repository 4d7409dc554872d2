"""What `make docs` makes from the code before it reads the pages, which include it."""

from __future__ import annotations

from pathlib import Path

from docs._generate import cli, columns, gallery, record, settings
from docs._generate.markdown import code, table

from ketscale.analysis.verdicts import MEANINGS
from ketscale.problems.registry import FAMILIES


def write(folder: Path) -> None:
    """Write every generated part into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in made().items():
        (folder / name).write_text(f"{text}\n")


def made() -> dict[str, str]:
    """The generated parts by the names of their files."""
    return {
        "config.md": settings.page(FAMILIES),
        "record.md": record.page(),
        "tables.md": columns.page(),
        "cli.md": cli.page(),
        "gallery.md": gallery.page(),
        "verdicts.md": table(("verdict", "meaning"), ((code(word), text) for word, text in MEANINGS.items())),
    }
