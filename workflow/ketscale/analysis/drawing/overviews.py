"""Figures over several studies: which layout is fastest, where the time of a step goes, and what trained models do over time."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import Any

from ketscale.analysis import verdicts
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs, of_studies
from ketscale.analysis.heavy import Axes, Drawing, np, pd, plt
from ketscale.analysis.kinds.kind import Figure
from ketscale.analysis.points import serial, size_axes, size_words, variants, workers
from ketscale.analysis.wording import device, digits, where
from ketscale.config import Config
from ketscale.files import read_csv
from ketscale.grid import CURVES, POINT, Run, layout
from ketscale.words import counted, duration

SCALING = ("strong", "break-even")
UNSURE = "none for sure"
# Bars, or panels, that one figure has.
MOST = 20
# In the order of a step; other spans are drawn after them.
SPANS = (
    "data", "features", "transfer", "classical.forward", "circuit.forward", "circuit.backward",
    "dynamics.creation", "dynamics.forward", "dynamics.backward", "pulses.hamiltonian", "pulses.eigenstates", "pulses.gates",
    "pulses.forward", "pulses.backward", "classical.backward", "communication.sums", "communication.wait", "communication",
    "optimiser",
)  # fmt: skip
OTHER = "outside any span"


def layouts(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """Sizes against batches, a panel for each model and simulator: the layout that is surely the fastest, and its speedup."""
    points = inputs.speed[inputs.speed["kind"].isin(SCALING) & inputs.speed["effect"].notna()]
    points = points.sort_values("study", kind="stable").drop_duplicates([*POINT, "hardware"])
    points = points.assign(device=points["layout"].map(device))
    panel = ["workload", "model", "simulator", "protocol", "device", "hardware"]
    rows = [_fastest(part) for _, part in points.groupby([*panel, "size", "batch"], sort=False)]
    cells = pd.DataFrame(rows)
    if cells.empty:
        return None
    # A row, a column or a diagonal is the figure of a study.
    panels = [
        (of, part)
        for of, part in cells.groupby(panel)
        if len(part) > max(part["size"].nunique(), part["batch"].nunique())
    ]
    if not panels:
        return None
    figure, grid = style.panels(len(panels), least=3.4, height=2.4)
    names = [UNSURE, *sorted(set(cells["fastest"]) - {UNSURE})]
    colours = ["#e4e6e8", *(style.colour(number) for number in range(len(names) - 1))]
    for axes, (of, part) in zip(grid, panels, strict=True):
        sizes, batches = list(dict.fromkeys(part["size"])), sorted(set(part["batch"]))
        for _, row in part.iterrows():
            x, y, name = batches.index(row["batch"]), sizes.index(row["size"]), names.index(row["fastest"])
            axes.add_patch(
                plt.Rectangle(
                    (x - 0.48, y - 0.46), 0.96, 0.92, color=colours[name], alpha=0.45 if name else 1, lw=0
                )
            )
            axes.text(x, y, f"{digits(row['effect'])}x", ha="center", va="center", fontsize=6.5)
        axes.set_xticks(range(len(batches)), [f"{batch:g}" for batch in batches])
        axes.set_yticks(
            range(len(sizes)),
            [size_words(inputs.config, str(part["workload"].iloc[0]), size) for size in sizes],
        )
        axes.set(
            xlim=(-0.55, len(batches) - 0.45), ylim=(len(sizes) - 0.45, -0.55), xlabel="batch, of all workers"
        )
        told = [
            *of[:3],
            *(name for column, name in zip(panel[3:], of[3:], strict=True) if cells[column].nunique() > 1),
        ]
        axes.set_title(textwrap.fill(", ".join(str(name) for name in told if name != "none"), 44))
        axes.grid(False)
    patches = [
        plt.Rectangle((0, 0), 1, 1, color=colour, alpha=0.45 if number else 1)
        for number, colour in enumerate(colours)
    ]
    figure.legend(patches, names, loc="outside upper left", ncols=4 if style.width() > 5 else 2)
    style.footnote(
        figure,
        cells,
        inputs,
        "The speedup of the fastest layout over one worker. Grey: none is surely the fastest",
    )
    return figure, cells


def _fastest(part: pd.DataFrame) -> dict[str, object]:
    """The best layout of one size and batch; one worker is surely the fastest if every layout is surely slower."""
    sure = part[part["verdict"] == verdicts.FASTER]
    among = sure if len(sure) else part
    best = among.sort_values(["effect", "layout"]).iloc[-1]
    one = where(serial(layout(best["layout"])["backend"]))
    fastest = (
        where(best["layout"]) if len(sure) else one if (part["verdict"] == verdicts.SLOWER).all() else UNSURE
    )
    return {**{str(name): value for name, value in best.items()}, "fastest": fastest}


def _compared(config: Config, run: Run) -> bool:
    """Whether a run of several workers has its like on one worker."""
    return workers(run.layout) > 1 and replace(run, **layout(serial(run.backend))) in config.run_set


def spans(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """The share of each part in a sampled step, a bar for each point, with the time of the whole step above it."""
    from matplotlib.ticker import PercentFormatter

    asked = [study.name for study in inputs.config.studies if study.kind in SPANS_OF]
    runs = of_studies(inputs.runs, asked)
    runs = runs[(runs["status"] == "completed") & (runs["timed"] == True) & runs["sampled_step_s"].notna()]  # noqa: E712
    columns = [name for name in map(str, runs) if name.startswith("span_") and not name.endswith(".total_s")]
    if runs.empty or not columns:
        return None
    bar = [*POINT, "features", "hardware"]
    some_quiet = runs.groupby(bar)["quiet"].transform("any").astype(bool)
    runs = runs[runs["quiet"].astype(bool) | ~some_quiet]
    sizes = list(size_axes(inputs.config))
    how: dict[str, Any] = {**dict.fromkeys([*columns, "sampled_step_s"], "median"), "quiet": "all"}
    how |= {"seed": "nunique", **dict.fromkeys(["code", *sizes], "first")}
    every = runs.groupby(bar, as_index=False).agg(how).rename(columns={"seed": "n"})
    order = ["workload", "model", *sizes, "batch", "sampled_step_s"]
    steps = every.sort_values(order, ignore_index=True).head(MOST)
    parts = steps[columns].fillna(0.0).rename(columns=lambda name: name[5:-2])
    parts[OTHER] = (steps["sampled_step_s"] - parts.sum(axis=1)).clip(lower=0)
    names = [name for name in SPANS if name in parts] + sorted({*parts} - {*SPANS, OTHER}) + [OTHER]
    names = [name for name in names if parts[name].any()]
    shares = parts[names].div(parts[names].sum(axis=1), axis=0)
    height = 0.9 + 0.34 * len(steps) + 0.2 * len(names) / style.width() * 2
    figure, axes = plt.subplots(figsize=(style.width(), height), layout="constrained")
    left = np.zeros(len(steps))
    for number, name in enumerate(names):
        colour = "#d0d3d6" if name == OTHER else style.colour(number)
        hatch = "//" if number >= len(style.PALETTE) and name != OTHER else None
        axes.barh(
            range(len(steps)),
            shares[name],
            left=left,
            color=colour,
            hatch=hatch,
            label=name.replace(".", " "),
            height=0.42,
            lw=0,
        )
        left = left + shares[name].to_numpy()
    for at, (words, (_, step)) in enumerate(
        zip(variants(steps, inputs.config), steps.iterrows(), strict=True)
    ):
        time = duration(step["sampled_step_s"]) + ("" if step["quiet"] else " (busy)")
        name = textwrap.shorten(
            words or str(step["simulator"]), int(style.width() * 17) - len(time), placeholder=" …"
        )
        axes.text(0.004, at - 0.25, f"{name}: {time}", va="bottom", fontsize=6.5, in_layout=False)
    axes.set_yticks([])
    axes.set_ylim(len(steps) - 0.6, -0.8)
    axes.set(xlim=(0, 1), xlabel="share of a sampled step")
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(False, axis="y")
    figure.legend(loc="outside upper left", ncols=5 if style.width() > 5 else 2)
    note = f"Exclusive medians{_left_out(len(every), 'point')}"
    style.footnote(figure, steps, inputs, note)
    return figure, pd.concat([steps[[*bar, "n", "sampled_step_s", "quiet"]], shares], axis=1)


def _left_out(count: int, what: str) -> str:
    """How many are not drawn, in words; '' if all are."""
    return f". Not drawn: {counted(count - MOST, what)} more" if count > MOST else ""


SPANS_OF = ("simulator", "strong", "weak", "features")


def curves(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """The curves over time of the best seed of each point on validation data, from the runs' own files."""
    asked = [study.name for study in inputs.config.studies if study.kind == "accuracy"]
    drawn, panels = [], []
    runs = of_studies(inputs.runs, asked)
    for _, part in runs[runs["status"] == "completed"].groupby(list(POINT), sort=True):
        family = inputs.config.families[part["family"].iloc[0]]
        metric = family.headline
        ordered = part.sort_values(
            [f"validation_{metric.name}", "seed"], ascending=[metric.better == "down", True]
        )
        best = ordered.iloc[0]
        run = Run.of({str(name): value for name, value in best.items()})
        file = inputs.results / run.folder / CURVES
        if family.curves is None or not file.exists():
            continue
        table = pd.DataFrame(read_csv(file)).astype(float)
        drawn.append(table.assign(run=run.name))
        size = size_words(inputs.config, run.workload, run.size)
        value = f"{metric.title} {best[f'test_{metric.name}']:.3g}"
        name = f"{run.workload} {run.model}, {', '.join(filter(None, (size, f'seed {run.seed}')))}: {value}"
        panels += [
            (table, word, title, family.curves.time, name) for word, title in family.curves.panels.items()
        ]
    if not panels:
        return None
    figure, grid = style.panels(len(panels[:MOST]), least=3)
    for axes, (table, word, title, time, name) in zip(grid, panels, strict=False):
        _panel(axes, table, word)
        axes.set(xlabel=time, ylabel=title)
        axes.set_title(textwrap.fill(name, 44), fontsize=7.5)
    note = "Of each point, the seed with the best headline metric on validation data; its value above is on test data"
    style.footnote(figure, runs.assign(n=1), inputs, note + _left_out(len(panels), "panel"))
    return figure, pd.concat(drawn)


