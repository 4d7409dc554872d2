"""`ketscale compare`: which points of two results folders became faster, slower, better or worse beyond noise."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ketscale.analysis import columns, comparability, comparison, metrics, verdicts
from ketscale.analysis.columns import Column, Trained
from ketscale.analysis.comparability import hindrance, host_class
from ketscale.analysis.completeness import code
from ketscale.analysis.intervals import FEWEST, LEVEL, Estimate
from ketscale.analysis.kinds.selection import side
from ketscale.analysis.points import point_of
from ketscale.analysis.verdicts import CANNOT_TELL, FEW, OTHER_LOSSES, UNCHANGED
from ketscale.config import Settings
from ketscale.errors import UserError
from ketscale.files import write_atomic, write_csv
from ketscale.grid import POINT, RECORDS, RUNS, Run
from ketscale.measure import parity
from ketscale.measure.record import Checked, check_alone
from ketscale.problems.registry import FAMILIES
from ketscale.words import aligned, counted, duration

# Columns of runs.csv. The ratios of all but the first have no verdict.
STEP = "step_s"
MEASURED = (STEP, "first_step_s", "peak_rss_bytes", "peak_device_bytes")
# What is told of a point with other losses and no times.
LOSSES = "losses"
COLUMNS = tuple(part.name for part in columns.COMPARED.parts if isinstance(part, Column))
REGRESSIONS = (verdicts.SLOWER, verdicts.WORSE, OTHER_LOSSES)
# Points of each printed table without a clear change that are shown; those with one are all shown.
SHOWN = 10
PLAIN = (UNCHANGED, CANNOT_TELL, FEW, verdicts.APART)
# The mean over points leaves step times with these verdicts out.
UNCOUNTED = (OTHER_LOSSES, verdicts.APART)
# Largest relative difference of the first losses of one run that was trained twice, perhaps by other code.
SAME_LOSSES = {"fp64": parity.ACROSS_SIMULATORS, "fp32": parity.SINGLE_PRECISION}

# What was found at each run's path below a results folder, with the settings of valid records.
Folder = Mapping[Run, tuple[Checked, Settings | None]]


@dataclass(frozen=True)
class Pair:
    """The records of one run in A and B with the same settings, data and class of host; both completed."""

    run: Run
    a: Trained
    b: Trained

    @property
    def untimed(self) -> str:
        """Why their times cannot be compared; '' if they can."""
        if not self.a.row["timed"]:
            return "not timed alone, by their protocol"
        return "" if self.a.row["quiet"] and self.b.row["quiet"] else "busy"

    @property
    def apart(self) -> float:
        """The largest relative difference of their first losses; 0 within the limit of their precision."""
        limit = SAME_LOSSES.get(self.a.row["precision"])
        found = parity.between((self.run, self.b.record), (self.run, self.a.record))
        return 0.0 if limit is None or found is None or found <= limit else found


@dataclass(frozen=True)
class Change:
    """What a measure of a point, or of several `points` together, is in A and in B; a row of `columns.COMPARED`.

    at: the axes and the class of hosts that its runs share. found: `b` over `a` if it is a `ratio`, else `b` less `a`. why:
    what forbids a change. decide: the verdict of the interval at a level, None if it decides nothing. verdict: the one
    then; None for what has none.
    """

    at: Mapping[str, Any]
    measure: str
    a: float
    b: float
    found: Estimate
    ratio: bool = True
    points: int = 1
    why: str = ""
    decide: Callable[[float], str | None] = lambda level: None
    verdict: str | None = None


def run(a: Path, b: Path, threshold: float, as_json: Path | None, as_csv: Path | None) -> int:
    """Compare, print, and write what was asked for; 1 if something is slower or worse, has other losses or fails.

    Raises:
        UserError: nothing can be compared.
    """
    result = compare(a, b, threshold)
    if as_json:
        write_atomic(as_json, (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
    if as_csv:
        write_csv(as_csv, result["rows"], COLUMNS)
    for line in lines(result):
        print(line)
    worse = any(row["verdict"] in REGRESSIONS for row in result["rows"])
    return int(worse or bool(result["failed"]))


def compare(a: Path, b: Path, threshold: float) -> dict[str, Any]:
    """The comparison of two results folders as plain values; `rows` has the columns `COLUMNS`, largest changes first.

    Runs are paired if their axes (seed included), settings, data and class of host are the same. Intervals are of 95 %
    each; verdicts hold together (`verdicts.holm`). Step times of points with fewer than three seeds decide nothing; three
    or more of them of one workload, model and host are also taken together, each as one value.

    threshold: a step time has changed if its whole interval is above this ratio, or below its inverse.

    Raises:
        UserError: nothing can be compared, or the threshold is not a number from 1 on.
    """
    if not (math.isfinite(threshold) and threshold >= 1):
        raise UserError(f"--threshold: {threshold:g} should be a ratio from 1 on, such as 1.05")
    if a.resolve() == b.resolve():
        raise UserError(f"{b}: this is the same folder as {a}; name two")
    folders = read(a), read(b)
    found, failed, left_out = pair(*folders)
    not_timed = Counter(pair.untimed for pair in found if pair.untimed)
    changes = list(_changes(found, threshold))
    if not failed and not any(change.verdict for change in changes):
        counts = ", ".join(f"{count} {why}" for why, count in (left_out + not_timed).items())
        raise UserError(f"{a} (A) and {b} (B) have no run whose records can be compared: {counts}")
    words = verdicts.holm([change.decide for change in changes])
    judged = [
        replace(change, verdict=word or change.verdict) for change, word in zip(changes, words, strict=True)
    ]
    steps = [change for change in judged if change.measure == STEP and change.points == 1]
    times = [each.found.value for each in steps if each.verdict not in UNCOUNTED]
    return {
        "threshold": threshold,
        "level": LEVEL,
        "a": _about(a, folders[0]),
        "b": _about(b, folders[1]),
        "pairs": len(found),
        "left_out": dict(left_out),
        "not_timed": dict(not_timed),
        "failed": [run.name for run in failed],
        "overall": statistics.geometric_mean(times) if times else None,
        "rows": [columns.taken(columns.COMPARED, change) for change in sorted(judged, key=_by_effect)],
    }


def read(results: Path) -> Folder:
    """Every record below a results folder.

    Raises:
        UserError: there is none.
    """
    places = [*results.glob(RECORDS)]
    if not places:
        raise UserError(f"{results}: no records below {results / RUNS}; name a folder of results")
    return {Run.parse(str(path)): check_alone(path, FAMILIES) for path in sorted(places)}


def pair(a: Folder, b: Folder) -> tuple[list[Pair], list[Run], Counter[str]]:
    """The pairs; the runs that completed in A and failed or have a refused record in B; and how many runs are left out, by reason."""
    pairs, failed, left_out = [], [], Counter[str]()
    for run in sorted(a.keys() | b.keys()):
        if run not in a or run not in b:
            left_out[f"only in {'A' if run in a else 'B'}"] += 1
            continue
        (first, settings), (second, others) = a[run], b[run]
        if first.state == "completed" and second.state == "refused":
            failed.append(run)
            continue
        if first.record is None or second.record is None or settings is None or others is None:
            left_out[f"{(first if first.record is None else second).state} record"] += 1
            continue
        ours, theirs = Trained(first.record, settings), Trained(second.record, others)
        reason = _apart(ours, theirs)
        if not reason and first.state == "completed" != second.state:
            failed.append(run)
        elif not reason and first.state == "completed":
            pairs.append(Pair(run, ours, theirs))
        else:
            left_out[reason or f"{first.state.replace('_', ' ')} in A"] += 1
    return pairs, failed, left_out


def _apart(a: Trained, b: Trained) -> str:
    """What the records of a run do not share, so that they are no pair; '' if they do."""
    # What a search chose counts, not the last digits of what its trials reached.
    if replace(a.settings, choice=None).content != replace(b.settings, choice=None).content:
        return "other settings"
    data = hindrance(comparability.tested(side.row) for side in (a, b))
    return data or ("" if a.row["hardware"] == b.row["hardware"] else "other hosts")


def _about(folder: Path, found: Folder) -> dict[str, Any]:
    """The folder, how many records it has, and the code, the hosts and the packages that they are of."""
    records = [checked.record for checked, _ in found.values() if checked.record is not None]
    named = sorted({package for record in records for package in record.packages.items()})
    return {
        "folder": str(folder),
        "records": len(records),
        "code": sorted({code(record) for record in records}),
        "hardware": sorted({host_class(record.machine) for record in records}),
        "packages": {name: [version for other, version in named if other == name] for name, _ in named},
    }


def _changes(found: Iterable[Pair], threshold: float) -> Iterator[Change]:
    points: dict[tuple[Any, ...], list[Pair]] = {}
    for pair in found:
        points.setdefault((*point_of(pair.run), pair.a.row["hardware"]), []).append(pair)
    timed = {key: [pair for pair in group if not pair.untimed] for key, group in points.items()}
    least = comparison.pooled(comparison.logs(*_values(group, STEP)) for group in timed.values())
    few: dict[tuple[str, ...], list[Change]] = {}
    for key, group in points.items():
        at = dict(zip((*POINT, "hardware"), key, strict=True))
        why = _hindrance(timed[key], comparability.times)
        apart = max(pair.apart for pair in group)
        undecided = OTHER_LOSSES if apart else verdicts.APART if why else ""
        for measure in MEASURED:
            a, b = _values(timed[key], measure)
            if a:
                change = _ratio(at, measure, a, b, least, threshold, undecided)
                yield replace(change, why=why)
                if change.verdict == FEW:
                    few.setdefault((at["workload"], at["model"], at["hardware"]), []).append(change)
        if apart and not _values(timed[key], STEP)[0]:
            # No step time tells it.
            larger = Estimate(apart, None, None, len(group))
            yield Change(at, LOSSES, 0.0, apart, larger, False, verdict=OTHER_LOSSES)
        yield from _difference(at, group)
    for shared, alike in few.items():
        if len(alike) >= FEWEST:
            at = dict(zip(("workload", "model", "hardware"), shared, strict=True))
            a, b = ({n: getattr(each, side) for n, each in enumerate(alike)} for side in "ab")
            yield replace(_ratio(at, STEP, a, b, least, threshold, ""), points=len(alike))


def _hindrance(pairs: Sequence[Pair], key: Callable[[Mapping[str, Any]], comparability.Key]) -> str:
    """Why the runs of A, or those of B, have no mean; '' if they have."""
    sides = ([pair.a for pair in pairs], [pair.b for pair in pairs])
    return next(filter(None, (hindrance(key(each.row) for each in side) for side in sides)), "")


def _ratio(
    at: Mapping[str, Any],
    measure: str,
    a: Mapping[int, float],
    b: Mapping[int, float],
    least: float,
    threshold: float,
    undecided: str,
) -> Change:
    """The change of a time or of memory. undecided: the verdict, whatever the values are; '' if they decide."""
    found = comparison.paired(b, a, least)
    assert found is not None
    means = [statistics.geometric_mean(side.values()) for side in (a, b)]
    change = Change(at, measure, means[0], means[1], found)
    if measure != STEP:
        return change
    if undecided or found.low is None:
        return replace(change, verdict=undecided or FEW)
    decide = partial(
        verdicts.beyond,
        found,
        most=threshold,
        least=1 / threshold,
        above=verdicts.SLOWER,
        below=verdicts.FASTER,
    )
    return replace(change, decide=decide, verdict=UNCHANGED)


def _difference(at: Mapping[str, Any], pairs: Sequence[Pair]) -> Iterator[Change]:
    """The change of a headline metric, on the test samples of all seeds; nothing if no value of it is better."""
    metric = pairs[0].a.settings.family.headline
    ours = metrics.scored([pair.a.record for pair in pairs], metric)
    theirs = metrics.scored([pair.b.record for pair in pairs], metric)
    seeds = ours.keys() & theirs.keys()
    if not metric.better or not seeds:
        return
    if why := _hindrance(pairs, comparability.quality):
        a, b = (statistics.fmean(side[seed].value for seed in sorted(seeds)) for side in (ours, theirs))
        apart = Estimate(b - a, None, None, len(seeds))
        yield Change(at, metric.name, a, b, apart, False, why=why, verdict=verdicts.APART)
        return
    ratio = metrics.is_ratio(theirs, ours, metric)

    def decide(level: float) -> str | None:
        return side(metrics.difference(theirs, ours, metric, level), "times" if ratio else "", metric)

    found = metrics.difference(theirs, ours, metric)
    first, second = (metrics.estimate(side, metric) for side in (ours, theirs))
    assert found and first and second
    change = Change(at, metric.name, first.value, second.value, found, ratio)
    few = found.n < FEWEST
    yield replace(change, verdict=FEW) if few else replace(change, decide=decide, verdict=CANNOT_TELL)


def _values(pairs: Iterable[Pair], column: str) -> tuple[dict[int, float], dict[int, float]]:
    """A column of the runs of A and of B by seed, where both have it."""
    both = [pair for pair in pairs if pair.a.row[column] and pair.b.row[column]]
    return {pair.run.seed: pair.a.row[column] for pair in both}, {
        pair.run.seed: pair.b.row[column] for pair in both
    }


def _by_effect(change: Change) -> tuple[Any, ...]:
    """Sort key: step times first, then the metrics; each by the size of its change, largest first."""
    size = abs(math.log(change.found.value) if change.ratio else change.found.value)
    at = tuple(str(change.at.get(name)) for name in (*POINT, "hardware"))
    return change.measure != STEP, not change.verdict, change.measure, change.points > 1, -size, at


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The comparison for a terminal."""
    for name in "ab":
        about = result[name]
        of = [f"{about['folder']}: {counted(about['records'], 'record')}", *about["code"], *about["hardware"]]
        yield f"{name.upper()}  {'; '.join(of)}"
    packages = list(_packages(result["a"]["packages"], result["b"]["packages"]))
    if packages:
        yield f"packages differ: {', '.join(packages)}"
    yield f"{counted(result['pairs'], 'run')} compared" + _listed("; left out: ", result["left_out"])
    if result["not_timed"]:
        yield _listed("without times: ", result["not_timed"])
    for times in (True, False):
        rows = [row for row in result["rows"] if row["verdict"] and (row["measure"] == STEP) == times]
        if rows:
            yield from ("", *_table(rows, times))
    if result["failed"]:
        yield from ("", *(f"completes in A and not in B: {name}" for name in result["failed"]))
    yield from ("", summary(result))


