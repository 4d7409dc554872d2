"""The answers of all studies, given by their kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds import kinds
from ketscale.analysis.kinds.kind import Answer, Told
from ketscale.analysis.points import TIMED_OUT
from ketscale.analysis.wording import modes
from ketscale.grid import Study


class Line(NamedTuple):
    """A row of answers.csv: a point that an answer tells."""

    part: Part
    told: Told


@dataclass(frozen=True)
class Part:
    """The answer of a study on one class of hosts.

    host: '' where all of the study's points are of one class. figure: its key in `Analysed.figures`, which has none
    where nothing was drawn.
    """

    study: Study
    host: str
    answer: Answer
    figure: str

    @property
    def lines(self) -> list[Line]:
        """Its rows of answers.csv; one with the comparison that leads it if it tells no point."""
        answer = self.answer
        lead = Told(answer.of, "", answer.effect, answer.unit, answer.verdict)
        return [Line(self, told) for told in answer.rows or (lead,)]


def given(inputs: Inputs) -> Iterator[Part]:
    """The answers in the order of their kinds, with a note where runs are missing or points were disturbed.

    Snakemake hands the studies over by name, so the config's order is not known everywhere.
    """
    known = kinds(inputs.config.families)
    order = {name: number for number, name in enumerate(known)}
    for study in sorted(inputs.config.studies, key=lambda study: (order[study.kind], study.name)):
        kind = known[study.kind]
        hosts = inputs.collected.hosts(study) if kind.table == "scaling" else ("",)
        for number, host in enumerate(hosts, 1):
            own = inputs.only(study.name, host)
            answer = kind.answer(study, own)
            noted = replace(answer, notes=(*answer.notes, *_cautions(study, own)))
            yield Part(study, host, noted, f"{study.name}@{number}" if host else study.name)


def _cautions(study: Study, inputs: Inputs) -> Iterator[str]:
    """What of the study's runs has not completed, whose numbers are noisy, and which points a busy machine disturbed."""
    if states := inputs.states([study.name]):
        yield f"{states}."
    yield from (f"{mode}." for mode in modes(inputs.config, study.name))
    points = inputs.points(study.name)
    flags = points["flag"].dropna()
    # The states above tell of those.
    flags = flags[~flags.str.startswith(TIMED_OUT)]
    count, every = len(flags), len(points)
    if count:
        why = ", ".join(sorted(set(flags)))
        some = f"{count} of {every} points {'is' if count == 1 else 'are'} not as good as the others"
        all_ = "All points are flagged" if every > 1 else "The point is flagged"
        yield f"{all_ if count == every else some} ({why})."
