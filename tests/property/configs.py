"""Configs: those of families' tiny studies and the ready-made ones, with settings drawn within their declared bounds."""

from __future__ import annotations

import copy
import datetime
import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st
from msgspec import inspect

from ketscale import config as settings
from ketscale.config.protocol import Protocol
from ketscale.problems.registry import FAMILIES
from tests import tiny_study
from tests.ready_made import ALL

Place = tuple[str | int, ...]
TINY = {name: tiny_study.config(parts) for name, parts in tiny_study.TINY.items()}
JUNK: tuple[Any, ...] = (
    None, True, False, "", " ", "0", "1e3", "a/b", "\0", "\n", "{word}", "$(touch pwned)", "\ud800", "x" * 10_000, "nan",
    -1, 0, 1, 2, 60, 2**32, 2**64, -(2**63) - 1, 10**400, -0.0, 0.5, 2.5, 1e-300, 1e308, math.inf, -math.inf, math.nan,
    [], [[]], [None], [0, 0], [1, "1"], [True], ["x"] * 1000, {}, {"a": 1}, {1: 2}, {None: None}, {"": {}},
    datetime.date(2026, 1, 1), b"\x00\xff",
)  # fmt: skip


def places(node: Any, above: Place = ()) -> Iterator[Place]:
    """The place of every value below a node."""
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in entries:
        yield (*above, key)
        yield from places(value, (*above, key))


def at(node: Any, place: Place) -> Any:
    for key in place:
        node = node[key]
    return node


def replaced(complete: Any, place: Place, value: Any) -> Any:
    """A copy with this value at a place."""
    changed = copy.deepcopy(complete)
    at(changed, place[:-1])[place[-1]] = copy.deepcopy(value)
    return changed


def within(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Values that a type allows."""
    match kind:
        case inspect.Metadata():
            return within(kind.type)
        case inspect.BoolType():
            return st.booleans()
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.IntType():
            least = kind.ge if kind.ge is not None else (kind.gt or 0) + 1
            most = kind.le if kind.le is not None else (2**31 if kind.lt is None else kind.lt - 1)
            return st.integers(least, most) | st.integers(least, min(most, least + 20))
        case inspect.FloatType():
            least = kind.ge if kind.ge is not None else kind.gt if kind.gt is not None else -1e6
            most = kind.le if kind.le is not None else kind.lt if kind.lt is not None else 1e6
            arguments = {"exclude_min": kind.gt is not None, "exclude_max": kind.lt is not None}
            return st.floats(least, most, **arguments) | st.floats(least, min(most, least + 1), **arguments)
        case inspect.UnionType():
            # A setting is left out, never nothing.
            inner = [within(one) for one in kind.types if not isinstance(one, inspect.NoneType)]
            return st.one_of(inner)
    return st.nothing()


@functools.cache
def drawn_fields(kind: type) -> dict[str, st.SearchStrategy[Any]]:
    """The values of each setting of a block that has bounds or choices."""
    fields = {field.encode_name: within(field.type) for field in inspect.type_info(kind).fields}
    return {name: values for name, values in sorted(fields.items()) if not values.is_empty}


def block_types() -> set[type[settings.Block]]:
    """The types of all blocks of the package."""
    families = FAMILIES.values()
    kinds = {*settings.workload_kinds(families).values(), *settings.model_kinds(families).values(), Protocol}
    return {*kinds, *(kind for family in families for kind in family.simulators)}


def blocks(config: Mapping[str, Any]) -> Iterator[tuple[Place, type]]:
    """The place of every block of a workload, model, simulator or protocol of the package, and its type."""
    families = FAMILIES.values()
    kinds: dict[str, Mapping[str, type]] = {
        "workloads": settings.workload_kinds(families),
        "models": settings.model_kinds(families),
        "simulators": {
            device: kind for family in families for kind in family.simulators for device in kind.devices
        },
        "protocols": dict.fromkeys(config["protocols"], Protocol),
    }
    for section, names in kinds.items():
        for name, block in config.get(section, {}).items():
            kind = block.get("device" if section == "simulators" else "kind", name)
            if kind in names and drawn_fields(names[kind]):
                yield (section, name), names[kind]


@functools.cache
def ready() -> list[dict[str, Any]]:
    """The ready-made ones, but for the one with thousands of runs, which takes seconds."""
    return [settings.load(path) for path in ALL if path.stem != "better-than-classical"]


@st.composite
def redrawn(draw: st.DrawFn) -> tuple[dict[str, Any], list[Place]]:
    """A config with one to three settings of a block drawn anew, and what was drawn; some do not go with others."""
    complete = config = draw(st.sampled_from([*TINY.values(), *ready()]))
    changed: list[Place] = []
    for _ in range(draw(st.integers(1, 3))):
        place, kind = draw(st.sampled_from(list(blocks(complete))))
        name = draw(st.sampled_from(list(drawn_fields(kind))))
        value = draw(drawn_fields(kind)[name])
        config = replaced(config, (*place, name), value)
        changed.append((*place, name))
    return config, changed


@st.composite
def junk(draw: st.DrawFn) -> tuple[dict[str, Any], Place]:
    """A tiny config with junk in the place of one value, and this place."""
    config = draw(st.sampled_from(list(TINY.values())))
    place = draw(st.sampled_from(list(places(config))))
    return replaced(config, place, draw(st.sampled_from(JUNK))), place
