"""The published schema: the JSON schema of a whole config, generated from the types."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from ketscale.config.block import Block
from ketscale.config.family import Families, model_kinds, simulators, workload_kinds
from ketscale.config.file import ConfigFile, axes_schema
from ketscale.config.parsing import schema


def published_schema(families: Families) -> dict[str, Any]:
    """The schema of configs with these families. A block that is named after its kind needs no `kind`."""
    made = copy.deepcopy(schema(ConfigFile))
    definitions = made.pop("$defs")
    properties = definitions["ConfigFile"]["properties"]
    by_section: dict[str, Mapping[str, type[Block]]] = {
        "workloads": workload_kinds(families.values()),
        "models": model_kinds(families.values()),
    }
    for section, kinds in by_section.items():
        options = {kind: _with_kind(block, kind, definitions) for kind, block in kinds.items()}
        properties[section]["properties"] = options
        properties[section]["additionalProperties"] = {
            "anyOf": [
                {**option, "required": [*option.get("required", []), "kind"]} for option in options.values()
            ]
        }
    properties["simulators"]["additionalProperties"] = {
        "anyOf": [
            _inlined(block, definitions) for block in dict.fromkeys(simulators(families.values()).values())
        ]
    }
    axes = axes_schema(tuple(axis for family in families.values() for axis in family.sizes))
    study = definitions["StudyBlock"]["properties"]
    study["axes"] = {**axes, "description": study["axes"]["description"]}
    study["points"] = {
        "type": "array",
        "minItems": 1,
        "items": axes,
        "description": study["points"]["description"],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **definitions.pop("ConfigFile"),
        "$defs": definitions,
    }


def _inlined(block: type[Block], definitions: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(schema(block))
    own = made["$defs"].pop(block.__name__)
    definitions.update(made["$defs"])
    return dict(own)


def _with_kind(block: type[Block], kind: str, definitions: dict[str, Any]) -> dict[str, Any]:
    own = _inlined(block, definitions)
    properties: Mapping[str, Any] = own.get("properties", {})
    return {**own, "properties": {"kind": {"const": kind}, **properties}}
