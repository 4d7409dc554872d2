"""The rows of claims.csv."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ketscale.analysis.claims.evidence import Evidence
from ketscale.analysis.claims.ledger import Claim
from ketscale.analysis.claims.verdicts import Verdict, judge, studies

COLUMNS = (
    "id", "statement", "number", "source", "study", "needs", "estimator", "rule", "smallest_effect",
    "verdict", "reason", "effect_of", "effect", "low", "high", "n", "hardware", "records",
)  # fmt: skip


def table(claims: Iterable[Claim], evidence: Evidence) -> list[dict[str, Any]]:
    """One row for each claim, with its verdict.

    `effect` with the ends of its interval is the reading that decides; `reason` tells the others.
    """
    return [_row(claim, judge(claim, evidence)) for claim in claims]


def _row(claim: Claim, verdict: Verdict) -> dict[str, Any]:
    reading = verdict.reading
    estimate = reading.estimate if reading else None
    # Arithmetic has neither seeds nor an interval.
    interval = estimate if estimate and estimate.n else None
    return {
        "id": claim["id"],
        "statement": claim["statement"],
        "number": "; ".join(_number(number) for number in claim["numbers"]),
        "source": claim["source"],
        "study": ", ".join(studies(claim)),
        "needs": "; ".join(claim["needs"]),
        "estimator": claim["estimator"],
        "rule": _rule(claim["rule"]),
        "smallest_effect": claim["smallest_effect"],
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "effect_of": reading.name if reading and estimate else "",
        "effect": estimate and estimate.value,
        "low": interval and interval.low,
        "high": interval and interval.high,
        "n": interval and interval.n,
        "hardware": verdict.hardware,
        "records": " ".join(verdict.records),
    }


def _rule(rule: Mapping[str, str]) -> str:
    return f"supported if {rule['supported']}; refuted if {rule['refuted']}; otherwise undecided"


def _number(number: Mapping[str, Any]) -> str:
    """One number in words, e.g. 'CPU over GPU: 2 to 3 x'."""
    low, high = number["low"], number["high"]
    size = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return f"{number['of']}: {size} {number['unit']}".rstrip()