def summary(result: Mapping[str, Any]) -> str:
    """The comparison in a sentence."""
    times = [row for row in result["rows"] if row["measure"] == STEP]
    others = [row for row in result["rows"] if row["verdict"] and row["measure"] != STEP]
    parts = []
    for rows, noun, beyond in (
        (times, "step time", f" (beyond {100 * (result['threshold'] - 1):.3g} %)"),
        (others, "metric", ""),
    ):
        found = Counter(row["verdict"] for row in rows)
        words = ", ".join(f"{found[word]} {word}" for word in verdicts.MEANINGS if found[word])
        parts += [f"{counted(len(rows), noun)}: {words}{beyond}"] if rows else []
    if result["failed"]:
        parts.append(f"{counted(len(result['failed']), 'run')} of A not completed in B")
    whole = "; ".join(parts)
    if result["overall"]:
        counts = [row["points"] == 1 and row["verdict"] not in UNCOUNTED for row in times]
        points = counted(sum(counts), "point")
        whole += f"; over {points} a step of B takes {result['overall']:.3f}x as long (geometric mean)"
    return whole + "."


def _table(rows: Sequence[Mapping[str, Any]], times: bool) -> Iterator[str]:
    plain = [row for row in rows if row["verdict"] in PLAIN and row["points"] == 1]
    several = len({row["hardware"] for row in rows}) > 1
    head = (
        "point",
        *(() if times else ("metric",)),
        "A",
        "B",
        "B / A" if times else "change",
        "interval",
        "n",
        "verdict",
    )
    yield from aligned([head, *(_cells(row, several, times) for row in rows if row not in plain[SHOWN:])])
    if plain[SHOWN:]:
        yield f"and {len(plain[SHOWN:])} more without a clear change or undecided (--csv writes all)"


