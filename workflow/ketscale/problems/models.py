"""Models by name: their torch modules, built from a run's settings or from arguments."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ketscale.config import Model, Settings, suggestion
from ketscale.errors import UserError
from ketscale.problems.registry import FAMILIES

if TYPE_CHECKING:
    import torch
    from torch import nn


def construct(kind: str, **arguments: Any) -> nn.Module:
    """The model of a kind, such as 'hydra', with these arguments and its own defaults.

    Raises:
        UserError: there is no such kind, or an argument does not fit it.
    """
    kinds = {name: model for family in FAMILIES.values() for name, model in family.models.items()}
    if kind not in kinds:
        raise UserError(f"no kind of model is called {kind}{suggestion(kind, list(kinds))}")
    return _implementation(kinds[kind])(**arguments)


def of_run(settings: Settings, device: torch.device, **arguments: Any) -> nn.Module:
    """The model of a run, whose circuits run where its simulator places them for a model on `device`.

    arguments: what the data decide, such as inputs and outputs.
    """
    given = {**settings.model.content(), **arguments, "dropout": settings.protocol.dropout}
    if settings.simulator is not None:
        from ketscale.engines.circuits.create import create

        simulator = create(settings.run.simulator, settings.simulator.content(), device)
        given |= {**settings.sizes, "simulator": simulator}
    return _implementation(type(settings.model))(**given)


def _implementation(settings: type[Model]) -> type[nn.Module]:
    module, _, name = settings.implementation.partition(":")
    found: type[nn.Module] = getattr(importlib.import_module(module), name)
    return found
