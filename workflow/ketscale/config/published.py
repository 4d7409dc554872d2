"""The published schema: the JSON schema of a whole config, generated from the types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec.json import schema as schema

from ketscale.config.block import Block
from ketscale.config.family import OWN_MODEL, Families, model_kinds, simulators, workload_kinds
from ketscale.config.file import OVER, SPLIT_SEEDS, ConfigFile, SplitSeeds, axes_block
from ketscale.config.own_model import FileBlock


def published_schema(families: Families) -> dict[str, Any]:
    """The schema of configs with these families; required keys are reported when they are missing, not here.

    A block that is named after its kind needs no `kind`.
    """
    definitions: dict[str, Any] = {}
    full = _of_block(ConfigFile, definitions)
    properties = full["properties"]
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
        "anyOf": [_of_block(block, definitions) for block in devices]
    }
    axes = axes_block(tuple(axis for family in families.values() for axis in family.sizes))
    point = {"type": "object", "properties": _of_block(axes, definitions)["properties"]}
    point["additionalProperties"] = False
    study = definitions["StudyBlock"]["properties"]
    study["axes"] = {**point, "description": study["axes"]["description"]}
    study["points"]["anyOf"][0]["items"] = point
    over = {
        "type": "string",
        "description": "The config that this one extends, from the folder of this file: the keys here are added to it, "
        "or counts instead",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_partial({**full, "properties": {OVER: over, **properties}}),
        # A file that extends another may omit whatever that one has.
        "if": {"required": [OVER]},
        "else": {"required": full["required"]},
        "$defs": _partial(definitions),
    }


def _partial(schema: Any) -> Any:
    """A schema of the same settings, none of which must be there. A setting may be called `required` too."""

    def without(node: dict[str, Any]) -> dict[str, Any]:
        return {name: part for name, part in node.items() if name != "required" or isinstance(part, dict)}

    return json.loads(json.dumps(schema), object_hook=without)


def _of_block(block: type[Block], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a block; those of the blocks in it are added to the definitions."""
    definition = schema(block)["$defs"]
    own: dict[str, Any] = definition.pop(block.__name__)
    definitions.update(definition)
    return own


def _with_kind(block: type[Block], kind: str, definitions: dict[str, Any]) -> dict[str, Any]:
    own = _of_block(block, definitions)
    properties: Mapping[str, Any] = own.get("properties", {})
    seeds = {SPLIT_SEEDS: schema(SplitSeeds)} if "split_seed" in properties else {}
    return {**own, "properties": {"kind": {"const": kind}, **properties, **seeds}}
