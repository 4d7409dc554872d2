"""The tables and figures of a config. The Snakefile imports this, so it imports nothing heavy."""

from __future__ import annotations

from ketscale.analysis.kinds import Figure, kinds
from ketscale.analysis.overviews.curves import CURVES
from ketscale.analysis.overviews.spans import SPANS
from ketscale.analysis.overviews.strategies import STRATEGIES
from ketscale.analysis.overviews.time_to_accuracy import TIME_TO_ACCURACY
from ketscale.config import Config

# Each NAME is tables/NAME.csv in the results folder. Every config has all of them; some may be empty.
CAPTIONS = {
    "runs": "One row per run: axes, quality, times, memory, and whether the machine was quiet.",
    "completeness": (
        "Every run of the study and its state. Missing, stale and refused runs are in no other table. Diverged and "
        "out-of-memory runs are results, but no median includes them."
    ),
    "scaling": (
        "One row per point of every study of speed. Speedups pair runs of the same seed on the same kind of host. "
        "Busy, resumed and failed runs are counted, but no median includes them. If all seeds were busy, their "
        "median is shown and flagged."
    ),
    "quality": (
        "The headline metric on test data with the best weights, and its difference from the classical control, "
        "paired by seed with a 95 % t-interval."
    ),
    "parity": (
        "Comparisons of the first 20 losses of runs that must train alike. The limits are 1e-9 across simulators and "
        "1e-10 across backends, ranks and threads in fp64, and 1e-3 in fp32. A run beyond its limit is refused."
    ),
    "spans": "Where the time of a sampled step goes: the exclusive time of each part of it.",
    "history": "Losses and metrics of each epoch, for the runs of accuracy studies.",
    "curves": (
        "What trained models do over time, for the runs of accuracy studies: of each point, the seed with the best "
        "headline metric on validation data."
    ),
    "claims": (
        "Published claims about speed and accuracy. Each was written down, with the rule that will judge it, before "
        "its numbers were measured."
    ),
}
TABLES = tuple(CAPTIONS)
# Tables that the page reads and that `collect` does not write yet, with their columns.
PENDING = {
    "answers": ("study", "kind", "question", "answer", "of", "effect", "low", "high", "n", "verdict"),
    "laws": ("study", "law"),
}

# Each figure NAME is figures/NAME.{svg,png,pdf,csv,rst} in the results folder; csv: the data drawn, rst: the caption.
FORMATS = ("svg", "png", "pdf", "csv", "rst")


def figures_of(config: Config) -> tuple[Figure, ...]:
    """The figures of the config's studies, in the report's order."""
    own = [kind.figure for kind in kinds(config.families).values() if kind.figure]
    every = [*own[:1], STRATEGIES, SPANS, *own[1:], TIME_TO_ACCURACY, CURVES]
    return tuple(figure for figure in every if _asked(figure, config))


def _asked(figure: Figure, config: Config) -> bool:
    runs = (study.runs for study in config.studies if study.kind in figure.kinds)
    return any(not figure.needs or any(figure.needs(config, run) for run in part) for part in runs)


def figures(config: Config) -> tuple[str, ...]:
    """Their names."""
    return tuple(figure.name for figure in figures_of(config))