def _panel(axes: Axes, table: pd.DataFrame, word: str) -> None:
    """The curves of a panel: a number at the end of a name chooses the colour, the words before it the line style."""
    time, *names = table.columns
    words = {name: name.split("_")[1:] for name in names if name.split("_")[0] == word}
    styles = list(dict.fromkeys(tuple(parts[:-1]) for parts in words.values()))
    for name, (*first, last) in words.items():
        colour = style.colour(int(last)) if last.isdigit() else style.FRAME
        ls = ("-", "--", ":", "-.")[styles.index(tuple(first)) % 4]
        axes.plot(table[time], table[name], lw=1.4, color=colour, ls=ls, label=" ".join([*first, last]))
    axes.margins(x=0)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def _kept(config: Config, run: Run) -> bool:
    """Whether a run keeps its curves."""
    return config.family(run.workload).curves is not None and config.protocols[run.protocol].keep_model


OVERVIEWS = (
    Figure(
        "map", "Which layout is fastest",
        "Sizes against batches. The colour is that of the layout whose step is surely the shortest at the same batch in all; "
        "among several that are, of the one with the largest speedup. Cores are compared with cores, and GPUs with GPUs.",
        layouts, SCALING, _compared),
    Figure(
        "spans", "Where the time of a step goes",
        "Exclusive time of each part of a few sampled steps, which are measured with the device synchronised; above each bar, "
        "the time of the whole step. All other steps run undisturbed.", spans, SPANS_OF),
    Figure(
        "curves", "What trained models do over time",
        "Curves of trained models over time, one row of panels for each point: of the seed with the best headline metric on "
        "validation data.", curves, ("accuracy",), _kept),
)  # fmt: skip
