"""From the records of a results folder to its tables: their rows, the answer of each study, and whether they are current.

Whether the tables are those of a config and its records depends on contents, not on times; figures and page are made of
the tables. Imports nothing heavy, since Snakemake imports this at every start.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgspec

from ketscale import __version__, grid
from ketscale.analysis import columns, verdicts
from ketscale.analysis.columns import Trained
from ketscale.analysis.comparison import Collected
from ketscale.analysis.heavy import pd
from ketscale.analysis.kinds import Kind, kinds
from ketscale.analysis.points import TIMED_OUT, Row, failed
from ketscale.analysis.wording import capital, modes, sentence, unfinished
from ketscale.config import Config, sources
from ketscale.errors import UserError
from ketscale.files import read_csv, sha256
from ketscale.grid import AXES, Run, Study
from ketscale.jobs import prepared, records
from ketscale.words import counted

# The folder of the tables below a results folder, and the file of the config that they are of, by which a folder can be
# reported alone.
TABLES = "tables"
CONFIG_FILE = f"{TABLES}/config.json"
# Runs in these states have no record that can be used; without `partial` they stop the collection. Diverged,
# out-of-memory and timed-out runs are results: they are shown, but no fit includes them.
FAULTS = ("missing", "stale", "refused")
# The columns of the leading row that the answer has too.
LEADING = ("point", "reference", "effect", "low", "high", "unit", "verdict", "why")
# What the tables were made of, below a results folder.
NOTE = "tables/made-from.txt"


@dataclass(frozen=True)
class Analysed:
    """The tables of a config's studies; everything else is made of them.

    csv: the contents of their files, by the names of `columns.TABLES`.
    """

    config: Config
    csv: Mapping[str, bytes]

    @classmethod
    def of(cls, config: Config, results: Path) -> Analysed:
        """From the records below `results`; raises what `read` does."""
        collected, runs = read(config, results)
        families = kinds(config.families)
        tables: defaultdict[str, list[Any]] = defaultdict(list, runs=runs)
        status = {Run.of(row): row["status"] for row in runs}
        # Snakemake hands the studies over by name, so the config's order is not known everywhere.
        order = {name: number for number, name in enumerate(families)}
        for study in sorted(config.studies, key=lambda study: (order[study.kind], study.name)):
            kind, states = families[study.kind], Counter(status[run] for run in study.runs)
            about = {"study": study.name, "kind": study.kind}
            rows = [{**about, **row} for row in kind.rows(study, collected)]
            tables[kind.table] += rows
            tables["fits"] += [{**about, **row} for row in kind.fits(study, collected)]
            texts = answer(study, kind, rows, collected, states)
            leaks = prepared.leaks(results, sorted({run.workload for run in study.runs}))
            texts["notes"] = "\n".join(filter(None, [*leaks, texts["notes"]]))
            tables["answers"].append({**about, **texts})
        return cls(config, {name: table.csv(tables[name], config) for name, table in columns.TABLES.items()})

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
        return cls(config, {name: (results / f"{TABLES}/{name}.csv").read_bytes() for name in columns.TABLES})

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables, by their names."""
        return {name: table.read(self.csv[name], self.config) for name, table in columns.TABLES.items()}

    @property
    def complete(self) -> bool:
        """Whether every run has a record that can be used."""
        return not self.tables["runs"]["status"].isin(FAULTS).any()


def read(config: Config, results: Path) -> tuple[Collected, list[Row]]:
    """The runs by point, and the rows of runs.csv, those of searches and without a record included.

    Raises:
        UserError: a run is missing, stale or refused, and the config is not `partial`.
    """
    states = records.read(config, results)
    studies: dict[Run, dict[str, None]] = {}
    for study in config.studies:
        for run in config.runs_of(study):
            studies.setdefault(run, {})["search" if config.is_trial(run) else study.name] = None
    runs = sorted(studies)
    usable = {run: record for run in runs if (record := states.checked[run].record)}
    reasons = {}
    for run in filter(lambda run: run not in usable, runs):
        state, why = states.checked[run].state, states.checked[run].why
        untold = state == "missing" and not why
        reasons[run] = state, (records.why_missing(results / run.folder) or "not run yet") if untold else why
    if reasons and not config.partial:
        raise UserError(
            f"{len(reasons)} of {len(runs)} runs cannot be used:",
            *records.by_reason((*why, f"{config.results}/{run.path}") for run, why in reasons.items()),
            "Run Snakemake again, or do without these runs: --partial, or in Snakemake --config partial=true",
        )
    trained = (Trained(record, config.settings(run), [*studies[run]]) for run, record in usable.items())
    rows = dict(zip(usable, columns.RUNS.of(trained, config), strict=True))
    table: list[Row] = []
    for run in runs:
        if run in usable:
            spans = {f"span_{name}_s": span.median_s for name, span in usable[run].timing.spans.items()}
            table.append({**rows[run], **spans})
        else:
            axes = {name: getattr(run, name) for name in (*AXES, "layout")} | config.sizes(run)
            about = {"family": config.family(run.workload).name, "studies": " ".join(studies[run])}
            status, reason = reasons[run]
            table.append({**axes, **about, "status": status, "why": reason})
    # A trial is no answer to a study's question.
    usable = {run: record for run, record in usable.items() if not config.is_trial(run)}
    measured = [rows[run] for run in usable]
    without = {run: f"{status} ({why})" for run, (status, why) in reasons.items()}
    return Collected.of(config, measured, states.comparisons, usable, without), table


