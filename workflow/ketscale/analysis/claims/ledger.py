"""The ledger of published claims, written before their studies are run; read from claims.yaml."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ketscale.errors import UserError

LEDGER = Path(__file__).with_name("claims.yaml")
SCHEMA = Path(__file__).with_name("claims.schema.yaml")
COLUMNS = (
    "id",
    "statement",
    "number",
    "source",
    "study",
    "needs",
    "estimator",
    "rule",
    "smallest_effect",
    "verdict",
)


def load(path: Path = LEDGER) -> list[dict[str, Any]]:
    """The claims in the ledger's order.

    Raises:
        UserError: the file is missing, not YAML, breaks its schema, or uses an id twice.
    """
    import jsonschema
    import yaml

    try:
        ledger = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise UserError(f"{path}: no such claims ledger") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    schema = yaml.safe_load(SCHEMA.read_text())
    problem = next(jsonschema.Draft202012Validator(schema).iter_errors(ledger), None)
    if problem is not None:
        where = ".".join(map(str, problem.absolute_path)) or "the file"
        raise UserError(f"{path}: {where}: {problem.message}")
    entries: list[dict[str, Any]] = ledger["claims"]
    seen: set[str] = set()
    for entry in entries:
        if entry["id"] in seen:
            raise UserError(f"{path}: two claims have the id {entry['id']}; ids must differ")
        seen.add(entry["id"])
    return entries


def table(claims: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of claims.csv. A verdict stays open until a study of its own decides it."""
    return [
        {
            "id": claim["id"],
            "statement": claim["statement"],
            "number": "; ".join(_number(number) for number in claim["numbers"]),
            "source": claim["source"],
            "study": claim["study"] or "",
            "needs": "; ".join(claim["needs"]),
            "estimator": claim["estimator"],
            "rule": _rule(claim["rule"]),
            "smallest_effect": claim["smallest_effect"],
            "verdict": "open",
        }
        for claim in claims
    ]


def _rule(rule: Mapping[str, str]) -> str:
    return f"supported if {rule['supported']}; refuted if {rule['refuted']}; otherwise undecided"


def _number(number: Mapping[str, Any]) -> str:
    """One number in words, e.g. 'CPU over GPU: 2 to 3 x'."""
    low, high = number["low"], number["high"]
    size = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return f"{number['of']}: {size} {number['unit']}".rstrip()
