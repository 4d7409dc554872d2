"""A config file as it is written: its sections, the axes of its studies, and the JSON schema of the whole."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta
from msgspec.json import schema as schema

from ketscale.config.block import Block, Name, Positive, Seed
from ketscale.config.family import OWN_MODEL, Families, model_kinds, simulators, workload_kinds
from ketscale.config.own_code import FileBlock
from ketscale.config.protocol import Protocol
from ketscale.grid import LAYOUT_PATTERN, SizeAxis

# The key of a file that extends another (see `yaml.load`).
OVER = "over"

# Several splits of the same data: a workload's block with this key means one workload for each seed.
SPLIT_SEEDS = "split_seeds"
SplitSeeds = Annotated[list[Seed], Meta(min_length=1, description="Instead of split_seed: seeds of several splits of the "
    "same data, each a workload NAME.sSEED; a study that names the workload has them all")]  # fmt: skip

_Layout = Annotated[str, Meta(extra_json_schema={"pattern": LAYOUT_PATTERN, "examples": ["mpi-n1r2t1"]})]
_Blocks = dict[Name, dict[str, Any]]


class StudyBlock(Block, frozen=True, kw_only=True):
    """A named subset of the grid that asks one question."""

    kind: Annotated[Name, Meta(description="What is compared; it determines the checks, tables and figure")]
    question: Annotated[str, Meta(description="The question in one sentence")]
    axes: Annotated[dict[str, Any], Meta(description="Values shared by all points; lists are expanded")] = (
        msgspec.field(default_factory=dict)
    )
    points: Annotated[list[dict[str, Any]], Meta(min_length=1, description="Each point adds to the shared values or "
        "replaces them")] | None = None  # fmt: skip


class ConfigFile(Block, frozen=True, kw_only=True):
    """A study to run. Settings of machines are not here but in the profile."""

    title: Annotated[str, Meta(description="The title of the report")]
    # fmt: off
    results: Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": r"^[^\s'\"{}]+$"}, description=
        "The folder of all results, relative to where Snakemake runs")] = "results"
    partial: Annotated[bool, Meta(description="Build tables and report from the existing runs, and show what is "
        "missing")] = False
    cohorts: Annotated[bool, Meta(description="Train runs that differ only in seed and rates together, in one "
        "process; timed runs never are")] = True
    workloads: Annotated[_Blocks, Meta(min_length=1, description="Tasks by name; kind is the type, by default the "
        "name")]
    models: Annotated[_Blocks, Meta(description="Variants of models by name; every kind is also a model with its "
        "defaults")] = msgspec.field(default_factory=dict)
    simulators: Annotated[dict[Name, dict[str, Any]], Meta(description="Ways to evaluate and differentiate the "
        "physics, by name")] = msgspec.field(default_factory=dict)
    protocols: Annotated[dict[Name, Protocol], Meta(min_length=1, description="How a run is trained and timed, by "
        "name")]
    studies: Annotated[dict[Name, StudyBlock], Meta(min_length=1, description="Named subsets of the grid that each "
        "ask one question")]
    # fmt: on


@functools.cache
def axes_block(sizes: tuple[SizeAxis, ...]) -> type[Block]:
    """The form of a study's axes, to check and to describe them: the axes of every run, and the sizes of all families."""
    axes: dict[str, tuple[Any, str]] = {
        "workload": (Name, "Names from workloads"),
        "model": (Name, "Names from models, or kinds of models"),
        **{
            axis.name: (Annotated[int, Meta(ge=0, le=axis.most)], f"{axis.title}; 0 for a classical model")
            for axis in sizes
        },
        "batch": (Positive, "The global batch size, whatever the number of ranks"),
        "simulator": (Name, "Names from simulators; none for a classical model"),
        "backend": (_Layout, "The layout, where ranks run: NAME-n<nodes>r<ranks>t<threads>, e.g. mpi-n1r2t1"),
        "protocol": (Name, "Names from protocols"),
        "seed": (Seed, "Seeds of the initial weights, the order of samples and dropout"),
    }
    fields = []
    for name, (one, description) in axes.items():
        several = Annotated[list[one], Meta(min_length=1)]  # type: ignore[valid-type]
        kind = Annotated[one | several | msgspec.UnsetType, Meta(description=description)]  # type: ignore[valid-type]
        fields.append((name, kind, msgspec.UNSET))
    struct = msgspec.defstruct("Axes", fields, bases=(Block,), frozen=True, kw_only=True)
    return cast(type[Block], struct)


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
