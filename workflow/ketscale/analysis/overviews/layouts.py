"""The map of layouts: which is fastest at each size and batch, and by how much."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import Any

from ketscale.analysis import verdicts
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Axes, Drawing, pd, plt
from ketscale.analysis.kinds import Figure
from ketscale.analysis.points import BUSY_RATIOS, serial, size_axes, size_words, workers
from ketscale.analysis.wording import device, digits, where
from ketscale.config import Config
from ketscale.grid import POINT, Run, layout
from ketscale.words import duration

RATIO = "speedup_same"
PANEL = ["workload", "model", "simulator", "protocol", "device", "hardware"]
CELL = [*PANEL, "size", "batch"]
# Kinds whose verdicts are not on whether a step is faster than that of one worker at the same batch.
OTHERS = ("weak", "mistakes")
# No layout: none is surely the fastest.
UNSURE, NOTHING = "none for sure", "#e4e6e8"
ALPHA = 0.45
NOTE = (
    "Time of a step of one worker, and the fastest layout of several workers with its speedup and 95 % interval (none "
    "below 3 seeds). Grey: none is surely the fastest. Empty: not timed on one worker and on several"
)
# Inches: narrower cells have only the speedup in words.
_ROOM = 0.85


def draw(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """A panel for each model and simulator: sizes against batches, each cell in the colour of its fastest layout."""
    from matplotlib.patches import Patch

    drawn = table(inputs)
    if drawn.empty:
        return None
    panels = list(drawn.groupby(PANEL, sort=False))
    rows = [part["size"].nunique() for _, part in panels]
    each = 0.62 if _cell_width(drawn) >= _ROOM else 0.3
    figure, grid = plt.subplots(
        len(panels),
        figsize=(style.width(), sum(each * count + 0.7 for count in rows) + 0.4),
        height_ratios=rows,
        squeeze=False,
        layout="constrained",
    )
    names = [UNSURE, *sorted(set(drawn["fastest"]) - {UNSURE})]
    colours = {name: style.colour(number) for number, name in enumerate(names[1:])} | {UNSURE: NOTHING}
    for axes, (of, part) in zip(grid.flat, panels, strict=True):
        _panel(axes, part, colours, inputs)
        told = dict(zip(PANEL, map(str, of), strict=True)) | {"device": f"{of[4]}s"}
        more = [told[name] for name in PANEL[2:] if told[name] != "none" and drawn[name].nunique() > 1]
        title = ", ".join([f"{told['model']} on {told['workload']}", *more])
        axes.set_title(textwrap.fill(title, int(8 * style.width())))
    patches = [
        Patch(color=colours[name], alpha=_alpha(name), lw=0, label=name)
        for name in names
        if name in set(drawn["fastest"])
    ]
    figure.legend(handles=patches, loc="outside upper left", ncols=4 if style.width() > 5 else 2)
    asked = [study.name for study in inputs.config.studies if study.kind not in OTHERS]
    style.footnote(figure, drawn, inputs, asked, NOTE)
    return figure, drawn


def table(inputs: Inputs) -> pd.DataFrame:
    """One row per size and batch at which a layout of several workers was timed beside one worker.

    layout: the fastest of several workers, with its speedup. fastest: it or the one worker in words, or `UNSURE`. A panel
    has more cells than a row, a column or a diagonal, which is the figure of a study.
    """
    points = inputs.scaling[inputs.scaling["step_s"].notna() & ~inputs.scaling["kind"].isin(OTHERS)]
    points = points.assign(device=points["layout"].map(device))
    # Not over another size, batch or protocol.
    several = points[(points["workers"] > 1) & ~points["same_reference"].astype(str).str.contains(" ")]
    # The first study by name tells the verdict of a point that several have, whatever their order is.
    several = several[several[RATIO].notna()].sort_values("study", kind="stable")
    several = several.drop_duplicates([*POINT, "hardware"])
    if several.empty:
        return pd.DataFrame()
    rows = [_cell(group) for _, group in several.groupby(CELL, sort=False)]
    sizes = list(size_axes(inputs.config))
    found = pd.DataFrame(rows)[
        [
            *CELL, *sizes, "fastest", "layout", "workers", RATIO, f"{RATIO}_low", f"{RATIO}_high", "step_s",
            "same_step_s", "same_reference", "n", "flag", "code",
        ]
    ]  # fmt: skip
    panels = found.groupby(PANEL)
    along = pd.concat([panels[name].transform("nunique") for name in ("size", "batch")], axis=1).max(axis=1)
    found = found[panels["size"].transform("size") > along]
    return found.sort_values([*PANEL, *sizes, "batch"], ignore_index=True)


def _cell(group: pd.DataFrame) -> dict[str, Any]:
    """The best layout of one size and batch, beside the one worker that all are compared with.

    One worker is surely the fastest if every layout is surely no faster.
    """
    sure = group[group["verdict"] == verdicts.PAYS]
    among = sure if len(sure) else group
    # Equal ratios are told apart by name, whatever their order.
    point = among.sort_values([RATIO, "layout"]).iloc[-1]
    fastest = UNSURE
    if len(sure):
        fastest = where(point["layout"])
    elif (group["verdict"] == verdicts.PAYS_NOT).all():
        fastest = where(point["same_reference"])
    return {**{str(name): value for name, value in point.items()}, "fastest": fastest}


def _panel(axes: Axes, part: pd.DataFrame, colours: dict[str, str], inputs: Inputs) -> None:
    """The cells of one panel, with the speedup and, where there is room, the layout and the time of one worker in words."""
    from matplotlib.patches import Rectangle

    workload = str(part["workload"].iloc[0])
    sizes, batches = list(dict.fromkeys(part["size"])), sorted(set(part["batch"]))
    for _, row in part.iterrows():
        x, y, fastest = batches.index(row["batch"]), sizes.index(row["size"]), str(row["fastest"])
        axes.add_patch(
            Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=colours[fastest], alpha=_alpha(fastest), lw=0)
        )
        lines = [f"{digits(row[RATIO])}x"]
        if _cell_width(part) >= _ROOM:
            lines = [duration(row["same_step_s"]), where(row["layout"]), *lines]
            if pd.notna(row[f"{RATIO}_low"]):
                lines[-1] += f" ({digits(row[f'{RATIO}_low'])} to {digits(row[f'{RATIO}_high'])})"
            lines += ["(busy)"] if row["flag"] in BUSY_RATIOS else []
        axes.text(x, y, "\n".join(lines), ha="center", va="center", fontsize=6.5, linespacing=1.25)
    axes.set_xticks(range(len(batches)), [f"{batch:g}" for batch in batches])
    axes.set_yticks(range(len(sizes)), [size_words(inputs.config, workload, size) for size in sizes])
    axes.set(
        xlim=(-0.55, len(batches) - 0.45), ylim=(len(sizes) - 0.45, -0.55), xlabel="batch, of all workers"
    )
    axes.grid(False)
    axes.tick_params(length=0)


def _cell_width(part: pd.DataFrame) -> float:
    """The width of a cell of the widest panel in inches, beside the sizes' names."""
    return (style.width() - 1.4) / float(part.groupby(PANEL)["batch"].nunique().max())


def _alpha(name: str) -> float:
    """How opaque the colour of a cell is, so that its words can be read."""
    return 1.0 if name == UNSURE else ALPHA


def _compared(config: Config, run: Run) -> bool:
    """Whether a run of several workers has its like on one worker."""
    several = workers(run.layout) > 1
    return several and replace(run, **layout(serial(run.backend))) in config.run_set


MAP = Figure(
    "map",
    "Which layout is fastest",
    "Sizes against batches. The colour is that of the layout whose step is surely the shortest at the same batch in all; "
    "among several that pay, of the one with the largest speedup. Cores are compared with cores, and GPUs with GPUs.",
    (),
    draw,
    _compared,
)
