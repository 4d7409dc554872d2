"""What kinds of studies of trained models share: the rows of quality.csv, and the answer that they give.

Models are compared by their family's headline metric, in the direction that the family calls better. quality.csv has a row
for each point; each data set and model has one verdict, of the point that `selection` chose.
"""

from __future__ import annotations

from collections.abc import Iterator

from ketscale import words
from ketscale.analysis import verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.kinds.finding import Finding, summary
from ketscale.analysis.kinds.kind import Answer, Kind
from ketscale.analysis.kinds.selection import Candidate, Match, lacking, matches, together
from ketscale.analysis.points import FOUND, Point, Row, point_of, size_axes, variants
from ketscale.analysis.wording import listed
from ketscale.config import Config
from ketscale.grid import Study


class Quality(Kind):
    """A kind of study that compares models trained by epochs, or fitted."""

    table = "quality"

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require protocols with epochs, or of fits."""
        for run in study.runs:
            if not config.protocols[run.protocol].tested:
                yield (
                    f"{self.name} needs validation and test, but protocol {run.protocol} has steps; "
                    "give it a protocol with epochs"
                )

    def rows(self, study: Study, collected: Collected) -> Iterator[Finding]:
        """Every point of the study that has a record; those that are chosen beside the best of their controls."""
        config = collected.config
        # Splits of the same data are one data set.
        groups: dict[Point, list[Row]] = {}
        for key in dict.fromkeys(point_of(run) for run in study.runs):
            if key in collected.points:
                groups.setdefault((config.data(key[0]), *key[1:]), []).extend(collected.points[key])
        found = [Candidate.of(key, group, collected) for key, group in groups.items()]
        made = matches(found, study, collected, self.eligible)
        chosen = {match.chosen.point: match for match in self.judged(made, study, config)}
        for each in found:
            finding = Finding.of(study.name, each, config)
            if match := chosen.get(each.point):
                finding = finding.matched(match, config, tuple(lacking(each, collected)))
            yield finding

    def judged(self, made: list[Match], study: Study, config: Config) -> list[Match]:
        """The verdicts of the study on what is compared."""
        return together(made)

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """The best configuration on validation data of each data set and model, beside its best control."""
        found = self.named(study, inputs)
        if not found:
            return self.nothing(study, inputs)
        # What is nothing but a control comes last.
        order = sorted(found, key=lambda each: (each.data, not each.verdict))
        rows = tuple(each.told(inputs.config, found[each], self.more(each)) for each in order)
        lost = self.lost(study, inputs)
        said = (f"Every seed of {model} on {data} failed." for model, data in lost)
        notes = tuple(dict.fromkeys([*(note for each in order for note in each.notes()), *said]))
        compared = [each for each in order if each.verdict]
        if not compared and lost:
            text = f"Undecided: every seed of {listed(sorted({model for model, _ in lost}))} failed."
            return Answer(text, verdicts.FAILED, short=text.rstrip("."), rows=rows, notes=notes)
        if not compared:
            text = (
                f"Open: nothing has a result but {listed(sorted({each.model for each in found}))}, a control."
            )
            short = "Open: only controls have a result"
            return Answer(text, verdicts.OPEN, short=short, rows=rows, notes=notes)
        lead = min(compared, key=Finding.order)
        text, short = summary(compared, lead)
        beside = f" beside {lead.beside}" if lead.effect else ""
        of = f"test {lead.metric.title} of {lead.model}{beside}"
        return Answer(text, lead.verdict, of, lead.effect, lead.unit, short, rows, notes)

    def named(self, study: Study, inputs: Inputs) -> dict[Finding, str]:
        """The chosen configurations of a study, each with what tells it from the model's others."""
        points = inputs.quality[inputs.quality["study"] == study.name]
        but, found = ("workload", "model", *size_axes(inputs.config)), {}
        for at, point in points.sort_values(["workload", "model", "size"]).iterrows():
            if point[FOUND].chosen:
                alike = points[
                    (points["model"] == point["model"]) & (points["workload"] == point["workload"])
                ]
                found[point[FOUND]] = variants(alike, inputs.config, but).to_dict()[at]
        return found

    def lost(self, study: Study, inputs: Inputs) -> list[tuple[str, str]]:
        """Models without a completed seed, of which some failed, each with its data in words."""
        found = inputs.quality[inputs.quality["study"] == study.name][FOUND]
        known = {(each.model, each.data) for each in found if each.n}
        return sorted({(each.model, each.data) for each in found if each.failed} - known)

    def nothing(self, study: Study, inputs: Inputs) -> Answer:
        """What is said of a study without a result."""
        failed = int(inputs.quality[inputs.quality["study"] == study.name]["failed"].sum())
        why = f": {words.counted(failed, 'seed')} failed" if failed else " yet"
        text = f"No model has been trained and tested{why}."
        return Answer(text, verdicts.OPEN, short="Nothing trained yet")

    def eligible(self, config: Config, model: str) -> bool:
        """Whether a model is compared."""
        return True

    def more(self, found: Finding) -> dict[str, str]:
        """Further cells of a chosen configuration's row, by their headings."""
        return {}
