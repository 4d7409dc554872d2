"""Misconfigurations: how more ranks come to be slower, one at a time, and fair runs timed or divided wrongly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ketscale.analysis import verdicts
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds.kind import Answer, Figure
from ketscale.analysis.kinds.speed import Reference, Speed, one_core
from ketscale.analysis.points import HOLLOW, HOLLOW_RATIOS, Group, Point, Row, serial, variants
from ketscale.analysis.wording import digits, distinct, interval, sentence, subject, where
from ketscale.config import Config
from ketscale.grid import POINT, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

# Three step times in runs.csv, and what each includes.
ACCOUNTS = {
    "step_s": "steady steps",
    "step_with_first_s": "first step included",
    "step_with_start_s": "start and data included",
}
NOTE = (
    "Left: step time at one global batch, divided by that of one rank with one thread (mean of pairs of the same seed "
    "with its 95 % interval, none below 3 seeds; 1 is no gain, below 1 is faster). Right: the step times of fair runs "
    "by three ways of accounting"
)


# The verdict of `verdicts.gain` on a factor by which a step takes longer.
SLOWS = {
    verdicts.PAYS: "slower",
    verdicts.PAYS_NOT: "not slower",
    verdicts.NO_GAIN: "no clear loss",
    verdicts.FEW: verdicts.FEW,
    verdicts.DISTURBED: verdicts.DISTURBED,
}

NOTHING = Answer("No misconfiguration has been timed together with one fair rank yet.", verdicts.OPEN)


class Mistakes(Speed):
    """Every layout and misconfiguration compared with one fair rank."""

    name = "mistakes"
    varies = "mistake"

    def __init__(self) -> None:
        caption = (
            "How more ranks come to be slower: the step time with one misconfiguration at a time, and the step time "
            "of fair runs if the wrong time or the wrong divisor is used."
        )
        self.figure = Figure(self.name, "Misconfigurations", caption, (self.name,), self.draw)

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require a protocol with a misconfiguration, and a run on one core as the baseline."""
        if not any(config.protocols[run.protocol].mistake for run in study.runs):
            yield "a study of kind mistakes needs a protocol that sets mistake; give it one"
        yield from one_core(study)

    def reference(self, row: Row, asked: Sequence[Point], points: Mapping[Point, Group]) -> Reference | None:
        """The study's first point on one rank and one thread, whatever the point's protocol and simulator."""
        found = (points[key] for key in asked if key in points)
        alone = (group for group in found if group[0]["layout"] == serial(row["backend"]))
        return next((Reference.of(group) for group in alone), None)

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """How many misconfigurations make a step slower than one fair rank, which the most, and what fair layouts do."""
        points = inputs.points(study.name)
        points = points[points["speedup_same"].notna()]
        if points.empty:
            return NOTHING
        others = distinct(points, inputs.config, ("layout", "protocol", "simulator"))
        wrong, fair = [], []
        for (_, row), other in zip(points.iterrows(), others, strict=True):
            found = ", ".join(_wrongs(inputs.config, row))
            arm = " ".join(filter(None, (where(row["layout"]), other, found and f"({found})")))
            if found:
                wrong.append((arm, row))
            elif row["workers"] > 1:
                fair.append((arm, row))
        if not wrong:
            return NOTHING
        count = verdicts.decided(verdicts.estimate(row, "speedup_same") for _, row in (*wrong, *fair))

        def slowdown(row: pd.Series) -> Estimate:
            return verdicts.together(verdicts.estimate(row, "speedup_same"), count).inverse()

        judged = [SLOWS[verdicts.gain(slowdown(row), row["flag"])] for _, row in wrong]
        (slowest, row), verdict = max(
            zip(wrong, judged, strict=True), key=lambda each: slowdown(each[0][1]).value
        )
        worst = slowdown(row)
        clauses = [
            f"{judged.count(SLOWS[verdicts.PAYS])} of {len(wrong)} misconfigurations surely take longer than "
            "one fair rank",
            f"{slowest} take the longest, {digits(worst.value)} times as long ({interval(worst)}): {verdict}",
        ]
        if fair:
            arm, row = min(fair, key=lambda each: slowdown(each[1]).value)
            clauses.append(
                f"fair, {arm} take {digits(slowdown(row).value)} times as long ({interval(slowdown(row))})"
            )
        about = f"for {subject(points, inputs.config, ('layout', 'protocol'))}"
        text = sentence(about, clauses) + verdicts.about_together(count)
        return Answer.by(text, verdict, f"step time of {slowest} over one fair rank", worst)

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame]:
        """Step times relative to one fair rank, and the step times of fair runs under wrong accounting."""
        import matplotlib.pyplot as plt

        points = inputs.points_of(self.name)
        drawn = points[points["speedup_same"].notna()].reset_index(drop=True)
        if drawn.empty:
            return style.empty(inputs, inputs.asked(self.name))
        others = variants(drawn, inputs.config, but=("layout", "protocol", "simulator"))
        drawn["arm"] = [
            ", ".join([row["layout"], *_wrongs(inputs.config, row), *filter(None, [other])])
            for (_, row), other in zip(drawn.iterrows(), others, strict=True)
        ]
        if drawn["study"].nunique() > 1:
            drawn["arm"] = drawn["study"] + ": " + drawn["arm"]
        # The table has speedups; the figure shows how many times as long a step takes.
        for column, of in (("slowdown", ""), ("slowdown_low", "_high"), ("slowdown_high", "_low")):
            drawn[column] = 1 / drawn[f"speedup_same{of}"]
        drawn["fair"] = [not _wrongs(inputs.config, row) for _, row in drawn.iterrows()]
        drawn = drawn.merge(_accounts(inputs, drawn), on=["study", *POINT], how="left")
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(9.5, 1.6 + 0.42 * len(drawn)), width_ratios=(4, 3), layout="constrained"
        )
        _draw_slowdowns(left, drawn)
        _draw_accounts(right, drawn[drawn["fair"]])
        figure.legend(*right.get_legend_handles_labels(), loc="outside upper right", ncols=3)
        style.footnote(figure, drawn, inputs, drawn["study"].unique(), NOTE)
        return figure, drawn


