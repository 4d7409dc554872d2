"""The propagators that can be chosen. Imports nothing heavy, since configs are checked with it at every start."""

from __future__ import annotations

from typing import Literal, NamedTuple

Scheme = Literal["exact", "rk4", "euler"]
# Of the fidelity with a pure target; see `states.fidelity`.
Form = Literal["overlap", "squared"]
Route = Literal["auto", "compiled", "torch"]
# When what is made of tasks' numbers is created: of all tasks at once; or of each by itself, once (published, with its
# cache) or again in each evaluation (without).
Creation = Literal["batch", "once", "again"]

# More steps in a segment are taken for a mistake in `dt`: a single pulse would take minutes.
MOST_STEPS = 1_000_000


class Method(NamedTuple):
    """How a segment is evolved, and whether all tasks of a batch are evolved at once or one after the other.

    exact: the exponential of the segment's Liouvillian. rk4, euler: integrators with a step size.
    """

    scheme: Scheme
    batching: Literal["broadcast", "loop"]

    @property
    def exact(self) -> bool:
        """Whether its only error is rounding."""
        return self.scheme == "exact"


# The usual method of each propagator, by its name.
USUAL: dict[str, Method] = {
    "exact": Method("exact", "broadcast"),
    "rk4": Method("rk4", "broadcast"),
    "euler": Method("euler", "broadcast"),
    "literal": Method("rk4", "loop"),
    "literal-euler": Method("euler", "loop"),
}
