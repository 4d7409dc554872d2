"""Builds propagators from a usual name, or from a config's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import asdict

from ketscale.config import checked, suggestion
from ketscale.engines import registered
from ketscale.engines.dynamics.registry import SIMULATORS, DynamicsMethod
from ketscale.engines.dynamics.settings import DynamicsSimulator, Route
from ketscale.errors import UserError

if TYPE_CHECKING:
    from ketscale.engines.dynamics.propagators import Propagator


def propagator(name: str, dt: float | None = None, route: Route = "auto", strict: bool = True) -> Propagator:
    """The propagator of a usual name (`registry.SIMULATORS`).

    dt: step of an integrator, a time in the same unit as the tasks' duration. route: of those that evolve a whole batch at
        once, see `propagators.Batched`. strict: whether impossible values are refused, see `propagators.Propagator`.

    Raises:
        UserError: there is no such name, an integrator has no step, `exact` has one, or the propagator has no routes and is
            given one.
    """
    if name not in SIMULATORS:
        raise UserError(f"no propagator is called {name}{suggestion(name, list(SIMULATORS))}")
    method = SIMULATORS[name]
    if not method.routes and route != "auto":
        raise UserError(f"route: the propagator {name} has none; leave it out")
    settings = DynamicsSimulator(device=method.device, batching=method.batching, dt=dt, route=route)
    return _built(method, settings, strict)


def build_propagator(name: str, settings: DynamicsSimulator) -> Propagator:
    """The propagator that the config calls `name`, for training: see `Propagator` on impossible values.

    Raises:
        UserError: the settings do not go together.
    """
    checked(settings, f"simulators.{name}")
    assert settings.method is not None  # checked
    return _built(settings.method, settings, strict=False)


def _built(method: DynamicsMethod, settings: DynamicsSimulator, strict: bool) -> Propagator:
    known = {**asdict(settings), "scheme": settings.device, "strict": strict}
    made: Propagator = registered.build(method.implementation, known)
    return made
