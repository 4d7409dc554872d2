"""Builds simulators from a config's settings, from a usual name, or from a model's argument.

PennyLane, Qiskit and torch are imported only when they are used, so that checks of configs stay fast.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from ketscale.config import checked
from ketscale.config.circuits import CircuitSimulator
from ketscale.engines.circuits.registry import SIMULATORS
from ketscale.errors import UserError

if TYPE_CHECKING:
    import torch

    from ketscale.engines.circuits.simulator import Simulator


def build_simulator(name: str, settings: CircuitSimulator, device: torch.device) -> Simulator:
    """The simulator that the config calls `name`, for a model whose tensors live on `device`.

    Raises:
        UserError: the settings cannot be combined, or what they need is not here.
    """
    checked(settings, f"simulators.{name}")
    simulator = _built(settings)
    target = _target(name, settings, device)
    if target == device:
        return simulator
    from ketscale.simulators.placement import Placed

    return Placed(simulator, target)


def named_simulator(name: str) -> Simulator:
    """The simulator of a usual name (`registry.SIMULATORS`), wherever a model's tensors are.

    Raises:
        UserError: there is no such name, or a package that it needs is not installed.
    """
    if name not in SIMULATORS:
        close = difflib.get_close_matches(name.lower(), SIMULATORS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UserError(f"unknown simulator {name!r}: choose one of {', '.join(SIMULATORS)}{hint}")
    import torch

    from ketscale.simulators.placement import Placed

    simulator = _built(CircuitSimulator.of_name(name))
    processor = SIMULATORS[name].processor
    return Placed(simulator, torch.device(processor)) if processor else simulator


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
            f"names are {', '.join(SIMULATORS)}"
        )
    return given


def _target(name: str, settings: CircuitSimulator, device: torch.device) -> torch.device:
    """The device that the circuits' tensors must be on."""
    import torch

    if settings.placement == "gpu" and not torch.cuda.is_available():
        raise UserError(f"simulator {name!r}: placement 'gpu' needs a CUDA GPU and torch sees none")
    kind = {"model": device.type, "cpu": "cpu", "gpu": "cuda"}[settings.placement]
    processor = settings.processor or kind
    if processor != kind:
        where = {"cpu": "cpu", "cuda": "gpu"}[processor]
        raise UserError(
            f"simulator {name!r}: {settings.device} computes on the {where} only: set placement: {where}"
        )
    return device if kind == device.type else torch.device(kind)


def _built(settings: CircuitSimulator) -> Simulator:
    """The simulator of these settings, with its time recorded."""
    from ketscale.simulators.operators import of_settings
    from ketscale.simulators.spanned import Spanned

    built = of_settings(settings)
    # What draws, or differs in training, is no operator of torch's compilers.
    return Spanned(built, settings if settings.noise_in_training and not settings.random else None)
