"""The published schema: the JSON schema of a whole config, generated from the types."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from ketscale.config.block import Block
from ketscale.config.family import OWN_MODEL, Families, Workload, model_kinds, simulators, workload_kinds
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
    own = _with_kind(FileBlock, OWN_MODEL, definitions)
    properties["models"]["additionalProperties"]["anyOf"].append({**own, "additionalProperties": True})
    properties["simulators"]["additionalProperties"] = {
        "anyOf": [
            _inlined(block, definitions) for block in dict.fromkeys(simulators(families.values()).values())
        ]
    }
    axes = axes_block(tuple(axis for family in families.values() for axis in family.sizes))
    point = {
        key: value for key, value in _inlined(axes, definitions).items() if key not in ("title", "required")
    }
    study = definitions["StudyBlock"]["properties"]
    study["axes"] = {**point, "description": study["axes"]["description"]}
    study["points"] = {
        "type": "array",
        "minItems": 1,
        "items": point,
        "description": study["points"]["description"],
    }
    whole = definitions.pop("ConfigFile")
    over = {
        "type": "string",
        "description": "The config that this one is laid over, from the folder of this file: what stands here is added to it, "
        "or counts instead",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **{key: value for key, value in whole.items() if key != "required"},
        # A file that is laid over another may leave out whatever that one has.
        "properties": {OVER: over, **_partial(properties)},
        "if": {"required": [OVER]},
        "else": _needed({"required": whole["required"], "properties": properties}, definitions),
        "$defs": _partial(definitions),
    }


def _partial(node: Any) -> Any:
    """A schema of the same settings, none of which must be there."""
    if isinstance(node, list):
        # What is left of a choice between settings of which one must be there takes everything.
        return [part for part in map(_partial, node) if part]
    if not isinstance(node, dict):
        return node
    # A setting may be called `required` too.
    made = {
        name: _partial(part)
        for name, part in node.items()
        if name != "required" or not isinstance(part, list)
    }
    return {name: part for name, part in made.items() if name != "anyOf" or part}


def _needed(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """What a schema says of settings that must be there; empty if it says nothing of them."""
    if "$ref" in node:
        return _needed(definitions[node["$ref"].rpartition("/")[2]], definitions)
    found: dict[str, Any] = {"required": node["required"]} if "required" in node else {}
    parts = {name: _needed(part, definitions) for name, part in node.get("properties", {}).items()}
    for name in ("additionalProperties", "items"):
        if isinstance(node.get(name), dict) and (part := _needed(node[name], definitions)):
            found[name] = part
    if any(parts.values()) or "additionalProperties" in found:
        found["properties"] = (
            parts if "additionalProperties" in found else {name: one for name, one in parts.items() if one}
        )
    options = [(_needed(one, definitions), one) for one in node.get("anyOf", ())]
    if any(needed for needed, _ in options):
        found["anyOf"] = [{**needed, **_kind(one, definitions, needed)} for needed, one in options]
    return found


def _kind(
    node: Mapping[str, Any], definitions: Mapping[str, Any], needed: Mapping[str, Any]
) -> dict[str, Any]:
    """By what an option is told from the others: its type, and settings with one value."""
    if "$ref" in node:
        node = definitions[node["$ref"].rpartition("/")[2]]
    names = {
        name: {key: part[key]}
        for name, part in node.get("properties", {}).items()
        for key in ("const", "enum")
        if key in part
    }
    properties = {**needed.get("properties", {}), **names}
    return {key: node[key] for key in ("type",) if key in node} | (
        {"properties": properties} if properties else {}
    )


def _inlined(block: type[Block], definitions: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(schema(block))
    own = made["$defs"].pop(block.__name__)
    definitions.update(made["$defs"])
    return dict(own)


def _with_kind(block: type[Block], kind: str, definitions: dict[str, Any]) -> dict[str, Any]:
    own = _inlined(block, definitions)
    properties: Mapping[str, Any] = own.get("properties", {})
    made = {**own, "properties": {"kind": {"const": kind}, **properties}}
    if issubclass(block, Workload) and "split_seed" in properties:
        made["properties"][SEEDS] = _without_null(msgspec.json.schema(Seeds))
        if "split_seed" in own.get("required", []):
            made["required"] = [name for name in own["required"] if name != "split_seed"]
            made["anyOf"] = [{"required": ["split_seed"]}, {"required": [SEEDS]}]
    return made
