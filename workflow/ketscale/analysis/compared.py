"""`ketscale compare`: a comparison of two results folders as an aligned table, JSON and CSV."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ketscale.analysis import compare, verdicts
from ketscale.files import write_atomic, write_csv
from ketscale.grid import POINT
from ketscale.words import duration

# Points of each table without a clear change that are shown; those with one are all shown.
SHOWN = 10
PLAIN = (verdicts.UNCHANGED, verdicts.CANNOT_TELL, verdicts.FEW, verdicts.APART)


def run(a: Path, b: Path, threshold: float, as_json: Path | None, as_csv: Path | None) -> int:
    """Compare, print, and write what was asked for; 1 if something is slower or worse, has other losses or fails.

    Raises:
        UserError: nothing can be compared.
    """
    result = compare.compare(a, b, threshold)
    if as_json:
        write_atomic(as_json, (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
    if as_csv:
        write_csv(as_csv, result["rows"], compare.COLUMNS)
    for line in lines(result):
        print(line)
    return int(compare.regressed(result))


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The comparison for a terminal."""
    for name in "ab":
        about = result[name]
        of = ", ".join(filter(None, ("; ".join(about["code"]), "; ".join(about["hardware"]))))
        yield f"{name.upper()}  {about['folder']}: {_counted(about['records'], 'record')}" + (
            f", {of}" if of else ""
        )
    packages = _packages(result["a"]["packages"], result["b"]["packages"])
    if packages:
        yield f"packages differ: {', '.join(packages)}"
    yield f"{_counted(result['pairs'], 'run')} compared" + _listed("; left out: ", result["left_out"])
    if result["not_timed"]:
        yield _listed("without times: ", result["not_timed"])
    for times in (True, False):
        rows = [row for row in result["rows"] if row["verdict"] and (row["measure"] == compare.STEP) == times]
        if rows:
            yield ""
            yield from _table(rows)
    if result["failed"]:
        yield ""
        yield from (f"completes in A and not in B: {name}" for name in result["failed"])
    yield ""
    yield summary(result)


def summary(result: Mapping[str, Any]) -> str:
    """The comparison in a sentence."""
    times = [row for row in result["rows"] if row["measure"] == compare.STEP]
    metrics = [row for row in result["rows"] if row["verdict"] and row["measure"] != compare.STEP]
    beyond = f"beyond {100 * (result['threshold'] - 1):.3g} %"
    parts = []
    if times:
        parts.append(f"{_counted(len(times), 'step time')}: {_verdicts(times)} ({beyond})")
    if metrics:
        parts.append(f"{_counted(len(metrics), 'metric')}: {_verdicts(metrics)}")
    if result["failed"]:
        parts.append(f"{_counted(len(result['failed']), 'run')} of A not completed in B")
    whole = "; ".join(parts)
    if result["overall"]:
        points = sum(row["points"] == 1 for row in times)
        whole += f"; over {_counted(points, 'point')} a step of B takes {result['overall']:.3f}x as long (geometric mean)"
    return whole + "."


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> str:
    found = Counter(row["verdict"] for row in rows)
    return ", ".join(f"{found[word]} {word}" for word in verdicts.MEANINGS if found[word])


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    plain = [row for row in rows if row["verdict"] in PLAIN and row["points"] == 1]
    left_out = plain[SHOWN:]
    several = len({row["hardware"] for row in rows}) > 1
    times = rows[0]["measure"] == compare.STEP
    measured = ("A", "B", "B / A") if times else ("metric", "A", "B", "change")
    head = ("point", *measured, "interval", "n", "verdict")
    cells = [_cells(row, several) for row in rows if row not in left_out]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    for row in (head, *cells):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    if left_out:
        yield f"and {len(left_out)} more without a clear change or undecided (--csv writes all)"


def _cells(row: Mapping[str, Any], several: bool) -> tuple[str, ...]:
    # A row of several points has only the axes that they share.
    axes = {**row, "size": row["size"] and f"{row['size']}-b{row['batch']}", "batch": None}
    point = "/".join(str(axes[name]) for name in POINT if axes[name] is not None)
    if row["points"] > 1:
        point = f"{row['points']} points of {point} together"
    if several:
        point = f"{point} on {row['hardware']}"
    n = str(row["points"] if row["points"] > 1 else row["seeds"])
    ratio = row["change_is"] == "ratio"
    change, ends = (
        (f"{row['change']:.3f}x", "{:.3f} to {:.3f}")
        if ratio
        else (f"{row['change']:+.3g}", "{:+.3g} to {:+.3g}")
    )
    values = [row["measure"], f"{row['a']:.4g}", f"{row['b']:.4g}"]
    if row["measure"] == compare.STEP:
        values = [duration(row["a"]), duration(row["b"])]
    interval = "" if row["low"] is None else ends.format(row["low"], row["high"])
    return (point, *values, change, interval, n, row["verdict"] + (f" ({row['why']})" if row["why"] else ""))


def _packages(a: Mapping[str, Sequence[str]], b: Mapping[str, Sequence[str]]) -> list[str]:
    versions = {
        name: (" or ".join(a.get(name, ["none"])), " or ".join(b.get(name, ["none"]))) for name in {**a, **b}
    }
    return [f"{name} {first} -> {second}" for name, (first, second) in versions.items() if first != second]


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _listed(what: str, counts: Mapping[str, int]) -> str:
    return what + ", ".join(f"{count} {why}" for why, count in counts.items()) if counts else ""
