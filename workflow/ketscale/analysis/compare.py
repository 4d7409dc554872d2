"""`ketscale compare`: what became faster, slower, better or worse from one results folder to another, beyond noise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from ketscale.analysis import metrics, verdicts
from ketscale.analysis.columns import Trained, code
from ketscale.analysis.comparability import Key, mismatch, tested, times
from ketscale.analysis.comparison import STEP, by_seed, logs, pooled, speedup
from ketscale.analysis.heavy import pd
from ketscale.analysis.kinds.selection import Comparison, Configuration
from ketscale.analysis.kinds.speed import AS_LONG
from ketscale.analysis.points import median, point_of, usable
from ketscale.config import Settings
from ketscale.errors import UserError
from ketscale.grid import POINT, RECORDS, RUNS, Run
from ketscale.measure import parity
from ketscale.measure.record import State, check_single
from ketscale.problems.registry import FAMILIES

COLUMNS = {
    **{name: f"The point's {name}, as it is in paths" for name in POINT},
    "hardware": "The class of host, the same in A and B",
    "measure": "`step_s`, or the name of the headline metric on test data",
    **dict.fromkeys("ab", "In A and in B: of steps the median over seeds, of a metric its estimate"),
    "effect": "The change from A to B, from pairs of the same seed",
    "unit": "`times as long` of steps, `points` of shares, `times` of other positive metrics, else the metric's",
    **dict.fromkeys(("low", "high"), "An end of its 95 % interval; none below three seeds"),
    "n": "Number of seeds in it",
    "verdict": "What the interval says, all rows together",
    "why": "Why it says nothing, and which settings differ",
}
REGRESSIONS = (verdicts.SLOWER, verdicts.WORSE, verdicts.DIFFERS)
# What the two runs of a pair must share, and how far their first losses may be apart.
SHARED = ("hosts", "cores", "data", "splits")
SAME_LOSSES = {"fp64": parity.ACROSS_SIMULATORS, "fp32": parity.SINGLE_PRECISION}
Folder = Mapping[Run, tuple[State, Settings | None]]
Pair = tuple[Trained, Trained]
# A measure in A and B, its verdict and why if they are known, and else how an interval decides at a level.
Row = dict[str, Any]


def compare(a: Path, b: Path, threshold: float) -> dict[str, Any]:
    """The comparison of two folders: `rows` of `COLUMNS`, the runs that `failed` in B alone, `notes` in words.

    threshold: the ratio of step times, from 1 on, that counts as a change.

    Raises:
        UserError: a folder has no records, or no run can be compared.
    """
    pairs, failed, omitted = _pairs(read(a), read(b))
    if not pairs and not failed:
        raise UserError(f"{a} (A) and {b} (B) have no run that can be compared: {omitted}")
    # The runs are sorted, their seeds last.
    points = [[*group] for _, group in groupby(pairs, lambda pair: point_of(pair[0].settings.run))]
    used = [[usable(one.row for one in side) for side in zip(*point, strict=True)] for point in points]
    least = pooled(logs(by_seed(new), by_seed(old)) for (old, one), (new, two) in used if not one + two)
    rows = [row for point in points for row in _rows(point, least, threshold)]
    words = iter(verdicts.holm([row["decide"] for row in rows if not row["known"]]))
    for row in rows:
        row["verdict"], why = row["known"] or (next(words) or verdicts.CANNOT_TELL, "")
        row["why"] = "; ".join(filter(None, (why, row["why"])))
    rows.sort(key=lambda row: row["verdict"] not in REGRESSIONS)
    settings = [f"settings differ: {text}" for pair in pairs for text in _settings(pair).values()]
    software = [({"ketscale": code(one.record), **one.record.packages} for one in pair) for pair in pairs]
    packages = ", ".join(dict.fromkeys(text for pair in software for text in _differences(*pair).values()))
    notes = [f"packages differ: {packages}"] if packages else []
    notes += [*dict.fromkeys(settings)][:10] + ([f"omitted: {omitted}"] if omitted else [])
    notes += [f"completes in A and not in B: {name}" for name in failed]
    rows = [{name: row.get(name) for name in COLUMNS} for row in rows]
    return {"notes": notes, "failed": failed, "rows": rows}


def read(results: Path) -> Folder:
    """Every record below a results folder, and the settings of those that can be used."""
    records = {Run.parse(str(path)): check_single(path, FAMILIES) for path in sorted(results.glob(RECORDS))}
    if not records:
        raise UserError(f"{results}: no records below {results / RUNS}; name a folder of results")
    return records


def _pairs(a: Folder, b: Folder) -> tuple[list[Pair], list[str], str]:
    """The pairs; the runs that completed in A and not in B; and how many are omitted, and why, in words."""
    pairs, failed = [], []
    omitted = Counter(f"only in {'A' if run in a else 'B'}" for run in sorted(a.keys() ^ b.keys()))
    for run in sorted(a.keys() & b.keys()):
        (first, left), (second, right) = a[run], b[run]
        if first.state == "completed" and second.state not in ("completed", "stale"):
            failed.append(run.name)
        if not (first.record and left and second.record and right):
            omitted[f"{(second if first.record and left else first).state} record"] += 1
            continue
        pair = Trained(first.record, left), Trained(second.record, right)
        if why := mismatch(tuple(part for part in _key(one) if part[0] in SHARED) for one in pair):
            omitted[why] += 1
        else:
            pairs.append(pair)
    return pairs, failed, ", ".join(f"{count} {why}" for why, count in omitted.items())


def _settings(pair: Pair) -> dict[str, str]:
    """The settings that differ. What a search chose counts, not what its trials reached."""
    return _differences(*({**one.settings.content, "choice": None} for one in pair))


def _differences(a: dict[str, Any], b: dict[str, Any]) -> dict[str, str]:
    """What differs, such as {'protocol.warmup': 'protocol.warmup 2 -> 3'}."""
    old, new = (pd.json_normalize(each).to_dict("records")[0] if a != b else {} for each in (a, b))
    names = [str(name) for name in {**old, **new} if old.get(name) != new.get(name)]
    return {name: f"{name} {old.get(name)} -> {new.get(name)}" for name in names}


def _rows(point: Sequence[Pair], least: float, threshold: float) -> Iterator[Row]:
    """The rows of a point: of its headline metric, and of its step if that is timed or there is nothing else."""
    mixed = next(filter(None, (mismatch(map(_key, side)) for side in zip(*point, strict=True))), "")
    metric, step, first = _metric(point, mixed), _step(point, mixed, least, threshold), point[0][0].row
    losses = [[(one.settings.run, one.record) for one in pair] for pair in point if not _settings(pair)]
    distance = max((parity.between(second, first) or 0.0 for first, second in losses), default=0.0)
    if differs := distance > SAME_LOSSES.get(first["precision"], math.inf):
        step["known"] = verdicts.DIFFERS, f"first losses differ by {distance:.1e}, relative"
    same = (verdicts.SAME, "equal records") if all(a.record == b.record for a, b in point) else None
    names = ", ".join(dict.fromkeys(name for pair in point for name in _settings(pair)))
    why = names and f"other settings: {names}"
    for row in filter(None, (step if differs or not metric or first["timed"] else None, metric)):
        yield {**first, **row, "effect": row.get("value"), "known": same or row["known"], "why": why}


def _step(point: Sequence[Pair], mixed: str, least: float, threshold: float) -> Row:
    """The change of a step's time, from the runs that the report would use and with their bounds."""
    left, right = ([one.row for one in side] for side in zip(*point, strict=True))
    ratio = speedup(right, left, least, lambda *_: mixed)
    a, b = (median(row[STEP] for row in usable(rows)[0]) for rows in (left, right))
    decide = partial(verdicts.of_ratio, ratio.ratio, within=threshold)  # type: ignore[arg-type]
    ends = {**(vars(ratio.ratio.inverse()) if ratio.ratio else {}), "unit": AS_LONG}
    return {"measure": STEP, "a": a, "b": b, **ends, "known": verdicts.undecided(ratio), "decide": decide}


def _metric(point: Sequence[Pair], mixed: str) -> Row | None:
    """The change of the headline metric on test data; None without one, or if no value of it is better."""
    metric = point[0][0].settings.family.headline
    left, right = (metrics.scored((one.record for one in side), metric) for side in zip(*point, strict=True))
    first, second = (Configuration(metric=metric, tests=tests) for tests in (left, right))
    change = Comparison(second, first).judge()
    effect = change.effect()
    if not metric.better or not effect:
        return None
    verdict = (verdicts.NOT_COMPARABLE, mixed) if mixed else (change.verdict, change.why)
    a, b = (getattr(metrics.estimate(side, metric), "value", None) for side in (left, right))
    return {
        "measure": metric.name, "a": a, "b": b, **vars(effect), "unit": change.unit,
        "known": verdict if verdict[0] else None, "decide": change.decide,
    }  # fmt: skip


def _key(one: Trained) -> Key:
    return tuple({**dict(times(one.row)), **dict(tested(one.row))}.items())
