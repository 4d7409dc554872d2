"""Words for what the tables say: layouts, factors, what points share, and sentences that keep their limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ketscale.analysis.intervals import Estimate
from ketscale.analysis.points import counted, size_axes, variants
from ketscale.config import Config
from ketscale.grid import BACKENDS, POINT, layout
from ketscale.words import spelled

if TYPE_CHECKING:
    import pandas as pd

# The most words and numbers of a sentence, and of its short form.
SENTENCE, SHORT = (25, 3), (12, 3)
# A number, which is no part of a name such as fp64 or default-2.
NUMBER = re.compile(r"(?<![\w.-])\d[\d,.]*(?:e[+-]?\d+)?")


def where(text: str) -> str:
    """A layout in words, such as 'two MPI ranks on two nodes' for 'mpi-n2r2t1'."""
    found = layout(text)
    backend = BACKENDS[found["backend"]]
    ranks, threads, nodes = (spelled(found[name]) for name in ("ranks", "threads", "nodes"))
    if not backend.several_ranks:
        one = "one GPU" if backend.device == "gpu" else "one core"
        return one if found["threads"] == 1 else f"{threads} threads"
    on = f" on {nodes} nodes" if found["nodes"] > 1 else ""
    plural = "s" if found["ranks"] > 1 else ""
    if backend.device == "gpu":
        return f"{ranks} GPU{plural} ({backend.title}){on}"
    of = f" of {threads} threads" if found["threads"] > 1 else ""
    return f"{ranks} {backend.title} rank{plural}{of}{on}"


def device(text: str) -> str:
    """What a worker of a layout is: 'core' or 'GPU'."""
    return "GPU" if BACKENDS[layout(text)["backend"]].device == "gpu" else "core"


def digits(value: float) -> str:
    """A factor with three digits, or whole from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def times(factor: float) -> str:
    """A speed beside another; less than one is a slowdown: '1.5 times as fast', '2 times as long'."""
    if even(factor):
        return "as fast"
    return f"{digits(factor)} times as fast" if factor > 1 else f"{digits(1 / factor)} times as long"


def even(factor: float) -> bool:
    """Whether a factor is 1 as far as it is told."""
    return digits(max(factor, 1 / factor)) == "1"


def fast(factor: float, other: str) -> str:
    """The same as a predicate, such as 'takes 2 times as long as with one core'."""
    return f"{'is' if factor > 1 or even(factor) else 'takes'} {times(factor)} as {other}"


def takes(factor: float, most: str = "") -> str:
    """How long a step takes beside another, as a predicate; most: a word of bounds, such as 'at least'."""
    if even(factor):
        return "takes as long"
    return " ".join(filter(None, ("takes" if factor > 1 else "is", most, times(1 / factor))))


def capital(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def seeds(count: int) -> str:
    """'one seed', '3 seeds'."""
    return "one seed" if count == 1 else f"{count} seeds"


def interval(found: Estimate, words: Callable[[float], str] = digits) -> str:
    """'95 % interval 1.55 to 1.7, 5 seeds', or that there is none."""
    if found.low is None or found.high is None:
        return f"{seeds(found.n)}, no interval"
    return f"95 % interval {words(found.low)} to {words(found.high)}, {seeds(found.n)}"


def listed(words: Iterable[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def share(count: int, total: int, noun: str = "comparison") -> str:
    """'all eight comparisons', 'three of eight comparisons', 'no comparison'."""
    if not count:
        return f"no {noun}"
    if count == total:
        return f"both {noun}s" if total == 2 else f"all {spelled(total)} {noun}s"
    return f"{spelled(count)} of {spelled(total)} {noun}s"


def plain(name: str) -> str:
    """The name of a point without what stands in brackets at its end."""
    return re.sub(r" \([^()]*\)$", "", name)


def fitting(*candidates: str, limits: tuple[int, int] = SENTENCE) -> str:
    """The first of several sentences, of which each says less, that has no more words and numbers than these."""
    fits = (text for text in candidates if fit(text, limits))
    return next(fits, candidates[-1])


def fit(text: str, limits: tuple[int, int] = SENTENCE) -> bool:
    """Whether a sentence has no more words and numbers than these."""
    words = [word for word in text.split() if re.search(r"\w", word)]
    return len(words) <= limits[0] and len(NUMBER.findall(text)) <= limits[1]


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


def samples(points: pd.DataFrame, config: Config) -> str:
    """What the samples of some points are called."""
    words = {config.samples(str(name)) for name in points["workload"]}
    return words.pop() if len(words) == 1 else "samples"


def distinct(points: pd.DataFrame, config: Config, but: Iterable[str] = ()) -> pd.Series[str]:
    """What tells the points of a study apart, except the columns `but`: 'with 6 qubits'; empty if nothing does."""
    found = variants(points, config, but)
    return found.where(found == "", "with " + found)


def sentence(lead: str, clauses: Iterable[str]) -> str:
    """'LEAD: clause; clause.'"""
    return f"{lead[:1].upper()}{lead[1:]}: {'; '.join(clauses)}."
