"""Quality of trained models beside their controls: test results with intervals, and learning curves."""

from __future__ import annotations

from ketscale.analysis.drawing import plots, style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Axes, Drawing, pd
from ketscale.analysis.kinds.quality import Quality
from ketscale.analysis.points import variants
from ketscale.config import Config, Metric
from ketscale.grid import POINT


class Accuracy(Quality):
    """Models that are trained by epochs, each compared with its best control."""

    name = "accuracy"
    history = True
    title = "Test results and learning curves"
    caption = (
        "The headline metric on test data with the best weights, with its 95 % interval, and on validation data by "
        "epoch: a line for each seed, which ends where its training ended. Hollow: some seeds failed. Dotted: the best "
        "baseline of the data, and guessing."
    )

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
        """Two panels for each data set: test results, and each seed's validation metric by epoch."""
        models = chosen(inputs, self.name)
        if models.empty:
            return None
        panels = list(plots.parts(models, inputs, "line"))
        figure, grid = style.panels(2 * len(panels), least=3)
        columns = ["n", "value", "value_low", "value_high", "chance", "baseline", "baseline_value"]
        drawn = [models[["workload", "metric", "line", *columns]]]
        for number, (title, part) in enumerate(panels):
            metric = inputs.config.family(str(part["workload"].iloc[0])).headline
            best = part.sort_values(["value", "line"], ascending=[metric.better == "down", True])
            _results(grid[2 * number], best, metric, title)
            epochs = _of_data(inputs.history, inputs.config)
            epochs = epochs.merge(best[[*POINT, "metric", "line"]], on=list(POINT))
            epochs["validation"] = epochs.get(f"validation_{metric.name}", float("nan"))
            _learning(grid[2 * number + 1], best["line"], metric, epochs)
            drawn.append(epochs[["workload", "metric", "line", "seed", "epoch", "validation"]])
        style.footnote(figure, models, inputs, inputs.asked(self.name))
        return figure, pd.concat(drawn)


ACCURACY = Accuracy()


def chosen(inputs: Inputs, kind: str) -> pd.DataFrame:
    """The chosen configurations of a kind's studies with a test result, with the name of each as `line`, and what ran them."""
    rows = inputs.quality[inputs.quality["study"].isin(inputs.asked(kind)) & inputs.quality["value"].notna()]
    rows = rows[rows["chosen"].astype(bool)].reset_index(drop=True)
    names = [variants(part, inputs.config, ("workload",)) for _, part in rows.groupby("workload")]
    line = pd.concat(names) if names else pd.Series(dtype=str)
    ran = _of_data(inputs.runs, inputs.config)[[*POINT, "hardware", "code"]].drop_duplicates(list(POINT))
    named = rows.assign(line=line.where(line != "", rows["model"]), hollow=rows["failed"] > 0)
    return named.merge(ran, on=list(POINT))


def _of_data(runs: pd.DataFrame, config: Config) -> pd.DataFrame:
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
