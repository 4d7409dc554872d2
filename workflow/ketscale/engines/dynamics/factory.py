"""Builds propagators from a usual name, or from a config's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ketscale.config import checked, suggestion
from ketscale.engines.dynamics.methods import USUAL, Method, Route
from ketscale.engines.dynamics.settings import DynamicsSimulator
from ketscale.errors import UserError

if TYPE_CHECKING:
    from ketscale.engines.dynamics.propagators import Propagator


def propagator(name: str, dt: float | None = None, route: Route = "auto", strict: bool = True) -> Propagator:
    """The propagator of a usual name (`methods.USUAL`).

    dt: step of an integrator, a time in the same unit as the tasks' duration. route: of those that evolve a whole batch at
        once, see `propagators.Batched`. strict: whether impossible values are refused, see `propagators.Propagator`.

    Raises:
        UserError: there is no such name, an integrator has no step, `exact` has one, or the loop is given a route.
    """
    if name not in USUAL:
        raise UserError(f"no propagator is called {name}{suggestion(name, list(USUAL))}")
    return _build(USUAL[name], dt, route, cache=False, strict=strict)


def build_propagator(name: str, settings: DynamicsSimulator) -> Propagator:
    """The propagator that the config calls `name`, for training: see `Propagator` on impossible values.

    Raises:
        UserError: the settings do not go together.
    """
    checked(settings, f"simulators.{name}")
    return _build(settings.method, settings.dt, settings.route, settings.cache, strict=False)


def _build(method: Method, dt: float | None, route: Route, cache: bool, strict: bool) -> Propagator:
    if method.batching == "broadcast":
        from ketscale.engines.dynamics.propagators import Batched

        return Batched(method.scheme, dt, route, strict)
    if route != "auto":
        raise UserError("route: the published loop has none; leave it out")
    from ketscale.engines.dynamics.literal import Literal

    return Literal(method.scheme, dt, cache, strict)
