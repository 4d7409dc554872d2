"""The packages that KetScale needs: the range of pyproject.toml, and the version that is tested."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from docs._generate.markdown import code, table

ROOT = Path(__file__).resolve().parents[2]


def page() -> str:
    """Each package of the base and of an extra with its range and its pin."""
    return table(("package", "needed by", "range", "tested"), _rows())


def _rows() -> Iterator[tuple[str, str, str, str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locks = [(ROOT / "envs" / f"{name}.lock").read_text() for name in ("cpu", "triton", "trackers", "bench")]
    pinned = re.findall(r"^([\w.-]+?)(?:\[\w+\])?==(\S+)", "\n".join(locks), re.MULTILINE)
    pins = {_canonical(name): version for name, version in pinned}
    extras = project["optional-dependencies"]
    seen: set[str] = set()
    for room in ["the base", *(name for name in extras if name not in ("all", "test"))]:
        for requirement in project["dependencies"] if room == "the base" else extras[room]:
            name, bounds = re.fullmatch(r"([\w.-]+)(?:\[\w+\])?\s*([^;]*).*", requirement).groups()  # type: ignore[union-attr]
            if name not in seen and name != "ketscale":
                seen.add(name)
                yield code(name), room, bounds.strip(), pins[_canonical(name)]


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
