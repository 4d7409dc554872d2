"""The parts of pages that are made from the code; they are in the pages themselves, between two comments."""

from __future__ import annotations

import re
from pathlib import Path

from docs._generate import api, cli, columns, gallery, record, settings, versions
from docs._generate.markdown import code, table

import ketscale
from ketscale.analysis.verdicts import MEANINGS
from ketscale.problems.registry import FAMILIES

DOCS = Path(__file__).resolve().parents[1]
# A part with its comments: `python -m docs._generate` replaces what is between them.
PART = re.compile(
    r"(<!-- made by `python -m docs._generate`: (\w+) -->\n).*?(<!-- made until here -->)", re.DOTALL
)


def made() -> dict[str, str]:
    """The generated parts by name."""
    return {
        "version": f"These pages describe KetScale {ketscale.__version__}.",
        "config": settings.page(FAMILIES),
        "record": record.page(),
        "tables": columns.page(),
        "cli": cli.page(),
        "api": api.page(),
        "gallery": gallery.page(),
        "versions": versions.page(),
        "verdicts": table(("verdict", "meaning"), ((code(word), text) for word, text in MEANINGS.items())),
    }


def files() -> dict[Path, str]:
    """The pages that have such parts, as they have to be."""
    parts = made()
    texts = {page: page.read_text() for page in sorted(DOCS.glob("*.md"))}
    return {
        page: PART.sub(lambda found: f"{found[1]}\n{parts[found[2]]}\n\n{found[3]}", text)
        for page, text in texts.items()
        if PART.search(text)
    }
