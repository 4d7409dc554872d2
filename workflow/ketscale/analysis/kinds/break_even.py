"""Break-even: from how much work per worker several workers pay."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ketscale.analysis import verdicts
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.drawing.workers import draw
from ketscale.analysis.heavy import Drawing, np, pd
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds import gains
from ketscale.analysis.kinds.gains import Entry
from ketscale.analysis.kinds.kind import Answer
from ketscale.analysis.kinds.speed import Speed, one_core, several
from ketscale.analysis.points import size_axes, variants
from ketscale.analysis.wording import SHORT, capital, fitting, share, where
from ketscale.config import Config
from ketscale.grid import Study
from ketscale.words import duration

NOTE = "Work: the step time of one worker, divided by the number of workers"


class BreakEven(Speed):
    """Step times and speedups of layouts whose work per worker varies with batch, size and simulator."""

    name = "break-even"
    varies = "layout"

    title = "Step times and speedups of several workers"
    caption = "The time of a step, and the speedup over one worker at the same batch."
    missing = "no layout of several workers was timed together with one"

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require several layouts, one of them on one core as the baseline."""
        yield from several(self.name, "layouts", len({run.layout for run in study.runs}), "several backends")
        yield from one_core(study)

    def entries(self, study: str, inputs: Inputs) -> list[Entry]:
        """Each layout beside one worker, with its work."""
        return gains.with_one(with_work(gains.points(study, inputs), inputs), inputs, _work)

    def tell(self, known: Sequence[Entry], rows: Sequence[Entry], inputs: Inputs) -> Answer:
        """At which work each layout surely pays."""
        if all(each.told.verdict in gains.UNDECIDED for each in known):
            return super().tell(known, rows, inputs)
        lines: dict[str, list[Entry]] = {each.point["line"]: [] for each in known}
        for each in rows:
            if each.told.beside and each.point["line"] in lines:
                lines[each.point["line"]].append(each)
        first, *others = sorted((_line(name, line) for name, line in lines.items()), key=_order)
        rest = [f"{line.name} {line.said.format('')}" for line in others]
        texts, shorts = (
            ["; ".join([first.begins.format(of), *some]) for some in (rest, rest[:1], [])]
            for of in (" of work per worker", "")
        )
        return Answer(
            fitting(*(f"{text}." for text in texts)),
            first.verdict,
            f"work per worker at which the speedup of {first.name} passes 1",
            first.crossing,
            "s to break even",
            fitting(*shorts, capital(first.said.format("")), limits=SHORT),
            notes=(*gains.tallied(each.told for each in known), f"{NOTE}."),
        )

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
        """Times and speedups against the workers."""
        return draw(inputs, inputs.asked(self.name), "speedup over one worker")


def with_work(points: pd.DataFrame, inputs: Inputs) -> pd.DataFrame:
    """The points with their line and `work_s`, the step time on one worker over the number of workers, in seconds."""
    others = variants(
        points, inputs.config, ("layout", "workload", "batch", "simulator", *size_axes(inputs.config))
    )
    names = points["layout"].map(where)
    return points.assign(
        work_s=points["same_step_s"] / points["workers"],
        line=names.where(others == "", names + " with " + others),
    )


def crossing(line: pd.DataFrame, column: str) -> float | None:
    """The work in seconds from which a column of a line stays above 1; None if it does not at the most work, or always, or
    if a point on either side has no such value, as the end of an interval of two seeds.

    Interpolated between points, on a logarithmic scale of work.
    """
    ordered = line.sort_values(["work_s", column])
    work, speedup = ordered["work_s"].to_numpy(), ordered[column].to_numpy()
    below = np.flatnonzero(~(speedup > 1))
    if not len(below) or below[-1] == len(speedup) - 1:
        return None
    last = below[-1]
    if np.isnan(speedup[last]):
        return None
    share = (1 - speedup[last]) / (speedup[last + 1] - speedup[last])
    return float(np.exp(np.log(work[last]) + share * (np.log(work[last + 1]) - np.log(work[last]))))


class _Line(NamedTuple):
    """A layout along its work. work_s: from which it surely pays, infinite if nowhere.

    begins, said: where it pays, as a sentence begins and in brief, with {} for what its amounts are of. crossing: the work from
    which it is faster than one worker, with the works at which the ends of the intervals pass 1.
    """

    name: str
    work_s: float
    begins: str
    said: str
    verdict: str
    crossing: Estimate | None


def _line(name: str, points: list[Entry]) -> _Line:
    """A layout from its points, some of which have a speedup. Where that or the work of one is not known, nothing is said."""
    placed = [each for each in points if each.point["work_s"] > 0]
    placed.sort(key=lambda each: (each.point["work_s"], each.told.effect.value if each.told.effect else 0.0))
    words, works = [each.told.verdict for each in placed], [each.point["work_s"] for each in placed]
    sure = len(words)
    while sure and words[sure - 1] == verdicts.PAYS:
        sure -= 1
    table = pd.DataFrame([each.point for each in placed if each.told.effect])
    value, low, high = (crossing(table, column) for column in (gains.RATIO, gains.ENDS[1], gains.ENDS[0]))
    n = int(table[f"{gains.RATIO}_n"].min())
    passed = None if value is None else Estimate(value, low, high, n)
    count, most, work_s = words.count(verdicts.PAYS), duration(works[-1]), math.inf
    said = f"in {share(count, len(points), 'case')} up to {most}{{}}"
    if count and sure < len(words) and len(placed) == len(points):
        work_s, least = works[sure], duration(works[sure])
        said = f"at {least}{{}} and above" if sure else f"everywhere, from {least}{{}}"
    # One rank may have several threads.
    pays, does = ("pays", "does") if name.startswith("one ") else ("pay", "do")
    if count:
        return _Line(name, work_s, capital(f"{name} {pays} {said}"), said, verdicts.PAYS, passed)
    surely = "" if words[-1] == verdicts.PAYS_NOT else "surely "
    begins, said = capital(f"{name} {does} not {surely}pay up to {most}{{}}"), f"not {surely}up to {most}{{}}"
    return _Line(name, work_s, begins, said, words[-1], passed)


def _order(line: _Line) -> tuple[float, float, str]:
    """What pays from the least work comes first, and of several such, what is faster from the least."""
    # A line without a crossing that pays from some work on does so everywhere.
    least = line.crossing.value if line.crossing else 0.0 if line.work_s < math.inf else math.inf
    return line.work_s, least, line.name


def _work(point: pd.Series) -> dict[str, str]:
    return {"work per worker": duration(point["work_s"])} if point["work_s"] > 0 else {}


BREAK_EVEN = BreakEven()
