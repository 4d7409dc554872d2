"""All that the records of a results folder say, in memory: tables, answers and figures."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import asdict

from ketscale.analysis import catalogue, columns, completeness, laws, stamp
from ketscale.analysis.collected import Collected, Searched
from ketscale.analysis.columns import Trained, Tried
from ketscale.analysis.drawing import style
from ketscale.analysis.drawing.inputs import Inputs
from ketscale.analysis.heavy import pd
from ketscale.analysis.kinds import kinds
from ketscale.analysis.kinds.kind import Answer, Told
from ketscale.analysis.points import TIMED_OUT, Point, Row, point_of
from ketscale.analysis.wording import modes
from ketscale.config import Config
from ketscale.files import read_csv
from ketscale.grid import CURVES, HISTORY, Study
from ketscale.jobs import baselines, records
from ketscale.jobs.records import Records


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


@dataclass(frozen=True)
class Analysed:
    """What the records of a results folder say.

    sources: what all of it is made from. written, tables: by their names, as they are written to files, and, but for the
    answers, as numbers and text. parts: in the order of kinds.
    """

    config: Config
    sources: stamp.Sources
    written: Mapping[str, pd.DataFrame]
    tables: Mapping[str, pd.DataFrame]
    inputs: Inputs
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, config: Config, results: Path) -> Analysed:
        """Read and check the config's records below `results`.

        Raises:
            UserError: a run is missing, stale or refused, and the config is not `partial`; or a file of baselines is damaged.
        """
        sources = stamp.Sources.of(config, results)
        collected, made = read(config, results)
        written = {name: columns.TABLES[name].frame(rows, config) for name, rows in made.items()}
        typed = {name: columns.TABLES[name].typed(frame, config) for name, frame in written.items()}
        # Records take much memory, and all that is read of them is in the rows.
        inputs = Inputs(config, replace(collected, records={}), **typed)
        parts = tuple(_answered(inputs))
        lines = columns.ANSWERS.of((line for part in parts for line in part.lines), config)
        written["answers"] = columns.ANSWERS.frame(lines, config)
        return cls(config, sources, written, typed, inputs, parts)

    @property
    def complete(self) -> bool:
        """Whether every run has a record that can be used."""
        return not self.tables["completeness"]["state"].isin(completeness.FAULTS).any()

    @cached_property
    def figures(self) -> dict[str, dict[str, bytes]]:
        """The files of each figure that was drawn, by its name and their endings."""
        return self.drawn()

    def drawn(self, paper: bool = False) -> dict[str, dict[str, bytes]]:
        """The same, or those of the style for papers."""
        style.theme()
        known, found = kinds(self.config.families), dict[str, dict[str, bytes]]()
        for part in self.parts:
            if figure := known[part.study.kind].figure:
                inputs = self.inputs.only(part.study.name, part.host)
                found[part.figure] = style.files(figure.draw, inputs, paper)
        for figure in catalogue.overviews(self.config):
            found[figure.name] = style.files(figure.draw, self.inputs, paper)
        return {name: files for name, files in found.items() if files}

    def files(self) -> dict[str, bytes]:
        """The contents of the files of tables and figures, by their paths below the results folder."""
        made = {f"{stamp.TABLES}/{name}.csv": columns.csv(frame) for name, frame in self.written.items()}
        made[catalogue.CONFIG_FILE] = f"{self.config.text}\n".encode()
        for name, files in self.figures.items():
            made |= {f"{stamp.FIGURES}/{name}.{ending}": content for ending, content in files.items()}
        return made


def _answered(inputs: Inputs) -> Iterator[Part]:
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


def read(config: Config, results: Path) -> tuple[Collected, dict[str, Iterable[Row]]]:
    """The runs by point, and the rows of every table but the answers, by name.

    Raises:
        UserError: a run is missing, stale or refused, and the config is not `partial`; or a file of baselines is damaged.
    """
    found = records.read(config, results)
    findings, known = completeness.of(config, results, found), kinds(config.families)
    if not config.partial:
        completeness.demand_all(findings, config.results)
    trained = [
        Trained(finding.record, config.settings(finding.run), finding.studies)
        for finding in findings
        if finding.record
    ]
    # A trial is no answer to a study's question.
    runs = [run for run in trained if not config.is_trial(run.settings.run)]
    searches = _searches(config, found)
    rows = list(columns.RUNS.of(runs, config))
    states = list(columns.COMPLETENESS.of(findings, config))
    if warning := completeness.warning(findings):
        states.insert(0, {"run": "*", "state": "warning", "why": warning})
    usable = {run.settings.run: run.record for run in runs}
    why = {finding.run: f"{finding.state} ({finding.why})" for finding in findings if not finding.record}
    beside = baselines.of(config, results)
    collected = Collected.of(config, rows, found.comparisons, usable, why, beside, searches)
    by_epochs = {run for study in config.studies if known[study.kind].history for run in study.runs}
    by_epoch = [run for run in runs if run.settings.run in by_epochs]
    return collected, {
        "runs": rows,
        "completeness": states,
        "laws": laws.rows(collected),
        "parity": columns.PARITY.of(found.comparisons, config),
        "spans": _of_runs(columns.SPANS, config, runs, _spans),
        "history": _of_runs(columns.HISTORY, config, by_epoch, lambda run: _history(run, results)),
        "curves": _of_runs(columns.CURVES, config, _best(by_epoch), lambda run: _curves(run, results)),
        "trials": columns.TRIALS.of(_trials(searches.values()), config),
        "scaling": _of_studies("scaling", collected),
        "quality": columns.QUALITY.of(_of_studies("quality", collected), config),
    }


def _searches(config: Config, found: Records) -> dict[str, Searched]:
    """What each search has chosen, by the path of the choice, with the node-hours of its trials that have a record."""
    made = {}
    for path, run in {run.choice: run for run in config.runs if run.choice in found.choices}.items():
        hours: dict[str, float | None] = {}
        for trial in config.trials_of(run):
            record, so_far = found.checked[trial].record, hours.get(trial.protocol, 0.0)
            hours[trial.protocol] = so_far + record.node_hours if record and so_far is not None else None
        made[path] = Searched(run, found.choices[path], [*hours.values()])
    return made


def _trials(searches: Iterable[Searched]) -> Iterator[Tried]:
    """Each trial of each search."""
    for found in searches:
        for trial, hours in zip(found.choice.trials, found.hours, strict=True):
            yield Tried(found.run, found.choice, trial, hours)


def _of_studies(table: str, collected: Collected) -> Iterator[Any]:
    """What the rows of one table are taken from, study by study, by the studies' kinds."""
    known = kinds(collected.config.families)
    for study in collected.config.studies:
        if known[study.kind].table == table:
            yield from known[study.kind].rows(study, collected)


