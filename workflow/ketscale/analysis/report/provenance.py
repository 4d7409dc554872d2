"""When, where and with what the runs were made, how to cite them and make them again."""

from __future__ import annotations

import json
import re

import ketscale
from ketscale.analysis.heavy import pd
from ketscale.config import Config


def of(runs: pd.DataFrame) -> dict[str, list[str]]:
    """Date, machine, code and data of the runs' records, with all values if records differ."""
    searches_h = runs[runs["studies"] == "search"]["node_hours"].sum()
    cost = f"{runs['node_hours'].sum() - searches_h:.3g} node-hours, {runs['gpu_hours'].sum():.3g} GPU-hours"
    codes, year = _distinct(runs, "code"), max(_distinct(runs, "stopped"), default="")[:4]
    found = {
        "measured": _dates(runs),
        "machine": _distinct(runs, "hardware"),
        "MPI": _distinct(runs, "mpi_library"),
        "code": [f"KetScale {text}" for text in codes],
        # As in CITATION.cff, which an installed package does not have.
        "cite as": [f"The KetScale developers, KetScale {', '.join(codes)}, {year}"] if codes else [],
        # The version of this package, whatever trained the runs.
        "page": [f"KetScale {ketscale.__version__}"],
        "prepared data": [f"SHA-256 {value[:16]}…" for value in _distinct(runs, "features_hash")],
        "cost": [f"{cost}; searches {searches_h:.3g} node-hours" if searches_h else cost],
    }
    return {name: values for name, values in found.items() if values}


def packages(runs: pd.DataFrame) -> list[str]:
    """The versions of packages, each with what it was in the runs: 'torch=2.9.0'."""
    return sorted({package for text in _distinct(runs, "packages") for package in text.split()})


def commit(runs: pd.DataFrame) -> str:
    """The commit of the runs, if all are of one."""
    found = [re.search(r" ([0-9a-f]+)(?:\+dirty)?$", text) for text in _distinct(runs, "code")]
    commits = {match[1] if match else "" for match in found}
    return commits.pop() if len(commits) == 1 else ""


def config_text(config: Config) -> str:
    """The config as YAML to save and run again."""
    import yaml

    return yaml.safe_dump(json.loads(config.text), sort_keys=False, allow_unicode=True, width=100)


def _dates(runs: pd.DataFrame) -> list[str]:
    """The first start and the last stop, UTC."""
    times = _distinct(runs, "started")[:1] + _distinct(runs, "stopped")[-1:]
    return [f"{' to '.join(text[:16].replace('T', ' ') for text in times)} UTC"] if times else []


def _distinct(runs: pd.DataFrame, column: str) -> list[str]:
    return sorted({str(value) for value in runs[column].dropna()})
