"""The tables and figures of a config. The Snakefile imports this, so it imports nothing heavy."""

from __future__ import annotations

from dataclasses import replace

from ketscale.analysis.kinds import Figure, kinds
from ketscale.analysis.overviews.curves import CURVES
from ketscale.analysis.overviews.layouts import MAP
from ketscale.analysis.overviews.spans import SPANS
from ketscale.analysis.overviews.time_to_accuracy import TIME_TO_ACCURACY
from ketscale.config import Config
from ketscale.errors import UserError

# Each NAME is tables/NAME.csv in the results folder. Every config has all of them; some may be empty.
CAPTIONS = {
    "runs": "One row per run: axes, quality, times, memory, and whether the machine was quiet.",
    "completeness": (
        "Every run of the study and its state. Missing, stale and refused runs are in no other table. Diverged, "
        "out-of-memory and timed-out runs are results. No median includes the first two."
    ),
    "answers": (
        "What each study says about its question, computed from its rows. The effect is that of the comparison in `of`, "
        "with its 95 % interval. If a study makes several comparisons, their intervals are widened to hold together."
    ),
    "scaling": (
        "One row per point of every study of speed. Speedups pair runs of the same seed on the same kind of host, with "
        "the 95 % interval of their mean (none below 3 seeds). Times are medians with their range over seeds. "
        "Busy and failed runs are counted, but no median includes them. If all seeds were busy, or none "
        "finished within its protocol's time, the median of what they measured is shown and flagged."
    ),
    "laws": (
        "Scaling laws fitted by seed, with 95 % intervals. A law is rejected if its residuals are larger than the spread "
        "over seeds explains (F-test of lack of fit, 5 %), and refused if there are too few seeds or points. The error is "
        "that of predicting the largest point from the others."
    ),
    "quality": (
        "The headline metric on test data with the best weights, with its 95 % interval over seeds and test samples; of "
        "each model the configuration that does best on validation data, beside the best of its controls."
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
        "The published claims that a study of the config tests, with their verdicts. The rule of each was written down "
        "before its study first ran, and an effect has a 95 % interval. Each verdict is by itself, not adjusted for the "
        "number of claims: where an effect is just at its "
        "threshold, chance alone decides the wrong way in one of 40 cases, so among 40 such claims expect one."
    ),
}
TABLES = tuple(CAPTIONS)
# The config of the tables, beside them, by which a results folder can be reported alone.
CONFIG_FILE = "tables/config.json"

# Figures of several studies.
OVERVIEWS = (MAP, SPANS, TIME_TO_ACCURACY, CURVES)
# A figure NAME is figures/NAME.{svg,png,narrow.svg,csv} in the results folder; csv: the data drawn.


def figures_of(config: Config) -> tuple[Figure, ...]:
    """The figures of the config's studies: of each study that of its kind, by the study's name, and then the overviews."""
    known = kinds(config.families)
    own = ((study.name, known[study.kind].figure) for study in config.studies)
    of_studies = [replace(figure, name=name) for name, figure in own if figure]
    return (*of_studies, *overviews(config))


def overviews(config: Config) -> tuple[Figure, ...]:
    """The figures of several of the config's studies."""
    return tuple(figure for figure in OVERVIEWS if _asked(figure, config))


def check(config: Config) -> None:
    """Check that no study has the name of a figure that is of several.

    Raises:
        UserError: names the study.
    """
    taken = {figure.name for figure in OVERVIEWS}
    for study in config.studies:
        if study.name in taken:
            raise UserError(
                f"studies.{study.name}: {study.name} is the name of a figure of all studies; rename the study"
            )


def _asked(figure: Figure, config: Config) -> bool:
    runs = (study.runs for study in config.studies if not figure.kinds or study.kind in figure.kinds)
    return any(not figure.needs or any(figure.needs(config, run) for run in part) for part in runs)
