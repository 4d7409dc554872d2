"""From plain values to typed blocks. Errors are in the words of the config's author, not of a library."""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from ketscale.config.block import NAME_PATTERN, Block
from ketscale.errors import UserError
from ketscale.grid import LAYOUT_PATTERN
from ketscale.words import suggestion

B = TypeVar("B", bound=Block)

# A fault that begins with the name of its field.
_FIELD = re.compile(r"^\w+(\.[\w.-]+)?: ")


def parse(kind: type[B], value: Any, where: str) -> B:
    """The block of settings at `where` in the config.

    Raises:
        UserError: names the setting, what is wrong and what to do; the first problem found.
    """
    check(kind, value, where)
    block = msgspec.convert(value, kind)
    for fault in block.faults():
        raise UserError(at(where, fault))
    return block


def checked(block: B, where: str) -> B:
    """The block, which may have been made in code, where nothing checks the types of its fields.

    Raises:
        UserError: as for `parse`.
    """
    return parse(type(block), _given(msgspec.to_builtins(block)), where)


def _given(node: Any) -> Any:
    """Settings as an author gives them, who leaves out what is None."""
    if not isinstance(node, dict):
        return node
    return {name: _given(value) for name, value in node.items() if value is not None}


def check(kind: Any, value: Any, where: str) -> None:
    """Refuse a value that its type does not allow. An optional setting is left out and never null.

    Raises:
        UserError: names the setting and what is wrong with it; the first problem found.
    """
    _check_text(value, where)
    faults = sorted(
        _faults(_inspected(kind), value, ()),
        # A misspelt key is two faults: one key is missing and another unknown. Report the unknown one.
        key=lambda fault: (not fault.unknown, len(fault.path), fault.unknown or str(fault.path)),
    )
    if faults:
        place = ".".join([*filter(None, [where]), *map(str, faults[0].path)])
        raise UserError(f"{place or 'config'}: {faults[0].said}")


def _check_text(value: Any, where: str) -> None:
    """Refuse a key that YAML does not read as text, such as 1 or on, and text that no file can hold."""
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"{where}: {_shown(value)} has half of a character; write the whole one"
            ) from None
    inner = (
        value.items()
        if isinstance(value, Mapping)
        else enumerate(value)
        if isinstance(value, list | tuple)
        else ()
    )
    for key, item in inner:
        place = ".".join(filter(None, (where, str(key))))
        if isinstance(value, Mapping) and not isinstance(key, str):
            raise UserError(f"{place}: YAML reads this name as {_shown(key)}, not as text; put it in quotes")
        _check_text(item, place)


