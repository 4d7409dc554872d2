"""The answer of studies of layouts: for each model, size and batch, the best number of workers and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ketscale.analysis import verdicts
from ketscale.analysis.kinds.kind import Answer
from ketscale.analysis.points import BUSY_RATIOS, HOLLOW
from ketscale.analysis.wording import digits, distinct, interval, listed, sentence, subject, where
from ketscale.grid import BACKENDS, layout
from ketscale.words import duration

if TYPE_CHECKING:
    import pandas as pd

    from ketscale.analysis.drawing.inputs import Inputs

RATIO = "speedup_same"


def answer(
    points: pd.DataFrame,
    inputs: Inputs,
    but: Sequence[str],
    says: str,
    cost: Callable[[pd.Series], str],
) -> Answer:
    """The best layout of each group of points that differ in nothing but the columns `but`, device by device.

    points: of one study, with a step time. says: what a layout is beside one worker, such as 'make a step {factor} times
    as fast as {one}'. cost: what a point's gain costs, in words.
    """
    several = points[(points["workers"] > 1) & points[RATIO].notna()]
    if several.empty:
        return Answer(
            "No layout with more than one worker has been timed together with one worker yet.", verdicts.OPEN
        )
    count = verdicts.decided(verdicts.estimate(row, RATIO) for _, row in several.iterrows())
    named = several.assign(words=distinct(several, inputs.config, but), device=several["layout"].map(device))
    clauses, found = [], []
    for (name, _), group in named.groupby(["words", "device"], sort=False):
        point = best(group)
        ratio = verdicts.together(verdicts.estimate(point, RATIO), count)
        verdict, one = verdicts.gain(ratio, point["flag"]), where(point["same_reference"].split()[0])
        said = says.format(factor=digits(ratio.value), one=one)
        clauses.append(
            f"{name}{', ' if name else ''}{where(point['layout'])} {said} ({interval(ratio)}): "
            f"{verdicts.CLAUSES[verdict]}, {cost(point)}{_others(group, point)}"
        )
        found.append((ratio, verdict, f"{where(point['layout'])} over {one}"))
    ratio, verdict, of = max(found, key=lambda each: (each[1] != verdicts.DISTURBED, each[0].value))
    text = sentence(f"for {subject(several, inputs.config, but)}", clauses) + verdicts.about_together(count)
    return Answer.by(text, verdict, f"gain of {of}", ratio)


def best(points: pd.DataFrame) -> pd.Series:
    """The point with the largest ratio, of those whose ratio is not from a busy machine if there are any."""
    ordered = points.assign(disturbed=points["flag"].isin(BUSY_RATIOS), less=-points[RATIO])
    return ordered.sort_values(["disturbed", "less", "workers"]).iloc[0]


def _others(points: pd.DataFrame, chosen: pd.Series) -> str:
    """The best layouts of the other backends, with their ratios."""
    backends = points["layout"].map(lambda text: layout(text)["backend"])
    others = [
        best(group)
        for name, group in points.groupby(backends, sort=False)
        if name != layout(chosen["layout"])["backend"]
    ]
    told = [f"{where(point['layout'])} {digits(point[RATIO])} times" for point in others]
    return f" (the best others: {listed(told)})" if told else ""


def device(text: str) -> str:
    """What a worker of a layout is: 'core' or 'GPU'."""
    return "GPU" if BACKENDS[layout(text)["backend"]].device == "gpu" else "core"


def cost(point: pd.Series, samples: str) -> str:
    """The efficiency of a point, and what its samples cost beside those of its baseline."""
    efficiency = point[RATIO] / point["workers"]
    return (
        f"at an efficiency of {100 * efficiency:.0f} %, so 1,000 {samples} cost {digits(point['cost_s'])} "
        f"{device(point['layout'])}-seconds, {digits(1 / efficiency)} times as many as alone"
    )


def devices(points: pd.DataFrame, inputs: Inputs) -> str:
    """The sentence that compares GPUs with cores, by the fastest layout of each at the same work; may be empty."""
    named = points.assign(
        words=distinct(points, inputs.config, ("layout",)), device=points["layout"].map(device)
    )
    clauses = []
    for name, group in named.groupby("words", sort=False):
        quiet = group[~group["flag"].isin(HOLLOW)]
        fastest = quiet.sort_values("step_s").drop_duplicates("device")
        if len(fastest) > 1:
            told = (
                f"{where(point['layout'])} {duration(point['step_s'])}" for _, point in fastest.iterrows()
            )
            clauses.append(f"{name}{': ' if name else ''}{listed(told)}")
    return f" The fastest step of each device (median): {'; '.join(clauses)}." if clauses else ""
