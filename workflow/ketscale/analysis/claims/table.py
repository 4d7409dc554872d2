"""The rows of claims.csv."""

from __future__ import annotations

from typing import Any

from ketscale.analysis.claims.evidence import Evidence
from ketscale.analysis.claims.ledger import Claim
from ketscale.analysis.claims.verdicts import Verdict, judge, tested

COLUMNS = (
    "id", "statement", "number", "source", "study", "needs", "estimator", "rule", "smallest_effect",
    "verdict", "reason", "effect_of", "effect", "low", "high", "n", "hardware", "records",
)  # fmt: skip


def table(evidence: Evidence) -> list[dict[str, Any]]:
    """A row with its verdict for each claim that a study of the config tests.

    `effect` with the ends of its interval is the reading that decides; `reason` tells the others.
    """
    return [row(claim, judge(claim, evidence)) for claim in tested(evidence.config)]


def row(claim: Claim, verdict: Verdict) -> dict[str, Any]:
    """A claim and its verdict in words and numbers."""
    reading = verdict.reading
    estimate = reading and reading.estimate
    return {
        "id": claim.id,
        "statement": claim.statement,
        "number": "; ".join(map(str, claim.numbers)),
        "source": claim.source,
        "study": ", ".join(claim.studies),
        "needs": "; ".join(claim.needs),
        "estimator": claim.estimator,
        "rule": str(claim.rule),
        "smallest_effect": claim.smallest_effect,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "effect_of": reading.name if reading and estimate else "",
        "effect": estimate and estimate.value,
        "low": estimate and estimate.low,
        "high": estimate and estimate.high,
        "n": estimate and estimate.n,
        "hardware": verdict.hardware,
        "records": " ".join(verdict.records),
    }
