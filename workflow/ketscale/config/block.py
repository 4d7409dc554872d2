"""A block of settings, whose class alone defines the fields, their types, defaults and descriptions; and the one validator.

That is msgspec's, called for each value, so that it reports all faults at once, each with its path.
"""

from __future__ import annotations

import functools
import math
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from ketscale.errors import UserError
from ketscale.grid import NAME
from ketscale.words import suggestion

NAME_PATTERN = f"^{NAME}$"
# Not Meta(pattern=...): if several fields share one, the process may crash at exit (seen with msgspec 0.22; its issue
# 717). `faults_of` checks it.
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
# A fault that begins with the name of its field.
_FIELD = re.compile(r"^\w+(\.[\w.-]+)?: ")
# Nobody reads more lines.
MOST_FAULTS = 10


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


B = TypeVar("B", bound=Block)


class Faults(list[str]):
    """Faults, a line each. As a context it takes those of a `UserError`, and execution continues after the block."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, UserError):
            self.extend(map(str, error.args))
        return isinstance(error, UserError)

    def refuse(self) -> None:
        """Raise all of them, each once, if there are some.

        Raises:
            UserError: has the first `MOST_FAULTS`, and how many more there are.
        """
        lines = list(dict.fromkeys(self))
        more = [f"and {len(lines) - MOST_FAULTS} more"] if len(lines) > MOST_FAULTS else []
        if lines:
            raise UserError(*lines[:MOST_FAULTS], *more)


def parse(kind: type[B], value: Any, where: str) -> B:
    """The block of settings at `where` in the config.

    Raises:
        UserError: names each setting that is wrong, and what is wrong with it.
    """
    Faults(faults_of(kind, value, where)).refuse()
    block = msgspec.convert(value, kind)
    Faults(at(where, fault) for fault in block.faults()).refuse()
    return block


def checked(block: B, where: str) -> B:
    """The block, which may have been made in code, where nothing checks the types of its fields."""
    return parse(type(block), _without_none(msgspec.to_builtins(block)), where)


def _without_none(node: Any) -> Any:
    """Settings as an author gives them, who leaves out what is None."""
    if not isinstance(node, dict):
        return node
    return {name: _without_none(value) for name, value in node.items() if value is not None}


def resolved(kind: type[B], content: Mapping[str, Any], where: str) -> B:
    """The block that another process, or an earlier version, has resolved; it has every field, some of them null.

    Raises:
        UserError: the content does not fit this version.
    """
    dropped = {"kind": content.get("kind"), **kind.former}
    values = {name: value for name, value in content.items() if name not in dropped or value != dropped[name]}
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: not settings of this version ({error})") from None


def at(where: str, fault: str) -> str:
    """A fault with its place in the config; the fault may begin with the name of a field there."""
    if not where:
        return fault
    return f"{where}.{fault}" if _FIELD.match(fault) else f"{where}: {fault}"


@functools.cache
def fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields of a block by their names in a config."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def faults_of(kind: Any, value: Any, where: str) -> Iterator[str]:
    """Everything that is wrong with a value: with what is in it, else with itself."""
    kind = _intended(kind, value)
    plain, metas = _parts(kind)
    holder, of = _holder(type(value)), get_args(plain)
    if holder is not _holder(plain):
        of = (str, Any) if holder is dict else (Any,)
    inner: list[str] = []
    if holder is dict and not of:
        inner += _of_block(plain, value, where)
    elif holder is dict:
        for key, item in value.items():
            place = f"{where}.{key}"
            inner += [*faults_of(of[0], key, place), *faults_of(of[1], item, place)]
    elif holder is list:
        for number, item in enumerate(value):
            inner += faults_of((*of, Any)[0], item, f"{where}.{number}")
    yield from inner
    if not inner and (fault := _fault(kind, plain, metas, value)):
        yield f"{where or 'config'}: {fault}"


def _of_block(kind: Any, block: Mapping[Any, Any], where: str) -> Iterator[str]:
    """What is wrong with the settings of a block of this kind."""
    fields_of, former = fields(kind), getattr(kind, "former", ())
    for name, item in block.items():
        place = f"{where}.{name}" if where else str(name)
        if name not in fields_of:
            removed = "; it was removed, and the changelog says what to use" if name in former else ""
            yield f"{place}: unknown setting{removed or suggestion(str(name), list(fields_of))}"
        elif item is None:  # whoever writes `groups_column:` and no name wants groups
            yield f"{place}: nothing is given here; give a value, or leave the setting out"
        elif item is not fields_of[name].default:  # most settings of thousands of trials are
            yield from faults_of(fields_of[name].type, item, place)
    for name, field in fields_of.items():
        if field.required and name not in block:
            meaning = next((meta.description for meta in _parts(field.type)[1] if meta.description), "add it")
            yield f"{where or 'config'}: {name} is missing ({meaning[:1].lower()}{meaning[1:]})"


def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without what is annotated of it, and this."""
    return (get_args(kind)[0], kind.__metadata__) if get_origin(kind) is Annotated else (kind, ())


def _intended(kind: Any, value: Any) -> Any:
    """The alternative that the author of a value means, if it shows: the one list, mapping or word among several."""
    plain, _ = _parts(kind)
    if get_origin(plain) not in (Union, types.UnionType):
        return kind
    options = [option for option in get_args(plain) if option not in (types.NoneType, msgspec.UnsetType)]
    fitting = [option for option in options if _holder(_parts(option)[0]) is _holder(type(value))]
    words = [option for option in fitting if get_origin(option) is Literal]
    if words and isinstance(value, str) and value.isidentifier():
        return words[0]
    return fitting[0] if len(fitting) == 1 and value is not None else kind


def _holder(kind: Any) -> type | None:
    """Whether values of a type are lists, or mappings and blocks."""
    plain = get_origin(kind) or kind
    of = plain.__mro__ if isinstance(plain, type) else ()
    return dict if {dict, msgspec.Struct} & {*of} else list if {list, tuple} & {*of} else None


def _fault(kind: Any, plain: Any, metas: Iterable[Any], value: Any) -> str:
    """What is wrong with a value itself, in msgspec's words where it has some; '' if nothing is."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is no finite number"
    text = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
    if plain is Any and not isinstance(value, str | int | float | list | dict | None):
        return f"{text} cannot be a setting; give numbers, texts, true or false, or lists of them"
    if get_origin(plain) is Literal and value not in get_args(plain):
        return f"{text} is not one of its values{suggestion(str(value), list(map(str, get_args(plain))))}"
    for form in (meta.extra_json_schema or {} for meta in metas):
        # $ is the end of the text, also after a newline.
        if isinstance(value, str) and not re.search(re.sub(r"\$$", r"\\Z", form.get("pattern", "")), value):
            return f"{text} does not match {form['pattern']}" + "".join(
                f", as {one} does" for one in form.get("examples", ())
            )
    try:
        if isinstance(value, str):
            value.encode()  # half of a character cannot be written to a file
        msgspec.convert(value, kind)
    except ValueError as error:
        number = isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value)
        return f"{text}: {error}" + (f"; YAML reads it as text, so write {float(value)!r}" if number else "")
    return ""
