"""Words for what the tables say: layouts, effects with their intervals, and the one sentence of a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ketscale.analysis.intervals import Estimate
from ketscale.config import Config
from ketscale.grid import BACKENDS, layout
from ketscale.words import counted, spelled

OPPOSITE = {"times as fast": "times as long", "times as long": "times as fast"}
# Words for a ratio of 1.
AS = {"times as fast": "as fast", "times as long": "as long", "times": "as high"}


def where(text: str) -> str:
    """A layout in words, such as 'two MPI ranks on two nodes' for 'mpi-n2r2t1'."""
    parts = layout(text)
    backend = BACKENDS[parts["backend"]]
    ranks, threads, nodes = (spelled(parts[name]) for name in ("ranks", "threads", "nodes"))
    if not backend.several_ranks:
        if backend.device == "gpu":
            return "one GPU" + (f" with {threads} threads" if parts["threads"] > 1 else "")
        return "one core" if parts["threads"] == 1 else f"{threads} threads"
    on = f" on {nodes} nodes" if parts["nodes"] > 1 else ""
    plural = "s" if parts["ranks"] > 1 else ""
    if backend.device == "gpu":
        return f"{ranks} GPU{plural} ({backend.title}){on}"
    of = f" of {threads} threads" if parts["threads"] > 1 else ""
    return f"{ranks} {backend.title} rank{plural}{of}{on}"


def digits(value: float) -> str:
    """A factor with three digits, or whole from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def number_of(value: object, factor: float = 1.0) -> str:
    """A value of a table: numbers with four digits, and without decimals from 10,000 on; empty if it is missing."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        return {"True": "yes", "False": "no"}.get(str(value), str(value))
    number = float(value) * factor
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 1e4 else f"{number:,.4g}"


def amount(value: float, low: float | None, high: float | None, unit: str) -> tuple[str, str]:
    """An effect in words, and its interval in the same direction; '' without one. unit: '' or NaN if there is none.

    A factor below one is that of the opposite: 0.5 times as fast is 2 times as long, and -2 points are 2 points lower.
    """
    low, high = (None if end is None or end != end else end for end in (low, high))
    of, words = Estimate(value, low, high, 0), unit if isinstance(unit, str) else ""
    if unit in OPPOSITE and value < 1:
        of, words = of.inverse(), OPPOSITE[unit]
    elif unit == "times":
        of, words = (of.inverse(), "times lower") if value < 1 else (of, "times higher")
    elif unit == "points":
        of, words = (of.times(-1), "points lower") if value < 0 else (of, "points higher")
    write = {"points": "{:.1f}".format, "relative difference": "{:.2g}".format}.get(unit, digits)
    number = "no" if unit == "relative difference" and not value else write(of.value)
    interval = "" if of.low is None or of.high is None else f"{write(of.low)} to {write(of.high)}"
    if unit in AS and number == "1":
        return AS.get(words, AS[unit]), interval
    return f"{number} {words}".rstrip(), interval


def sentence(row: Mapping[str, Any]) -> str:
    """A row of a study in one sentence: the point, its verdict, the effect with its interval, and what limits it."""
    text, n = f"{row['point']}: {row['verdict']}", row.get("pairs") or row.get("n")
    if row.get("effect") is not None:
        effect, interval = amount(row["effect"], row.get("low"), row.get("high"), row["unit"])
        joint = "than" if row["unit"] in ("points", "times") else "from"
        joint = "as" if row["unit"] in OPPOSITE or effect in AS.values() else joint
        reference = f" {joint} {row['reference']}" if row.get("reference") else ""
        seeds = counted(int(n), "data set" if row.get("row") else "seed") if n else ""
        inside = ", ".join(filter(None, (interval, seeds)))
        text += f", {effect}{reference}" + (f" ({inside})" if inside else "")
    return text + (f"; {row['why']}." if row.get("why") else ".")


def capital(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def listed(words: Iterable[str]) -> str:
    """'a', 'a and b', 'a, b and c'; '' of none."""
    *first, last = (*words,) or ("",)
    return f"{', '.join(first)} and {last}" if first else last


def data(workload: str, config: Config) -> str:
    """A workload, and whether its data are generated, which shows only that a model trains."""
    return f"{workload} (generated data)" if config.block(workload)[1].generated else workload


def modes(config: Config, simulators: Iterable[str]) -> list[str]:
    """What is to be said of the numbers of some simulators, such as 'noisy: 100 shots, noisy value, exact gradient'."""
    names = sorted({*simulators} & {*config.simulators})
    modes_of = ((name, config.simulators[name].mode) for name in names)
    return [f"{name}: {mode}" for name, mode in modes_of if mode]


def unfinished(states: Mapping[str, int]) -> str:
    """How many runs have not completed, such as 'Of 12 runs, 2 missing'; '' if all have."""
    others = listed(
        f"{count} {state.replace('_', ' ')}"
        for state, count in sorted(states.items())
        if state != "completed"
    )
    return f"Of {counted(sum(states.values()), 'run')}, {others}" if others else ""
