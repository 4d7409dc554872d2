"""The reference of settings, from their types."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from docs._generate.markdown import code, sentence, table

from ketscale.config import published_schema, schema
from ketscale.config.block import MOST
from ketscale.config.family import Families, Family
from ketscale.config.metrics import METRICS, REGRESSION, Metric, Targets, metrics_by_name
from ketscale.config.own_code import FileBlock
from ketscale.jobs.slurm.site import SiteFile

Schema = Mapping[str, Any]
HEADING = ("setting", "value", "default", "meaning")


def page(families: Families) -> str:
    """Every setting of a config, then of a site file."""
    whole = published_schema(families)
    definitions = whole["$defs"]
    parts = ["## The sections of a config", fields(whole, definitions)]
    parts += ["## A study", fields(definitions["StudyBlock"], definitions)]
    axes = definitions["StudyBlock"]["properties"]["axes"]
    parts += ["### Axes", fields(axes, definitions)]
    parts += ["## A protocol", *_block("Protocol", definitions, 3)]
    own = schema(FileBlock)["$defs"]
    parts += ["## A model in a file", *_block("FileBlock", own, 2)]
    for family in families.values():
        parts += [f"## The family {code(family.name)}", *_family(family, whole)]
    made = schema(SiteFile)
    site = made["$defs"]
    parts += ["## The site file of a cluster", sentence(site["SiteFile"].get("description", ""))]
    parts += [fields(site["SiteFile"], site)]
    for name in sorted(site.keys() - {"SiteFile"}):
        parts += [f"### {name}", *_block(name, site, 4)]
    return "\n\n".join(part for part in parts if part)


def _metrics(metrics: Iterable[Metric]) -> str:
    return table(
        ("metric", "title", "better", "by chance"),
        (
            (
                code(metric.name), metric.title, {"up": "larger", "down": "smaller", None: "-"}[metric.better],
                {None: "-", "data": "depends on the data"}.get(metric.chance, str(metric.chance)),  # type: ignore[arg-type]
            )
            for metric in metrics
        ),
    )  # fmt: skip


def _choices(targets: Targets) -> str:
    names = metrics_by_name(targets).keys() - {metric.name for metric in METRICS[targets]}
    return f"`metric` may also be {', '.join(map(code, sorted(names)))}."


def _family(family: Family, whole: Schema) -> Iterator[str]:
    sizes = ", ".join(f"{code(axis.name)} (letter {axis.letter})" for axis in family.sizes)
    yield f"A sample is one of the {family.samples}. Sizes: {sizes}."
    yield _metrics(family.metrics)
    if family.metrics == METRICS["classes"]:
        yield _choices("classes")
    if any(REGRESSION in str(schema(kind)) for kind in family.workloads.values()):
        yield f"A workload with task {code(REGRESSION)} has these metrics:"
        yield _metrics(METRICS["numbers"])
        yield _choices("numbers")
    for section, kinds in (("workloads", family.workloads), ("models", family.models)):
        for kind in kinds:
            made = whole["properties"][section]["properties"][kind]
            yield f"### {section[:-1].capitalize()} {code(kind)}"
            yield sentence(made.get("description", ""))
            without = {name: value for name, value in made["properties"].items() if name != "kind"}
            yield fields({**made, "properties": without}, whole["$defs"]) or "It has no settings."
    for simulator in family.simulators:
        made = schema(simulator)["$defs"]
        own = made[simulator.__name__]
        yield f"### Simulators of {code(family.name)}: {', '.join(map(code, simulator.devices))}"
        yield sentence(inspect.cleandoc(simulator.__doc__ or "").split("\n\n")[0])
        yield fields(own, made)


def _block(name: str, definitions: Schema, level: int) -> Iterator[str]:
    """A block of settings and those inside it."""
    made = definitions[name]
    yield sentence(made.get("description", ""))
    yield fields(made, definitions)
    if level == 3:
        for inner in dict.fromkeys(_inside(made, definitions)):
            yield f"{'#' * level} {inner}"
            yield from _block(inner, definitions, level + 1)


def _inside(value: Any, definitions: Schema) -> Iterator[str]:
    """The blocks that a block refers to, and those that these do."""
    for name in _referred(value):
        yield name
        yield from _inside(definitions[name], definitions)


def _referred(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if "$ref" in value:
            yield value["$ref"].rsplit("/", 1)[1]
        for inner in value.values():
            yield from _referred(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _referred(inner)


def fields(block: Schema, definitions: Schema) -> str:
    """The settings of a block."""
    required = set(block.get("required", block.get("else", {}).get("required", ())))
    return table(
        HEADING,
        (
            (
                code(name),
                kind(value, definitions),
                "" if value.get("default") is None else code(_default(value["default"])),
                sentence(_meaning(value, definitions)) + ("" if name not in required else " **Required.**"),
            )
            for name, value in block.get("properties", {}).items()
        ),
    )


def _meaning(value: Schema, definitions: Schema) -> str:
    """What a setting is for; of a block, what the block is for."""
    inside = (definitions[name].get("description", "") for name in _referred(value) if name in definitions)
    options = (one["description"] for one in value.get("anyOf", ()) if "description" in one)
    return str(value.get("description") or next(options, "") or next(inside, ""))


def _default(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def kind(value: Schema, definitions: Schema) -> str:
    """What values a setting may have, in words."""
    if "$ref" in value:
        return f"block {value['$ref'].rsplit('/', 1)[1]}"
    if "anyOf" in value:
        options = [kind(one, definitions) for one in value["anyOf"] if one.get("type") != "null"]
        if len(options) == 2 and options[1] == f"list of {options[0]}":
            return f"{options[0]}; or a list"
        return " or ".join(dict.fromkeys(options))
    if "const" in value:
        return code(value["const"])
    if "enum" in value:
        return ", ".join(code(one) for one in value["enum"])
    name = value.get("type")
    if name == "array":
        prefix = value.get("prefixItems")
        if prefix:
            return f"list: {', '.join(kind(one, definitions) for one in prefix)}"
        items = value.get("items")
        return f"list of {kind(items, definitions)}" if items else "list"
    if name == "object":
        inner = value.get("additionalProperties")
        if isinstance(inner, dict) and (inner.get("type") not in (None, "object") or "$ref" in inner):
            return f"{kind(inner, definitions)} by name"
        return "blocks by name"
    words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
    return words.get(str(name), "any") + _limits(value)


def _limits(value: Schema) -> str:
    found = []
    for key, words in (
        ("minimum", "at least"),
        ("exclusiveMinimum", "above"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "below"),
    ):
        if key in value and value[key] not in (MOST, 2**32):
            found.append(f"{words} {value[key]:g}")
    return f", {', '.join(found)}" if found else ""
