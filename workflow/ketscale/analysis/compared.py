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
from ketscale.words import aligned, counted, duration

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
        of = [f"{about['folder']}: {counted(about['records'], 'record')}", *about["code"], *about["hardware"]]
        yield f"{name.upper()}  {'; '.join(of)}"
    packages = list(_packages(result["a"]["packages"], result["b"]["packages"]))
    if packages:
        yield f"packages differ: {', '.join(packages)}"
    yield f"{counted(result['pairs'], 'run')} compared" + _listed("; left out: ", result["left_out"])
    if result["not_timed"]:
        yield _listed("without times: ", result["not_timed"])
    for times in (True, False):
        rows = [row for row in result["rows"] if row["verdict"] and (row["measure"] == compare.STEP) == times]
        if rows:
            yield from ("", *_table(rows, times))
    if result["failed"]:
        yield from ("", *(f"completes in A and not in B: {name}" for name in result["failed"]))
    yield from ("", summary(result))


def summary(result: Mapping[str, Any]) -> str:
    """The comparison in a sentence."""
    times = [row for row in result["rows"] if row["measure"] == compare.STEP]
    metrics = [row for row in result["rows"] if row["verdict"] and row["measure"] != compare.STEP]
    parts = []
    for rows, noun, beyond in (
        (times, "step time", f" (beyond {100 * (result['threshold'] - 1):.3g} %)"),
        (metrics, "metric", ""),
    ):
        found = Counter(row["verdict"] for row in rows)
        words = ", ".join(f"{found[word]} {word}" for word in verdicts.MEANINGS if found[word])
        parts += [f"{counted(len(rows), noun)}: {words}{beyond}"] if rows else []
    if result["failed"]:
        parts.append(f"{counted(len(result['failed']), 'run')} of A not completed in B")
    whole = "; ".join(parts)
    if result["overall"]:
        counts = [row["points"] == 1 and row["verdict"] not in compare.UNCOUNTED for row in times]
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
