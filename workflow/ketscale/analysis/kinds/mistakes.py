"""Misconfigurations: how more ranks come to be slower, one at a time, and fair runs timed or divided wrongly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ketscale.analysis import verdicts
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import pd
from ketscale.analysis.kinds import gains
from ketscale.analysis.kinds.gains import Entry
from ketscale.analysis.kinds.speed import WORK, Speed, one_core
from ketscale.analysis.points import Group, Point, Row, median, serial, usable, variants
from ketscale.analysis.wording import takes, where
from ketscale.config import Config
from ketscale.grid import Run, Study
from ketscale.words import duration

# Step times in runs.csv that include more than steady steps, and what.
ACCOUNTS = {"step_with_first_s": "with the first step", "step_with_start_s": "with start and data"}
FAIR = "one fair rank"


class Mistakes(Speed):
    """Every layout and misconfiguration compared with one fair rank."""

    name = "mistakes"
    varies = "mistake"

    title = "Misconfigurations"
    caption = "How more ranks come to be slower: the step time with one misconfiguration at a time (orange) and without."
    axis = f"step time over that of {FAIR}"
    judge = staticmethod(verdicts.losses)
    wins, begins, noun, least = verdicts.SLOWER, "steps are slower in", "case", "at worst"
    missing = f"no misconfiguration was timed together with {FAIR}"

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require a protocol with a misconfiguration, and on one core a fair run before any other."""
        if not any(config.protocols[run.protocol].mistake for run in study.runs):
            yield "a study of kind mistakes needs a protocol that sets mistake; give it one"
        yield from one_core(study)
        first: dict[tuple[Any, ...], Run] = {}
        for run in study.runs:
            if run.layout == serial(run.backend):
                fair = first.setdefault((run.layout, *(getattr(run, name) for name in WORK)), run)
                if _one_by_one(config, fair.simulator) and not _one_by_one(config, run.simulator):
                    yield (
                        f"the first run on one core is the fair one, but {fair.simulator} works sample by "
                        f"sample; put {run.simulator} before it"
                    )

    def reference(self, row: Row, asked: Sequence[Point], points: Mapping[Point, Group]) -> Group | None:
        """The study's first point of the same work on one rank and one thread, whatever its simulator."""
        wanted = {**{name: row[name] for name in WORK}, "layout": serial(row["backend"])}
        found = (points[key] for key in asked if key in points)
        return next((group for group in found if wanted.items() <= group[0].items()), None)

    def known(self, rows: Sequence[Entry]) -> list[Entry]:
        """Misconfigurations; the others are in the notes."""
        return [each for each in super().known(rows) if not each.point["fair"]]

    def notes(self, rows: Sequence[Entry], inputs: Inputs) -> Iterator[str]:
        """What each layout without a misconfiguration does."""
        for each in rows:
            if each.told.effect and each.point["fair"]:
                yield f"Without a misconfiguration, {each.told.point}: a step {takes(each.effect.value)}."

    def entries(self, study: str, inputs: Inputs) -> list[Entry]:
        """Every arm beside one fair rank."""
        points = _arms(gains.points(study, inputs), inputs)

        def more(point: pd.Series) -> dict[str, str]:
            """The accounts of a fair point, of the seeds that its own step time is taken from."""
            used = usable(inputs.rows(point))[0] if point["fair"] else []
            times = {heading: median(row[name] for row in used) for name, heading in ACCOUNTS.items()}
            return {heading: duration(time) for heading, time in times.items() if time is not None}

        return gains.entries(points, gains.LONGER, more)


def _arms(points: pd.DataFrame, inputs: Inputs) -> pd.DataFrame:
    """The points with `name`, their layout and what is wrong in words; `fair`, whether nothing is. Wrong ones are orange."""
    others = variants(points, inputs.config, ("layout", "protocol", "simulator", "workload"))
    wrongs = [_wrongs(inputs.config, point) for _, point in points.iterrows()]
    arms = [
        gains.bracketed(where(layout), *wrong, other)
        for layout, wrong, other in zip(points["layout"], wrongs, others, strict=True)
    ]
    fair = [not wrong for wrong in wrongs]
    return points.assign(
        name=arms,
        fair=fair,
        colour=[0 if ok else 3 for ok in fair],
        beside=["" if one and ok else FAIR for one, ok in zip(points["workers"] == 1, fair, strict=True)],
    )


def _wrongs(config: Config, row: pd.Series) -> list[str]:
    """What is misconfigured in an arm, in words."""
    found = [row["value"]] if isinstance(row["value"], str) and row["value"] else []
    return [*found, "sample by sample"] if _one_by_one(config, row["simulator"]) else found


def _one_by_one(config: Config, name: str) -> bool:
    """Whether a simulator evaluates the samples of a batch one after the other."""
    simulator = config.simulators.get(name)
    return simulator is not None and simulator.content().get("batching") == "loop"


MISTAKES = Mistakes()
