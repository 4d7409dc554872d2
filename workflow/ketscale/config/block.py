"""A block of settings: fields with types, defaults and meanings, all in its class and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from ketscale.config.settings import Settings

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seed = Annotated[int, Meta(ge=0, lt=2**32)]


class Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings as a config gives them.

    machine: fields that say where something is on this machine; they change no number and enter no hash. They have
        defaults, for a run is not told of them; what is missing is said by `Workload.sources`.
    """

    machine: ClassVar[frozenset[str]] = frozenset()

    def faults(self) -> Iterator[str]:
        """What is wrong with these settings although each fits its type, as 'FIELD: what, and what to do'."""
        yield from ()

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Why a run with these settings among others cannot be trained, and what to do."""
        yield from ()

    def content(self) -> dict[str, Any]:
        """The fields that decide numbers, as plain values."""
        plain = msgspec.json.decode(msgspec.json.encode(self))
        return {name: value for name, value in plain.items() if name not in self.machine}

    def places(self) -> dict[str, Any]:
        """The fields that say where something is on this machine, those that are given."""
        plain = msgspec.json.decode(msgspec.json.encode(self))
        return {name: plain[name] for name in sorted(self.machine) if plain[name] is not None}
