"""A block of settings: fields with types, defaults and meanings, all in its class and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
# Not Meta(pattern=...): where several fields share one, the process may crash as it exits (seen with msgspec 0.22; its
# issue 717). The JSON schema, which is asked first, checks the pattern all the same.
Name = Annotated[str, Meta(extra_json_schema={"pattern": NAME_PATTERN})]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seed = Annotated[int, Meta(ge=0, lt=2**32)]


class Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings as a config gives them.

    machine: fields that say where something is on this machine; they change no number and enter no hash. They have
        defaults, for runs and tables are not told of them; what is missing is said by `misplaced`.
    """

    machine: ClassVar[frozenset[str]] = frozenset()

    def faults(self) -> Iterator[str]:
        """What is wrong with these settings although each fits its type, as 'FIELD: what, and what to do'."""
        yield from ()

    def misplaced(self) -> Iterator[str]:
        """What is wrong with where things are said to be on this machine, as `faults`."""
        yield from ()

    def content(self) -> dict[str, Any]:
        """The fields that decide numbers, as plain values."""
        plain = msgspec.json.decode(msgspec.json.encode(self))
        return {name: value for name, value in plain.items() if name not in self.machine}

    def places(self) -> dict[str, Any]:
        """The fields that say where something is on this machine, those that are given."""
        plain = msgspec.json.decode(msgspec.json.encode(self))
        return {name: plain[name] for name in sorted(self.machine) if plain[name] is not None}