def _cells(row: Mapping[str, Any], several: bool, times: bool) -> tuple[str, ...]:
    # A row of several points has only the axes that they share.
    axes = {**row, "size": row["size"] and f"{row['size']}-b{row['batch']}", "batch": None}
    point = "/".join(str(axes[name]) for name in POINT if axes[name] is not None)
    point = f"{row['points']} points of {point} together" if row["points"] > 1 else point
    change = "{:.3f}x" if row["change_is"] == "ratio" else "{:+.3g}"
    ends = [change.format(row[end]).rstrip("x") for end in ("low", "high") if row[end] is not None]
    return (
        f"{point} on {row['hardware']}" if several else point,
        *(
            map(duration, (row["a"], row["b"]))
            if times
            else (row["measure"], f"{row['a']:.4g}", f"{row['b']:.4g}")
        ),
        change.format(row["change"]),
        " to ".join(ends),
        str(row["points"] if row["points"] > 1 else row["seeds"]),
        row["verdict"] + (f" ({row['why']})" if row["why"] else ""),
    )


def _packages(a: Mapping[str, Sequence[str]], b: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for name in {**a, **b}:
        first, second = (" or ".join(side.get(name, ["none"])) for side in (a, b))
        if first != second:
            yield f"{name} {first} -> {second}"


def _listed(what: str, counts: Mapping[str, int]) -> str:
    return what + ", ".join(f"{count} {why}" for why, count in counts.items()) if counts else ""
