"""Models against controls over several data sets: one verdict for each data set, one for all, and ranks of all models.

On each data set validation chooses one of the models that have a control, and one of that one's controls; the test compares
the two. All intervals of differences are of one level, 1 - 5 % / (number of data sets), so that those of the data sets hold
together, and decide. The verdict for all is by itself: it is of the signed ranks of these differences, one for each data set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ketscale.analysis import verdicts
from ketscale.analysis.drawing import plots, style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Axes, Drawing, pd
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds import finding
from ketscale.analysis.kinds.accuracy import chosen
from ketscale.analysis.kinds.finding import Finding
from ketscale.analysis.kinds.kind import Answer, Told
from ketscale.analysis.kinds.quality import Quality
from ketscale.analysis.kinds.selection import Candidate, Match, best, controls
from ketscale.analysis.kinds.whole import Task, Whole, level_of, tasks_of
from ketscale.analysis.points import FOUND
from ketscale.config import Config
from ketscale.grid import Study
from ketscale.words import duration, spelled


class Comparison(Quality):
    """Models of two sides on several data sets."""

    name = "comparison"
    title = "Differences by data set, and ranks"
    caption = (
        "On each data set the model that validation chose, less the control that it chose, on test data; the intervals hold together "
        "with 95 %. The last row: what is typical of the data sets, with the interval of signed ranks. Beside it, from five "
        "data sets on: mean ranks on test data, 1 for the best; models whose bars do not overlap differ by more than a critical "
        "difference, if Friedman's test finds any. Blue: better, and models; orange: worse, and controls; grey: neither."
    )

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require validation and test, and one headline metric."""
        yield from super().check(study, config)
        metrics = sorted({config.family(run.workload).headline.name for run in study.runs})
        if len(metrics) > 1:
            yield f"comparison joins data sets of one metric, not {', '.join(metrics)}; make a study of each"

    def judged(self, made: list[Match], study: Study, config: Config) -> list[Match]:
        """One verdict for each data set, of the model and the control that validation chose, at the level of the study."""
        tasks = tasks_of(study, config)

        def own(match: Match) -> Match:
            """The same beside the best of its controls and the baseline; nothing stands in for controls without a result."""
            task, model = match.chosen.task, match.chosen.model
            control, match = match.control, replace(match, level=level_of(tasks))
            if not any(controls(config, other, model) for other in tasks[task]):
                return match
            if control is None or not (control.group and control.tests):
                return replace(match, control=None, verdict="")
            beside = best([control, match.standard]) if match.standard else control
            match = replace(match, control=beside)
            return replace(match, verdict=match.undecided())

        compared: dict[Task, list[Candidate]] = {}
        for match in (made := [own(match) for match in made]):
            if match.control or match.verdict:
                compared.setdefault(match.chosen.task, []).append(match.chosen)
        leads = {one.point for found in compared.values() if (one := best(found))}
        return [
            replace(match, verdict=match.verdict or match.at_last(match.decide()))
            if match.chosen.point in leads
            else replace(match, verdict="")
            for match in made
        ]

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """What the data sets say together, and a row for each data set and model, each baseline and each rank."""
        whole, named = Whole.of(study, inputs), self.named(study, inputs)
        if not named:
            return self.nothing(study, inputs)
        rows = tuple(_rows(whole, named))
        if not whole.heads:
            text, short = (
                "Open: no data set has both a model and a control with a result.",
                "Open: nothing to compare yet",
            )
            return Answer(text, verdicts.OPEN, short=short, rows=rows)
        text, short = whole.said()
        heads = whole.heads.values()
        notes = dict.fromkeys([*(note for head in heads for note in head.notes()), *whole.notes()])
        return Answer(
            text, whole.verdict, f"test {whole.metric.title} of {whole.model} beside {whole.control}", whole.effect,
            whole.unit if whole.effect else "", short, rows, tuple(notes),
        )  # fmt: skip

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
        """The differences of the data sets with what is typical of them, and mean ranks with their critical difference."""
        (study,) = inputs.config.studies
        whole = Whole.of(study, inputs)
        points = chosen(inputs, self.name)
        points = points[[bool(each.verdict and each.effect) for each in points[FOUND]]]
        if points.empty or len(points) > plots.MOST_ROWS:
            return None
        points = points.sort_values(["workload", "size"])
        ranked = whole.ranks
        most = max(len(points) + 1, len(ranked))
        figure, grid = style.panels(1 + bool(ranked), height=plots.ROW * most + 0.7, least=3.4)
        drawn = list(_draw_differences(grid[0], whole))
        if ranked:
            drawn += _draw_ranks(grid[1], whole)
        style.footnote(
            figure, points, inputs, [study.name], "Intervals of differences hold together with 95 %"
        )
        return figure, pd.DataFrame(drawn)


