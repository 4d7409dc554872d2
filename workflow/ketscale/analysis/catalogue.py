"""The figures of a config. The Snakefile imports this, so it imports nothing heavy."""

from __future__ import annotations

from dataclasses import replace

from ketscale.analysis.kinds import Figure, kinds
from ketscale.analysis.overviews.curves import CURVES
from ketscale.analysis.overviews.layouts import MAP
from ketscale.analysis.overviews.spans import SPANS
from ketscale.config import Config
from ketscale.errors import UserError

# The config of the tables, beside them, by which a results folder can be reported alone.
CONFIG_FILE = "tables/config.json"

# Figures of several studies.
OVERVIEWS = (MAP, SPANS, CURVES)
# A figure NAME is figures/NAME.{svg,png,narrow.svg,csv} in the results folder; csv: the data drawn.


def figures_of(config: Config) -> tuple[Figure, ...]:
    """The figures of the config's studies: of each study that of its kind, by the study's name, and then the overviews."""
    known = kinds(config.families)
    own = ((study.name, known[study.kind].figure) for study in config.studies)
    of_studies = [replace(figure, name=name) for name, figure in own if figure]
    return (*of_studies, *overviews(config))


def overviews(config: Config) -> tuple[Figure, ...]:
    """The figures of several of the config's studies."""

    def asked(figure: Figure) -> bool:
        studies = (study for study in config.studies if not figure.kinds or study.kind in figure.kinds)
        needs = figure.needs
        return any(needs is None or any(needs(config, run) for run in study.runs) for study in studies)

    return tuple(filter(asked, OVERVIEWS))


def check(config: Config) -> None:
    """Check that no study has the name of a figure that is of several, or of another's narrow drawing.

    Raises:
        UserError: names the study.
    """
    taken = {figure.name for figure in OVERVIEWS}
    for study in config.studies:
        if study.name.endswith(".narrow"):
            raise UserError(
                f"studies.{study.name}: files of narrow figures end in .narrow.svg; rename the study"
            )
        if study.name in taken:
            raise UserError(
                f"studies.{study.name}: {study.name} is the name of a figure of all studies; rename the study"
            )
