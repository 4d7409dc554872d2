"""The map of layouts: which is fastest at each size and batch, and by how much."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ketscale.analysis import verdicts
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds import Figure, gains
from ketscale.analysis.kinds.gains import RATIO
from ketscale.analysis.points import BUSY_RATIOS, serial, size_axes, size_words, workers
from ketscale.analysis.wording import digits, where
from ketscale.config import Config
from ketscale.grid import POINT, Run, layout
from ketscale.words import duration

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

PANEL = ["workload", "model", "simulator", "protocol", "device", "hardware"]
CELL = [*PANEL, "size", "batch"]
# No layout: none is surely the fastest.
UNSURE, NOTHING = "none for sure", "#e4e6e8"
ALPHA = 0.45
NOTE = (
    "Time of a step of one worker, and the fastest layout of several workers with its speedup and 95 % interval, widened "
    "for the layouts compared in a cell (none below 3 seeds). Grey: none is surely the fastest. Empty: not timed on one "
    "worker and on several"
)


def draw(inputs: Inputs) -> tuple[Drawing, pd.DataFrame]:
    """A panel for each model and simulator: sizes against batches, each cell in the colour of its fastest layout."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    asked = [study.name for study in inputs.config.studies if study.kind != "weak"]
    drawn = table(inputs)
    if drawn.empty:
        return style.empty(inputs, asked)
    panels = list(drawn.groupby(PANEL, sort=False))
    shapes = [(part["size"].nunique(), part["batch"].nunique()) for _, part in panels]
    # Titles and cells need a width.
    columns = max(1, min(len(panels), 3, 4 // max(batches for _, batches in shapes)))
    rows = [panels[at : at + columns] for at in range(0, len(panels), columns)]
    heights = [max(part["size"].nunique() for _, part in row) for row in rows]
    figure, grid = plt.subplots(
        len(rows),
        columns,
        figsize=(11, sum(1.0 * height + 1.0 for height in heights) + 0.8),
        height_ratios=[height + 1 for height in heights],
        squeeze=False,
        layout="constrained",
    )
    names = [UNSURE, *sorted(set(drawn["fastest"]) - {UNSURE})]
    colours = {name: style.colour(number) for number, name in enumerate(names[1:])} | {UNSURE: NOTHING}
    for axes in grid.flat:
        axes.set_visible(False)
    for axes, (of, part) in zip(grid.flat, panels, strict=False):
        axes.set_visible(True)
        _panel(axes, part, colours, inputs)
        workload, model, simulator, protocol, device, hardware = map(str, of)
        more = [
            text
            for text, column in (
                (simulator, "simulator"),
                (protocol, "protocol"),
                (f"{device}s", "device"),
                (hardware, "hardware"),
            )
            if text != "none" and drawn[column].nunique() > 1
        ]
        axes.set_title("\n".join([model, ", ".join([workload, *more])]))
    patches = [
        Patch(color=colours[name], alpha=_alpha(name), lw=0, label=name)
        for name in names
        if name in set(drawn["fastest"])
    ]
    figure.legend(handles=patches, loc="outside upper center", ncols=4)
    style.footnote(figure, drawn, inputs, asked, NOTE)
    return figure, drawn


def table(inputs: Inputs) -> pd.DataFrame:
    """One row per size and batch at which a layout of several workers was timed beside one worker.

    layout: the fastest of several workers, with its speedup. fastest: it or the one worker in words, or `UNSURE`.
    """
    import pandas as pd

    points = inputs.scaling[inputs.scaling["step_s"].notna() & (inputs.scaling["kind"] != "weak")]
    points = points.assign(device=points["layout"].map(gains.device))
    # Not over another size, batch or protocol.
    several = points[(points["workers"] > 1) & ~points["same_reference"].astype(str).str.contains(" ")]
    several = several[several[RATIO].notna()].drop_duplicates([*POINT, "hardware"])
    if several.empty:
        return pd.DataFrame()
    alone = points[points["workers"] == 1][[*CELL, "layout", "step_s"]].drop_duplicates([*CELL, "layout"])
    alone = alone.rename(columns={"layout": "same_reference", "step_s": "alone_s"})
    several = several.merge(alone, on=[*CELL, "same_reference"])
    rows = [_cell(group) for _, group in several.groupby(CELL, sort=False)]
    if not rows:
        return pd.DataFrame()
    sizes = list(size_axes(inputs.config))
    found = pd.DataFrame(rows)[
        [
            *CELL, *sizes, "fastest", "layout", "workers", RATIO, "low", "high", "step_s", "alone_s", "same_reference",
            "compared", "n", "flag", "code",
        ]
    ]  # fmt: skip
    return found.sort_values([*PANEL, *sizes, "batch"], ignore_index=True)


def _cell(group: pd.DataFrame) -> dict[str, Any]:
    """The best layout of one size and batch, beside the one worker that all are compared with.

    One worker is surely the fastest if every layout is surely no faster.
    """
    found = [verdicts.estimate(row, RATIO) for _, row in group.iterrows()]
    compared = max(1, verdicts.decided(found))
    judged = [
        verdicts.gain(verdicts.together(each, compared), flag)
        for each, flag in zip(found, group["flag"], strict=True)
    ]
    sure = group[[each == verdicts.PAYS for each in judged]]
    point = gains.best(sure if len(sure) else group)
    fastest = UNSURE
    if len(sure):
        fastest = where(point["layout"])
    elif all(each == verdicts.PAYS_NOT for each in judged):
        fastest = where(point["same_reference"])
    ratio = verdicts.together(verdicts.estimate(point, RATIO), compared)
    return {
        **{str(name): value for name, value in point.items()},
        "low": ratio.low,
        "high": ratio.high,
        "compared": compared,
        "fastest": fastest,
    }


def _panel(axes: Axes, part: pd.DataFrame, colours: dict[str, str], inputs: Inputs) -> None:
    """The cells of one panel, with the speedup and both times in words."""
    import pandas as pd
    from matplotlib.patches import Rectangle

    workload = str(part["workload"].iloc[0])
    sizes, batches = list(dict.fromkeys(part["size"])), sorted(set(part["batch"]))
    for _, row in part.iterrows():
        x, y, fastest = batches.index(row["batch"]), sizes.index(row["size"]), str(row["fastest"])
        axes.add_patch(
            Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=colours[fastest], alpha=_alpha(fastest), lw=0)
        )
        # Where one worker is the fastest, the ratio is still that of the best of the others.
        lines = [duration(row["alone_s"])] + (
            [where(row["layout"])] if fastest != where(row["layout"]) else []
        )
        lines.append(f"{digits(row[RATIO])}x")
        if pd.notna(row["low"]):
            lines.append(f"({digits(row['low'])} to {digits(row['high'])})")
        lines += ["(busy)"] if row["flag"] in BUSY_RATIOS else []
        axes.text(x, y, "\n".join(lines), ha="center", va="center", fontsize=7.5, linespacing=1.3)
    axes.set_xticks(range(len(batches)), [f"{batch:g}" for batch in batches])
    axes.set_yticks(range(len(sizes)), [size_words(inputs.config, workload, size) for size in sizes])
    axes.set(
        xlim=(-0.55, len(batches) - 0.45), ylim=(len(sizes) - 0.45, -0.55), xlabel="batch, of all workers"
    )
    axes.grid(False)
    axes.tick_params(length=0)


def _alpha(name: str) -> float:
    """How opaque the colour of a cell is, so that its words can be read."""
    return 1.0 if name == UNSURE else ALPHA


def _compared(config: Config, run: Run) -> bool:
    """Whether a run of several workers has its like on one worker."""
    several = workers(run.backend, run.ranks, run.threads) > 1
    return several and replace(run, **layout(serial(run.backend))) in config.run_set


MAP = Figure(
    "map",
    "Which layout is fastest",
    "A map of sizes and batches, each cell in the colour of the layout whose step is surely the shortest at the same "
    "batch in all: one worker, or several if their speedup is above "
    f"{verdicts.WORTH:g} with its whole interval. Among several such "
    "layouts it is the one with the largest mean speedup. Cores are compared with cores, and GPUs with GPUs.",
    (),
    draw,
    _compared,
)
