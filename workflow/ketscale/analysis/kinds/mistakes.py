"""Misconfigurations: how more ranks come to be slower, one at a time, and fair runs timed or divided wrongly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ketscale.analysis import verdicts
from ketscale.analysis.comparison import Compared
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds import gains
from ketscale.analysis.kinds.kind import Answer, Figure
from ketscale.analysis.kinds.speed import Reference, Speed, one_core
from ketscale.analysis.points import Group, Point, Row, median, serial, usable, variants
from ketscale.analysis.wording import SHORT, capital, fast, fitting, plain, share, takes, times, where
from ketscale.config import Config
from ketscale.grid import Study
from ketscale.words import duration

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing

# Step times in runs.csv that include more than steady steps, and what.
ACCOUNTS = {"step_with_first_s": "with the first step", "step_with_start_s": "with start and data"}
FAIR = "one fair rank"


class Mistakes(Speed):
    """Every layout and misconfiguration compared with one fair rank."""

    name = "mistakes"
    varies = "mistake"

    def __init__(self) -> None:
        caption = "How more ranks come to be slower: the step time with one misconfiguration at a time (orange) and without."
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

    def judge(self, found: Sequence[Compared]) -> list[str]:
        """Whether a step is slower than that of one fair rank."""
        return verdicts.losses(found)

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """How many misconfigurations make a step slower than one fair rank, and which the most."""
        rows = _entries(study.name, inputs)
        table = tuple(each.told for each in rows)
        wrong = [each for each in rows if each.told.effect is not None and not each.point["fair"]]
        if not wrong:
            return gains.nothing(table, f"no misconfiguration was timed together with {FAIR}")
        lead = gains.best(wrong)
        worst, verdict = lead.effect.value, lead.told.verdict
        count = sum(each.told.verdict == verdicts.SLOWER for each in wrong)
        is_slow = f"a step {fast(1 / worst, f'with {FAIR}')}"
        if len(wrong) == 1:
            texts, short = (
                [f"With {lead.told.point} {is_slow}: {gains.said(verdict)}."],
                f"{capital(verdict)}: a step {takes(worst)}",
            )
        else:
            several = share(count, len(wrong), "misconfiguration")
            start = f"Steps are slower with {several}, {'most' if count else 'at worst'}"
            texts = [f"{start} with {name}: {is_slow}." for name in (lead.told.point, plain(lead.told.point))]
            short = f"{start} {times(1 / worst)}"
        fair = [each for each in rows if each.told.effect is not None and each.point["fair"]]
        notes = [
            f"Without a misconfiguration, {each.told.point}: a step {takes(each.effect.value)}."
            for each in fair
        ]
        short = fitting(short, capital(verdict), limits=SHORT)
        of, folded = (
            f"step time of {lead.told.point} beside {FAIR}",
            (*gains.tallied(each.told for each in wrong), *notes),
        )
        return Answer(fitting(*texts), verdict, of, lead.effect, lead.told.unit, short, table, folded)

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
        """Step times relative to one fair rank, of misconfigurations in another colour."""
        rows = [row for study in inputs.asked(self.name) for row in _entries(study, inputs)]
        return gains.draw(
            rows, inputs, f"step time over that of {FAIR}", lambda point: 0 if point["fair"] else 3
        )


def _entries(study: str, inputs: Inputs) -> list[gains.Entry]:
    """Every arm beside one fair rank."""
    points = _arms(gains.points(study, inputs), inputs)

    def more(point: pd.Series) -> dict[str, str]:
        """The accounts of a fair point, of the seeds that its own step time is taken from."""
        used = usable(inputs.rows(point))[0] if point["fair"] else []
        times = {heading: median(row[name] for row in used) for name, heading in ACCOUNTS.items()}
        return {heading: duration(time) for heading, time in times.items() if time is not None}

    points["beside"] = points["alone"].map({True: "", False: FAIR})
    return gains.entries(points, gains.LONGER, more)


def _arms(points: pd.DataFrame, inputs: Inputs) -> pd.DataFrame:
    """The points with `name`, their layout and what is wrong in words; `fair`, whether nothing is; `alone`: the baseline."""
    others = variants(points, inputs.config, ("layout", "protocol", "simulator", "workload"))
    wrongs = [_wrongs(inputs.config, point) for _, point in points.iterrows()]
    arms = [
        where(layout) + (f" ({', '.join(filter(None, (*wrong, other)))})" if wrong or other else "")
        for layout, wrong, other in zip(points["layout"], wrongs, others, strict=True)
    ]
    fair = [not wrong for wrong in wrongs]
    return points.assign(
        name=arms, fair=fair, alone=[one and ok for one, ok in zip(points["workers"] == 1, fair, strict=True)]
    )


def _wrongs(config: Config, row: pd.Series) -> list[str]:
    """What is misconfigured in an arm, in words."""
    found = [row["value"]] if isinstance(row["value"], str) and row["value"] else []
    simulator = config.simulators.get(row["simulator"])
    if simulator is not None and simulator.content().get("batching") == "loop":
        found.append("sample by sample")
    return found


MISTAKES = Mistakes()
