"""The state of every run of the grid, and the reason if its record cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ketscale.analysis import comparability
from ketscale.analysis.heavy import pd
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs import records
from ketscale.jobs.records import Records
from ketscale.measure.form import Record
from ketscale.measure.record import Checked
from ketscale.words import counted

# Runs in these states are only in the completeness table; without `partial` they stop the collection. Diverged,
# out-of-memory and timed-out runs are results: they are shown, but no fit includes them.
FAULTS = ("missing", "stale", "refused")


@dataclass(frozen=True)
class Finding:
    """One run of the grid, its state and the reason for it, and its record if that can be trusted."""

    run: Run
    studies: tuple[str, ...]
    state: str
    why: str = ""
    record: Record | None = None


def of(config: Config, results: Path, found: Records) -> list[Finding]:
    """Every run of the config's studies, sorted, with what was found of it below `results`."""
    studies: dict[Run, list[str]] = {}
    for study in config.studies:
        for run in config.runs_of(study):
            studies.setdefault(run, []).append(study.name)
    return [_of(results, run, tuple(studies[run]), found.checked[run]) for run in sorted(studies)]


def _of(results: Path, run: Run, studies: tuple[str, ...], found: Checked) -> Finding:
    why = found.why
    if found.state == "missing" and not why:
        why = records.why_missing(results / run.folder) or "not run yet"
    return Finding(run, studies, found.state, why, found.record)


def code(record: Record | None) -> str:
    """The code that made a record: version and commit, marked where the tree was dirty; '' without a record."""
    if record is None:
        return ""
    made = record.code
    commit = made.commit[:10] if made.commit else "no commit"
    return f"{made.version} {commit}{'+dirty' if made.dirty else ''}"


def warning(runs: pd.DataFrame) -> str:
    """That modules which runs imported differ between records, with the codes; '' if they do not.

    Commits that changed only docs, or what no run imported, warn of nothing. runs: the table.
    """
    recorded = runs[runs["imported"].notna()]
    imported = sorted(recorded["imported"].unique())
    if not comparability.hindrance((("code", comparability.modules(each)),) for each in imported):
        return ""
    counts = recorded["code"].value_counts().sort_index()
    listed = ", ".join(f"{version} ({counted(int(count), 'run')})" for version, count in counts.items())
    return f"Runs imported different code, and times or accuracies of such runs are not compared: {listed}"


def demand_all(findings: Sequence[Finding], results: str) -> None:
    """Refuse to continue if a run has no record that can be trusted.

    Raises:
        UserError: the reasons, each with one such run, and the two ways to continue.
    """
    unusable = [finding for finding in findings if finding.state in FAULTS]
    if not unusable:
        return
    raise UserError(
        f"{len(unusable)} of {len(findings)} runs cannot be used:",
        *records.by_reason((each.state, each.why, f"{results}/{each.run.path}") for each in unusable),
        "Run Snakemake again (delete stale or refused records first), or do without: --partial, or in Snakemake --config partial=true",
    )
