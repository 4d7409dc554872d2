"""The reference of a record, from its types."""

from __future__ import annotations

import inspect
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
    hints = typing.get_type_hints(struct, include_extras=True)
    yield f"## {struct.__name__}"
    yield sentence(" ".join(inspect.cleandoc(struct.__doc__ or "").split()))
    yield table(
        HEADING,
        (
            (code(name), _words(hints[name]), sentence(meaning(hints[name])))
            for name in struct.__struct_fields__
        ),
    )


def meaning(kind: Any) -> str:
    """The description of a field."""
    metas = getattr(kind, "__metadata__", ())
    return next((meta.description for meta in reversed(metas) if meta.description), "")


def _words(kind: Any) -> str:
    """The type of a field in words."""
    if typing.get_origin(kind) is typing.Annotated:
        return _words(typing.get_args(kind)[0])
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
