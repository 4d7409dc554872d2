"""Builds simulators from a config's settings, from a usual name, or from a model's argument.

PennyLane, Qiskit and torch are imported only when they are used, so that checks of configs stay fast.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ketscale.engines.circuits.methods import BOUND_TO, PLACEMENTS, ROUTES, SUPPORTED, USUAL, Method
from ketscale.errors import UserError

if TYPE_CHECKING:
    import torch

    from ketscale.engines.circuits.simulator import Simulator


def build_simulator(name: str, settings: Mapping[str, str], device: torch.device) -> Simulator:
    """The simulator that the config calls `name`, for a model whose tensors are on `device`.

    settings: the config's block, with the keys `device`, `gradient`, `batching` and `placement`, and optionally
        `route` for `fused`.

    Raises:
        UserError: the settings are not supported together, or a package or GPU that they need is missing.
    """
    method = Method(settings["device"], settings["gradient"], settings["batching"])
    if method not in SUPPORTED:
        choices = "; ".join(", ".join(m) for m in sorted(SUPPORTED))
        raise UserError(
            f"simulator {name!r}: no {', '.join(method)}; choose device, gradient and batching from\n{choices}"
        )
    route = settings.get("route")
    if route is not None and (method.device != "fused" or route not in ROUTES):
        raise UserError(
            f"simulator {name!r}: only fused has a route, one of {', '.join(ROUTES)}; not {route!r}"
        )
    from ketscale.engines.circuits.spanned import Spanned

    simulator = Spanned(_build(method, route or ROUTES[0]))
    target = _target(name, method, settings["placement"], device)
    if target == device:
        return simulator
    from ketscale.engines.circuits.placement import Placed

    return Placed(simulator, target)


def named_simulator(name: str) -> Simulator:
    """The simulator of a usual name (`methods.USUAL`), wherever a model's tensors are.

    Raises:
        UserError: there is no such name, or a package that it needs is not installed.
    """
    method = USUAL.get(name)
    if method is None:
        close = difflib.get_close_matches(name.lower(), USUAL, n=1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise UserError(f"unknown simulator {name!r}: choose one of {', '.join(USUAL)}{meant}")
    import torch

    from ketscale.engines.circuits.placement import Placed
    from ketscale.engines.circuits.spanned import Spanned

    simulator = Spanned(_build(method, ROUTES[0]))
    kind = BOUND_TO.get(method.device)
    return Placed(simulator, torch.device(kind)) if kind else simulator


def resolve_simulator(given: Simulator | str | None) -> Simulator:
    """The simulator for a model's argument: a simulator, a usual name, or None for `fused`.

    Raises:
        UserError: as for `named_simulator`, or the argument is not a simulator.
    """
    if given is None or isinstance(given, str):
        return named_simulator("fused" if given is None else given)
    from ketscale.engines.circuits.simulator import Simulator

    if not isinstance(given, Simulator) or isinstance(given, type):
        raise UserError(
            f"simulator must be a name, an object with state and expval, or None, not {given!r}: "
            f"names are {', '.join(USUAL)}"
        )
    return given


def _target(name: str, method: Method, placement: str, device: torch.device) -> torch.device:
    """The device that the circuits' tensors must be on."""
    import torch

    if placement not in PLACEMENTS:
        raise UserError(
            f"simulator {name!r}: placement must be one of {', '.join(PLACEMENTS)}, not {placement!r}"
        )
    if placement == "gpu" and not torch.cuda.is_available():
        raise UserError(f"simulator {name!r}: placement 'gpu' needs a CUDA GPU and torch sees none")
    kind = {"model": device.type, "cpu": "cpu", "gpu": "cuda"}[placement]
    needed = BOUND_TO.get(method.device, kind)
    if needed != kind:
        where = {"cpu": "cpu", "cuda": "gpu"}[needed]
        raise UserError(
            f"simulator {name!r}: {method.device} computes on the {where} only: set placement: {where}"
        )
    return device if kind == device.type else torch.device(kind)


def _build(method: Method, route: str) -> Simulator:
    if method.device == "fused":
        from ketscale.engines.circuits.fused import Fused

        fused = Fused(route)
        if method.batching == "broadcast":
            return fused
        from ketscale.engines.circuits.looped import Looped

        return Looped(fused)
    if method.device == "qiskit":
        from ketscale.engines.circuits.qiskit import Qiskit

        return Qiskit()
    from ketscale.engines.circuits.pennylane import PennyLane

    return PennyLane(method)
