"""Whether the tables of a results folder are those of its config and records: contents decide, not times.

Figures and page are made of the tables, and Snakemake makes them again with these. Imports nothing heavy.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import msgspec

from ketscale import __version__, grid
from ketscale.config import Config, sources
from ketscale.errors import UserError
from ketscale.files import sha256
from ketscale.jobs import baselines, prepared

# What the tables were made of, below a results folder.
NOTE = "tables/made-from.txt"


def digest(config: Config, results: Path) -> str:
    """SHA-256 of all that the tables are made of: the config, the records, the data, baselines, and the code of the analysis."""
    # Sorted: Snakemake hands the studies over by name, which is another order than that of a file.
    parts: list[object] = [config.text, __version__, _code()]
    for name in sorted(config.studied):
        manifest, file = prepared.manifest(config, results, name), baselines.path(config, results, name)
        parts += [prepared.features_hash(manifest), _source_files(config, results, name)]
        parts.append(file and _file(file))
    parts += [_file(results / path) for path in sorted(run.path for run in config.runs)]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def outdated(config: Config, results: Path) -> str | None:
    """Why the tables must be made again although they are there; None if they must not."""
    note, tables = results / NOTE, [*(results / "tables").glob("*.csv")]
    if not note.exists():
        return f"{note}: is missing, so that nothing says what {tables[0]} is of" if tables else None
    made_from, _, partial = note.read_text(errors="replace").strip().partition(" ")
    if partial and not config.partial:
        return f"{results / 'tables'}: made while some runs had no record that could be used"
    # A folder may have been copied without its runs.
    if not (results / grid.RUNS).is_dir() or made_from == digest(config, results):
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
