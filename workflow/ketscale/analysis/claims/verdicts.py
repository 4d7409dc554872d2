"""Verdicts, the rows of claims.csv: what the records say about a claim, by the rule that was written down before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ketscale.analysis.claims.ledger import Claim, load
from ketscale.analysis.claims.readings import UNPLANNED, Reader, Reading, rows_of
from ketscale.analysis.claims.rules import rule
from ketscale.analysis.collected import Collected
from ketscale.analysis.intervals import LEVEL
from ketscale.analysis.verdicts import MORE, NOT_MEASURED, REFUTED, SUPPORTED, UNDECIDED
from ketscale.config import Config
from ketscale.grid import BACKENDS, Run

# So many readings are told in a reason.
MOST_READINGS = 4


@dataclass(frozen=True)
class Verdict:
    """A verdict, why, the reading that decides it, and the records that it came from on one kind of host."""

    verdict: str
    reason: str
    reading: Reading | None = None
    hardware: str = ""
    records: tuple[str, ...] = ()


def tested(config: Config) -> list[Claim]:
    """The claims that a study of the config tests, in the ledger's order: with both sides of some comparison."""
    nothing = Collected.of(config, (), {}, {})
    ruled = (claim for claim in load() if not claim.verdict)
    return [claim for claim in ruled if any(UNPLANNED not in each.fault for each in _asked(claim, nothing))]


def table(collected: Collected) -> list[dict[str, Any]]:
    """A row of claims.csv with its verdict for each claim that a study of the config tests.

    `effect` with the ends of its interval is the reading that decides; `reason` tells the others.
    """
    return [_row(claim, judge(claim, collected)) for claim in tested(collected.config)]


def judge(claim: Claim, collected: Collected) -> Verdict:
    """The verdict on a claim by its rule.

    Each class of hosts is judged by itself, unless the claim compares devices, and so the hosts that have them; they must
    not contradict each other. Any host may decide by chance, so together they hold with 95 % (Bonferroni).
    """
    planned = {run for reading in _asked(claim, collected) for run in reading.planned}
    new = _since(claim, collected)
    hosts = sorted({row["hardware"] for row in rows_of(new, planned)})
    if not hosts or len({BACKENDS[run.backend].device for run in planned}) > 1:
        hosts = [""]
    found = [_on(host, claim, new, 1 - (1 - LEVEL) / len(hosts)) for host in hosts]
    decided = [each for each in found if each.verdict not in (UNDECIDED, NOT_MEASURED)]
    if len({each.verdict for each in decided}) > 1:
        told = "; ".join(f"{each.verdict} on {each.hardware}" for each in decided)
        return Verdict(UNDECIDED, f"hosts differ: {told}")
    best = max(found, key=lambda each: (each in decided, each.verdict == UNDECIDED))
    if best.verdict == NOT_MEASURED and UNPLANNED in best.reason:
        return replace(best, reason=f"{best.reason}; {_to_run(claim)}")
    return best


def _asked(claim: Claim, collected: Collected) -> list[Reading]:
    """What the rule reads."""
    ruling = rule(claim.id)(Reader(claim, collected))
    return [reading for condition in ruling.values() for reading in condition(LEVEL).readings]


def _since(claim: Claim, collected: Collected) -> Collected:
    """What was not measured before the claim's rule had its words."""
    old = {run for run, record in collected.records.items() if record.started < claim.since}
    groups = collected.points.items()
    new = {key: [row for row in group if Run.of(row) not in old] for key, group in groups}
    why = f"measured before its rule was written ({claim.since:%Y-%m-%d %H:%M})"
    return replace(collected, points=new, why={**collected.why, **dict.fromkeys(old, why)})


def _on(host: str, claim: Claim, collected: Collected, level: float) -> Verdict:
    """The verdict on one class of hosts, or on all for ''."""
    conditions = rule(claim.id)(Reader(claim, collected.on(host)))
    ruling = {verdict: condition(level) for verdict, condition in conditions.items()}
    holding = [verdict for verdict, found in ruling.items() if found.truth]
    # One number of a claim may be more than claimed, and another less.
    if MORE in holding and ruling[REFUTED].truth is not False:
        holding.remove(MORE)
    if len(holding) == 1:
        found = ruling[holding[0]]
        return _verdict(holding[0], [found.witness, *found.readings], collected)
    readings = [reading for found in ruling.values() for reading in found.readings]
    unknown = [found.witness for found in ruling.values() if found.truth is None]
    absent = [reading for reading in readings if reading.absent]
    # If all conditions are known to fail, nothing that is still absent can decide.
    if unknown and absent:
        return _verdict(NOT_MEASURED, [*absent, *readings], collected)
    return _verdict(UNDECIDED, [*unknown[:1], ruling[SUPPORTED].witness, *readings], collected)


def _verdict(verdict: str, readings: Sequence[Reading], collected: Collected) -> Verdict:
    """A verdict with the reading that decides it first, unless nothing is measured."""
    told = list(dict.fromkeys(each.words for each in readings))
    more = [f"and {len(told) - MOST_READINGS} more"] if len(told) > MOST_READINGS else []
    runs = dict.fromkeys(run for each in readings for run in each.runs)
    paths = tuple(f"{collected.config.results}/{run.path}" for run in runs)
    first = None if verdict == NOT_MEASURED else readings[0]
    hosts = " and ".join(sorted({row["hardware"] for row in rows_of(collected, runs)}))
    return Verdict(verdict, "; ".join(told[:MOST_READINGS] + more), first, hosts, paths)


def _to_run(claim: Claim) -> str:
    """What would measure a claim whose study is not in the config."""
    files: dict[str, list[str]] = {}
    for study in claim.studies:
        file, _, name = study.rpartition("#")
        files.setdefault(f"workflow/studies/{file}" if file else "config.yaml", []).append(name)
    told = ", ".join(f"{file} ({', '.join(names)})" for file, names in files.items())
    return f"run {told}" + (f"; it needs {'; '.join(claim.needs)}" if claim.needs else "")


def _row(claim: Claim, verdict: Verdict) -> dict[str, Any]:
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
