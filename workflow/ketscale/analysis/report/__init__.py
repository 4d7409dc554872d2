"""The report: tables of the records, figures of the tables, and one self-contained page of both that works offline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ketscale.analysis import figures
from ketscale.analysis.analysed import CONFIG_FILE, NOTE, TABLES, Analysed, digest
from ketscale.analysis.report.page import rendered
from ketscale.config import Config
from ketscale.files import clear, write_atomic

__all__ = ["PAGE", "PARTS", "build", "rendered"]

PAGE = "report.html"
_TABLES = ("scaling", "laws", "completeness", "trials", "parity", "spans", "curves", "claims", "history")
OF_EARLIER_VERSIONS = ("stamp.json", *(f"tables/{name}.csv" for name in _TABLES))


def tables(config: Config, results: Path) -> None:
    """Write the tables of the records below `results`.

    Raises:
        UserError: a run is missing, stale or refused, and the config is not `partial`.
    """
    # Records that change meanwhile do not agree with it.
    stamp = digest(config, results)
    analysed = Analysed.of(config, results)
    _write(results, {f"{TABLES}/{name}.csv": content for name, content in analysed.csv.items()})
    write_atomic(results / CONFIG_FILE, f"{config.text}\n".encode())
    for name in OF_EARLIER_VERSIONS:
        (results / name).unlink(missing_ok=True)
    write_atomic(results / NOTE, f"{stamp}{'' if analysed.complete else ' partial'}\n".encode())


def draw(config: Config, results: Path) -> None:
    """Write the figures of the tables below `results`; those of an earlier call go, and what else is in their folder stays."""
    drawings = {
        f"{figures.FOLDER}/{name}.{ending}": content
        for name, files in figures.drawings(Analysed.read(config, results)).items()
        for ending, content in files.items()
    }
    folder = results / figures.FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for drawing in folder.glob("*.svg"):
        own = [drawing.with_suffix(f".{ending}") for ending in figures.ENDINGS]
        if all(file.exists() for file in own):
            for file in own:
                file.unlink()
    _write(results, drawings)


def page(config: Config, results: Path) -> None:
    """Write the page of the tables and figures below `results`."""
    _write(results, {PAGE: rendered(Analysed.read(config, results), results)})


PARTS = {"tables": tables, "figures": draw, "page": page}


def build(config: Config, results: Path) -> None:
    """Write tables, figures and page of the records below `results`; raises what `tables` does."""
    for part in PARTS.values():
        part(config, results)


def _write(results: Path, files: Mapping[str, bytes]) -> None:
    for folder in {(results / name).parent for name in files}:
        folder.mkdir(parents=True, exist_ok=True)
        clear(results, folder)
    for name, content in files.items():
        write_atomic(results / name, content)
