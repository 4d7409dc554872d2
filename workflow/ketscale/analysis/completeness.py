"""What became of every run of the grid: its record checked, and the reason where there is none to trust."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ketscale import grid
from ketscale.errors import UserError
from ketscale.jobs import finished
from ketscale.measure import records

# done: in every table. diverged, out_of_memory: results too, shown but in no median or fit.
# missing, stale, refused: in no table but this one; without `partial` they stop the collection.
RESULTS = ("done", "diverged", "out_of_memory")
FAULTS = ("missing", "stale", "refused")
COLUMNS = ("run", "studies", "state", "why", "code")


@dataclass(frozen=True)
class Finding:
    """One run of the grid with its state, the reason for it, and its record unless there is none to trust."""

    run: grid.Run
    studies: tuple[str, ...]
    state: str
    why: str = ""
    record: dict[str, Any] | None = None

    def refused(self, why: str) -> Finding:
        """The same run, its record no longer trusted."""
        return replace(self, state="refused", why=why, record=None)


def inspect(config: Mapping[str, Any], root: Path) -> list[Finding]:
    """Every run of the config's studies, sorted, with the record below `root` read and checked."""
    studies: dict[grid.Run, list[str]] = {}
    for study in grid.studies(config):
        for run in study.runs:
            studies.setdefault(run, []).append(study.name)
    features = finished.features_hashes(root, studies)
    return [
        _inspect(config, root, run, tuple(studies[run]), features[run.workload]) for run in sorted(studies)
    ]


def _inspect(
    config: Mapping[str, Any], root: Path, run: grid.Run, studies: tuple[str, ...], features: str | None
) -> Finding:
    path = root / run.path
    if not path.exists():
        said = _last_line(root / run.folder / "train.log") or "not run yet"
        if said.endswith(": completed"):
            said = "it had been trained, but its record is gone"
        return Finding(run, studies, "missing", said)
    try:
        record = records.read(path)
    except UserError as error:
        return Finding(run, studies, "refused", str(error).removeprefix(f"{path}: "))
    if record["run"] != asdict(run):
        return Finding(run, studies, "refused", "the axes inside the record are not those of its path")
    if record["config_hash"] != grid.config_hash(grid.resolve(config, run)):
        return Finding(
            run, studies, "stale", "trained under other settings: its config hash is not the config's"
        )
    if features is not None and record["features_hash"] != features:
        return Finding(
            run, studies, "stale", "trained on other features: its features hash is not the manifest's"
        )
    state = "done" if record["status"] == "completed" else record["status"]
    return Finding(run, studies, state, record["reason"] or "", record)


def _last_line(log: Path) -> str:
    """The last error of ours in a log (launchers print their own after it), else its last line."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    ours = [line for line in said if line.startswith("ketscale: ")]
    return next(reversed(ours or said), "")


def code(record: Mapping[str, Any]) -> str:
    """The code that made a record: version and commit, marked where the tree was dirty."""
    made = record["code"]
    commit = str(made["commit"])[:10] if made["commit"] else "no commit"
    return f"{made['version']} {commit}{'+dirty' if made['dirty'] else ''}"


def table(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Rows of completeness.csv; the first is a warning where records of different code are mixed."""
    findings = list(findings)
    rows = [
        {
            "run": finding.run.path,
            "studies": " ".join(finding.studies),
            "state": finding.state,
            "why": finding.why,
            "code": code(finding.record) if finding.record else "",
        }
        for finding in findings
    ]
    versions = Counter(row["code"] for row in rows if row["code"])
    if len(versions) > 1:
        listed = ", ".join(f"{version} ({count} runs)" for version, count in sorted(versions.items()))
        warning = f"records of different code are compared: {listed}"
        rows.insert(0, {"run": "*", "studies": "", "state": "warning", "why": warning, "code": ""})
    return rows


def demand_all(findings: Sequence[Finding]) -> None:
    """Stop where a run has no record to trust.

    Raises:
        UserError: naming the first few such runs, how many there are, and the two ways on.
    """
    faults = [finding for finding in findings if finding.state in FAULTS]
    if not faults:
        return
    counts = Counter(finding.state for finding in faults)
    counted = ", ".join(f"{counts[state]} {state}" for state in FAULTS if counts[state])
    named = "; ".join(f"{finding.run.path} ({finding.state}: {finding.why})" for finding in faults[:3])
    more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    raise UserError(
        f"{len(faults)} of {len(findings)} runs cannot be used ({counted}): {named}{more}\n"
        "run Snakemake again (delete stale or refused records first), or do without: --config partial=true"
    )
