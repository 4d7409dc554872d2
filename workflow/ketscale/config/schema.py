"""The config against its schema, and what breaks it in the words of the config's author."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from ketscale.errors import UserError

SCHEMA = Path(__file__).resolve().parents[2] / "schemas" / "config.schema.yaml"
_TYPES = {
    "object": "a block of settings",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


@functools.cache
def _validator(schema: Path) -> Any:
    import jsonschema

    return jsonschema.Draft202012Validator(yaml.safe_load(schema.read_text()))


def check_schema(config: Any, schema: Path = SCHEMA) -> None:
    """Refuse what breaks the schema, in the words of its author; the first problem found.

    Raises:
        UserError: names the setting and what is wrong with it.
    """
    errors = sorted(
        _validator(schema).iter_errors(config), key=lambda error: (len(error.absolute_path), str(error.path))
    )
    # A misspelt key breaks two rules: the right one is missing and the wrong one unknown. Say the latter.
    errors.sort(key=lambda error: error.validator != "additionalProperties")
    if errors:
        raise UserError(_explain(errors[0]))


def _explain(error: Any) -> str:
    """What is wrong with a setting, in the words of the config's author rather than of JSON schema."""
    where = ".".join(map(str, error.absolute_path)) or "config"
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
            # A value or a list of values: what holds for the list's items says what is wrong with a value.
            inner = [
                e
                for e in error.context
                if isinstance(value, list) == (e.schema.get("type") == "array" or len(e.path))
            ]
            return _explain(inner[0]) if inner else f"{where}: {_shown(value)} does not fit"
        case "oneOf":
            named = [next(iter(option["required"])) for option in rule if "required" in option]
            given = [name for name in named if name in value]
            return f"{where}: give {' or '.join(named)}, {'not both' if given else 'one of them is missing'}"
        case "minimum" | "exclusiveMinimum":
            return f"{where}: {value} is too small; it should be {'at least' if error.validator == 'minimum' else 'above'} {rule}"
        case "maximum" | "exclusiveMaximum":
            return f"{where}: {value} is too large; it should be {'at most' if error.validator == 'maximum' else 'below'} {rule}"
        case "minItems":
            return f"{where}: the list is empty; give at least one value, or leave the setting out"
        case "minProperties":
            return f"{where}: nothing is defined here; define at least one"
        case "uniqueItems":
            return f"{where}: a value is given twice in {_shown(value)}; keep one"
        case "pattern" if "n[1-9]" in rule:
            return (
                f"{where}: {_shown(value)} is no place to run; write NAME-n<nodes>r<ranks>t<threads>, e.g. mpi-n1r2t1, "
                "with NAME one of cpu, gpu, ddp, ddp-cpu, mpi"
            )
        case "pattern":
            return f"{where}: {_shown(value)} cannot be a name; use letters, digits and _ . - (it stands in paths)"
    return f"{where}: {error.message}"


def suggestion(name: str, known: Collection[str]) -> str:
    """'; did you mean ...?' for a misspelt name, else what there is to choose from."""
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