COMPARISON = Comparison()


def _rows(whole: Whole, named: Mapping[Finding, str]) -> Iterator[Told]:
    """A row for each data set and model, models before their controls; for each baseline; and for each rank."""
    for task in whole.tasks:
        mine = [each for each in whole.found if each.task == task]
        shown = [each for each in mine if each in named or (each.failed and not each.n)]
        lost = whole.lost(task) and task not in whole.heads
        for each in sorted(shown, key=lambda one: (whole.is_control(one.model, task), one.model)):
            word, lost = (verdicts.FAILED, 0.0) if lost else (each.verdict, lost)
            unit = each.unit if each.effect else ""
            point = each.point(whole.config, named.get(each, ""))
            yield Told(f"{task[0]}: {point}", each.beside, each.effect, unit, word, _cells(each))
        for each in [each for each in mine if each.standing][:1]:
            cell = finding.told(each.standing, each.metric) if each.standing else ""
            yield Told(f"{task[0]}: {each.standard} (baseline)", more={_reached(each): cell})
    for model, rank in whole.ranks.items():
        mean = Estimate(rank, None, None, len(whole.scores))
        yield Told(f"{spelled(mean.n)} data sets: {model}", effect=mean, unit="mean rank")


def _reached(each: Finding) -> str:
    return f"test {each.metric.title}"


def _cells(each: Finding) -> dict[str, str]:
    """What is said of a configuration beside its difference, by headings."""
    time = "" if each.train_s is None else duration(each.train_s, 2)
    cells = {
        _reached(each): finding.told(each.reached, each.metric) if each.reached else "",
        "parameters": "" if each.parameters is None else f"{each.parameters:,}",
        "training": f"{time}, {each.cohort} together" if time and each.cohort > 1 else time,
        "budget": finding.spent(each.budget) if each.budget else "",
        "chosen": finding.settled(each.budget) if each.budget else "",
        "failed": f"{each.failed} of {each.failed + each.n} seeds" if each.failed else "",
    }
    return {name: text for name, text in cells.items() if text}


def _draw_differences(axes: Axes, whole: Whole) -> Iterator[dict[str, Any]]:
    """The difference of each data set with its interval, and what is typical of all; the data that are drawn."""
    heads = [head for head in whole.heads.values() if head.effect]
    drawn = [
        (f"{head.task[0]}: {head.model} beside {head.beside}", head.effect, head.verdict) for head in heads
    ]
    if len(heads) > 1:
        drawn.append((f"{spelled(len(whole.plain))} data sets", whole.effect, whole.verdict))
    words = (verdicts.BETTER, verdicts.WORSE)
    for height, (name, effect, word) in enumerate(drawn):
        if effect is None:
            continue
        colour = style.colour(words.index(word)) if word in words else style.SOFT
        if effect.low is not None and effect.high is not None:
            axes.hlines(height, effect.low, effect.high, color=colour, lw=2)
        style.dot(
            axes, effect.value, height, colour, False, marker="D" if height == len(heads) else "o", ms=6
        )
        yield {
            "row": name,
            "difference": effect.value,
            "low": effect.low,
            "high": effect.high,
            "verdict": word,
        }
    if ratio := whole.unit == "times":
        style.log_numbers(axes.xaxis, "x")
    axes.axvline(1 if ratio else 0, ls="--", color=style.FRAME, lw=1, zorder=0)
    over = "over control" if ratio else "less control (points)"
    axes.set(title="Difference by data set", xlabel=f"test {whole.metric.title} of model {over}")
    axes.margins(x=0.1)
    style.name_rows(
        axes, [name for name, _, _ in drawn], [finding.signed(effect, whole.unit) for _, effect, _ in drawn]
    )


def _draw_ranks(axes: Axes, whole: Whole) -> Iterator[dict[str, Any]]:
    """The mean rank of each model with half a critical difference to both sides; the data that are drawn."""
    for height, (model, rank) in enumerate(whole.ranks.items()):
        colour = style.colour(any(whole.is_control(model, task) for task in whole.tasks))
        axes.hlines(
            height,
            rank - whole.critical_difference / 2,
            rank + whole.critical_difference / 2,
            color=colour,
            lw=2,
        )
        style.dot(axes, rank, height, colour, False, ms=6)
        yield {"row": model, "mean_rank": rank, "critical_difference": whole.critical_difference}
    axes.set(
        title="Ranks of models and controls", xlabel=f"mean rank over {spelled(len(whole.scores))} data sets"
    )
    axes.margins(x=0.1)
    style.name_rows(axes, list(whole.ranks), [f"{rank:.2f}" for rank in whole.ranks.values()])
