"""The options of a benchmark: fields of its dataclass that the command line fills in, each checked."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection
from dataclasses import field, fields
from functools import partial
from typing import Any, NamedTuple

from ketscale.errors import UserError


class Kind(NamedTuple):
    """How an option's value is read, from the option's name and the text behind it; and the names that are known."""

    read: Callable[[str, str], Any]
    metavar: str
    known: Collection[str] = ()


def option(default: Any, kind: Kind, meaning: str) -> Any:
    """A field of a dataclass that an option of its name sets.

    default: a function is called for it. None, nothing or all that is known is not said in the help, the rest is.
    """
    several = ", separated by commas" if kind.metavar in ("NAMES", "NUMBERS") else ""
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    text = "" if callable(default) or shown in (None, "") or len(str(shown)) > 20 else f" (default: {shown})"
    named = f": {', '.join(kind.known)}" if kind.known else ""
    result = {"option": (kind, f"{meaning}{several}{named}{text}")}
    return (
        field(default_factory=default, metadata=result)
        if callable(default)
        else field(default=default, metadata=result)
    )


def add_options(parser: argparse.ArgumentParser, benchmark: type) -> None:
    """Give a parser the options of a dataclass; the value of one that is not asked for is None.

    Parsing raises UserError where a value is no number, too small or no known name; it names the option.
    """
    for each in fields(benchmark):
        if "option" in each.metadata:
            kind, text = each.metadata["option"]
            name = f"--{each.name}"
            parser.add_argument(name, type=partial(kind.read, name), metavar=kind.metavar, help=text)


def names(names_of: Collection[str]) -> Kind:
    """Names, separated by commas."""
    return Kind(
        lambda option, text: tuple(_valid(option, part, names_of) for part in _parts(option, text)),
        "NAMES",
        tuple(names_of),
    )


def one_of(names_of: Collection[str]) -> Kind:
    """A single name."""

    def read(option: str, text: str) -> str:
        first, *others = names(names_of).read(option, text)
        if others:
            raise UserError(f"{option}: one of {', '.join(names_of)}, not {text}")
        return str(first)

    return Kind(read, "NAME", tuple(names_of))


def numbers(least: int) -> Kind:
    """Whole numbers from `least` on, separated by commas, in ascending order."""
    return Kind(
        lambda option, text: tuple(
            sorted(_number(option, part, int, least) for part in _parts(option, text))
        ),
        "NUMBERS",
    )


def number(least: int, kind: Callable[[str], float] = int, metavar: str = "NUMBER") -> Kind:
    """A number from `least` on."""
    return Kind(lambda option, text: _number(option, text, kind, least), metavar)


SECONDS = number(0, float, "SECONDS")


def all_cores() -> int:
    """As many threads as there are cores to run on."""
    return len(os.sched_getaffinity(0))


def _parts(option: str, text: str) -> tuple[str, ...]:
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if "" in parts:
        raise UserError(f"{option}: an empty value in {text!r}; separate values by single commas")
    return parts


def _valid(option: str, name: str, names_of: Collection[str]) -> str:
    if name not in names_of:
        raise UserError(f"{option}: no {name!r}; choose of {', '.join(names_of)}")
    return name


def _number(option: str, text: str, kind: Callable[[str], float], least: int) -> float:
    try:
        value = kind(text)
    except ValueError:
        raise UserError(f"{option}: {text!r} is not a number") from None
    if not value >= least:  # NaN fails too
        raise UserError(f"{option}: must be at least {least}, not {text}")
    return value
