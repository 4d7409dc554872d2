"""Studies of parity: the first losses of runs that must train alike. `measure.parity` compares all studies' runs."""

from __future__ import annotations

from collections.abc import Iterator

from ketscale.analysis import verdicts
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds import gains
from ketscale.analysis.kinds.kind import Answer, Kind, Told
from ketscale.analysis.points import FOUND
from ketscale.analysis.wording import capital, fitting, share, where
from ketscale.config import Config
from ketscale.grid import Run, Study
from ketscale.measure.parity import Comparison


class Parity(Kind):
    """The same training with several simulators, backends and numbers of ranks, in fp64."""

    name = "parity"

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require fp64 and protocols with steps: the losses of the first steps are compared."""
        for run in study.runs:
            protocol = config.protocols[run.protocol]
            if protocol.precision != "fp64":
                yield f"parity compares losses in fp64, but protocol {run.protocol} has precision: {protocol.precision}"
            if protocol.fitted:
                yield f"parity compares the first steps, and {run.model} is fitted without any; leave it out"
            elif protocol.steps is None:
                yield f"parity compares the first steps, but protocol {run.protocol} has epochs; give it steps"

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """Whether every comparison of two runs of the study held, and the largest difference relative to its limit."""
        mine, compared = {*study.runs}, [*inputs.parity[FOUND]]
        found = [each for each in compared if each.run in mine and each.reference in mine]
        if not found:
            missing = "no two runs that must train alike have finished"
            return gains.nothing((), missing, inputs.collected.groups(study))
        # The farthest first; ties break by name.
        found.sort(
            key=lambda each: (each.difference / each.limit, each.run.path, each.reference.path), reverse=True
        )
        rows, broken = tuple(map(_told, found)), sum(not each.held for each in found)
        most = max(each.difference for each in found)
        differ = f"{found[0].difference:.2g} (limit {found[0].limit:g})"
        count = share(broken or len(rows), len(rows)) if len(rows) > 1 else "the comparison"
        if broken:
            text = f"{capital(count)} did not hold: first losses of {rows[0].point} and {rows[0].beside} differ by {differ}."
            text = fitting(text, f"{capital(count)} did not hold: first losses differ by {differ}.")
        else:
            text = f"The first losses are the same: {count} held, bit by bit."
            if most:
                text = f"The first losses are the same within limits: {count} held, with differences of at most {most:.2g}."
        short = (
            f"{'Not the' if broken else 'The'} same numbers: {count} {'did not hold' if broken else 'held'}"
        )
        of, first = "relative difference of first losses", rows[0]
        effect = first.effect if broken else Estimate(most, None, None, 1)
        return Answer(text, first.verdict, of, effect, first.unit, short, rows)


def _told(found: Comparison) -> Told:
    effect = Estimate(found.difference, None, None, 1)
    word = verdicts.HELD if found.held else verdicts.NOT_HELD
    cells = {"limit": f"{found.limit:g}", "precision": found.precision, "steps": str(found.steps)}
    return Told(_named(found.run), _named(found.reference), effect, "relative difference", word, cells)


def _named(run: Run) -> str:
    simulated = run.model if run.simulator == "none" else run.simulator
    return f"{simulated} on {where(run.layout)}"