def resolved(kind: type[B], content: Mapping[str, Any], where: str) -> B:
    """The block that another process has resolved; it has every field, some of them null.

    Raises:
        UserError: the content does not fit this version.
    """
    try:
        return msgspec.convert({name: value for name, value in content.items() if name != "kind"}, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: not settings of this version ({error})") from None


def at(where: str, fault: str) -> str:
    """A fault with its place in the config; the fault may begin with the name of a field there."""
    if not where:
        return fault
    return f"{where}.{fault}" if _FIELD.match(fault) else f"{where}: {fault}"


class _Fault(NamedTuple):
    """What is wrong with the value at a path. unknown: the last of the path is no name of a setting."""

    path: tuple[str | int, ...]
    said: str
    unknown: bool = False


_inspected = functools.cache(inspect.type_info)


def _is_whole(value: Any) -> bool:
    """1.0 is no whole number here, and neither is what no float holds."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


class _Kind(NamedTuple):
    """What values of a type are in words, and whether a value is one."""

    words: str
    fits: Callable[[Any], bool]


_BLOCK = _Kind("a block of settings", lambda value: isinstance(value, dict))
_LIST = _Kind("a list", lambda value: isinstance(value, list | tuple))
_KINDS: dict[type[inspect.Type], _Kind] = {
    inspect.BoolType: _Kind("true or false", lambda value: isinstance(value, bool)),
    inspect.IntType: _Kind("a whole number", _is_whole),
    inspect.FloatType: _Kind("a number", _is_number),
    inspect.StrType: _Kind("text", lambda value: isinstance(value, str)),
    inspect.StructType: _BLOCK,
    inspect.DictType: _BLOCK,
    inspect.ListType: _LIST,
    inspect.VarTupleType: _LIST,
    inspect.TupleType: _LIST,
}


def _faults(kind: inspect.Type, value: Any, path: tuple[str | int, ...]) -> Iterator[_Fault]:
    """Everything that is wrong with a value, and with the values in it."""
    known = _KINDS.get(type(kind))
    if known is not None and not known.fits(value):
        yield _Fault(path, f"{_shown(value)} should be {known.words}{_hint(kind, value)}")
        return
    match kind:
        case inspect.Metadata():
            yield from _faults(kind.type, value, path)
            pattern = (kind.extra_json_schema or {}).get("pattern")
            if pattern and isinstance(value, str) and not _matches(pattern, value):
                yield _Fault(path, f"{_shown(value)} {_mismatch(pattern)}")
        case inspect.UnionType():
            yield from _faults(_meant(kind, value), value, path)
        case inspect.LiteralType() if value not in kind.values:
            choices = suggestion(str(value), list(map(str, kind.values)))
            yield _Fault(path, f"{_shown(value)} is not one of its values{choices}")
        case inspect.StructType():
            yield from _faults_of_block(kind.fields, value, path)
        case inspect.DictType():
            if len(value) < (kind.min_length or 0):
                yield _Fault(path, "nothing is defined here; define at least one")
            for key, item in value.items():
                yield from _faults(kind.key_type, key, path)
                yield from _faults(kind.value_type, item, (*path, key))
        case inspect.ListType() | inspect.VarTupleType():
            yield from _faults_of_list([kind.item_type] * len(value), kind.min_length or 0, value, path)
        case inspect.TupleType():
            yield from _faults_of_list(kind.item_types, len(kind.item_types), value, path)
        case inspect.StrType() if len(value) < (kind.min_length or 0):
            yield _Fault(path, f"{_shown(value)} is too short")
        case inspect.IntType() | inspect.FloatType():
            yield from _faults_of_number(kind, value, path)


def _meant(kind: inspect.UnionType, value: Any) -> inspect.Type:
    """The alternative that the author of a value means, which is never null."""
    options = [option for option in kind.types if not isinstance(option, inspect.NoneType)]
    for option in options:
        inner = option.type if isinstance(option, inspect.Metadata) else option
        if type(inner) in _KINDS and _KINDS[type(inner)].fits(value):
            return option
        # A number that is given as text is no misspelt word.
        if isinstance(inner, inspect.LiteralType) and isinstance(value, str) and value.isidentifier():
            return option
    return options[0]


def _faults_of_block(
    fields: Sequence[inspect.Field], value: dict[str, Any], path: tuple[str | int, ...]
) -> Iterator[_Fault]:
    known = {field.encode_name: field for field in fields}
    for name, item in value.items():
        if name in known:
            yield from _faults(known[name].type, item, (*path, name))
        else:
            yield _Fault((*path, name), f"unknown setting{suggestion(name, list(known))}", unknown=True)
    for name, field in known.items():
        if field.required and name not in value:
            meaning = isinstance(field.type, inspect.Metadata) and field.type.extra_json_schema
            described = meaning.get("description") if meaning else None
            advice = f" ({described[:1].lower()}{described[1:]})" if described else "; add it"
            yield _Fault(path, f"{name} is missing{advice}")


def _faults_of_list(
    kinds: Sequence[inspect.Type], least: int, value: list[Any], path: tuple[str | int, ...]
) -> Iterator[_Fault]:
    if not value and least:
        yield _Fault(path, "the list is empty; give at least one value, or leave the setting out")
    elif len(value) < least:
        yield _Fault(path, f"{_shown(value)} should have {least} values")
    elif len(value) > len(kinds):
        yield _Fault(path, f"{_shown(value)} has too many values")
    for place, (kind, item) in enumerate(zip(kinds, value, strict=False)):
        yield from _faults(kind, item, (*path, place))


def _faults_of_number(
    kind: inspect.IntType | inspect.FloatType, value: float, path: tuple[str | int, ...]
) -> Iterator[_Fault]:
    if kind.ge is not None and value < kind.ge:
        yield _Fault(path, f"{value} is too small; it should be at least {kind.ge}")
    if kind.gt is not None and value <= kind.gt:
        yield _Fault(path, f"{value} is too small; it should be above {kind.gt}")
    if kind.le is not None and value > kind.le:
        yield _Fault(path, f"{value} is too large; it should be at most {kind.le}")
    if kind.lt is not None and value >= kind.lt:
        yield _Fault(path, f"{value} is too large; it should be below {kind.lt}")


def _matches(pattern: str, text: str) -> bool:
    """Whether a text fits a pattern of JSON schema, where $ is the end of the text, also after a newline."""
    return re.search(re.sub(r"\$$", r"\\Z", pattern), text) is not None


def _mismatch(pattern: str) -> str:
    """What is wrong with a text that does not fit a pattern."""
    if pattern == LAYOUT_PATTERN:
        return (
            "is not a layout; write NAME-n<nodes>r<ranks>t<threads>, e.g. mpi-n1r2t1, with NAME a backend such as cpu "
            "or mpi"
        )
    if pattern == NAME_PATTERN:
        return "cannot be a name; use letters, digits and _ . - (it is part of paths)"
    return f"does not match {pattern}"


def _hint(kind: inspect.Type, value: Any) -> str:
    number = isinstance(kind, inspect.FloatType) and isinstance(value, str)
    if number and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
        return f"; YAML reads {value} as text, so write {float(value)!r}"
    return ""


def _shown(value: Any) -> str:
    text = (
        "a block of settings" if isinstance(value, Mapping) else "nothing" if value is None else repr(value)
    )
    return text if len(text) <= 60 else f"{text[:57]}..."
