"""Studies of parity: the first losses of runs that must train alike. `analysis.parity` compares all studies' runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ketscale.analysis import verdicts
from ketscale.analysis.kinds.kind import Answer, Kind
from ketscale.config import Config
from ketscale.grid import Run, Study

if TYPE_CHECKING:
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
            if protocol.by_epochs:
                yield f"parity compares the first steps, but protocol {run.protocol} has epochs; give it steps"

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """Whether every comparison of two runs of the study held, and the largest difference relative to its limit."""
        mine = {f"{inputs.config.results}/{run.path}": run for run in study.runs}
        found = inputs.parity[inputs.parity["run"].isin(mine) & inputs.parity["reference"].isin(mine)]
        if found.empty:
            return Answer("No two runs that must train alike have finished yet.", verdicts.OPEN)
        broken = int((~found["held"].astype(bool)).sum())
        worst = found.iloc[int((found["difference"] / found["limit"]).to_numpy().argmax())]
        said = (
            f"all {len(found)} comparisons held"
            if not broken
            else f"{broken} of {len(found)} comparisons did not hold"
        )
        text = (
            f"The first losses are {'not ' if broken else ''}the same everywhere: {said}, and the nearest to its "
            f"limit, {_named(mine[worst['run']])} beside {_named(mine[worst['reference']])}, differs by "
            f"{worst['difference']:.1e} relative ({worst['precision']}, {worst['steps']} steps, limit {worst['limit']:.0e})."
        )
        of = "relative difference of first losses that is the nearest to its limit"
        return Answer(text, "not held" if broken else "held", of, float(worst["difference"]))


def _named(run: Run) -> str:
    return f"{run.simulator} on {run.layout}"
