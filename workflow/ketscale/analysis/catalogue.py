"""Which tables and figures a config leads to; imported by the Snakefile, so it imports nothing heavy."""

from __future__ import annotations

from ketscale.analysis.kinds import Figure, kinds
from ketscale.analysis.overviews.spans import SPANS
from ketscale.analysis.overviews.strategies import STRATEGIES
from ketscale.config import Config

# Each NAME is tables/NAME.csv below the results; every config has them all, empty where nothing was asked.
CAPTIONS = {
    "runs": "One row a run: axes, quality, times, memory, and whether the machine was quiet.",
    "completeness": (
        "Every run of the study with its state. Missing, stale and refused runs are in no other table; diverged and "
        "out-of-memory ones are results, but in no median."
    ),
    "scaling": (
        "One row a point of every study about speed. Speedups pair runs of the same seed on the same kind of host. Busy, "
        "resumed and failed runs are counted but in no median, unless all seeds were busy, which is flagged."
    ),
    "quality": (
        "The headline metric on test data with the best weights, and its difference to the classical control, paired by "
        "seed with a 95 % t-interval."
    ),
    "parity": (
        "The first 20 losses of runs that must train alike, compared: fp64 to 1e-9 across simulators and 1e-10 across "
        "backends, ranks and threads; fp32 to 1e-3. A run that breaks a limit is refused."
    ),
    "spans": "Where the time of a sampled step goes: the exclusive time of each part.",
    "history": "Losses and metrics by epoch of the runs of accuracy studies.",
    "claims": (
        "Published claims about speed and accuracy, written down with the rule that will judge them before the numbers "
        "were taken."
    ),
}
TABLES = tuple(CAPTIONS)

# Each figure NAME is figures/NAME.{svg,png,pdf,csv,rst} below the results; csv: what was drawn, rst: its caption.
FORMATS = ("svg", "png", "pdf", "csv", "rst")


def figures_of(config: Config) -> tuple[Figure, ...]:
    """The figures that the config's studies lead to, in the report's order."""
    own = [kind.figure for kind in kinds(config.families).values() if kind.figure]
    every = [*own[:1], STRATEGIES, SPANS, *own[1:]]
    asked = {study.kind for study in config.studies}
    return tuple(figure for figure in every if asked & set(figure.kinds))


def figures(config: Config) -> tuple[str, ...]:
    """Their names."""
    return tuple(figure.name for figure in figures_of(config))
