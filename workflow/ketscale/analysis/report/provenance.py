"""When, where and with what the runs were made, and how to cite them and make them again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import ketscale
from ketscale.config import Config

if TYPE_CHECKING:
    import pandas as pd

# As in CITATION.cff, which an installed package does not have.
AUTHOR = "The KetScale developers"
TITLE = "KetScale: fast, honestly measured training of hybrid quantum-classical models"
LICENCE = "Apache-2.0"


def of(runs: pd.DataFrame) -> dict[str, list[str]]:
    """Date, machine, code and data of the runs' records, with all values if records differ."""
    found = {
        "measured": _dates(runs),
        "machine": _distinct(runs, "hardware"),
        "MPI": _distinct(runs, "mpi_library"),
        "code": [_code(text) for text in _distinct(runs, "code")],
        # The version of this package, whatever trained the runs.
        "page": [f"KetScale {ketscale.__version__}"],
        "prepared data": [f"SHA-256 {value[:16]}…" for value in _distinct(runs, "features_hash")],
        "cost": [f"{runs['node_hours'].sum():.3g} node-hours, {runs['gpu_hours'].sum():.3g} GPU-hours"],
    }
    return {name: values for name, values in found.items() if values}


def packages(runs: pd.DataFrame) -> list[str]:
    """The versions of packages, each with what it was in the runs: 'torch=2.9.0'."""
    return sorted({package for text in _distinct(runs, "packages") for package in text.split()})


def bibtex(runs: pd.DataFrame, key: str) -> str:
    """A BibTeX entry `key` of the software with version, commit, date and machine of these numbers."""
    code = _distinct(runs, "code")
    machines = _distinct(runs, "hardware")
    version = ", ".join(sorted({text.split()[0] for text in code})) or ketscale.__version__
    known = {text.split(maxsplit=1)[1] for text in code} - {"no commit"}
    commits = ", ".join(sorted(known))
    year = sorted(_distinct(runs, "stopped"))[-1:]
    note = [f"Commit {commits}"] if commits else []
    note += [f"Measured {date} on {'; '.join(machines)}" for date in _dates(runs)]
    fields = {
        "author": f"{{{AUTHOR}}}",
        "title": f"{{{TITLE}}}",
        "version": version,
        "year": year[0][:4] if year else "",
        "license": LICENCE,
        "note": ". ".join(note),
    }
    lines = [f"  {name} = {{{_escaped(value)}}}," for name, value in fields.items() if value]
    return "\n".join([f"@software{{{key},", *lines, "}"])


def commit(runs: pd.DataFrame) -> str:
    """The commit of the runs, if all are of one."""
    commits = {text.split()[1].removesuffix("+dirty") for text in _distinct(runs, "code")}
    return next(iter(commits)) if len(commits) == 1 and commits != {"no"} else ""


def config_text(config: Config) -> str:
    """The config as YAML to save and run again."""
    import yaml

    return yaml.safe_dump(json.loads(config.text), sort_keys=False, allow_unicode=True, width=100)


def _dates(runs: pd.DataFrame) -> list[str]:
    """The first start and the last stop, UTC."""
    begun, ended = _distinct(runs, "started"), _distinct(runs, "stopped")
    if not begun:
        return []
    first, last = (text[:16].replace("T", " ") for text in (begun[0], ended[-1]))
    return [f"{first} to {last} UTC"]


def _code(text: str) -> str:
    version, rest = text.split(maxsplit=1)
    if rest == "no commit":
        return f"KetScale {version}, not from a git checkout"
    name, _, dirty = rest.partition("+")
    return f"KetScale {version}, commit {name}" + (", with changes that were not committed" if dirty else "")


def _distinct(runs: pd.DataFrame, column: str) -> list[str]:
    return sorted({str(value) for value in runs[column].dropna()})


def _escaped(text: str) -> str:
    """Text in BibTeX, where these characters have a meaning; braces are kept."""
    for character in "&%_#$":
        text = text.replace(character, f"\\{character}")
    return text
