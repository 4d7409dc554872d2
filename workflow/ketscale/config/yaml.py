"""Reading a config file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ketscale.errors import UserError
from ketscale.files import read_text

_MERGE = "tag:yaml.org,2002:merge"
# More than any study needs. Aliases of aliases grow exponentially, and every reader of the settings with them.
MOST_VALUES = 100_000


class _Loader(yaml.SafeLoader):
    """YAML in which a duplicate key is an error, not a lost setting. Merged keys (`<<`) may be overridden."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        # Merging writes merged keys into a mapping, also into one that is merged again elsewhere; so each is checked
        # once, before that.
        self._checked: set[yaml.MappingNode] = set()

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        self._check(node)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge `<<` as usual, after the check."""
        self._check(node)
        super().flatten_mapping(node)

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


def load(path: Path | str) -> dict[str, Any]:
    """The settings in a file, not yet checked.

    Raises:
        UserError: the file is missing or is not YAML, gives a key twice, or is too large once its aliases are written out.
    """
    try:
        text = read_text(path)
        settings = yaml.load(text, _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line}: {getattr(error, 'problem', None) or 'not YAML'}") from None
    except RecursionError:
        raise UserError(f"{path}: its values are nested too deeply; a config needs a few levels") from None
    except ValueError as error:  # a number or date that Python does not have
        raise UserError(f"{path}: cannot be read ({error})") from None
    if _values(settings, {}) > MOST_VALUES:
        raise UserError(
            f"{path}: has more than {MOST_VALUES:,} values with its aliases written out; use fewer aliases"
        )
    if not isinstance(settings, dict):
        raise UserError(f"{path}: not a config; write its settings as `key: value`")
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
