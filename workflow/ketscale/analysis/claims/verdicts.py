"""Verdicts: what the records say about a claim, by the rule that was written down before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ketscale.analysis.claims.conditions import Conditions, Finding
from ketscale.analysis.claims.estimates import Estimates, Reading, filters
from ketscale.analysis.claims.evidence import UNPLANNED, Evidence
from ketscale.analysis.claims.ledger import Claim

SUPPORTED, REFUTED, UNDECIDED, NOT_MEASURED = "supported", "refuted", "undecided", "not measured"
DECIDED = (SUPPORTED, REFUTED)
# So many readings are told in a reason.
MOST_READINGS = 8


@dataclass(frozen=True)
class Verdict:
    """A verdict, why, the reading that decides it, and the records that it came from on one kind of host."""

    verdict: str
    reason: str
    reading: Reading | None = None
    hardware: str = ""
    records: tuple[str, ...] = ()


def judge(claim: Claim, evidence: Evidence) -> Verdict:
    """The verdict on a claim. Records of different kinds of hosts are never mixed; they must not contradict each other."""
    if "test" not in claim:
        return Verdict(claim["verdict"], claim["reason"])
    test, names = claim["test"], [study.rpartition("#")[2] for study in studies(claim)]
    wanted = list(filters(test))
    planned = {run for each in wanted for run in evidence.planned(names, each)}
    if wanted and not planned:
        return Verdict(NOT_MEASURED, _to_run(claim))
    hosts: list[str | None] = sorted(
        {evidence.rows[run]["hardware"] for run in planned if run in evidence.rows}
    )
    found = [_on(test, names, evidence, hardware) for hardware in hosts or [None]]
    decided = [each for each in found if each.verdict in DECIDED]
    if len({each.verdict for each in decided}) > 1:
        told = "; ".join(f"{each.verdict} on {each.hardware}" for each in decided)
        return Verdict(UNDECIDED, f"hosts differ: {told}")
    best = max(found, key=lambda each: (each in decided, each.verdict == UNDECIDED))
    if best.verdict == NOT_MEASURED and UNPLANNED in best.reason:
        return replace(best, reason=f"{best.reason}; {_to_run(claim)}")
    return best


def studies(claim: Claim) -> list[str]:
    """The studies that test a claim, each as STUDY or FILE#STUDY."""
    named = claim["study"]
    return [] if named is None else [named] if isinstance(named, str) else list(named)


def _on(test: Mapping[str, Any], names: Sequence[str], evidence: Evidence, hardware: str | None) -> Verdict:
    """The verdict on one kind of host."""
    estimates = Estimates(test, names, evidence.on(hardware))
    found = {}
    for verdict in DECIDED:
        conditions = Conditions(estimates)
        found[verdict] = conditions.evaluate(test[verdict]), list(conditions.readings.values())
    holding = [verdict for verdict in DECIDED if found[verdict][0].truth]
    if len(holding) == 1:
        (finding, readings), verdict = found[holding[0]], holding[0]
        return _verdict(verdict, finding, readings, evidence, hardware)
    readings = list({reading.name: reading for _, part in found.values() for reading in part}.values())
    unknown = [finding for finding, _ in found.values() if finding.truth is None]
    absent = [reading for reading in readings if reading.absent]
    # If both conditions are known to fail, nothing that is still absent can decide.
    if unknown and absent:
        return _verdict(NOT_MEASURED, Finding(None), [*absent, *readings], evidence, hardware)
    return _verdict(UNDECIDED, [*unknown, found[SUPPORTED][0]][0], readings, evidence, hardware)


def _verdict(
    verdict: str, finding: Finding, readings: Sequence[Reading], evidence: Evidence, hardware: str | None
) -> Verdict:
    """A verdict with its deciding reading first in the reason, if there is one."""
    reading = finding.witness
    told = list(dict.fromkeys(each.words for each in ([reading] if reading else []) + list(readings)))
    more = [f"and {len(told) - MOST_READINGS} more"] if len(told) > MOST_READINGS else []
    runs = dict.fromkeys(run for each in readings for run in each.runs)
    paths = tuple(f"{evidence.config.results}/{run.path}" for run in runs)
    return Verdict(
        verdict, "; ".join(told[:MOST_READINGS] + more), reading, (hardware or "") if paths else "", paths
    )


def _to_run(claim: Claim) -> str:
    """What would measure a claim whose study is not in the config."""
    files: dict[str, list[str]] = {}
    for study in studies(claim):
        file, _, name = study.rpartition("#")
        files.setdefault(f"workflow/studies/{file}" if file else "config.yaml", []).append(name)
    told = ", ".join(f"{file} ({', '.join(names)})" for file, names in files.items())
    return f"run {told}" + (f"; it needs {'; '.join(claim['needs'])}" if claim["needs"] else "")
