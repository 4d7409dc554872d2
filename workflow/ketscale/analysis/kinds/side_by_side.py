"""Step times side by side: simulators, and cached against inline features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ketscale.analysis import verdicts
from ketscale.analysis.drawing import plots
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import Drawing, pd
from ketscale.analysis.kinds import gains
from ketscale.analysis.kinds.gains import Entry
from ketscale.analysis.kinds.kind import Answer
from ketscale.analysis.kinds.speed import Speed, several
from ketscale.analysis.points import HOLLOW, TIMED_OUT, size_axes, variants
from ketscale.analysis.wording import SHORT, fitting, listed, takes, where
from ketscale.config import Config
from ketscale.grid import Study
from ketscale.words import duration, spelled


class SideBySide(Speed):
    """The step time for each value of one axis."""

    def __init__(self, name: str, title: str, caption: str) -> None:
        """name: of the kind, and of the column that it compares. title, caption: of its figure."""
        self.name = self.varies = name
        self.title, self.caption = title, caption
        self.missing = f"fewer than two values of {name} were timed at the same work"

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require at least two values."""
        values = {getattr(run, self.varies) for run in study.runs}
        yield from several(self.name, f"values of {self.varies}", len(values), "a list of them")

    def entries(self, study: str, inputs: Inputs) -> list[Entry]:
        """Each value beside the fastest one at the same work."""
        points = self._named(gains.points(study, inputs), inputs)
        # A few steps of a run that timed out would say more than was measured.
        points["late"] = (points["flag"] == TIMED_OUT) | (points["step_s"].isna() & (points["timed_out"] > 0))
        points = points.sort_values(self._order(inputs, "late"), kind="stable", ignore_index=True)
        timed = points[points["step_s"].notna() & ~points["late"]].drop_duplicates("work")
        fastest = {first["work"]: first for _, first in timed.iterrows()}
        others = [fastest.get(work) for work in points["work"]]
        points["beside"] = [
            "" if first is None or first["entry"] == entry else first["entry"]
            for first, entry in zip(others, points["entry"], strict=True)
        ]
        fair = [
            first if beside and not late else None
            for first, beside, late in zip(others, points["beside"], points["late"], strict=True)
        ]
        return gains.compared(points, fair, inputs, verdicts.losses, more=_cells)

    def tell(self, known: Sequence[Entry], rows: Sequence[Entry], inputs: Inputs) -> Answer:
        """Which is the fastest at each work, and how much longer the next takes."""
        # Each work is told by the next to its fastest.
        races = list({each.point["work"]: each for each in reversed(known)}.values())
        # The race that decides the least tells what holds everywhere.
        lead = min(
            reversed(races), key=lambda each: (each.told.verdict == verdicts.SLOWER, each.effect.value)
        )
        first, other, verdict = lead.told.beside, lead.point["entry"], lead.told.verdict
        winners = [each.told.beside for each in races]
        notes = tuple(gains.tallied(each.told for each in rows))
        counts = sorted((-winners.count(name), name) for name in set(winners))
        if len(counts) > 1:
            told = [f"{name} in {spelled(-count)}" for count, name in counts]
            said = [f"{listed(some)} of {spelled(len(races))} cases" for some in (told, told[:1])]
            unsure = "" if verdict == verdicts.SLOWER else ", not surely in each"
            text = fitting(*(f"The fastest is {some}{unsure}." for some in said))
            shorts = [f"Fastest: {some}{unsure}" for some in said]
            short = fitting(*shorts, f"The fastest differs by case{unsure}", limits=SHORT)
            return Answer(text, verdict, short=short, notes=notes)
        everywhere, least = (" everywhere", "at least") if len(races) > 1 else ("", "")
        if verdict == verdicts.SLOWER:
            said_next = takes(lead.effect.value, least)
            text = f"The fastest{everywhere} is {first}: {other}, the next, {said_next}."
            short = fitting(
                f"Fastest{everywhere}: {first}; the next {said_next}", f"Fastest: {first}", limits=SHORT
            )
        else:
            at = f" ({lead.point['work']})" if lead.point["work"] else ""
            start = f"Steps are shortest{everywhere} with {first}, but"
            text = fitting(
                *(f"{start} {other}{end} is not surely slower: {gains.said(verdict)}." for end in (at, ""))
            )
            short = fitting(
                f"Fastest: {first}, but {other} is not surely slower", f"Fastest: {first}", limits=SHORT
            )
        of = f"step time of {lead.told.point} beside {first}"
        return Answer(text, verdict, of, lead.effect, lead.told.unit, short, notes=notes)

    def draw(self, inputs: Inputs) -> tuple[Drawing, pd.DataFrame] | None:
        """A row for each point, its seeds and their median; of one that timed out before it had a time, the words."""
        points = inputs.scaling[inputs.scaling["study"].isin(inputs.asked(self.name))]
        points = self._named(points[points["step_s"].notna() | (points["timed_out"] > 0)], inputs)
        if points["step_s"].notna().sum() < 2:
            return None
        points = points.sort_values(self._order(inputs), kind="stable", ignore_index=True)
        names = sorted(points["entry"].unique())
        found = points.assign(
            middle=points["step_s"],
            low=points["step_low_s"],
            high=points["step_high_s"],
            said=[duration(time) if time > 0 else "timed out" for time in points["step_s"]],
            hollow=points["flag"].isin(HOLLOW),
            colour=points["entry"].map(names.index),
            dots=points.apply(inputs.seeds, axis=1),
        )
        note = "Typical time of a step; small dots: seeds"
        drawing = plots.rows(found, inputs, "time per training step (log scale)", factors=False, note=note)
        return drawing and (drawing[0], found.drop(columns="dots"))

    def _order(self, inputs: Inputs, *first: str) -> list[str]:
        """The columns by which points are sorted: those of their work, then what is compared, the fastest first."""
        return ["workload", "model", *size_axes(inputs.config), "batch", "work", *first, "step_s", "entry"]

    def _named(self, points: pd.DataFrame, inputs: Inputs) -> pd.DataFrame:
        """The points with `entry`, what is compared, and `work`, at which it is compared, in words."""
        several = points["layout"].nunique() > 1
        layouts = points["layout"].map(where).radd(" on ") if several else ""
        but = ("layout", self.varies, *(["protocol"] if self.varies == "features" else []))
        entry, work = points["value"].astype(str) + layouts, variants(points, inputs.config, but)
        return points.assign(entry=entry, work=work, name=entry.where(work == "", entry + " (" + work + ")"))


def _cells(point: pd.Series) -> dict[str, str]:
    circuit = point["circuit_s"] / point["step_s"] if point["circuit_s"] > 0 else 0
    first = {"first step": duration(point["first_s"])} if point["first_s"] > 0 else {}
    return first | ({"circuits": f"{100 * circuit:.0f} %"} if circuit else {})


class Features(SideBySide):
    """Cached against inline features."""

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require both."""
        if {config.protocols[run.protocol].features for run in study.runs} != {"cached", "inline"}:
            yield (
                "a study of kind features compares protocols with features: cached and features: inline; "
                "give it one of each"
            )


SIMULATOR = SideBySide(
    "simulator",
    "Simulators",
    "Time of one training step with each simulator. Warm-up steps are left out.",
)
FEATURES = Features(
    "features",
    "Cached and inline features",
    "The same training with features that are read from the cache, and with the feature network run in every step.",
)
