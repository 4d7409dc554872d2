"""Imports only point down the list of rooms in docs/contributing.md, and no module imports itself in a circle."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import ketscale
from tests import ROOT

PACKAGE = Path(ketscale.__file__).parent
FAMILIES = {path.parent.name for path in PACKAGE.glob("problems/*/specification.py")}


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in PACKAGE.rglob("*.py")}


def imports(node: ast.AST, types: bool) -> Iterator[str]:
    """The package's modules that are imported somewhere below a node. types: also for types alone."""
    if not types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "ketscale":
        for alias in node.names:
            complete = f"{node.module}.{alias.name}"
            yield complete if complete in MODULES else str(node.module)
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in MODULES)
    for child in ast.iter_child_nodes(node):
        yield from imports(child, types)


@functools.cache
def imports_of_all(types: bool) -> dict[str, set[str]]:
    return {name: set(imports(ast.parse(path.read_text()), types)) - {name} for name, path in MODULES.items()}


def room_of(module: str) -> str:
    """The file or folder below the package; that itself has the version and lazy names alone."""
    return [*module.split("."), ""][1]


def floors() -> dict[str, int]:
    """The number of each room's row in the table of the layout."""
    text = (ROOT / "docs" / "contributing.md").read_text()
    table = (
        text.partition("An import only points down this list")[2].partition("\n\n")[2].partition("\n\n")[0]
    )
    result = {"__main__": 0, "": 1000}
    for number, row in enumerate(table.splitlines()[2:]):
        for room in re.findall(r"`(\w+)(?:/|\.py)`", row.split("|")[1]):
            result[room] = number
    return result | {"lazy": 1001}  # which the package itself imports


def test_every_room_has_its_row_in_the_layout() -> None:
    assert {room_of(module) for module in MODULES} == set(floors())


def test_imports_only_point_down() -> None:
    row = floors()
    upwards = [
        f"{module} imports {other}"
        for module, others in imports_of_all(False).items()
        for other in others
        if row[room_of(module)] > row[room_of(other)]
    ]
    assert upwards == []


def test_a_family_imports_no_other_family() -> None:
    assert FAMILIES
    for family in FAMILIES:
        others = tuple(f"ketscale.problems.{other}" for other in FAMILIES - {family})
        for module, imported in imports_of_all(False).items():
            if module.startswith(f"ketscale.problems.{family}"):
                assert not [name for name in imported if name.startswith(others)], module


@pytest.mark.parametrize("types", [False, True], ids=["run", "types"])
def test_no_module_imports_itself_in_a_circle(types: bool) -> None:
    try:
        TopologicalSorter(imports_of_all(types)).prepare()
    except CycleError as error:
        raise AssertionError("a circle: " + " imports ".join(reversed(error.args[1]))) from None
