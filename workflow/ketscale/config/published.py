"""The published schema: the JSON schema of a whole config, generated from the types."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from ketscale.config.block import Block
from ketscale.config.family import OWN_MODEL, Families, model_kinds, simulators, workload_kinds
from ketscale.config.file import OVER, ConfigFile, axes_block
from ketscale.config.own_model import FileBlock
from ketscale.config.split_seeds import SEEDS, Seeds


@functools.cache
def schema(kind: type[Block]) -> dict[str, Any]:
    """msgspec's JSON schema of a block, except that an optional setting is left out and never null."""
    made: dict[str, Any] = _without_null(msgspec.json.schema(kind))
    return made


def _without_null(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _without_null(value) for key, value in node.items()}
    options = [option for option in node.get("anyOf", ()) if option != {"type": "null"}]
    if "anyOf" in node and len(options) < len(node["anyOf"]):
        rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
        return {**rest, **options[0]} if len(options) == 1 else {**rest, "anyOf": options}
    if isinstance(node.get("type"), list):
        kinds = [kind for kind in node["type"] if kind != "null"]
        node["type"] = kinds[0] if len(kinds) == 1 else kinds
    return node


def published_schema(families: Families) -> dict[str, Any]:
    """The schema of configs with these families; what must be in a block is said when it is missing, and not here.

    A block that is named after its kind needs no `kind`.
    """
    made = copy.deepcopy(schema(ConfigFile))
    definitions = made.pop("$defs")
    whole = definitions.pop("ConfigFile")
    properties = whole["properties"]
    by_section: dict[str, Mapping[str, type[Block]]] = {
        "workloads": workload_kinds(families.values()),
        "models": model_kinds(families.values()),
    }
    for section, kinds in by_section.items():
        options = {kind: _with_kind(block, kind, definitions) for kind, block in kinds.items()}
        properties[section] |= {"properties": options, "additionalProperties": {"anyOf": [*options.values()]}}
    own = _with_kind(FileBlock, OWN_MODEL, definitions) | {"additionalProperties": True}
    properties["models"]["additionalProperties"]["anyOf"].append(own)
    devices = dict.fromkeys(simulators(families.values()).values())
    properties["simulators"]["additionalProperties"] = {
        "anyOf": [_inlined(block, definitions) for block in devices]
    }
    point = _inlined(
        axes_block(tuple(axis for family in families.values() for axis in family.sizes)), definitions
    )
    del point["title"]
    study = definitions["StudyBlock"]["properties"]
    study["axes"] = {**point, "description": study["axes"]["description"]}
    study["points"] |= {"items": point}
    over = {
        "type": "string",
        "description": "The config that this one is laid over, from the folder of this file: what stands here is added to it, "
        "or counts instead",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_partial({**whole, "properties": {OVER: over, **properties}}),
        # A file that is laid over another may leave out whatever that one has.
        "if": {"required": [OVER]},
        "else": {"required": whole["required"]},
        "$defs": _partial(definitions),
    }


def _partial(node: Any) -> Any:
    """A schema of the same settings, none of which must be there. A setting may be called `required` too."""
    if isinstance(node, list):
        return [_partial(part) for part in node]
    if not isinstance(node, dict):
        return node
    return {
        name: _partial(part)
        for name, part in node.items()
        if name != "required" or not isinstance(part, list)
    }


def _inlined(block: type[Block], definitions: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(schema(block))
    own = made["$defs"].pop(block.__name__)
    definitions.update(made["$defs"])
    return dict(own)


def _with_kind(block: type[Block], kind: str, definitions: dict[str, Any]) -> dict[str, Any]:
    own = _inlined(block, definitions)
    properties: Mapping[str, Any] = own.get("properties", {})
    seeds = {SEEDS: _without_null(msgspec.json.schema(Seeds))} if "split_seed" in properties else {}
    return {**own, "properties": {"kind": {"const": kind}, **properties, **seeds}}