def answer(
    study: Study, kind: Kind, rows: Sequence[Row], collected: Collected, states: Mapping[str, int]
) -> dict[str, Any]:
    """The row of answers.csv of a study.

    rows: its rows. states: how many of its runs have which status.
    """
    compared = [row for row in rows if row.get("verdict")]
    effects = [row for row in compared if row.get("effect") is not None]
    runs = [row for group in collected.groups(study) for row in group]
    overall = [row for row in compared if row.get("row") == "data sets"]
    text = ""
    if compared:
        lead = overall[0] if overall else kind.lead(effects) if effects else compared[0]
    elif runs and all(map(failed, runs)):
        lead, text = {"verdict": verdicts.FAILED}, f"Failed: all {len(runs)} runs."
    else:
        lead, text = {"verdict": verdicts.MISSING}, "Missing: there is nothing to compare yet."
    text = text or capital(sentence(lead))
    counts = Counter(row["verdict"] for row in compared if not row.get("row"))
    if counts.total() > 1:
        listed = (f"{counts[word]} {word}" for word in verdicts.MEANINGS if counts[word])
        text += f" Of {counts.total()} comparisons: {', '.join(listed)}."
    notes = [*kind.notes(list(rows), study, collected)]
    notes += _cautions(study, rows, runs, collected.config, states)
    return {
        "question": study.question,
        "answer": text,
        **{name: lead.get(name) for name in LEADING},
        "n": lead.get("pairs") or lead.get("n"),
        "notes": "\n".join(dict.fromkeys(notes)),
    }


def _cautions(
    study: Study, rows: Iterable[Row], runs: Iterable[Row], config: Config, states: Mapping[str, int]
) -> Iterator[str]:
    """What of the study's runs has not completed, whose numbers are noisy, and what limits its times."""
    if text := unfinished(states):
        yield f"{text}."
    yield from (f"{mode}." for mode in modes(config, (run.simulator for run in study.runs)))
    flags = [row["flag"] for row in rows if row.get("flag") and not row["flag"].startswith(TIMED_OUT)]
    if flags:
        yield f"{counted(len(flags), 'point')} not as good as it could be: {', '.join(sorted(set(flags)))}."
    if len({bool(run["replayed"]) for run in runs if run["gpu_hours"]}) > 1:
        yield "Some runs replay a step as a CUDA graph (replayed in runs.csv) and others launch it kernel by kernel: a ratio of both has that in it too."


def summary(results: Path) -> list[str]:
    """The question of each study in the tables of a results folder and, indented below it, the answer."""
    rows = read_csv(results / "tables/answers.csv")
    return [line for row in rows for line in (row["question"], f"    {row['answer']}")]


def digest(config: Config, results: Path) -> str:
    """SHA-256 of all that the tables are made of: the config, the records, the data, and the code of the analysis."""
    # Sorted: Snakemake hands the studies over by name, which is another order than that of a file.
    parts: list[object] = [config.text, __version__, _code()]
    for name in sorted(config.studied):
        manifest = prepared.manifest(config, results, name)
        parts += [prepared.features_hash(manifest), _source_files(config, results, name)]
    parts += [_file(results / path) for path in sorted(run.path for run in config.runs)]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def outdated(config: Config, results: Path) -> str | None:
    """Why the tables must be made again although they are there; None if they must not."""
    note, tables = results / NOTE, [*(results / "tables").glob("*.csv")]
    if not note.exists():
        return f"{note}: is missing, so nothing says what {tables[0]} was made from" if tables else None
    stamp, _, partial = note.read_text(errors="replace").strip().partition(" ")
    if partial and not config.partial:
        return f"{results / 'tables'}: made while some runs had no record that could be used"
    # A folder may have been copied without its runs.
    if not (results / grid.RUNS).is_dir() or stamp == digest(config, results):
        return None
    return f"{results / 'tables'}: made of another config, other records or data, or by another version of KetScale"


@cache
def _code() -> str:
    """SHA-256 of the sources of the analysis."""
    folder = Path(__file__).parent
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".j2"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _file(path: Path) -> str | None:
    try:
        return sha256(path)
    except OSError as error:  # it is missing, or cannot be read
        return error.strerror


def _source_files(config: Config, results: Path, workload: str) -> str | None:
    if not config.placed:
        return None
    try:
        return prepared.digest(sources(config, workload), results / grid.PREPARED.format(workload=workload))
    except UserError:  # they are not on this machine
        return None
