"""Words for what the tables say: layouts, factors, what points share, and sentences that keep their limits."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ketscale.analysis.heavy import pd
from ketscale.config import Config
from ketscale.grid import BACKENDS, layout
from ketscale.words import spelled

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
        if backend.device == "gpu":
            return "one GPU" + (f" with {threads} threads" if found["threads"] > 1 else "")
        return "one core" if found["threads"] == 1 else f"{threads} threads"
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


def shown(value: object, factor: float = 1.0) -> str:
    """A value of a table: numbers with four digits, and without decimals from 10,000 on; empty if it is missing."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        return {"True": "yes", "False": "no"}.get(str(value), str(value))
    number = float(value) * factor
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 1e4 else f"{number:,.4g}"


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


def listed(words: Iterable[str]) -> str:
    """'a', 'a and b', 'a, b and c'; '' of none."""
    *first, last = (*words,) or ("",)
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


def data(workload: str, config: Config) -> str:
    """A workload, and whether its data are generated, which shows only that a model trains."""
    return f"{workload} (generated data)" if config.block(workload)[1].generated else workload


def modes(config: Config, *studies: str) -> list[str]:
    """What is to be said of the numbers of some studies' simulators, such as 'noisy: 100 shots, noisy value, exact gradient'."""
    names = {run.simulator for study in config.studies if study.name in studies for run in study.runs}
    known = ((name, config.simulators[name].mode) for name in sorted(names) if name in config.simulators)
    return [f"{name}: {mode}" for name, mode in known if mode]


def samples(points: pd.DataFrame, config: Config) -> str:
    """What the samples of some points are called."""
    words = {config.samples(str(name)) for name in points["workload"]}
    return words.pop() if len(words) == 1 else "samples"
