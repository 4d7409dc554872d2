"""Verdicts: what readings say about a claim, by the rule that was written down before.

All that a verdict joins holds together with 95 %. Where one of k readings is enough, any may be there by chance, so each is
asked at 1 - 5 % / k (Bonferroni). Where all are needed, each is asked at 95 %: that all are there by chance is no more likely
than that one is (Berger, Technometrics 24, 295, 1982). A number that has not been measured is neither in a region nor outside:
truth has three values (Kleene).
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from benchmarks.claims.ledger import MORE, NOT_MEASURED, REFUTED, UNDECIDED, Claim, Verdict, load
from benchmarks.claims.readings import UNPLANNED, UNRECORDED, Reading, groups, readings
from ketscale.analysis.comparison import Collected
from ketscale.analysis.intervals import LEVEL, Estimate
from ketscale.config import Config

# A reason has so many readings.
MOST_READINGS = 4


@dataclass(frozen=True)
class Judgement:
    """A verdict, why, what it rests on, and the readings. after_the_fact: whether the rule is younger than its numbers."""

    claim: Claim
    verdict: Verdict
    reason: str
    rests_on: str
    readings: tuple[Reading, ...] = ()
    after_the_fact: bool = False


def tested(config: Config) -> list[Claim]:
    """The claims of which a study of the config has all runs of some reading, in the ledger's order."""
    nothing = Collected.of(config, (), {}, {})
    return [
        claim for claim in load() if any(UNPLANNED not in each.fault for each in readings(claim, nothing))
    ]


def judged(collected: Collected) -> list[Judgement]:
    """The verdicts of a results folder on the claims that its config tests."""
    found = []
    for claim in tested(collected.config):
        read = readings(claim, collected)
        started = [collected.records[run].started for each in read for run in each.runs]
        found.append(judge(claim, read, min(started, default=claim.since)))
    return found


def recorded(file: Path, claim: Claim, config: Config | None) -> Judgement:
    """The verdict by the latest readings of a file; config: of the claim's study, None without readings."""
    if config is None:
        return judge(claim, ())
    with file.open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["claim"] == claim.id]
    last = max((row["measured"] for row in rows), default="")
    known = {row["reading"]: _read(row) for row in rows if row["measured"] == last}
    nothing = Collected.of(config, (), {}, {})
    names = [name for asked in claim.readings for name, _ in groups(claim, asked, nothing)]
    found = [known.get(name) or Reading(name, fault=UNRECORDED, absent=not known) for name in names]
    return judge(claim, found, datetime.fromisoformat(last) if last else claim.since)


def _read(row: dict[str, str]) -> Reading:
    value, low, high = (float(row[name]) if row[name] else None for name in ("value", "low", "high"))
    estimate = None if value is None else Estimate(value, low, high, int(row["seeds"]))
    return Reading(row["reading"], estimate, row["fault"], absent=estimate is None)


def judge(claim: Claim, read: Sequence[Reading], measured: datetime | None = None) -> Judgement:
    """The verdict on a claim by its rule. measured: when the oldest of its runs was, or a time that it was before."""
    if claim.verdict is not None:
        rests = {"running": "measured"}.get(claim.by, f"by {claim.by}")
        rests = "nothing" if claim.verdict == NOT_MEASURED else rests
        return Judgement(claim, claim.verdict, claim.reason, rests, after_the_fact=claim.after_the_fact)
    more = [f"and {len(read) - MOST_READINGS} more"] if len(read) > MOST_READINGS else []
    reason = "; ".join([each.words for each in read[:MOST_READINGS]] + more)
    known = any(each.estimate for each in read)
    after = known and measured is not None and measured < claim.since
    found = Judgement(claim, UNDECIDED, reason, "measured", tuple(read), after)
    if claim.proxy:
        words = f"not measured there; on {claim.proxy}: {reason}"
        return replace(
            found,
            verdict=NOT_MEASURED,
            reason=words,
            rests_on=f"a proxy: {claim.proxy}",
            after_the_fact=False,
        )
    truths = {verdict: _holds(claim, verdict, read) for verdict in claim.regions}
    holding = [verdict for verdict, truth in truths.items() if truth]
    # One number of a claim may be more than claimed, and another less.
    if MORE in holding and truths[REFUTED] is not False:
        holding.remove(MORE)
    if len(holding) == 1:
        return replace(found, verdict=holding[0])
    # If all verdicts are known to fail, nothing that is still absent can decide.
    if None in truths.values() and any(each.absent for each in read):
        return replace(found, verdict=NOT_MEASURED, rests_on="measured in part" if known else "nothing")
    return found


def _holds(claim: Claim, verdict: Verdict, read: Sequence[Reading]) -> bool | None:
    """Whether the readings lie where a verdict has them; None if that is unknown."""
    regions = claim.regions[verdict]
    named = regions if isinstance(regions, dict) else {"": regions}
    asked = [(each, region) for name, region in named.items() for each in read if each.name.startswith(name)]
    if not all(any(each.name.startswith(name) for each in read) for name in named):
        return None
    one = verdict in claim.any
    level = 1 - (1 - LEVEL) / len(asked) if one else LEVEL
    truths = [each.lies(region, level) for each, region in asked]
    return one if one in truths else None if None in truths else not one
