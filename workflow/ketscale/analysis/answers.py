"""The answer in three sentences, computed from the tables: simulators, parallelism, accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ketscale.analysis.scaling import BUSY_RATIOS
from ketscale.grid import BACKENDS, place
from ketscale.problems.workloads import WORKLOADS

Tables = dict[str, pd.DataFrame]


def sentences(tables: Tables) -> tuple[str, str, str]:
    """What the study says about simulators, about a second rank or thread, and about the circuit's accuracy."""
    scaling = tables["scaling"]
    return simulators(scaling), parallel(scaling), accuracy(tables["accuracy"])


def simulators(scaling: pd.DataFrame) -> str:
    """The fastest simulator, and by what factor (median, range over seeds) over the next and the slowest."""
    points = scaling[(scaling["kind"] == "simulator") & scaling["step_s"].notna()].sort_values("step_s")
    if len(points) < 2:
        return "Fewer than two simulators have been timed, so none can be called the fastest."
    points = points[points["study"] == points.iloc[0]["study"]]
    first = points.iloc[0]
    fastest, others = first["simulator"], points.iloc[1:]
    size = f"{first['qubits']} qubits, {first['layers']} layers, batch {first['batch']}"
    beaten = (
        [f"{_slower(others.iloc[0])} than {others.iloc[0]['simulator']} (the next)"] if len(others) else []
    )
    if len(others) > 1:
        beaten.append(f"{_slower(others.iloc[-1])} than {others.iloc[-1]['simulator']} (the slowest)")
    return (
        f"The fastest simulator is {fastest}, at {_time(first['step_s'])} a training step ({size}): "
        f"{' and '.join(beaten)} (median, range over {_seeds(points)}, each ratio paired by seed).{_warning(points)}"
    )


def parallel(scaling: pd.DataFrame) -> str:
    """Whether a second rank or thread shortens the step at a fixed global batch."""
    points = scaling[
        (scaling["kind"] == "strong") & (scaling["workers"] == 2) & scaling["speedup_same"].notna()
    ]
    if points.empty:
        return "No run with a second rank or thread has been timed, so nothing can be said about parallelism."
    batch = " and ".join(str(batch) for batch in sorted(points["batch"].unique()))
    parts = []
    for _, point in points.sort_values(["speedup_same", "place"], ascending=[False, True]).iterrows():
        ratio = _ratio(
            point["speedup_same"],
            point["speedup_same_low"],
            point["speedup_same_high"],
            point["speedup_same_n"],
        )
        parts.append(f"{_where(point['place'])} {ratio}{_gain(point)}")
    return (
        f"At a fixed global batch of {batch}, the step's speedup over one rank and one thread is, with "
        f"{'; with '.join(parts)} (1 is no gain, 2 the ideal; median and range over {_seeds(points)}).{_warning(points)}"
    )


def accuracy(table: pd.DataFrame) -> str:
    """The circuit's test accuracy beside the control's, with the interval of their difference over seeds."""
    points = table[table["pairs"] > 0]
    if points.empty:
        return "No model has been trained beside its classical control yet, so nothing can be said about accuracy."
    # Generated data show that a model trains, and nothing about the world: real ones speak first.
    points = points.assign(generated=[WORKLOADS[name].generated for name in points["workload"]])
    point = points.sort_values(["generated", "accuracy", "model"], ascending=[True, False, True]).iloc[0]
    control = point["accuracy"] - point["difference"]
    data = f"{point['workload']} (generated data)" if point["generated"] else point["workload"]
    lead = (
        f"On {data}, {point['model']} reaches {100 * point['accuracy']:.1f} % test accuracy and its "
        f"classical control {point['control']} {100 * control:.1f} %"
    )
    if pd.isna(point["difference_low"]):
        return f"{lead}; one seed gives no interval, so they cannot be told apart."
    interval = (
        f"a difference of {100 * point['difference']:+.1f} points, 95 % interval over {int(point['pairs'])} seeds "
        f"{100 * point['difference_low']:+.1f} to {100 * point['difference_high']:+.1f}"
    )
    return f"{lead}: {interval}; {VERDICTS[point['verdict']]}."


VERDICTS = {
    "better than the control": "the circuit is better than its control here",
    "worse than the control": "the circuit is worse than its control here",
    "cannot be told apart": "the seeds cannot tell the two apart",
    "too easy to tell apart": "the data set is too easy to tell the two apart",
}


def _slower(point: pd.Series) -> str:
    """How many times faster the reference is than this point; the table holds the inverse."""
    ratio, low, high = (
        1 / point[name] if point[name] else float("nan")
        for name in ("speedup_best_serial", "speedup_best_serial_high", "speedup_best_serial_low")
    )
    return f"{_ratio(ratio, low, high, point['speedup_best_serial_n'])} faster"


# Less than this is no reason to use twice the cores.
WORTH = 1.05


def _gain(point: pd.Series) -> str:
    if point["flag"] in BUSY_RATIOS:
        return ": too disturbed to say"
    if point["speedup_same_low"] > WORTH:
        return ": it pays"
    return ": it does not pay" if point["speedup_same_high"] <= 1 else ": no clear gain"


def _ratio(median: float, low: float, high: float, seeds: int) -> str:
    if seeds == 1:
        return f"{_digits(median)}x (one seed)"
    return f"{_digits(median)}x ({_digits(low)} to {_digits(high)})"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _seeds(points: pd.DataFrame) -> str:
    low, high = int(points["n"].min()), int(points["n"].max())
    return f"{low if low == high else f'{low} to {high}'} seed{'s' if high > 1 else ''}"


def _where(text: str) -> str:
    """'mpi-n2r2t1' as '2 MPI ranks on 2 nodes'."""
    found = place(text)
    if found["ranks"] == 1:
        return f"{found['threads']} threads"
    nodes = f" on {found['nodes']} nodes" if found["nodes"] > 1 else ""
    return f"{found['ranks']} {BACKENDS[found['backend']].title} ranks{nodes}"


def _warning(points: pd.DataFrame) -> str:
    """Named last, where the machine was busy or a reference was."""
    flags: Sequence[str] = sorted(set(points["flag"].dropna()) - {""})
    if not flags:
        return ""
    count = int(points["flag"].fillna("").ne("").sum())
    return f" Careful: {count} of these {len(points)} points were timed on a machine with other work ({', '.join(flags)})."
