"""The propagators, one line each, and limits. Imports nothing heavy, since configs are checked with it at every start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Batching = Literal["broadcast", "loop"]


@dataclass(frozen=True)
class DynamicsMethod:
    """A way to evolve tasks.

    name: its usual name, in Python. device, batching: the settings that choose it in a config; broadcast: all tasks of a
    batch at once, loop: one after the other. implementation: what builds a `propagators.Propagator`, as
    'package.module:Name'; it takes those of the settings, of `scheme` (the device) and of `strict` that it names as arguments.
    exact: whether its only error is rounding; otherwise it has steps of length `dt` and a tolerance. routes: whether it takes
    the setting `route`.
    """

    name: str
    device: str
    batching: Batching
    implementation: str
    exact: bool = False
    routes: bool = False


_ROOM = "ketscale.engines.dynamics"
_BATCHED, _PUBLISHED = f"{_ROOM}.propagators:Batched", f"{_ROOM}.literal:PublishedLoop"

SIMULATORS: dict[str, DynamicsMethod] = {
    method.name: method
    for method in (
        DynamicsMethod("exact", "exact", "broadcast", _BATCHED, exact=True, routes=True),
        DynamicsMethod("rk4", "rk4", "broadcast", _BATCHED, routes=True),
        DynamicsMethod("euler", "euler", "broadcast", _BATCHED, routes=True),
        DynamicsMethod("literal", "rk4", "loop", _PUBLISHED),
        DynamicsMethod("literal-euler", "euler", "loop", _PUBLISHED),
    )
}

DEVICES = tuple(dict.fromkeys(method.device for method in SIMULATORS.values()))

Route = Literal["auto", "compiled", "torch"]
# When what is made of tasks' numbers is created: for all tasks at once; or for each by itself, once (published, with its
# cache) or again in each evaluation (without).
Creation = Literal["batch", "once", "again"]

# More steps in a segment are taken for a mistake in `dt`: a single pulse would take minutes.
MOST_STEPS = 1_000_000
# The same of `exact`, which divides long segments by itself: a single pulse needs seconds, in which a state turns by
# 350,000 radians (fp32: 220,000).
MOST_EXACT_STEPS = 100_000
