"""Builds propagators by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ketscale.config import suggestion
from ketscale.engines.dynamics.methods import USUAL, Route
from ketscale.errors import UserError

if TYPE_CHECKING:
    from ketscale.engines.dynamics.propagators import Propagator


def propagator(name: str, dt: float | None = None, route: Route = "auto") -> Propagator:
    """The propagator of a usual name (`methods.USUAL`).

    dt: step of an integrator, in units of the tasks' duration. route: of those that evolve a whole batch at once, see
        `propagators.Batched`.

    Raises:
        UserError: there is no such name, an integrator has no step, `exact` has one, or the loop is given a route.
    """
    if name not in USUAL:
        raise UserError(f"no propagator is called {name}{suggestion(name, list(USUAL))}")
    method = USUAL[name]
    if method.batching == "broadcast":
        from ketscale.engines.dynamics.propagators import Batched

        return Batched(method.scheme, dt, route)
    if route != "auto":
        raise UserError(f"route: {name} has none; leave it out")
    from ketscale.engines.dynamics.literal import Literal

    return Literal(method.scheme, dt)
