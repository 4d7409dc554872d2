"""The ledger of published claims, claims.yaml: read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ketscale.errors import UserError

# The words of verdicts, beside `undecided`.
SUPPORTED, MORE, REFUTED, NOT_MEASURED = "supported", "more than claimed", "refuted", "not measured"
UNDECIDED = "undecided"

LEDGER = Path(__file__).with_name("claims.yaml")

Words = Annotated[str, Meta(min_length=2)]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the ledger; it has no other keys than these."""


class Number(_Part, frozen=True):
    """A claimed quantity. unit: 'x' of a ratio."""

    of: Words
    low: float
    high: float
    unit: str

    def __str__(self) -> str:
        size = f"{self.low:g}" if self.low == self.high else f"{self.low:g} to {self.high:g}"
        return f"{self.of}: {size} {self.unit}".rstrip()


class Rule(_Part, frozen=True):
    """In words, when a claim is supported, more than claimed or refuted; anything else is undecided."""

    supported: Words
    refuted: Words
    more: str = ""

    def __str__(self) -> str:
        more = f"; more than claimed if {self.more}" if self.more else ""
        return f"supported if {self.supported}; refuted if {self.refuted}{more}; otherwise undecided"


class Amendment(_Part, frozen=True):
    """A later change of a rule.

    was: the words that it replaces, by their place, such as 'supported'. verdict: what was published by those words.
    """

    date: datetime
    reason: Words
    was: dict[Literal["estimator", "supported", "refuted", "more"], str]
    verdict: Literal["", "supported", "refuted", "undecided", "not measured"] = ""


class Claim(_Part, frozen=True):
    """A published claim, with the rule for its verdict.

    id: section and number. statement: in our own words. numbers: the claimed ones. source: the system that it was made
    about. study: a study of config.yaml, or FILE#STUDY under workflow/studies, or several; null without one. needs: what a
    verdict about the published setting still lacks. estimator: how the number is computed from records, in words.
    smallest_effect: that would matter to a user. committed: when its rule was. thresholds: numbers of the rule by name, or
    ranges, which `rules` reads; `same_losses`, the largest relative difference of the first losses of runs that are
    compared, decides for all of them. verdict, reason: instead of a rule that can be executed.
    """

    id: Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]+$")]
    statement: Annotated[str, Meta(min_length=10)]
    source: Words
    committed: datetime
    study: Words | Annotated[list[str], Meta(min_length=2)] | None
    estimator: Annotated[str, Meta(min_length=10)]
    rule: Rule
    smallest_effect: Words
    numbers: list[Number] = []
    needs: list[Words] = []
    thresholds: Mapping[str, float | tuple[float, float]] = {}
    amendments: list[Amendment] = []
    verdict: Literal["", "supported", "refuted", "undecided", "not measured"] = ""
    reason: str = ""

    @property
    def studies(self) -> list[str]:
        """The studies that test the claim, each as STUDY or FILE#STUDY."""
        return [] if self.study is None else [self.study] if isinstance(self.study, str) else self.study

    @property
    def since(self) -> datetime:
        """When the rule got its words. An older record decides after the fact."""
        return max([self.committed, *(each.date for each in self.amendments)])

    def limits(self, name: str) -> tuple[float, float]:
        """The ends of a threshold: equal, unless it is a range."""
        found = self.thresholds[name]
        return found if isinstance(found, tuple) else (found, found)


class _Ledger(_Part, frozen=True):
    """sections: what all claims of a section have, by its number."""

    sections: dict[str, dict[str, Any]]
    claims: list[dict[str, Any]]


def load(path: Path = LEDGER) -> list[Claim]:
    """The claims in the ledger's order.

    Raises:
        UserError: the file is missing, not YAML or of another form, or uses an id twice. Names the claim.
    """
    import yaml

    try:
        ledger = msgspec.convert(yaml.safe_load(path.read_text("utf-8")), _Ledger)
        claims = [_claim(given, ledger.sections) for given in ledger.claims]
    except FileNotFoundError:
        raise UserError(f"{path}: no such claims ledger") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: {error}") from None
    for number, claim in enumerate(claims):
        if claim.id in {other.id for other in claims[:number]}:
            raise UserError(f"{path}: two claims have the id {claim.id}; ids must differ")
        if bool(claim.verdict) != bool(claim.reason):
            raise UserError(f"{path}: claim {claim.id}: give verdict and reason, or neither")
    return claims


def _claim(given: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> Claim:
    """A claim, with what its section says.

    Raises:
        msgspec.ValidationError: it has another form. Names the claim.
    """
    name = given.get("id", "?")
    shared = sections.get(str(name).partition(".")[0], {})
    try:
        return msgspec.convert({**shared, **given}, Claim)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"claim {name}: {error}") from None
