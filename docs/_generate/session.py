"""The recorded terminal session. `python -m docs._generate.session` runs the tutorial's commands and draws what they print.

It takes some minutes. The pages show docs/images/session.svg.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path

from docs._generate.drawing import Drawing
from docs._generate.measured import DOCS

COLUMNS, ROWS = 110, 40
# Pixels of a cell of the terminal.
WIDTH, HEIGHT, MARGIN = 7.4, 19, 16
COLOURS = {"": "ink", "31": "second", "32": "third"}
PAGE = (DOCS / "tutorial.md").read_text()
BLOCKS = re.findall(r"```(python|sh)\n(.*?)```", PAGE, re.DOTALL)

Row = list[tuple[str, str]]  # characters, and the class of their colour


def block(words: str) -> str:
    """The block of the page that has these words."""
    (found,) = [text for _, text in BLOCKS if words in text]
    return found.strip()


def commands() -> list[str]:
    """The commands of the page up to its answers, but for the dry run."""
    lines = (block("ketscale init"), *block("snakemake").splitlines())
    return [line for line in lines if not line.endswith(" -n")]


def screen(printed: str) -> list[Row]:
    """What a terminal shows in the end: the sequences are those that the logger writes."""
    rows: list[Row] = [[]]
    at, colour = 0, "ink"
    for part in re.split(r"(\x1b\[[\d;?]*[A-Za-z]|\r\n|\n|\r)", printed):
        if part in ("\n", "\r\n"):
            at += 1
            rows += [[]] * (at == len(rows))
        elif part.endswith("F") and part.startswith("\x1b"):
            at -= int(part[2:-1])
        elif part == "\x1b[J":
            rows[at:] = [[]]
        elif part.endswith("m") and part.startswith("\x1b"):
            colour = COLOURS.get(part[2:-1], "ink")
        elif part and not part.startswith(("\x1b", "\r")):
            rows[at] = rows[at] + [(character, colour) for character in part]
    return rows


def recorded(folder: Path, command: str) -> list[Row]:
    """What a command prints on a terminal in this folder.

    Raises:
        CalledProcessError: it fails.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "TERM": "xterm", "PYTHONPATH": str(folder / "workflow")}
    child = subprocess.Popen(
        shlex.split(command), cwd=folder, env=variables, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    printed = b"".join(_read(ours))
    os.close(ours)
    if child.wait():
        raise subprocess.CalledProcessError(child.returncode, command, printed)
    return [row[at : at + COLUMNS] for row in screen(printed.decode()) for at in range(0, len(row), COLUMNS)]


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            found = os.read(terminal, 65536)
        except OSError:  # the writer has gone
            return
        if not found:
            return
        yield found


def laid_out(folder: Path) -> None:
    """What the tutorial begins with: a copy of the workflow, the table and the model."""
    root = DOCS.parent
    shutil.copy(root / "Snakefile", folder)
    for part in ("workflow", "profiles", "envs"):
        shutil.copytree(root / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    first, _, model = block("# file: ").partition("\n")
    (folder / first.removeprefix("# file: ")).write_text(model)
    subprocess.run([sys.executable, "-c", block("make_moons")], cwd=folder, check=True)


def drawn(rows: list[Row]) -> Drawing:
    """The rows of a terminal as a picture."""
    height = int(2 * MARGIN + HEIGHT * len(rows))
    drawing = Drawing(
        int(2 * MARGIN + WIDTH * COLUMNS), height, "A terminal session: from a table to answers"
    )
    for number, row in enumerate(rows, 1):
        spans = (
            f'<tspan class="{colour}">{escape("".join(character for character, _ in cells))}</tspan>'
            for colour, cells in groupby(row, lambda cell: cell[1])
        )
        drawing.parts.append(
            f'<text x="{MARGIN}" y="{MARGIN + HEIGHT * number - 5}" font-size="12" font-family="ui-monospace, monospace" '
            f'style="white-space:pre">{"".join(spans)}</text>'
        )
    return drawing


def main() -> None:
    """Record the session and draw it."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "study"
        folder.mkdir()
        laid_out(folder)
        for command in commands():
            rows.append([(character, "first") for character in f"$ {command}"])
            rows += recorded(folder, command)
            rows.append([])
    (DOCS / "images" / "session.svg").write_text(drawn(rows[:-1]).svg)


if __name__ == "__main__":
    main()
