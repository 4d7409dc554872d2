"""The kinds of studies, one object each. To add a kind, add one file here and one line below.

Snakemake checks its config with them at every start, so they import what they need for drawing only when they draw.
"""

from __future__ import annotations

from ketscale.analysis.kinds.accuracy import ACCURACY
from ketscale.analysis.kinds.adaptation import ADAPTATION
from ketscale.analysis.kinds.break_even import BREAK_EVEN
from ketscale.analysis.kinds.changes import CHANGES
from ketscale.analysis.kinds.comparison import COMPARISON
from ketscale.analysis.kinds.convergence import CONVERGENCE
from ketscale.analysis.kinds.kind import Figure, Kind
from ketscale.analysis.kinds.mistakes import MISTAKES
from ketscale.analysis.kinds.parity import Parity
from ketscale.analysis.kinds.scaling import STRONG, WEAK
from ketscale.analysis.kinds.side_by_side import FEATURES, SIMULATOR
from ketscale.analysis.kinds.sweep import BATCH, of_size
from ketscale.analysis.kinds.trainability import TRAINABILITY
from ketscale.config import Config, Families, suggestion
from ketscale.errors import UserError

__all__ = ["Figure", "Kind", "check", "kinds"]


def kinds(families: Families) -> dict[str, Kind]:
    """The kinds by name, in the order of their figures in the report; each size axis of the families has a sweep."""
    sizes = {axis.name: axis for family in families.values() for axis in family.sizes}
    listed: list[Kind] = [
        STRONG,
        WEAK,
        BREAK_EVEN,
        SIMULATOR,
        CHANGES,
        CONVERGENCE,
        BATCH,
        *(of_size(axis) for axis in sizes.values()),
        FEATURES,
        MISTAKES,
        ACCURACY,
        COMPARISON,
        ADAPTATION,
        TRAINABILITY,
        Parity(),
    ]
    return {kind.name: kind for kind in listed}


def check(config: Config) -> None:
    """Check that the runs of each study allow its comparison.

    Raises:
        UserError: names the study, what is wrong and what to do; the first problem found.
    """
    known = kinds(config.families)
    for study in config.studies:
        if study.kind not in known:
            raise UserError(
                f"studies.{study.name}.kind: no kind of study is called {study.kind}{suggestion(study.kind, known)}"
            )
        kind = known[study.kind]
        fitted = (run.model for run in study.runs if config.models[run.model][1].fitted)
        if kind.table == "scaling" and (model := next(fitted, None)):
            raise UserError(
                f"studies.{study.name}: {study.kind} compares the times of steps, and {model} is fitted without any; leave it "
                "out, or ask for kind accuracy"
            )
        probes = (run.protocol for run in study.runs if config.protocols[run.protocol].probe)
        if kind is not TRAINABILITY and (protocol := next(probes, None)):
            raise UserError(
                f"studies.{study.name}: protocol {protocol} probes the model and does not train it; ask for kind trainability"
            )
        for fault in kind.check(study, config):
            raise UserError(f"studies.{study.name}: {fault}")
