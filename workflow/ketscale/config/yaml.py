"""Reading a config file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ketscale import strict_json
from ketscale.config.file import OVER
from ketscale.errors import UserError, short
from ketscale.files import expanded, read_text

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
# YAML 1.1, which PyYAML reads, takes 020 for 16 and 1:30 for 90; YAML 1.2 takes 020 for 20 and 1:30 for text. People
# mean either.
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
# More than any study needs. Aliases of aliases grow exponentially, and every reader of the settings with them.
MOST_VALUES = 100_000


class _Loader(yaml.SafeLoader):
    """YAML in which nothing is lost or taken for something else without a word.

    A duplicate key is an error, and so is a number or date that another reader, or a person, would take for something
    else. Merged keys (`<<`) may be overridden.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        # Merging writes merged keys into a mapping, also into one that is merged again elsewhere; so each is checked
        # once, before that.
        self._checked: set[yaml.MappingNode] = set()

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        self._check(node)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node, unless it is ambiguous or not of the type that it is said to be."""
        if not isinstance(node, yaml.ScalarNode):
            return super().construct_object(node, deep)
        problem = _ambiguity(node)
        if problem is None:
            try:
                return super().construct_object(node, deep)
            except (ValueError, LookupError, AttributeError) as error:
                problem = f"cannot be read ({short(error)})"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge `<<` as usual, after the check."""
        self._check(node)
        super().flatten_mapping(node)
        # The last of equal keys counts. Merges of merges would keep all, and grow exponentially.
        node.value = list(
            {self.construct_object(key, deep=True): (key, value) for key, value in node.value}.values()
        )

    def _check(self, node: yaml.MappingNode) -> None:
        if node in self._checked:
            return
        self._checked.add(node)
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            problem = None
            if not isinstance(key, str | int | float | bool | None):
                problem = "a key is not plain text"
            elif key in seen:
                problem = f"{key!r} is given twice; keep one of the two"
            if problem:
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key)


def _ambiguity(node: yaml.ScalarNode) -> str | None:
    """Why a value is not what it seems, and what to write; None if it is what it seems."""
    text, kind = node.value, node.tag.removeprefix(_TAG)
    quoted = f'"{text}" in quotes for text'
    if kind == "timestamp":
        return f'YAML reads {text} as a date; write "{text}" in quotes'
    # A number with an 8 or 9 is text here, but a number for others.
    if _LEADING_ZERO.fullmatch(text) and (kind == "int" or (node.style is None and {"8", "9"} & {*text})):
        plain = text.replace("_", "")
        return f"{text} could be octal or decimal; write {int(plain)} for the decimal number, or {quoted}"
    if _BASE_60.fullmatch(text) and kind in ("int", "float"):
        return f"YAML reads {text} as a number to the base 60; write the plain number, or {quoted}"
    return None


def _parsed(text: str) -> Any:
    """The values in a text: of JSON if it is JSON, as Snakemake reads a config, else of YAML."""
    if text.lstrip().startswith("{"):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            return strict_json.loads(text)
    return yaml.load(text, _Loader)


def load(path: Path | str) -> dict[str, Any]:
    """The settings in a file, not yet checked; one with `over` is laid over the file that it names.

    Raises:
        UserError: a file is missing or is not YAML, gives a key twice, has a value that is ambiguous, is a template, is
            too large once its aliases are written out, or lies over itself.
    """
    return _whole(Path(path), ())


def _whole(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """The settings in a file that lies under some others, with those of the files under it."""
    settings = _read(path)
    if OVER not in settings:
        return settings
    below, files = settings[OVER], (*above, path.resolve())
    if not isinstance(below, str):
        raise UserError(f"{path}: {OVER}: should be the path of a config, from the folder of this file")
    under = path.parent / expanded(below)
    if under.resolve() in files:
        raise UserError(
            f"{path}: {OVER}: {below} lies over this file, so neither is a base; remove one {OVER}"
        )
    try:
        return laid(settings, _whole(under, files))
    except UserError as error:
        raise UserError(f"{path}: {OVER}: {error}") from None


def laid(settings: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Settings over others, block by block, as Snakemake merges files: of two values the upper one counts."""
    made = dict(over)
    for key, value in settings.items():
        below = made.get(key)
        made[key] = laid(value, below) if isinstance(value, dict) and isinstance(below, dict) else value
    made.pop(OVER, None)
    return made


def _read(path: Path) -> dict[str, Any]:
    try:
        text = read_text(path)
        settings = _parsed(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line}: {getattr(error, 'problem', None) or 'not YAML'}") from None
    except RecursionError:
        raise UserError(f"{path}: its values are nested too deeply; a config needs a few levels") from None
    except ValueError as error:  # JSON that is not strict
        raise UserError(f"{path}: cannot be read ({error})") from None
    if _values(settings, {}) > MOST_VALUES:
        raise UserError(
            f"{path}: has more than {MOST_VALUES:,} values with its aliases written out; use fewer aliases"
        )
    if not isinstance(settings, dict):
        raise UserError(f"{path}: not a config; write its settings as `key: value`")
    if "__use_yte__" in settings:
        raise UserError(
            f"{path}: __use_yte__ makes it a template, which only Snakemake would fill in; write the settings themselves"
        )
    return settings


def _values(node: Any, known: dict[int, int]) -> int:
    """How many values a node has with its aliases written out; each part is counted once, then looked up."""
    if not isinstance(node, dict | list):
        return 1
    if id(node) not in known:
        # An alias inside its own anchor would never end.
        known[id(node)] = MOST_VALUES + 1
        parts = node.values() if isinstance(node, dict) else node
        known[id(node)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(node)]
