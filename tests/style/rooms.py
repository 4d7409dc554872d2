"""Ceilings of lines: `make lint` fails where a room has more lines than its line in rooms.txt.

A room is a folder of the package, the tests or the benchmarks, or the prose of the documentation, which is counted in words.
A ceiling only falls: `python -m tests.style.rooms` checks, `python -m tests.style.rooms --lower` writes the lower counts. Lines
that move to another room take their ceiling with them, by hand.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("rooms.txt")
ENGINES = PurePosixPath("workflow/ketscale/engines")
# Generated pages and parts, blocks of code and comments are no prose; measurements are data.
NO_PROSE = re.compile(
    r"<!-- made by `python -m docs\._generate`: \w+ -->.*?<!-- made until here -->|<!-- measured: \w+ -->.*?<!-- end: \w+ -->"
    r"|^```.*?^```$|<!--.*?-->",
    re.DOTALL | re.MULTILINE,
)


def room(path: PurePosixPath) -> str | None:
    """The room of a file, or None if it is in none."""
    parts = path.parts
    if path.suffix == ".md":
        own = (parts[0] == "docs" and len(parts) == 2) or str(path) == "README.md"
        return "words of docs" if own and path.name != "changelog.md" else None
    if path.suffix != ".py" or parts[0] not in ("workflow", "tests", "benchmarks"):
        return None
    deep = parts[0] == "workflow" or parts[:2] == ("tests", "unit")
    depth = 4 if path.is_relative_to(ENGINES) else 3 if deep else 2
    return "/".join(parts[: min(depth, len(parts) - 1)])


def counts() -> Counter[str]:
    """Lines (words of docs) of each room, of the files that git tracks."""
    result: Counter[str] = Counter()
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for line in tracked.stdout.splitlines():
        name, file = room(PurePosixPath(line)), ROOT / line
        if name is not None and file.exists():
            text = file.read_text()
            result[name] += len(NO_PROSE.sub("", text).split()) if file.suffix == ".md" else text.count("\n")
    return result


def ceilings() -> dict[str, int]:
    """The ceilings of rooms.txt, a room and a number in each line."""
    lines = (line.rsplit(maxsplit=1) for line in FILE.read_text().splitlines() if not line.startswith("#"))
    return {name: int(number) for name, number in lines}


def faults(found: Counter[str], allowed: dict[str, int]) -> list[str]:
    """What is above its ceiling or has none, a sentence each."""
    return [
        f"{name}: {number} lines, above its ceiling of {allowed[name]}; delete what is used least"
        if name in allowed
        else f"{name}: {number} lines, and no ceiling in tests/style/rooms.txt"
        for name, number in sorted(found.items())
        if number > allowed.get(name, -1)
    ]


def main(arguments: list[str]) -> int:
    """Check, or write what fell; 1 where a room is too large."""
    result, allowed = counts(), ceilings()
    wrong = faults(result, allowed)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    if arguments == ["--lower"]:
        head = [line for line in FILE.read_text().splitlines() if line.startswith("#")]
        rows = [f"{name} {min(number, result[name])}" for name, number in allowed.items() if result[name]]
        FILE.write_text("\n".join([*head, *rows]) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
