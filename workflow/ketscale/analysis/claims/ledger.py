"""The ledger of published claims, claims.yaml: read and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ketscale.analysis.claims import arithmetic, conditions, estimates
from ketscale.errors import UserError
from ketscale.files import read_text
from ketscale.optional import needed_for

Claim = Mapping[str, Any]

LEDGER = Path(__file__).with_name("claims.yaml")
SCHEMA = Path(__file__).with_name("claims.schema.yaml")


def load(path: Path = LEDGER) -> list[dict[str, Any]]:
    """The claims in the ledger's order.

    Raises:
        UserError: the file is missing, not YAML, breaks its schema, or uses an id twice; or a rule is about an estimate
            that its claim does not have. Names the claim.
    """
    import yaml

    with needed_for("the ledger of claims"):
        import jsonschema

    try:
        ledger = yaml.safe_load(read_text(path))
    except FileNotFoundError:
        raise UserError(f"{path}: no such claims ledger") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    schema = yaml.safe_load(read_text(SCHEMA))
    problem = next(jsonschema.Draft202012Validator(schema).iter_errors(ledger), None)
    if problem is not None:
        problem = jsonschema.exceptions.best_match([problem])
        raise UserError(f"{path}: {_where(ledger, list(problem.absolute_path))}: {problem.message}")
    entries: list[dict[str, Any]] = ledger["claims"]
    seen: set[str] = set()
    for entry in entries:
        if entry["id"] in seen:
            raise UserError(f"{path}: two claims have the id {entry['id']}; ids must differ")
        seen.add(entry["id"])
        for fault in _faults(entry):
            raise UserError(f"{path}: claim {entry['id']}: {fault}")
    return entries


def _where(ledger: Any, place: list[str | int]) -> str:
    """A place in the ledger in words: the claim's id, if it has one, and the setting."""
    if len(place) < 2:
        return ".".join(map(str, place)) or "the file"
    claim = ledger["claims"][place[1]]
    name = claim.get("id") if isinstance(claim, Mapping) else None
    named = f"claim {name}" if isinstance(name, str) else f"claims.{place[1]}"
    return ".".join([named, *map(str, place[2:])])


def _faults(claim: Claim) -> Iterator[str]:
    """What the schema cannot say of a test."""
    test = claim.get("test")
    if test is None:
        return
    for verdict in ("supported", "refuted"):
        for name in conditions.names(test[verdict]):
            if name not in test["estimates"]:
                known = ", ".join(test["estimates"])
                yield f"test.{verdict}: no estimate is called {name}; the test has {known}"
    for name, spec in test["estimates"].items():
        where = f"test.estimates.{name}"
        kinds = [kind for kind in estimates.KINDS if kind in spec]
        if len(kinds) != 1:
            yield f"{where}: give one of {', '.join(estimates.KINDS)}"
            return
        if (kinds[0] in (*estimates.PAIRED, estimates.LOSSES)) != ("of" in spec and "over" in spec):
            yield f"{where}: {kinds[0]} {'has no' if 'of' in spec or 'over' in spec else 'needs'} of and over"
        if kinds[0] == estimates.ARITHMETIC:
            try:
                arithmetic.evaluate(spec[kinds[0]])
            except ValueError as error:
                yield f"{where}: {error}"
        elif claim["study"] is None:
            yield f"{where}: {kinds[0]} needs a study; name it under study"
        for wanted in estimates.sides(test, spec):
            for column, value in wanted.items():
                if isinstance(value, list) and column not in test.get("each", ()):
                    yield f"{where}: {column} is a list, so each must have {column}"
