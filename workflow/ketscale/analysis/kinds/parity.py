"""Studies of parity: the first losses of runs that must train alike. `analysis.parity` compares all studies' runs."""

from __future__ import annotations

from collections.abc import Iterator

from ketscale.analysis.kinds.kind import Kind
from ketscale.config import Config
from ketscale.grid import Study


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
