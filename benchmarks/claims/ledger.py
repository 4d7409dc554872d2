"""The ledger of published claims, claims.yaml: read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ketscale.errors import UserError

Verdict = Literal["supported", "more than claimed", "refuted", "undecided", "not measured"]
SUPPORTED: Verdict = "supported"
MORE: Verdict = "more than claimed"
REFUTED: Verdict = "refuted"
UNDECIDED: Verdict = "undecided"
NOT_MEASURED: Verdict = "not measured"

LEDGER = Path(__file__).with_name("claims.yaml")

Words = Annotated[str, Meta(min_length=2)]
# Axes of runs, sizes by name, or layout, with the value that a run must have.
Filter = Mapping[str, str | int]
# Ends of a range, None where it has none.
Region = tuple[float | None, float | None]
# Changes of these leave the rule as it was.
NO_RULE = {"statement", "hardware"}


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the ledger; it has no other keys than these."""


class Spans(_Part, frozen=True):
    """Seconds of a sampled step in some spans; or over those of the step; or over those of the largest other span."""

    spans: list[str]
    over: Literal["", "the step", "the largest other"] = ""


class Asked(_Part, frozen=True):
    """What a rule reads: a quantity of the runs `of`, or, paired by seed, its ratio to that of the runs `over`.

    quantity: a column of runs.csv, spans, or `test_result`, of which the difference is read. where: what all these runs
    have. each: axes of which each value is read by itself: the given ones, or all of the study. own_cores: whether only
    runs count whose threads had a core each. times: a factor of the ratio.
    """

    name: Words
    quantity: str | Spans = "step_s"
    of: Filter = {}
    over: Filter | None = None
    where: Filter = {}
    each: dict[str, list[str | int]] = {}
    own_cores: bool = False
    times: float = 1.0


class Number(_Part, frozen=True):
    """A claimed quantity. unit: 'x' of a ratio."""

    of: Words
    low: float
    high: float
    unit: str


class Rule(_Part, frozen=True):
    """In words, when a claim is supported, more than claimed or refuted; anything else is undecided."""

    supported: Words
    refuted: Words
    more: str = ""


class Amendment(_Part, frozen=True):
    """A later change. was: the words that it replaces, by their place. verdict: what was published by those words."""

    date: datetime
    reason: Words
    was: dict[Literal["statement", "hardware", "estimator", "supported", "refuted", "more"], str]
    verdict: Verdict | None = None


class Claim(_Part, frozen=True):
    """A published claim, with the rule for its verdict.

    id: section and number. statement: in our own words. source: the project; file: of it, with the statement. hardware:
    which the statement is about. study: as FILE#STUDY under workflow/studies, or several. proxy: what that study measures
    in place of the hardware; its numbers decide nothing. needs: what a verdict lacks. estimator: how the numbers are
    computed from records, in words. committed: when the rule was. readings: what is read. regions: for each verdict, where
    the intervals of all readings lie, or of those whose names begin so; any: verdicts for which one of these is enough.
    same_losses: the largest relative difference of the first losses of runs that are compared. by: how a claim without runs
    is decided, with its verdict and reason. after_the_fact: whether the rule came with that verdict, or after its runs.
    note: what else is known.
    """

    id: Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]+$")]
    statement: Annotated[str, Meta(min_length=10)]
    source: Words
    file: Words
    hardware: Words
    committed: datetime
    study: Words | Annotated[list[str], Meta(min_length=2)] | None
    estimator: Annotated[str, Meta(min_length=10)]
    rule: Rule
    smallest_effect: Words
    numbers: list[Number] = []
    needs: list[Words] = []
    proxy: str = ""
    readings: list[Asked] = []
    regions: dict[Verdict, Region | dict[str, Region]] = {}
    any: list[Verdict] = []
    same_losses: float | None = None
    amendments: list[Amendment] = []
    by: Literal["", "argument", "arithmetic", "calculation", "reading", "running"] = ""
    verdict: Verdict | None = None
    reason: str = ""
    after_the_fact: bool = False
    note: str = ""

    @property
    def studies(self) -> list[str]:
        """The studies that test the claim, each as FILE#STUDY."""
        return [] if self.study is None else [self.study] if isinstance(self.study, str) else self.study

    @property
    def since(self) -> datetime:
        """When the rule got its words. An older record decides after the fact."""
        changes = [each.date for each in self.amendments if each.was.keys() - NO_RULE]
        return max([self.committed, *changes])


class _Ledger(_Part, frozen=True):
    """sections: what all claims of a section have, by its number. words: anchors for what several claims have."""

    sections: dict[str, dict[str, Any]]
    claims: list[dict[str, Any]]
    words: Any = None


def load(path: Path = LEDGER) -> list[Claim]:
    """The claims in the ledger's order.

    Raises:
        UserError: the file is not YAML or of another form, or uses an id twice. Names the claim.
    """
    import yaml

    found: dict[str, Claim] = {}
    name = "claims"
    try:
        ledger = msgspec.convert(yaml.safe_load(path.read_text("utf-8")), _Ledger)
        for given in ledger.claims:
            name = f"claim {given.get('id')}"
            shared = ledger.sections.get(str(given.get("id")).partition(".")[0], {})
            claim = msgspec.convert({**shared, **given}, Claim)
            without = bool(claim.by), bool(claim.verdict), bool(claim.reason), not claim.readings
            if claim.id in found or len(set(without)) > 1:
                raise UserError(
                    f"{path}: {name}: give it once, with readings, or with by, verdict and reason"
                )
            found[claim.id] = claim
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise UserError(f"{path}: {name}: {' '.join(str(error).split())}") from None
    return list(found.values())
