"""Verdicts: what the records say about a claim, by the rule that was written down before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.claims.ledger import MORE, NOT_MEASURED, REFUTED, SUPPORTED, UNDECIDED, Claim, load
from benchmarks.claims.readings import UNPLANNED, Reader, Reading, rows_of
from benchmarks.claims.rules import rule
from ketscale.analysis.comparison import Collected
from ketscale.analysis.intervals import LEVEL, Estimate
from ketscale.config import Config
from ketscale.grid import BACKENDS, Run

# So many readings are told in a reason.
MOST_READINGS = 4
# Columns of the table, with what they have of an estimate.
ENDS = {"effect": "value", "low": "low", "high": "high", "n": "n"}


@dataclass(frozen=True)
class Verdict:
    """A verdict, why, the reading that decides it, and the records that it came from on one kind of host.

    subject: what the records are about: models, simulators and devices. after_the_fact: whether the rule got its words
    after they were measured.
    """

    claim: Claim
    verdict: str
    reason: str
    reading: Reading | None = None
    hardware: str = ""
    records: tuple[str, ...] = ()
    subject: str = ""
    after_the_fact: bool = False

    @property
    def estimate(self) -> Estimate | None:
        """The effect that decides."""
        return self.reading.estimate if self.reading else None


def tested(config: Config) -> list[Claim]:
    """The claims that a study of the config tests, in the ledger's order: with both sides of some comparison."""
    nothing = Collected.of(config, (), {}, {})
    ruled = (claim for claim in load() if not claim.verdict)
    return [claim for claim in ruled if any(UNPLANNED not in each.fault for each in _asked(claim, nothing))]


def judged(collected: Collected) -> list[Verdict]:
    """The verdicts on the claims that a study of the config tests."""
    return [judge(claim, collected) for claim in tested(collected.config)]


def judge(claim: Claim, collected: Collected) -> Verdict:
    """The verdict on a claim by its rule.

    Each class of hosts is judged by itself, unless the claim compares devices, and so the hosts that have them; they must
    not contradict each other. Any host may decide by chance, so together they hold with 95 % (Bonferroni). Where nothing
    was measured since the rule got its words, older records may decide, after the fact.
    """
    planned = {run for reading in _asked(claim, collected) for run in reading.planned}
    new = _since(claim, collected)
    found = _judged(claim, new, planned)
    if found.verdict != NOT_MEASURED or rows_of(new, planned):
        return found
    old = _judged(claim, collected, planned)
    if old.verdict == NOT_MEASURED:
        return found
    earlier = claim.amendments[-1].verdict if claim.amendments else ""
    known = f"its rule is of {claim.since:%Y-%m-%d}" + f", by the words before it {earlier}" * bool(earlier)
    return replace(old, reason=f"after the fact ({known}): {old.reason}", after_the_fact=True)


def _judged(claim: Claim, collected: Collected, planned: set[Run]) -> Verdict:
    hosts = sorted({row["hardware"] for row in rows_of(collected, planned)})
    if not hosts or len({BACKENDS[run.backend].device for run in planned}) > 1:
        hosts = [""]
    found = [_on(host, claim, collected, 1 - (1 - LEVEL) / len(hosts)) for host in hosts]
    decided = [each for each in found if each.verdict not in (UNDECIDED, NOT_MEASURED)]
    if len({each.verdict for each in decided}) > 1:
        told = "; ".join(f"{each.verdict} on {each.hardware}" for each in decided)
        return Verdict(claim, UNDECIDED, f"hosts differ: {told}")
    return max(found, key=lambda each: (each in decided, each.verdict == UNDECIDED))


def _asked(claim: Claim, collected: Collected) -> list[Reading]:
    """What the rule reads."""
    ruling = rule(claim.id)(Reader(claim, collected))
    return [reading for condition in ruling.values() for reading in condition(LEVEL).readings]


def _since(claim: Claim, collected: Collected) -> Collected:
    """What was not measured before the claim's rule had its words."""
    old = {run for run, record in collected.records.items() if record.started < claim.since}
    new = {key: [row for row in group if Run.of(row) not in old] for key, group in collected.points.items()}
    why = f"measured before its rule was written ({claim.since:%Y-%m-%d %H:%M})"
    return replace(collected, points=new, why={**collected.why, **dict.fromkeys(old, why)})


def _on(host: str, claim: Claim, collected: Collected, level: float) -> Verdict:
    """The verdict on one class of hosts, or on all for ''."""
    points = collected.points.items()
    own = {key: [row for row in group if host in ("", row["hardware"])] for key, group in points}
    conditions = rule(claim.id)(Reader(claim, replace(collected, points=own)))
    ruling = {verdict: condition(level) for verdict, condition in conditions.items()}
    holding = [verdict for verdict, found in ruling.items() if found.truth]
    # One number of a claim may be more than claimed, and another less.
    if MORE in holding and ruling[REFUTED].truth is not False:
        holding.remove(MORE)
    for verdict in holding if len(holding) == 1 else ():
        return _verdict(claim, verdict, [ruling[verdict].witness, *ruling[verdict].readings], collected)
    readings = [reading for found in ruling.values() for reading in found.readings]
    unknown = [found.witness for found in ruling.values() if found.truth is None]
    absent = [reading for reading in readings if reading.absent]
    # If all conditions are known to fail, nothing that is still absent can decide.
    if unknown and absent:
        return _verdict(claim, NOT_MEASURED, [*absent, *readings], collected)
    return _verdict(claim, UNDECIDED, [*unknown[:1], ruling[SUPPORTED].witness, *readings], collected)


def _verdict(claim: Claim, verdict: str, readings: Sequence[Reading], collected: Collected) -> Verdict:
    """A verdict with the reading that decides it first, unless nothing is measured."""
    told = list(dict.fromkeys(each.words for each in readings))
    more = [f"and {len(told) - MOST_READINGS} more"] if len(told) > MOST_READINGS else []
    runs = dict.fromkeys(run for each in readings for run in each.runs)
    return Verdict(
        claim,
        verdict,
        "; ".join(told[:MOST_READINGS] + more),
        None if verdict == NOT_MEASURED else readings[0],
        " and ".join(sorted({row["hardware"] for row in rows_of(collected, runs)})),
        tuple(f"{collected.config.results}/{run.path}" for run in runs),
        _subject(runs),
    )


def _subject(runs: Iterable[Run]) -> str:
    """What runs are about, such as 'hydra by default.qubit on CPU'."""
    said = {
        run.model
        + f" by {run.simulator}" * (run.simulator != "none")
        + f" on {BACKENDS[run.backend].device.upper()}"
        for run in runs
    }
    return ", ".join(sorted(said))


def row(verdict: Verdict) -> dict[str, Any]:
    """A row of the table of claims. effect: of the reading that decides, with its 95 % interval and number of seeds."""
    claim, found = verdict.claim, verdict.estimate
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
        "after_the_fact": verdict.after_the_fact,
        "subject": verdict.subject,
        "reason": verdict.reason,
        "effect_of": verdict.reading.name if verdict.reading and found else "",
        **{name: getattr(found, part, None) for name, part in ENDS.items()},
        "hardware": verdict.hardware,
        "records": " ".join(verdict.records),
    }