def _of_runs(table: columns.Table, config: Config, runs: Iterable[Trained], of: Any) -> Iterator[Row]:
    """The rows that `of` gives of each run, with the columns of the run."""
    runs = list(runs)
    for run, about in zip(runs, table.of(runs, config), strict=True):
        for row in of(run):
            yield {**row, **about}


def _spans(run: Trained) -> Iterator[Row]:
    """The exclusive time of each part of a sampled step, in seconds."""
    for name, span in sorted(run.record.timing.spans.items()):
        yield {"span": name, **asdict(span)}


def _history(run: Trained, results: Path) -> Iterator[Row]:
    """The epochs of a run, with the columns of its history file."""
    for row in read_csv(results / run.settings.run.folder / HISTORY):
        yield {name: _number(text) for name, text in row.items()}


def _curves(run: Trained, results: Path) -> Iterator[Row]:
    """The curves of a run that its family draws, in the order of their file."""
    panels = run.settings.family.curves.panels if run.settings.family.curves else {}
    rows = read_csv(results / run.settings.run.folder / CURVES)
    time, *names = rows[0] if rows else [""]
    for name in names:
        if (panel := name.split("_")[0]) in panels:
            for row in rows:
                yield {"curve": name, "panel": panel, "time": _number(row[time]), "value": _number(row[name])}


def _best(runs: Iterable[Trained]) -> Iterable[Trained]:
    """The run with the best headline metric on validation data of each point's runs with curves."""
    best: dict[Point, tuple[float, Trained]] = {}
    for run in runs:
        if CURVES in run.record.files:
            metric, key = run.settings.family.headline, point_of(run.settings.run)
            value = run.metric("validation", metric.name)
            # Undefined: worse than any.
            value = math.inf if value is None else -value if metric.better == "up" else value
            if key not in best or value < best[key][0]:
                best[key] = value, run
    return [run for _, run in best.values()]


def _number(text: str) -> Any:
    """The number that a cell of a run's own tables is, or else its text; None of an empty one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text or None
