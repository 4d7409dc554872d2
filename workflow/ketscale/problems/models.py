"""Builds the model of a run from its settings, and writes its weights with all that is needed to build it again.

Families import this; `ketscale.problems.library`, which knows all families, finds a model by its kind or its run.
"""

from __future__ import annotations

import copy
import inspect
import json
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ketscale.config import FileModel, Model, OwnCode, Settings
from ketscale.config.own_code import content_hash
from ketscale.errors import UserError, short

if TYPE_CHECKING:
    from torch import nn

    from ketscale.problems.problem import Problem

# The file of trained weights in a run's folder, and the key of its metadata that says how to build the model.
WEIGHTS = "model.safetensors"
INFO = "ketscale"


def of_settings(
    settings: Settings, simulator: Any, own: OwnCode | None = None, **arguments: Any
) -> nn.Module:
    """The model of a run. Its constructor gets the known settings that it has arguments for.

    They are the model's settings, its sizes, `dropout`, `simulator` (an object, a name or None) and `arguments`. A
    trained model is built in the same way when it is loaded.

    own: the code of a model in a file; None reads the file that the settings name.

    Raises:
        UserError: that is not the code of the settings, the model has no simulator but gets one, or it rejects a value.
        Exception: whatever a user's own code raises.
    """
    settings_of = {
        **settings.sizes,
        "dropout": settings.protocol.dropout,
        "simulator": simulator,
        **arguments,
    }
    if isinstance(settings.model, FileModel):
        return _of_file(settings, settings.model, own, settings_of)
    model = implementation(type(settings.model))
    settings_of, names = {**settings.model.content(), **settings_of}, inspect.signature(model).parameters
    if simulator is not None and "simulator" not in names:
        raise UserError(f"{settings.run.model} has no simulator; leave it out")
    return model(**{name: value for name, value in settings_of.items() if name in names})


def implementation(settings: type[Model]) -> type[nn.Module]:
    """The torch module of a kind of model."""
    kind: type[nn.Module] = pkgutil.resolve_name(settings.implementation)
    return kind


def _of_file(
    settings: Settings, model: FileModel, own: OwnCode | None, available: Mapping[str, Any]
) -> nn.Module:
    """A model of a user's own file. All that its constructor may draw at random begins with the run's seed."""
    import torch

    from ketscale.problems import importer
    from ketscale.problems.fitted import Fitted

    seed, where = settings.run.seed, f"{model.file}: {model.class_}"
    for name, hashed in model.reads.items():
        if content_hash(name) != hashed:
            raise UserError(f"{model.file}: {name} is not as this run's settings have it")
    own_class = importer.member(own or OwnCode.read(model.file), model.code, model.class_)
    names = inspect.signature(own_class).parameters
    unused = [f"{name}: 0" for name, size in settings.sizes.items() if size and name not in names]
    unused += ["simulator: none"] * (available["simulator"] is not None and "simulator" not in names)
    unused += ["dropout: 0"] * (settings.protocol.dropout > 0 and "dropout" not in names)
    if unused:
        # Runs would be named by what makes no difference.
        raise UserError(f"{where} does not name what it gets: give it {', '.join(unused)}, or add arguments")
    if "simulator" in names and settings.simulator is None and settings.family.simulators:
        raise UserError(f"{where} needs a simulator, so it cannot be none; name one of simulators")
    arguments = {name: value for name, value in {**available, "seed": seed}.items() if name in names}
    try:
        inspect.signature(own_class).bind(**arguments, **model.settings)
    except TypeError as error:
        raise UserError(f"{where}: {short(error)}") from None
    with importer.running(seed):
        module = own_class(**arguments, **copy.deepcopy(model.settings))
        reseeded = torch.initial_seed() != seed
    if not isinstance(module, torch.nn.Module):
        raise UserError(f"{where} is no torch.nn.Module; derive it from that")
    protocol = settings.protocol
    if isinstance(module, Fitted) != protocol.fitted:
        how = "a protocol without steps and epochs" if isinstance(module, Fitted) else "steps or epochs"
        raise UserError(f"{where} needs {how}: it is {'a' if isinstance(module, Fitted) else 'no'} Fitted")
    if reseeded:
        raise UserError(f"{where} sets torch's seed, so all seeds would begin alike; leave that out")
    return module


def saved(settings: Settings, problem: Problem) -> bytes:
    """The model's weights as the bytes of a safetensors file, whose metadata say how to build the model.

    A complex tensor is written as real pairs (..., 2), since the format has no complex128.
    """
    import torch
    from safetensors.torch import save

    about = {
        "settings": settings.content,
        "arguments": dict(problem.arguments),
        "preprocessing": msgspec.to_builtins(problem.preprocessing),
    }
    # Copies: the format stores no tensor twice, as a layer has that is used under two names.
    state = {
        name: tensor.detach().to("cpu", copy=True) for name, tensor in problem.model.state_dict().items()
    }
    real = {
        name: (torch.view_as_real(tensor) if tensor.is_complex() else tensor).contiguous()
        for name, tensor in state.items()
    }
    return save(real, {INFO: json.dumps(about, sort_keys=True)})
