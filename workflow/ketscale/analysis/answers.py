"""The report's answer in three sentences, computed from the tables: simulators, parallelism, quality."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ketscale.analysis.kinds.speed import WORK
from ketscale.analysis.points import BUSY_RATIOS, size_words, variants
from ketscale.config import Config, Metric
from ketscale.grid import BACKENDS, layout
from ketscale.measure.duration import duration

if TYPE_CHECKING:
    import pandas as pd


def sentences(tables: Mapping[str, pd.DataFrame], config: Config) -> tuple[str, str, str]:
    """What the studies say about simulators, a second rank or thread, and models compared with their controls."""
    scaling = tables["scaling"]
    return simulators(scaling, config), parallel(scaling, config), quality(tables["quality"], config)


def simulators(scaling: pd.DataFrame, config: Config) -> str:
    """The fastest simulator, and its factor (median, range over seeds) over the next and the slowest one."""
    points = scaling[(scaling["kind"] == "simulator") & scaling["step_s"].notna()].sort_values("step_s")
    alike = ["study", *WORK]
    points = points[points.groupby(alike)["step_s"].transform("size") > 1]
    if points.empty:
        return "Fewer than two simulators have been timed, so there is no fastest one."
    first = points.iloc[0]
    points = points[(points[alike] == first[alike]).all(axis=1)]
    fastest, others = first["simulator"], points.iloc[1:]
    sizes = size_words(config, first["workload"], first["size"])
    size = ", ".join(filter(None, [sizes, f"batch {first['batch']}"]))
    beaten = [f"{_slower(others.iloc[0])} than {others.iloc[0]['simulator']} (the next)"]
    if len(others) > 1:
        beaten.append(f"{_slower(others.iloc[-1])} than {others.iloc[-1]['simulator']} (the slowest)")
    return (
        f"The fastest simulator is {fastest}, at {duration(first['step_s'])} a training step ({size}): "
        f"{' and '.join(beaten)} (median, range over {_seeds(points)}, each ratio paired by seed).{_warning(points)}"
    )


def parallel(scaling: pd.DataFrame, config: Config) -> str:
    """Whether a second rank or thread shortens the step at a fixed global batch."""
    points = scaling[
        (scaling["kind"] == "strong") & (scaling["workers"] == 2) & scaling["speedup_same"].notna()
    ]
    if points.empty:
        return "No run with a second rank or thread has been timed, so nothing can be said about parallelism."
    batch = " and ".join(str(batch) for batch in sorted(points["batch"].unique()))
    points = points.assign(words=variants(points, config, but=("layout", "batch")))
    parts = []
    for _, point in points.sort_values(["speedup_same", "layout"], ascending=[False, True]).iterrows():
        ratio = _ratio(
            point["speedup_same"],
            point["speedup_same_low"],
            point["speedup_same_high"],
            point["speedup_same_n"],
        )
        of = f" ({point['words']})" if point["words"] else ""
        parts.append(f"{_where(point['layout'])}{of} {ratio}{_gain(point)}")
    return (
        f"At a fixed global batch of {batch}, the step's speedup over one rank and one thread is, with "
        f"{'; with '.join(parts)} (1 is no gain, 2 the ideal; median and range over {_seeds(points)}).{_warning(points)}"
    )


def quality(table: pd.DataFrame, config: Config) -> str:
    """The best model and its control on test data, with the interval of their difference over seeds."""
    points = table[table["pairs"] > 0]
    if points.empty:
        return "No model has been trained together with its control yet, so its results cannot be compared."
    # Generated data only show that a model trains, so measured data are preferred.
    workloads = {name: config.workloads[name][1] for name in points["workload"]}
    points = points.assign(generated=[workloads[name].generated for name in points["workload"]])
    speaking = points[points["generated"] == points["generated"].min()]
    speaking = speaking[speaking["workload"] == sorted(speaking["workload"])[0]]
    metric = config.family(speaking.iloc[0]["workload"]).headline
    point = speaking.sort_values(["value", "model"], ascending=[metric.better == "down", True]).iloc[0]
    control = point["value"] - point["difference"]
    data = f"{point['workload']} (generated data)" if point["generated"] else point["workload"]
    of = "classical control" if config.models[point["control"]][1].classical else "control"
    lead = (
        f"On {data}, {point['model']} reaches {_reached(point['value'], metric)} and its "
        f"{of} {point['control']} {_value(control, metric)}"
    )
    if math.isnan(point["difference_low"]):
        return f"{lead}; one seed gives no interval, so they cannot be told apart."
    interval = (
        f"a difference of {_difference(point['difference'], metric)}, 95 % interval over {int(point['pairs'])} seeds "
        f"{_difference(point['difference_low'], metric, unit=False)} to {_difference(point['difference_high'], metric, unit=False)}"
    )
    return f"{lead}: {interval}; {VERDICTS[point['verdict']]}."


VERDICTS = {
    "better than the control": "the model is better than its control here",
    "worse than the control": "the model is worse than its control here",
    "cannot be told apart": "the seeds cannot tell the two apart",
    "too easy to tell apart": "the data set is too easy to tell the two apart",
}


def _reached(value: float, metric: Metric) -> str:
    """'96.1 % test accuracy', or 'a test infidelity of 0.0012'."""
    if metric.is_share:
        return f"{_value(value, metric)} test {metric.title}"
    return f"a test {metric.title} of {_value(value, metric)}"


def _value(value: float, metric: Metric) -> str:
    if metric.is_share:
        return f"{100 * value:.1f} %"
    return f"{value:.3g} {metric.unit}".rstrip()


def _difference(value: float, metric: Metric, unit: bool = True) -> str:
    if metric.is_share:
        return f"{100 * value:+.1f}" + (" points" if unit else "")
    return f"{value:+.3g}" + (f" {metric.unit}" if unit and metric.unit else "")


def _slower(point: pd.Series) -> str:
    """How many times faster the fastest simulator is than this point; the table has the inverse."""
    ratio, low, high = (
        1 / point[name] if point[name] else float("nan")
        for name in ("speedup_best_serial", "speedup_best_serial_high", "speedup_best_serial_low")
    )
    if math.isnan(ratio):
        return "faster by an unmeasured factor (no seed of both was timed alone)"
    return f"{_ratio(ratio, low, high, point['speedup_best_serial_n'])} faster"


# A smaller speedup is no reason to use twice the cores.
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


def _seeds(points: pd.DataFrame) -> str:
    low, high = int(points["n"].min()), int(points["n"].max())
    return f"{low if low == high else f'{low} to {high}'} seed{'s' if high > 1 else ''}"


def _where(text: str) -> str:
    """'mpi-n2r2t1' as '2 MPI ranks on 2 nodes'."""
    found = layout(text)
    if found["ranks"] == 1:
        return f"{found['threads']} threads"
    nodes = f" on {found['nodes']} nodes" if found["nodes"] > 1 else ""
    return f"{found['ranks']} {BACKENDS[found['backend']].title} ranks{nodes}"


def _warning(points: pd.DataFrame) -> str:
    """The sentence that warns of points, or baselines, that were timed on a busy machine."""
    disturbed = points["flag"].fillna("").where(~points["flag"].fillna("").str.startswith("timed_out"), "")
    flags: Sequence[str] = sorted(set(disturbed) - {""})
    if not flags:
        return ""
    count = int(disturbed.ne("").sum())
    return f" Careful: {count} of these {len(points)} points were timed on a machine with other work ({', '.join(flags)})."
