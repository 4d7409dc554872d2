"""From the records of a results folder to its tables."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ketscale.analysis import columns, completeness
from ketscale.analysis.answers import answer
from ketscale.analysis.collected import Collected
from ketscale.analysis.columns import Trained
from ketscale.analysis.heavy import pd
from ketscale.analysis.kinds import kinds
from ketscale.analysis.points import Row
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.files import read_csv
from ketscale.grid import AXES, HISTORY, canonical
from ketscale.jobs import baselines, records
from ketscale.jobs.records import Records

# The folder of the tables below a results folder, and the file of the config that they are of, by which a folder can be
# reported alone.
TABLES = "tables"
CONFIG_FILE = f"{TABLES}/config.json"


@dataclass(frozen=True)
class Analysed:
    """The tables of a config's studies, by the names of `columns.TABLES`; everything else is made of them."""

    config: Config
    tables: Mapping[str, pd.DataFrame]

    @classmethod
    def of(cls, config: Config, results: Path) -> Analysed:
        """From the records below `results`.

        Raises:
            UserError: a run is missing, stale or refused, and the config is not `partial`; or a file of baselines is damaged.
        """
        collected, runs = read(config, results)
        known, history = kinds(config.families), list(_history(config, collected, results))
        made: dict[str, list[Any]] = {
            "runs": runs,
            "history": history,
            "answers": [],
            "speed": [],
            "quality": [],
            "fits": [],
        }
        states = _states(runs)
        # Snakemake hands the studies over by name, so the config's order is not known everywhere.
        order = {name: number for number, name in enumerate(known)}
        for study in sorted(config.studies, key=lambda study: (order[study.kind], study.name)):
            kind = known[study.kind]
            rows, fits = list(kind.rows(study, collected)), []
            for host in dict.fromkeys(row["on"] for row in rows) or ("",):
                here = collected.on(host)
                own = [row for row in rows if row["on"] == host]
                fits += [
                    {"study": study.name, "kind": study.kind, "on": host, **row}
                    for row in kind.fits(study, here)
                ]
                made["answers"].append(answer(study, host, kind, own, here, states[study.name]))
            made[kind.table] += rows
            made["fits"] += fits
        return cls(config, {name: table.frame(made[name], config) for name, table in columns.TABLES.items()})

    @classmethod
    def read(cls, config: Config, results: Path) -> Analysed:
        """From the files of the tables below `results`.

        Raises:
            UserError: they are of another config, or there are none.
        """
        file = results / CONFIG_FILE
        if not file.exists() or file.read_text().strip() != config.text:
            raise UserError(
                f"{file}: missing, or of another config: make the tables first (`ketscale report`)"
            )
        return cls(
            config,
            {
                name: table.read(results / f"{TABLES}/{name}.csv", config)
                for name, table in columns.TABLES.items()
            },
        )

    @property
    def complete(self) -> bool:
        """Whether every run has a record that can be used."""
        return not self.tables["runs"]["status"].isin(completeness.FAULTS).any()

    def files(self) -> dict[str, bytes]:
        """The contents of the files of the tables, by their paths below the results folder."""
        made = {f"{TABLES}/{name}.csv": columns.csv(frame) for name, frame in self.tables.items()}
        return {**made, CONFIG_FILE: f"{self.config.text}\n".encode()}


def read(config: Config, results: Path) -> tuple[Collected, list[Row]]:
    """The runs by point, and the rows of runs.csv, those of searches and without a record included.

    Raises:
        UserError: a run is missing, stale or refused, and the config is not `partial`; or a file of baselines is damaged.
    """
    found = records.read(config, results)
    findings = completeness.of(config, results, found)
    if not config.partial:
        completeness.demand_all(findings, config.results)
    trials = dict(_trials(config, found))
    table, trained, usable = list[Row](), list[Row](), {}
    for finding in findings:
        studies = () if config.is_trial(finding.run) else finding.studies
        if finding.record:
            run = Trained(finding.record, config.settings(finding.run), studies or ("search",))
            (row,) = columns.RUNS.of([run], config)
            if studies:
                # A trial is no answer to a study's question.
                trained.append(row)
                usable[finding.run] = finding.record
            spans = {
                f"span_{name}_s": span.median_s for name, span in sorted(finding.record.timing.spans.items())
            }
            table.append(
                {
                    **row,
                    **spans,
                    **(trial := trials.get(finding.run, {})),
                    "why": row["why"] or finding.why or trial.get("why"),
                }
            )
        else:
            axes = {name: getattr(finding.run, name) for name in AXES}
            sizes, family = config.sizes(finding.run), config.family(finding.run.workload).name
            table.append({
                **axes, **sizes, "family": family, "layout": finding.run.layout, "studies": " ".join(studies or ("search",)),
                "status": finding.state, "why": finding.why,
            })  # fmt: skip
    why = {finding.run: f"{finding.state} ({finding.why})" for finding in findings if not finding.record}
    beside = baselines.of(config, results)
    return Collected.of(config, trained, found.comparisons, usable, why, beside), table


def _states(runs: list[Row]) -> dict[str, Counter[str]]:
    """How many runs of each study have which status."""
    states: dict[str, Counter[str]] = {}
    for row in runs:
        for name in row["studies"].split():
            states.setdefault(name, Counter())[row["status"]] += 1
    return states


def _trials(config: Config, found: Records) -> Iterator[tuple[Any, Row]]:
    """What each trial of a search has drawn, and whether it was chosen."""
    searched = {run.choice: run for run in config.runs if run.choice in found.choices}
    for path, first in searched.items():
        choice = found.choices[path]
        drawn = {trial.name: trial for trial in choice.trials}
        for run in config.trials_of(first):
            if trial := drawn.get(run.protocol):
                yield (
                    run,
                    {
                        "drawn": canonical(trial.settings),
                        "chosen": trial is choice.trial,
                        "why": trial.why,
                    },
                )


def _history(config: Config, collected: Collected, results: Path) -> Iterator[Row]:
    """The epochs of the runs of studies that show them, with the columns of each run's own file."""
    known = kinds(config.families)
    asked = {run for study in config.studies if known[study.kind].history for run in study.runs}
    runs = [
        Trained(record, config.settings(run)) for run, record in collected.records.items() if run in asked
    ]
    for run, about in zip(runs, columns.HISTORY.of(runs, config), strict=True):
        for row in read_csv(results / run.settings.run.folder / HISTORY):
            yield {**{name: _number(text) for name, text in row.items()}, **about}


def _number(text: str) -> Any:
    """The number that a cell of a run's own tables is, or else its text; None of an empty one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text or None
