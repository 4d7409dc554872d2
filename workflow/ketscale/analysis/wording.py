"""Words for what the tables say: layouts, numbers with their intervals, and what the points of a study share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ketscale.analysis.intervals import Estimate
from ketscale.analysis.points import counted, size_axes, variants
from ketscale.config import Config
from ketscale.grid import BACKENDS, POINT, layout

if TYPE_CHECKING:
    import pandas as pd


def where(text: str) -> str:
    """A layout in words, such as '2 MPI ranks on 2 nodes' for 'mpi-n2r2t1'."""
    found = layout(text)
    backend = BACKENDS[found["backend"]]
    if not backend.several_ranks:
        one = "one GPU" if backend.device == "gpu" else "one core"
        return one if found["threads"] == 1 else f"{found['threads']} threads"
    nodes = f" on {found['nodes']} nodes" if found["nodes"] > 1 else ""
    if backend.device == "gpu":
        return f"{found['ranks']} GPU{'s' if found['ranks'] > 1 else ''} ({backend.title}){nodes}"
    threads = f" of {found['threads']} threads" if found["threads"] > 1 else ""
    return f"{found['ranks']} {backend.title} rank{'s' if found['ranks'] > 1 else ''}{threads}{nodes}"


def digits(value: float) -> str:
    """A factor with three digits, or whole from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def seeds(count: int) -> str:
    """'one seed', '3 seeds'."""
    return "one seed" if count == 1 else f"{count} seeds"


def interval(found: Estimate, words: Callable[[float], str] = digits) -> str:
    """'95 % interval 1.55 to 1.7, 5 seeds', or that there is none."""
    if found.n == 0:
        return "medians, no seed was timed in both"
    if found.low is None or found.high is None:
        return f"{seeds(found.n)}, no interval"
    return f"95 % interval {words(found.low)} to {words(found.high)}, {seeds(found.n)}"


def listed(words: Iterable[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def subject(points: pd.DataFrame, config: Config, but: Iterable[str] = ()) -> str:
    """What all points share, except the columns `but`: 'vqc on digits (4 qubits, batch 64, fused)'."""
    axes = size_axes(config)
    names = {*POINT, *axes} - set(but)
    only = {name: points[name].iloc[0] for name in names if points[name].nunique() == 1}
    rest = [counted(only[name], axis) for name, axis in axes.items() if only.get(name)]
    rest += [f"batch {only['batch']}"] if "batch" in only else []
    rest += [only["simulator"]] if only.get("simulator", "none") != "none" else []
    head = only.get("model", "models")
    if "workload" in only:
        head += f" on {data(only['workload'], config)}"
    return f"{head} ({', '.join(rest)})" if rest else head


def data(workload: str, config: Config) -> str:
    """A workload, and whether its data are generated, which shows only that a model trains."""
    return f"{workload} (generated data)" if config.workloads[workload][1].generated else workload


def distinct(points: pd.DataFrame, config: Config, but: Iterable[str] = ()) -> pd.Series[str]:
    """What tells the points of a study apart, except the columns `but`: 'with 6 qubits'; empty if nothing does."""
    found = variants(points, config, but)
    return found.where(found == "", "with " + found)


def sentence(lead: str, clauses: Iterable[str]) -> str:
    """'LEAD: clause; clause.'"""
    return f"{lead[:1].upper()}{lead[1:]}: {'; '.join(clauses)}."
