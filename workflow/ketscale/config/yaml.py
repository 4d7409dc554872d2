"""Reading a config file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ketscale import strict_json
from ketscale.config.file import OVER
from ketscale.errors import UserError, within

# YAML 1.1, which PyYAML reads, parses 020 as 16 and 1:30 as 90; YAML 1.2 parses 020 as 20 and 1:30 as text. People
# mean either.
_AMBIGUOUS = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")


class _Loader(yaml.SafeLoader):
    """YAML in which a key that is given twice is an error, and a number that others read otherwise."""

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """A node of text, before it is a value."""
        node = super().compose_scalar_node(anchor)
        number = node.tag.removeprefix("tag:yaml.org,2002:") in ("int", "float")
        if number and _AMBIGUOUS.fullmatch(node.value):
            problem = f'YAML readers disagree about {node.value}; write a plain number, or "{node.value}" in quotes for text'
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """A node of a mapping, before what it merges (`<<`) is in it."""
        node = super().compose_mapping_node(anchor)
        keys = set[str]()
        for key, _ in node.value:
            if str(key.value) in keys:
                problem = f"{key.value!r} is given twice; keep one of the two"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            keys.add(str(key.value))
        return node


def load(path: Path | str, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The settings in a file, not yet checked; one with `over` extends the file that it names. above: what extends it.

    Raises:
        UserError: a file is missing or is not YAML, gives a key twice, has a number that is ambiguous, or lies over itself.
    """
    path, settings = Path(path), _read(Path(path))
    if OVER not in settings:
        return settings
    below, files = settings[OVER], (*above, path.resolve())
    if not isinstance(below, str):
        raise UserError(f"{path}: {OVER}: should be the path of a config, from the folder of this file")
    under = path.parent / Path(below).expanduser()
    if under.resolve() in files:
        raise UserError(f"{path}: {OVER}: {below} lies over this file too; remove one {OVER}")
    with within(f"{path}: {OVER}"):
        return merge(settings, load(under, files))


def merge(settings: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Settings over others, block by block, as Snakemake merges files: of two values the upper one counts."""
    merged = dict(over)
    for key, value in settings.items():
        below = merged.get(key)
        merged[key] = merge(value, below) if isinstance(value, dict) and isinstance(below, dict) else value
    merged.pop(OVER, None)
    return merged


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
        settings = None
        if text.lstrip().startswith("{"):  # as Snakemake reads a config, of JSON if it is JSON
            with contextlib.suppress(ValueError):
                settings = strict_json.loads(text)
        settings = yaml.load(text, _Loader) if settings is None else settings
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line}: {getattr(error, 'problem', None) or 'not YAML'}") from None
    # PyYAML raises any of these for a value that is not of the type that its tag says, or is nested too deeply.
    except (OSError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not isinstance(settings, dict):
        raise UserError(f"{path}: not a config; write its settings as `key: value`")
    return settings
