"""Studies of parity: the first losses of runs that must train alike. `analysis.parity` compares all studies' runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ketscale.analysis import verdicts
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds import gains
from ketscale.analysis.kinds.kind import Answer, Kind, Told
from ketscale.analysis.wording import capital, fitting, share, where
from ketscale.config import Config
from ketscale.grid import Run, Study

if TYPE_CHECKING:
    import pandas as pd

    from ketscale.analysis.drawing.inputs import Inputs


class Parity(Kind):
    """The same training with several simulators, backends and numbers of ranks, in fp64."""

    name = "parity"
    varies = "layout"

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require fp64 and protocols with steps: the losses of the first steps are compared."""
        for run in study.runs:
            protocol = config.protocols[run.protocol]
            if protocol.precision != "fp64":
                yield f"parity compares losses in fp64, but protocol {run.protocol} has precision: {protocol.precision}"
            if protocol.steps is None:
                has = "epochs" if protocol.by_epochs else "none"
                yield f"parity compares the first steps, but protocol {run.protocol} has {has}; give it steps"

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """Whether every comparison of two runs of the study held, and the largest difference relative to its limit."""
        mine = {f"{inputs.config.results}/{run.path}": run for run in study.runs}
        found = inputs.parity[inputs.parity["run"].isin(mine) & inputs.parity["reference"].isin(mine)]
        if found.empty:
            missing = "no two runs that must train alike have finished"
            return gains.nothing((), missing, inputs.collected.groups(study))
        found = found.assign(share=found["difference"] / found["limit"]).sort_values(
            ["share", "run", "reference"], ascending=False
        )
        rows = tuple(_told(row, mine) for _, row in found.iterrows())
        broken, worst = int((~found["held"].astype(bool)).sum()), found.iloc[0]
        most = float(found["difference"].max())
        differ = f"{worst['difference']:.2g} (limit {worst['limit']:g})"
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


def _told(row: pd.Series, mine: Mapping[str, Run]) -> Told:
    effect = Estimate(float(row["difference"]), None, None, 1)
    word = verdicts.HELD if row["held"] else verdicts.NOT_HELD
    cells = {"limit": f"{row['limit']:g}", "precision": row["precision"], "steps": str(row["steps"])}
    return Told(
        _named(mine[row["run"]]), _named(mine[row["reference"]]), effect, "relative difference", word, cells
    )


def _named(run: Run) -> str:
    simulated = run.model if run.simulator == "none" else run.simulator
    return f"{simulated} on {where(run.layout)}"
