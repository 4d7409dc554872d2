"""From plain values to typed blocks. Errors are in the words of the config's author, not of JSON schema."""

from __future__ import annotations

import difflib
import functools
import math
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from ketscale.config.block import NAME_PATTERN, Block
from ketscale.errors import UserError
from ketscale.grid import LAYOUT_PATTERN

B = TypeVar("B", bound=Block)

_TYPES = {
    "object": "a block of settings",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
# A fault that begins with the name of its field.
_FIELD = re.compile(r"^\w+(\.[\w.-]+)?: ")


def parse(kind: type[B], value: Any, where: str) -> B:
    """The block of settings at `where` in the config.

    Raises:
        UserError: names the setting, what is wrong and what to do; the first problem found.
    """
    check(schema(kind), value, where)
    return checked(msgspec.convert(value, kind), where)


def checked(block: B, where: str) -> B:
    """The block, which may have been made in code, where nothing checks the types of its fields.

    Raises:
        UserError: a field has a value that its type does not allow, or fields do not go together.
    """
    try:
        msgspec.convert(msgspec.to_builtins(block), type(block))
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {error}") from None
    for fault in block.faults():
        raise UserError(at(where, fault))
    return block


def check(rules: Mapping[str, Any], value: Any, where: str) -> None:
    """Refuse a value that breaks a JSON schema.

    Raises:
        UserError: names the setting and what is wrong with it; the first problem found.
    """
    _check_text(value, where)
    errors = sorted(
        _validator()(rules).iter_errors(value),
        key=lambda error: (len(error.absolute_path), str(error.path)),
    )
    # A misspelt key breaks two rules: one key is missing and another unknown. Report the unknown one.
    errors.sort(key=lambda error: error.validator != "additionalProperties")
    if errors:
        raise UserError(_explain(errors[0], where))


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
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, item in inner:
        place = ".".join(filter(None, (where, str(key))))
        if isinstance(value, Mapping) and not isinstance(key, str):
            raise UserError(f"{place}: YAML reads this name as {_shown(key)}, not as text; put it in quotes")
        _check_text(item, place)


@functools.cache
def _validator() -> Any:
    """JSON schema's validator, but as strict as msgspec: 1.0 is no whole number, and infinity and NaN are no numbers.

    As in JSON schema's own dialect, but not in Python's, $ in a pattern is the end of the text, also after a newline.
    """
    import jsonschema

    def whole(checker: Any, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max

    def number(checker: Any, value: Any) -> bool:
        return whole(checker, value) or (isinstance(value, float) and math.isfinite(value))

    def pattern(validator: Any, rule: str, value: Any, parent: Any) -> Iterator[Any]:
        if isinstance(value, str) and not re.search(re.sub(r"\$$", r"\\Z", rule), value):
            yield jsonschema.ValidationError(f"{_shown(value)} does not match {rule}")

    strict = jsonschema.Draft202012Validator
    types = strict.TYPE_CHECKER.redefine_many({"integer": whole, "number": number})
    return jsonschema.validators.extend(strict, {"pattern": pattern}, type_checker=types)


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


@functools.cache
def schema(kind: type[Block]) -> dict[str, Any]:
    """msgspec's JSON schema of a block, except that an optional setting is left out and never null."""
    made: dict[str, Any] = _without_null(msgspec.json.schema(kind))
    return made


def _without_null(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _without_null(value) for key, value in node.items()}
    options = [option for option in node.get("anyOf", ()) if option != {"type": "null"}]
    if "anyOf" in node and len(options) < len(node["anyOf"]):
        rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
        return {**rest, **options[0]} if len(options) == 1 else {**rest, "anyOf": options}
    if isinstance(node.get("type"), list):
        kinds = [kind for kind in node["type"] if kind != "null"]
        node["type"] = kinds[0] if len(kinds) == 1 else kinds
    return node


def _explain(error: Any, root: str) -> str:
    """What is wrong with a setting, in the words of the config's author."""
    place = ".".join(map(str, error.absolute_path))
    where = ".".join(filter(None, (root, place))) or "config"
    value, rule = error.instance, error.validator_value
    match error.validator:
        case "additionalProperties":
            known = list(error.schema.get("properties", {}))
            unknown = next(str(key) for key in value if key not in known)
            path = f"{where}.{unknown}" if where != "config" else unknown
            return f"{path}: unknown setting{suggestion(unknown, known)}"
        case "required":
            missing = next(key for key in rule if key not in value)
            described = error.schema.get("properties", {}).get(missing, {}).get("description")
            return f"{where}: {missing} is missing" + (f" ({_lower(described)})" if described else "; add it")
        case "type":
            return f"{where}: {_shown(value)} should be {_kind(rule)}{_number_hint(value, rule)}"
        case "enum":
            return f"{where}: {_shown(value)} is not one of its values{suggestion(str(value), list(map(str, rule)))}"
        case "anyOf":
            # A value or a list of values: report the fault of the alternative that the author meant.
            inner = [
                e
                for e in error.context
                if isinstance(value, list) == (e.schema.get("type") == "array" or len(e.path))
            ]
            return _explain(inner[0], root) if inner else f"{where}: {_shown(value)} does not fit"
        case "minimum" | "exclusiveMinimum":
            return f"{where}: {value} is too small; it should be {'at least' if error.validator == 'minimum' else 'above'} {rule}"
        case "maximum" | "exclusiveMaximum":
            return f"{where}: {value} is too large; it should be {'at most' if error.validator == 'maximum' else 'below'} {rule}"
        case "minItems":
            return (
                f"{where}: the list is empty; give at least one value, or leave the setting out"
                if not value
                else f"{where}: {_shown(value)} should have {rule} values"
            )
        case "maxItems" | "items" if isinstance(value, list):
            return f"{where}: {_shown(value)} has too many values"
        case "minProperties":
            return f"{where}: nothing is defined here; define at least one"
        case "pattern" if rule == LAYOUT_PATTERN:
            return (
                f"{where}: {_shown(value)} is not a layout; write NAME-n<nodes>r<ranks>t<threads>, e.g. mpi-n1r2t1, "
                "with NAME a backend such as cpu or mpi"
            )
        case "pattern" if rule == NAME_PATTERN:
            return f"{where}: {_shown(value)} cannot be a name; use letters, digits and _ . - (it is part of paths)"
    return f"{where}: {error.message}"


def suggestion(name: str, known: Collection[str]) -> str:
    """'; did you mean ...?' for a misspelt name, else the choices."""
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return (
        f"; did you mean {close[0]}?"
        if close
        else f"; choose from {', '.join(known) or 'nothing: none is defined'}"
    )


def _kind(rule: str | list[str]) -> str:
    return " or ".join(_TYPES.get(kind, kind) for kind in ([rule] if isinstance(rule, str) else rule))


def _shown(value: Any) -> str:
    text = (
        "a block of settings" if isinstance(value, Mapping) else "nothing" if value is None else repr(value)
    )
    return text if len(text) <= 60 else f"{text[:57]}..."


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _number_hint(value: Any, rule: str | list[str]) -> str:
    if isinstance(value, str) and "number" in rule and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
        return f"; YAML reads {value} as text, so write {float(value)!r}"
    return ""
