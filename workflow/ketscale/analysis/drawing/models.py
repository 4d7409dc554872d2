"""Figures of trained models: test results and learning curves, differences over data sets, and adaptation."""

from __future__ import annotations

from collections.abc import Iterator

from ketscale.analysis import metrics, verdicts
from ketscale.analysis.drawing import plots, style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Axes, Drawing, pd
from ketscale.analysis.points import variants
from ketscale.analysis.wording import amount
from ketscale.config import Config, Metric
from ketscale.grid import POINT


def accuracy(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """Two panels for each data set: test results, and each seed's validation metric by epoch."""
    models = chosen(inputs)
    if models.empty:
        return None
    panels = list(plots.parts(models, inputs, "line"))
    figure, grid = style.panels(2 * len(panels), least=3)
    columns = ["n", "value", "value_low", "value_high", "chance", "baseline", "baseline_value"]
    drawn = [models[["workload", "metric", "line", *columns]]]
    for number, (title, part) in enumerate(panels):
        metric = inputs.config.family(str(part["workload"].iloc[0])).headline
        ordered = part.sort_values(["value", "line"], ascending=[metric.better == "down", True])
        _results(grid[2 * number], ordered, metric, title)
        epochs = of_data(inputs.history, inputs.config).merge(
            ordered[[*POINT, "metric", "line"]], on=list(POINT)
        )
        epochs["validation"] = epochs.get(f"validation_{metric.name}", float("nan"))
        _learning(grid[2 * number + 1], ordered["line"], metric, epochs)
        drawn.append(epochs[["workload", "metric", "line", "seed", "epoch", "validation"]])
    style.footnote(figure, models, inputs)
    return figure, pd.concat(drawn)


def chosen(inputs: Inputs) -> pd.DataFrame:
    """The chosen configurations with a test result, with the name of each as `line`."""
    rows = inputs.quality[inputs.quality["value"].notna() & inputs.quality["row"].isna()]
    rows = rows[rows["chosen"].astype(bool)].reset_index(drop=True)
    names = [variants(part, inputs.config, ("workload",)) for _, part in rows.groupby("workload")]
    line = pd.concat(names) if names else pd.Series(dtype=str)
    return rows.assign(line=line.where(line != "", rows["model"]), hollow=rows["failed"] > 0)


def of_data(runs: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Runs of several splits of the same data as runs of these data, each with a seed of its own name."""
    data = runs["workload"].map(config.data)
    seeds = runs["seed"].where(data == runs["workload"], runs["seed"].astype(str) + " of " + runs["workload"])
    return runs.assign(workload=data, seed=seeds)


def _results(axes: Axes, models: pd.DataFrame, metric: Metric, title: str) -> None:
    """The test metric of each model with its interval; the best is at the top."""
    for height, (_, row) in enumerate(models.iterrows()):
        axes.hlines(height, row["value_low"], row["value_high"], lw=1.6, color=style.colour(height))
        style.dot(axes, row["value"], height, style.colour(height), row["hollow"], ms=6)
    marks = dict(zip(models["baseline"].dropna(), models["baseline_value"].dropna(), strict=True))
    marks |= {"guessing": models["chance"].mean()} if metric.is_share else {}
    for height, (name, at) in enumerate(marks.items()):
        # Far below all results it would hide their differences.
        if not metric.is_share or at > models["value_low"].min() - 0.1:
            axes.axvline(at, color=style.SOFT, lw=1, ls=(0, (1, 2)))
            aside = (2, "left") if at < sum(axes.get_xlim()) / 2 else (-2, "right")
            axes.annotate(name, (at, 1), (aside[0], -2 - 8 * height), xycoords=("data", "axes fraction"), ha=aside[1],
                          textcoords="offset points", fontsize=7, va="top", color=style.SOFT)  # fmt: skip
    if not metric.is_share and models["value"].min() > 0:
        style.log_numbers(axes.xaxis)
    style.name_rows(axes, models["line"])
    axes.set(title=title, xlabel=f"test {style.label(metric)}")


def _learning(axes: Axes, names: pd.Series[str], metric: Metric, epochs: pd.DataFrame) -> None:
    """The seeds' validation metric by epoch, as measured; a dot is the end of a seed's training. names: of the lines, in order."""
    ends = []
    for number, name in enumerate(names):
        mine = epochs[epochs["line"] == name].dropna(subset="validation").sort_values(["seed", "epoch"])
        for _, seed in mine.groupby("seed"):
            axes.plot(seed["epoch"], seed["validation"], lw=0.9, alpha=0.6, color=style.colour(number))
            axes.plot(
                seed["epoch"].iloc[-1:], seed["validation"].iloc[-1:], "o", ms=2.5, color=style.colour(number)
            )
        if len(mine):
            ends.append((mine.groupby("seed")["validation"].last().median(), name, style.colour(number)))
    if metric.better == "down" and ends and style.wide(epochs["validation"]):
        axes.set_yscale("log")
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="epoch", ylabel=f"validation {metric.title}")
    style.name_lines(axes, ends)


def comparison(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """The differences of the data sets with what is typical of them, and mean ranks with their critical difference."""
    rows = inputs.quality[
        inputs.quality["effect"].notna() & (inputs.quality["verdict"].notna() | inputs.quality["row"].notna())
    ]
    differences = rows[rows["row"] != "rank"].sort_values(["row", "workload", "size"], na_position="first")
    ranks = rows[rows["row"] == "rank"].sort_values("effect")
    if differences.empty or len(differences) > 60:
        return None
    if len(differences) == 2:
        # One data set alone is the whole.
        differences = differences[differences["row"].isna()]
    most = max(len(differences), len(ranks))
    figure, grid = style.panels(1 + (len(ranks) > 0), height=style.ROW * most + 0.7, least=3.4)
    colours = {verdicts.BETTER: style.colour(0), verdicts.WORSE: style.colour(1)}
    metric = inputs.config.family(inputs.config.studies[0].runs[0].workload).headline
    for axes, part, title in zip(
        grid, (differences, ranks), ("Difference by data set", "Ranks of models and controls"), strict=False
    ):
        for height, (_, row) in enumerate(part.iterrows()):
            colour = (
                style.colour(pd.notna(row["control"]))
                if row["row"] == "rank"
                else colours.get(row["verdict"], style.SOFT)
            )
            axes.hlines(height, row["low"], row["high"], color=colour, lw=2)
            style.dot(
                axes,
                row["effect"],
                height,
                colour,
                False,
                marker="o" if row["row"] != "data sets" else "D",
                ms=6,
            )
        ratio = (part["unit"] == "times").all()
        if ratio:
            style.log_numbers(axes.xaxis, "x")
        if title.startswith("Difference"):
            axes.axvline(1 if ratio else 0, ls="--", color=style.FRAME, lw=1, zorder=0)
        words = [
            f"{row['effect']:.2f}"
            if row["row"] == "rank"
            else amount(row["effect"], None, None, row["unit"])[0]
            for _, row in part.iterrows()
        ]
        axes.set(
            title=title,
            xlabel="mean rank"
            if title.startswith("Ranks")
            else f"test {metric.title} of model over control"
            if ratio
            else f"test {metric.title} of model less control (points)",
        )
        axes.margins(x=0.1)
        style.name_rows(axes, part["point"], words)
    style.footnote(
        figure,
        differences[differences["row"].isna()],
        inputs,
        "Intervals of differences hold together with 95 %",
    )
    return figure, rows


def adaptation(inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
    """The headline metric by number of steps: a panel for each data set. A model that does not adapt is a level."""
    models = chosen(inputs)
    if models.empty:
        return None
    table = pd.DataFrame(_course(models, inputs)).astype({"value_low": float, "value_high": float})

    def finish(axes: Axes, part: pd.DataFrame) -> None:
        family = inputs.config.family(str(part["workload"].iloc[0]))
        for number, (_, line) in enumerate(part.groupby("line", sort=True)):
            if line["after"].isna().all():
                axes.axhline(line["value"].iloc[0], lw=1.6, ls="--", color=style.colour(number))
        if part["value"].min() > 0:
            axes.set_yscale("log")
        axes.set_xticks(range(len(family.course)), [str(steps) for steps in family.course])
        axes.set_xlim(-0.3, len(family.course) - 0.7)
        axes.set(xlabel="adaptation steps", ylabel=f"test {style.label(family.headline)}")

    return plots.lines(table, inputs, "at", "value", ("value_low", "value_high"), finish, "")


def _course(models: pd.DataFrame, inputs: Inputs) -> Iterator[dict[str, object]]:
    """The metric of each model over seeds `after` numbers of steps, the number `at` of all; `after` is empty for one that does not adapt."""
    runs = inputs.runs[inputs.runs["status"] == "completed"]
    for _, point in models.iterrows():
        own = runs[(runs[list(POINT)] == point[list(POINT)]).all(axis="columns")]
        family = inputs.config.family(point["workload"])
        adapts = inputs.config.models[point["model"]][1].adapts
        # A level is named at its end.
        course = enumerate(family.course.values()) if adapts else [(len(family.course) - 1, family.headline)]
        for at, metric in course:
            values = own[f"test_{metric.name}"].dropna().tolist()
            if values:
                mean = metrics.over_seeds(values)
                about = {
                    name: point[name] for name in ("study", "workload", "line", "hollow", "hardware", "code")
                }
                yield {
                    **about,
                    "after": metric.after,
                    "at": at,
                    "value": mean.value,
                    "value_low": mean.low,
                    "value_high": mean.high,
                    "n": mean.n,
                }