def _wrongs(config: Config, row: pd.Series) -> list[str]:
    """What is misconfigured in an arm, in words."""
    found = [row["value"]] if isinstance(row["value"], str) and row["value"] else []
    simulator = config.simulators.get(row["simulator"])
    if simulator is not None and simulator.content().get("batching") == "loop":
        found.append("sample by sample")
    return found


def _accounts(inputs: Inputs, drawn: pd.DataFrame) -> pd.DataFrame:
    """The median of each account over the seeds that the point's own step time is taken from."""
    runs = inputs.seeds(drawn)
    counted = runs[~runs["hollow"] | runs["flag"].isin(HOLLOW)]
    renamed = {column: f"account_{column}" for column in ACCOUNTS}
    return counted.groupby(["study", *POINT])[list(ACCOUNTS)].median().rename(columns=renamed).reset_index()


def _draw_slowdowns(axes: Axes, drawn: pd.DataFrame) -> None:
    for height, (_, row) in enumerate(drawn.iterrows()):
        colour = style.PALETTE[0] if row["fair"] else style.PALETTE[3]
        axes.hlines(height, row["slowdown_low"], row["slowdown_high"], color=colour, lw=2)
        style.dot(axes, row["slowdown"], height, colour, row["flag"] in HOLLOW_RATIOS, ms=8)
        axes.annotate(
            f"{row['slowdown']:.3g}x",
            (style.end(row["slowdown_high"], row["slowdown"]), height),
            (9, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            bbox={"fc": "white", "ec": "none", "pad": 0.5},
        )
    axes.axvline(1, ls="--", color=style.FRAME, lw=1)
    axes.set(title="one misconfiguration at a time", xlabel="step time relative to one fair rank (log scale)")
    values = drawn[["slowdown", "slowdown_low", "slowdown_high"]]
    low, high = min(1.0, values.min().min()), max(1.0, values.max().max())
    axes.set_xlim(low / 1.15, high * (high / low) ** 0.25 * 1.15)
    style.log_factors(axes.xaxis)
    axes.set_yticks(range(len(drawn)), drawn["arm"].tolist())
    axes.set_ylim(len(drawn) - 0.5, -0.5)
    axes.grid(False, axis="y")


def _draw_accounts(axes: Axes, fair: pd.DataFrame) -> None:
    columns = [f"account_{column}" for column in ACCOUNTS]
    for number, (column, label) in enumerate(zip(columns, ACCOUNTS.values(), strict=True)):
        # The three may coincide, so later markers are smaller.
        axes.plot(
            fair[column], range(len(fair)), "o", color=style.PALETTE[number], ms=9 - 2 * number, label=label
        )
    values = fair[columns].to_numpy()
    axes.set(title="one run, three accounts", xlabel="step time (log scale)")
    if len(fair):
        axes.set_xlim(values.min() / 1.5, values.max() * 1.5)
    style.log_seconds(axes.xaxis)
    axes.set_yticks(range(len(fair)), fair["arm"].tolist())
    axes.set_ylim(len(fair) - 0.5, -0.5)
    axes.grid(False, axis="y")


MISTAKES = Mistakes()
