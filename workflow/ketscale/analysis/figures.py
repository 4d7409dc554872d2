"""The figures of a config. The Snakefile imports this, so it imports nothing heavy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ketscale.analysis import columns
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.drawing.overviews import OVERVIEWS
from ketscale.analysis.kinds import Figure, kinds
from ketscale.config import Config
from ketscale.errors import UserError

# A figure NAME is NAME with each of these endings in this folder of the results; csv: the data drawn.
FOLDER, ENDINGS = "figures", ("svg", "png", "narrow.svg", "csv")


def figures_of(config: Config) -> tuple[Figure, ...]:
    """The figures of the config's studies: of each study that of its kind, by the study's name, and then the overviews."""
    known = kinds(config.families)
    own = ((study.name, known[study.kind].figure) for study in config.studies)
    return (*(replace(figure, name=name) for name, figure in own if figure), *overviews(config))


def overviews(config: Config) -> tuple[Figure, ...]:
    """The figures of several of the config's studies."""
    asked = {study.kind for study in config.studies}
    return tuple(figure for figure in OVERVIEWS if not asked.isdisjoint(figure.kinds))


def drawn(analysed: Analysed, results: Path) -> dict[str, dict[str, bytes]]:
    """The files of each figure that has something to show, by its name and their endings; a study on several classes of hosts
    has one for each.
    """
    style.theme()
    config = analysed.config
    tables = {name: frame for name, frame in analysed.tables.items() if name != "answers"}
    inputs, known = Inputs(config, results, **tables), kinds(config.families)
    found = {}
    for row in columns.rows(analysed.tables["answers"]):
        if figure := known[row["kind"]].figure:
            own = inputs.only([row["study"]], host_of(row))
            found[name_of(analysed, row)] = style.files(figure.draw, own)
    for figure in overviews(config):
        own = inputs.only([study.name for study in config.studies if study.kind in figure.kinds])
        found[figure.name] = style.files(figure.draw, own)
    return {name: files for name, files in found.items() if files}


def host_of(row: dict[str, object]) -> str:
    """The class of hosts that an answer is of; '' of all."""
    return row["on"] if isinstance(row["on"], str) else ""


def name_of(analysed: Analysed, row: dict[str, object]) -> str:
    """The name of the figure of an answer: its study's, with the number of the class of hosts if there are several."""
    if not host_of(row):
        return str(row["study"])
    answers = analysed.tables["answers"]
    hosts = answers[answers["study"] == row["study"]]["on"].tolist()
    return f"{row['study']}@{hosts.index(row['on']) + 1}"


def check(config: Config) -> None:
    """Check that no figure of a study has the files of another one, such as of those of several studies.

    Raises:
        UserError: names the study.
    """
    for study in config.studies:
        if study.name in {figure.name for figure in OVERVIEWS} or study.name.endswith(".narrow"):
            raise UserError(f"studies.{study.name}: another figure has files of this name; rename the study")
