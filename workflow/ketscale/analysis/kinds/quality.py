"""What kinds of studies of trained models share: the rows of quality.csv, and the answer that they give.

Models are compared by their family's headline metric, in the direction that the family calls better. quality.csv has a row
for each point; each data set and model has one verdict, of the point that `selection` chose.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ketscale import words
from ketscale.analysis import comparability, verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.columns import other_metrics
from ketscale.analysis.intervals import Estimate
from ketscale.analysis.kinds.finding import Finding, counted
from ketscale.analysis.kinds.kind import Answer, Kind
from ketscale.analysis.kinds.selection import Candidate, Match, matches
from ketscale.analysis.points import point_of, size_axes
from ketscale.analysis.wording import listed
from ketscale.config import Config
from ketscale.grid import POINT, Study

if TYPE_CHECKING:
    from ketscale.analysis.drawing.inputs import Inputs


class Quality(Kind):
    """A kind of study that compares models trained by epochs, or fitted."""

    varies = "model"
    table = "quality"

    def check(self, study: Study, config: Config) -> Iterator[str]:
        """Require protocols with epochs, or of fits."""
        for run in study.runs:
            if not config.protocols[run.protocol].tested:
                yield (
                    f"{self.name} needs validation and test, but protocol {run.protocol} has steps; "
                    "give it a protocol with epochs"
                )

    def rows(self, study: Study, collected: Collected) -> Iterator[Mapping[str, Any]]:
        """Every point of the study that has a record; those that are chosen beside the best of their controls."""
        keys, config = dict.fromkeys(point_of(run) for run in study.runs), collected.config
        found = [
            Candidate.of(key, collected.points[key], collected) for key in keys if key in collected.points
        ]
        asked = {(run.workload, run.model) for run in study.runs}
        made = matches(found, config, lambda name: self.eligible(config, name), asked)
        chosen = {match.chosen.point: _compared(match) for match in made}
        for each in found:
            yield {"study": study.name, **_result(each, config), **chosen.get(each.point, {})}

    def answer(self, study: Study, inputs: Inputs) -> Answer:
        """The best configuration on validation data of each data set and model, beside its best control."""
        points = inputs.quality[inputs.quality["study"] == study.name]
        chosen = points[points["chosen"] == True].sort_values(["workload", "model", "size"])  # noqa: E712 (it may be NaN)
        failed = int(points["failed"].sum())
        if chosen.empty:
            why = f": {words.counted(failed, 'seed')} failed" if failed else " yet"
            return Answer(
                f"No model has been trained and tested{why}.", verdicts.OPEN, short="Nothing trained yet"
            )
        found = [Finding.of(row, inputs.config) for row in chosen.reset_index().to_dict("records")]
        # What is nothing but a control comes last.
        found.sort(key=lambda each: (each.data, not each.verdict))
        rows = tuple(each.told(inputs.config, points, self.more(each.row, inputs.config)) for each in found)
        notes = tuple(dict.fromkeys(note for each in found for note in each.notes()))
        compared = [each for each in found if each.verdict]
        if not compared:
            text = f"Open: nothing has a result but {listed(sorted({each.row['model'] for each in found}))}, a control."
            return Answer(
                text, verdicts.OPEN, short="Open: only controls have a result", rows=rows, notes=notes
            )
        lead = min(compared, key=Finding.order)
        text, short = counted(compared, lead)
        beside = f" beside {lead.beside}" if lead.effect else ""
        of = f"test {lead.metric.title} of {lead.row['model']}{beside}"
        return Answer(text, lead.verdict, of, lead.effect, lead.unit, short, rows, notes)

    def eligible(self, config: Config, model: str) -> bool:
        """Whether a model is compared."""
        return True

    def more(self, point: Mapping[Any, Any], config: Config) -> dict[str, str]:
        """Further cells of a chosen point's row, by their headings."""
        return {}


def _result(each: Candidate, config: Config) -> dict[str, Any]:
    """What a configuration has reached by itself."""
    first, found = each.group[0], each.estimate()
    completed = [row for row in each.group if row["status"] == "completed"]
    known = {
        name: [row[column] for row in completed if row.get(column) is not None]
        for name, column in {
            "epochs": "epochs",
            **{name: f"test_{name}" for name in other_metrics(config)},
        }.items()
    }
    return {
        **{name: first[name] for name in (*POINT, "family", *size_axes(config), "parameters")},
        "n": len(each.tests),
        "failed": len(each.failed),
        "metric": each.metric.name,
        **_ends("value", found),
        "chance": each.chance,
        "shared": max((row["shared"] for row in completed if row["shared"] is not None), default=None),
        **{name: statistics.fmean(values) if values else None for name, values in known.items()},
        "why": comparability.hindrance(each.keys),
        "chosen": False,
    }


def _compared(match: Match) -> dict[str, Any]:
    """What a chosen configuration is compared with, and what comes of it."""
    found = {"chosen": True, "why": match.why, "configurations": match.chosen.tried, "verdict": match.verdict}
    control, effect = match.control, match.effect()
    if control is None:
        return found
    reached = control.estimate()
    return {
        **found,
        "control": control.model,
        "control_value": reached and reached.value,
        "control_parameters": control.group[0]["parameters"] if control.group else None,
        "control_configurations": control.tried or None,
        **_ends("effect", effect.times(100) if effect and match.unit == "points" else effect),
        "unit": match.unit,
        "pairs": effect.n if effect else 0,
    }


def _ends(name: str, found: Estimate | None) -> dict[str, float | None]:
    ends = (found.value, found.low, found.high) if found else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
