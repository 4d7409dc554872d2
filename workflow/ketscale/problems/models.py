"""Builds models from a run's settings or from arguments, saves them and loads them again."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketscale.config import Model, Settings, suggestion
from ketscale.engines.circuits.settings import CircuitSimulator
from ketscale.errors import UserError
from ketscale.grid import RECORD
from ketscale.problems.registry import FAMILIES

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ketscale.problems.problem import Problem

# The file of trained weights in a run's folder, and the key of its metadata that says how to build the model.
WEIGHTS = "model.safetensors"
_INFO = "ketscale"


def construct(kind: str, **arguments: Any) -> nn.Module:
    """The model of a kind, such as 'hydra', with these arguments and defaults for the rest.

    Raises:
        UserError: there is no such kind, or the model refuses an argument's value.
        TypeError: the model has no such argument.
    """
    kinds = {name: model for family in FAMILIES.values() for name, model in family.models.items()}
    if kind not in kinds:
        raise UserError(f"no kind of model is called {kind}{suggestion(kind, list(kinds))}")
    return _implementation(kinds[kind])(**arguments)


def of_run(settings: Settings, device: torch.device, **arguments: Any) -> nn.Module:
    """The model of a run. Its circuits run on `device`, the model's, unless the simulator's placement says otherwise.

    arguments: arguments of the constructor that the data decide, such as inputs and outputs.

    Raises:
        UserError: as for `build_simulator`, or the model refuses a size.
    """
    from ketscale.engines.circuits.factory import build_simulator

    simulator = None
    if settings.simulator is not None:
        assert isinstance(settings.simulator, CircuitSimulator)
        simulator = build_simulator(settings.run.simulator, settings.simulator, device)
    return _of_settings(settings, simulator, arguments)


def _of_settings(settings: Settings, simulator: Any, arguments: dict[str, Any]) -> nn.Module:
    """The model, called with those of the known settings that its constructor names."""
    implementation = _implementation(type(settings.model))
    known = {
        **settings.model.content(),
        **settings.sizes,
        "dropout": settings.protocol.dropout,
        "simulator": simulator,
        **arguments,
    }
    taken = inspect.signature(implementation).parameters
    return implementation(**{name: value for name, value in known.items() if name in taken})


def saved(settings: Settings, problem: Problem) -> bytes:
    """The model's weights as the bytes of a safetensors file, whose metadata say how to build the model."""
    from safetensors.torch import save

    about = {"settings": settings.content, "arguments": dict(problem.arguments)}
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in problem.model.state_dict().items()}
    return save(state, {_INFO: json.dumps(about, sort_keys=True)})


def load(run: Path | str, simulator: Any = None) -> nn.Module:
    """The trained model of a run, in evaluation mode, on the CPU.

    run: the run's folder, its record, or its model.safetensors.
    simulator: a name or an object that evaluates its circuits; None for fused, whatever the model was trained with.

    Raises:
        UserError: there is no trained model, or the file is damaged or from another version.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(run)
    if path.name != WEIGHTS:
        path = (path.parent if path.name == RECORD else path) / WEIGHTS
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {})[_INFO])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        settings = Settings.of(about["settings"], FAMILIES)
    except FileNotFoundError:
        raise UserError(
            f"{path}: there is no trained model; train the run with keep_model: true in its protocol"
        ) from None
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise UserError(f"{path}: is not a model of this version ({error}); train the run again") from None
    model = _of_settings(settings, simulator, about["arguments"])
    dtype = next((tensor.dtype for tensor in state.values() if tensor.is_floating_point()), None)
    model = model.to(dtype) if dtype is not None else model
    model.load_state_dict(state)
    return model.eval()


def _implementation(settings: type[Model]) -> type[nn.Module]:
    module, _, name = settings.implementation.partition(":")
    found: type[nn.Module] = getattr(importlib.import_module(module), name)
    return found
