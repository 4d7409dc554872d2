"""The pages of the documentation, their blocks of code and their commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docs._generate.pages import PART

from tests import ROOT

DOCS = ROOT / "docs"
NOTEBOOKS = sorted(DOCS.glob("notebooks/*.md"))
PAGES = [
    ROOT / "README.md",
    *sorted(DOCS.glob("*.md")),
    *sorted(DOCS.glob("measurements/**/*.md")),
    *NOTEBOOKS,
]
# Commands of earlier versions.
OLD = {DOCS / "changelog.md", *DOCS.glob("measurements/archive/*.md")}


class Block(NamedTuple):
    """A block of code of a page, and the reason if it says that it is not run."""

    language: str
    text: str
    reason: str | None


def blocks(page: Path) -> Iterator[Block]:
    fence = r"^(?:<!-- not run: (.*) -->\n)?```(\S*)[^\n]*\n(.*?)^```$"
    for result in re.finditer(fence, page.read_text(), re.MULTILINE | re.DOTALL):
        yield Block(result[2], result[3], result[1])


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """A page without blocks of code and what is made from the code."""
    return re.sub(r"^```.*?^```$", "", PART.sub("", page.read_text()), flags=re.MULTILINE | re.DOTALL)


def commands() -> dict[str, str]:
    """Every command of a block of shell, and every one in a sentence that has arguments or is a module, with a page that has it."""
    result: dict[str, str] = {}
    for page in PAGES:
        for block in blocks(page):
            for line in block.text.splitlines() if block.language == "sh" and block.reason is None else ():
                for command in re.sub(r"\s+#.*|^#.*", "", line).split("&&"):
                    if command.strip():
                        result.setdefault(command.strip(), named(page))
        if page not in OLD:
            for command in re.findall(
                r"`((?:(?:ketscale|snakemake) [^`\n]* |python -m )[^`\n]+)`", prose(page)
            ):
                if not re.search(r"\b(NAME|CHECKOUT)\b", command):  # a reader's own
                    result.setdefault(command, named(page))
    return result


COMMANDS = commands()


def of(program: str) -> list[str]:
    """The arguments of every shown call of a program."""
    commands = [text for text in COMMANDS if Path(text.split()[0]).name == program]
    return [re.sub(r" > \S+$", "", text.partition(" ")[2]) for text in commands]
