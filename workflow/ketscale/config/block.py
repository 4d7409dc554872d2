"""A block of settings. Its class alone defines the fields, their types, defaults and descriptions."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from ketscale.grid import NAME

NAME_PATTERN = f"^{NAME}$"
# Not Meta(pattern=...): if several fields share one, the process may crash at exit (seen with msgspec 0.22; its issue
# 717). `parsing` checks it.
Name = Annotated[str, Meta(extra_json_schema={"pattern": NAME_PATTERN})]
# What 32 bits hold: more is a mistake, and tensors, files and messages count no further.
MOST = 2**31 - 1
Count = Annotated[int, Meta(ge=0, le=MOST)]
Positive = Annotated[int, Meta(ge=1, le=MOST)]
# A real number above 0, and text that is not empty.
Above0 = Annotated[float, Meta(gt=0)]
Text = Annotated[str, Meta(min_length=1)]
SEEDS = 2**32
Seed = Annotated[int, Meta(ge=0, lt=SEEDS)]


class Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings as a config gives them.

    machine: fields that say where something is on this machine. They change no number and are in no hash. They have
        defaults, since runs and tables are not given them; `misplaced` reports those that are missing.
    later: fields that earlier versions lacked. With its default such a field is in no hash, so that what was trained
        before there was one stays trained.
    former: fields that earlier versions had, with the only value that is left of each, which stays in the hashes.
    """

    machine: ClassVar[frozenset[str]] = frozenset()
    later: ClassVar[frozenset[str]] = frozenset()
    former: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def faults(self) -> Iterator[str]:
        """What is wrong although each setting fits its type, as 'FIELD: what is wrong, and what to do'."""
        yield from ()

    def misplaced(self) -> Iterator[str]:
        """What is wrong with the locations on this machine, in the form of `faults`."""
        yield from ()

    def content(self) -> dict[str, Any]:
        """The fields that affect numbers, as plain values."""
        defaults = _defaults(type(self))
        omitted = self.machine | {name for name in self.later if getattr(self, name) == defaults[name]}
        own = {name: value for name, value in self._plain().items() if name not in omitted}
        return {**self.former, **own}

    def places(self) -> dict[str, Any]:
        """The given fields that say where something is on this machine."""
        plain = self._plain()
        return {name: plain[name] for name in sorted(self.machine) if plain[name] is not None}

    def _plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return plain


@functools.cache
def _defaults(kind: type[Block]) -> dict[str, Any]:
    """The defaults of the fields that earlier versions lacked."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    return {name: fields[name].default for name in kind.later}
