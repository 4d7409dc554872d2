"""The reference of a record, from its types."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from docs._generate.markdown import code, sentence, table

from ketscale.measure import form

HEADING = ("field", "value", "meaning")


def page() -> str:
    """The fields of a record, part by part."""
    return "\n\n".join(part for struct in parts() for part in _part(struct))


def parts(struct: type[msgspec.Struct] = form.Record) -> list[type[msgspec.Struct]]:
    """A part of the record and those inside it, each once."""
    found = [struct]
    for kind in typing.get_type_hints(struct).values():
        for inner in _structs(kind):
            found += [part for part in parts(inner) if part not in found]
    return found


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if (
        inspect.isclass(kind)
        and not isinstance(kind, types.GenericAlias)
        and issubclass(kind, msgspec.Struct)
    ):
        yield kind
    for inner in typing.get_args(kind):
        yield from _structs(inner)


def _part(struct: type[msgspec.Struct]) -> Iterator[str]:
    said, meanings = described(struct)
    yield f"## {struct.__name__}"
    yield sentence(said)
    hints = typing.get_type_hints(struct)
    yield table(
        HEADING,
        (
            (code(name), _words(hints[name]), sentence(meanings.get(name, "")))
            for name in struct.__struct_fields__
        ),
    )


def described(struct: type[msgspec.Struct]) -> tuple[str, dict[str, str]]:
    """What a docstring says of the whole, and of each field: 'NAME: ...' or 'NAME, NAME: ...'."""
    names = "|".join(map(re.escape, struct.__struct_fields__))
    text = " ".join(inspect.cleandoc(struct.__doc__ or "").split())
    said, *rest = re.split(rf"(?:^|(?<=[.;]) )((?:{names})(?:, (?:{names}))*): ", text)
    bases = [base for base in struct.__bases__ if issubclass(base, msgspec.Struct) and base.__struct_fields__]
    meanings = {name: meaning for base in bases for name, meaning in described(base)[1].items()}
    for heads, meaning in zip(rest[::2], rest[1::2], strict=True):
        meanings |= dict.fromkeys(heads.split(", "), meaning.replace("None", "null"))
    return said, meanings


def _words(kind: Any) -> str:
    """The type of a field in words."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return ", ".join(code(value) for value in inner)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(one) for one in inner)
    if origin is list:
        return f"list of {_words(inner[0])}"
    if origin is dict:
        return f"{_words(inner[1])} by name"
    if inspect.isclass(kind) and issubclass(kind, msgspec.Struct):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    known = {
        int: "whole number",
        float: "number",
        str: "text",
        bool: "true or false",
        type(None): "null",
        Any: "any",
    }
    return known.get(kind, getattr(kind, "__name__", str(kind)))
