"""What a step costs against its work, and the regime of each point of a sweep.

dispatch: the fixed time is the larger part, so that more work costs little. cache: the states fit into the last-level
cache, and each update of an amplitude costs the same time. memory: they do not fit, and have a time per update of their
own, usually a longer one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ketscale.analysis.collected import Collected
from ketscale.analysis.laws.known import cost
from ketscale.analysis.laws.law import Fit
from ketscale.analysis.laws.series import Place, Series, common_size
from ketscale.config import Family
from ketscale.grid import BACKENDS, Run, Study

# Bytes of a complex amplitude.
COMPLEX = {"fp32": 8, "amp": 8, "fp64": 16}


def load(family: Family, sizes: Mapping[str, int], batch: int, precision: str) -> tuple[float, float] | None:
    """A step's work, in updates of an amplitude by a gate, and the bytes of its states, of one circuit a sample.

    The work is batch * 2^qubits * gates, where gates are relative: qubits * layers or segments. None for a classical
    model. In families that say what the amplitudes of a sample are (`Family.work`), the number of gates is fixed.
    """
    if not sizes.get("qubits"):
        return None
    amplitudes = batch * (family.work(sizes) if family.work else 2.0 ** sizes["qubits"])
    gates = 1 if family.work else math.prod(sizes.values())
    return amplitudes * gates, amplitudes * COMPLEX[precision]


def fits(study: Study, varies: str, collected: Collected) -> Iterator[Fit]:
    """The cost along each line of a sweep of one axis."""
    lines: dict[tuple[Any, ...], dict[int, Place]] = {}
    for group in collected.groups(study):
        first = group[0]
        family, sizes = collected.config.family(first["workload"]), collected.config.sizes(Run.of(first))
        own = {"batch": first["batch"], **sizes}
        loaded = load(family, sizes, first["batch"], first["precision"])
        if varies not in own or loaded is None:
            continue
        # Where a larger batch needs a larger model, the two grow together.
        moving = {varies, "batch"} if family.work else {varies}
        fixed = tuple((name, value) for name, value in own.items() if name not in moving)
        alike = tuple(first[name] for name in ("workload", "model", "simulator", "layout", "protocol"))
        work, size = loaded
        place = Place(f"{varies} {own[varies]}", (work, size / first["nodes"]), group)
        lines.setdefault((*alike, fixed), {})[own[varies]] = place
    for places in lines.values():
        yield _fit(list(places.values()))


def _fit(places: Sequence[Place]) -> Fit:
    firsts = [place.rows[0] for place in places]
    first, batches = firsts[0], {row["batch"] for row in firsts}
    identity = {
        **{name: first[name] for name in ("workload", "model", "simulator", "protocol", "hardware", "code")},
        "size": common_size(row["size"] for row in firsts),
        "batch": batches.pop() if len(batches) == 1 else None,
        "series": first["layout"],
    }
    series = Series.of(places, identity)
    # The record has the processor's caches alone.
    cache = None if BACKENDS[first["backend"]].device == "gpu" else first["cache_bytes"]
    if cache is None:
        found, cache = _with_break(series)
    else:
        found = series.fit(cost(cache if _splits(series, cache) else None))
    return replace(found, regimes=_regimes(series, found, cache))


def _splits(series: Series, limit: float) -> bool:
    """Whether some states are larger than the limit and others are not."""
    return len({place.variables[1] > limit for place in series.places}) == 2


def _with_break(series: Series) -> tuple[Fit, float | None]:
    """The fit without a break; if it is rejected, that with the break that fits best, where it is accepted."""
    straight = series.fit(cost(None))
    sizes = sorted({place.variables[1] for place in series.places})
    if straight.verdict != "rejected":
        return straight, None
    # One point beyond the break would fit any slope.
    limits = [math.sqrt(low * high) for low, high in pairwise(sizes[1:-1])]
    broken = {limit: series.fit(cost(limit, chosen=1)) for limit in limits}
    accepted = {
        limit: found for limit, found in broken.items() if found.verdict == "accepted" and _slower(found)
    }
    if not accepted:
        return straight, None
    best = max(accepted, key=lambda limit: accepted[limit].p_value or 0.0)
    return accepted[best], best


def _slower(found: Fit) -> bool:
    """Whether an amplitude takes longer beyond the break."""
    _, inside, beyond = found.estimates
    return beyond.value > inside.value


def _regimes(series: Series, found: Fit, cache: float | None) -> str:
    """The regime of each point, such as 'dispatch: 4 to 6; cache: 8'; '' unless the law is accepted."""
    if found.verdict != "accepted":
        return ""
    fixed, *slopes = (estimate.value for estimate in found.estimates)
    named: dict[str, list[str]] = {}
    for place in series.places:
        work, size = place.variables
        beyond = cache is not None and size > cache
        slope = slopes[-1] if beyond else slopes[0]
        where = "cache or memory" if cache is None else "memory" if beyond else "cache"
        regime = "dispatch" if fixed > slope * work else where
        named.setdefault(regime, []).append(place.name.split()[-1])
    # The places are in the order of their work, and so are the regimes.
    ends = {regime: dict.fromkeys((values[0], values[-1])) for regime, values in named.items()}
    return "; ".join(f"{regime}: {' to '.join(values)}" for regime, values in ends.items())
