"""Builds the model of a run from its settings, and writes its weights with all that is needed to build it again.

Families import this; `ketscale.problems.library`, which knows all families, finds a model by its kind or its run.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ketscale.config import FileModel, Model, OwnCode, Settings
from ketscale.config.own_model import content_hash
from ketscale.errors import UserError, in_words, short
from ketscale.grid import canonical

if TYPE_CHECKING:
    import torch
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
        UserError: that is not the code of the settings, or the model refuses a value.
        Exception: whatever a user's own code raises.
    """
    known = {
        **settings.sizes,
        "dropout": settings.protocol.dropout,
        "simulator": simulator,
        **arguments,
    }
    if isinstance(settings.model, FileModel):
        return _of_file(settings, settings.model, own, known)
    model = implementation(type(settings.model))
    known = {**settings.model.content(), **known}
    return model(**{name: value for name, value in known.items() if takes(settings, name)})


def takes(settings: Settings, argument: str) -> bool:
    """Whether the constructor of the run's model names this argument."""
    if isinstance(settings.model, FileModel):
        return settings.model.takes(argument)
    return argument in inspect.signature(implementation(type(settings.model))).parameters


def implementation(settings: type[Model]) -> type[nn.Module]:
    """The torch module of a kind of model."""
    found: type[nn.Module] = pkgutil.resolve_name(settings.implementation)
    return found


def _of_file(
    settings: Settings, model: FileModel, own: OwnCode | None, known: Mapping[str, Any]
) -> nn.Module:
    """A model of a user's own file. All that its constructor may draw at random begins with the run's seed."""
    import torch
    from torch import nn

    from ketscale.layers.dropout import SampleDropout
    from ketscale.problems import importer

    seed = settings.run.seed
    for name, hashed in model.reads.items():
        if content_hash(name) != hashed:
            raise UserError(
                f"{model.file}: {name} is not as the settings of this run have it; start the run again, or bring it back"
            )
    module = importer.imported(own or OwnCode.read(model.file), model.code)
    given = {name: value for name, value in {**known, "seed": seed}.items() if model.takes(name)}
    with importer.running(seed):
        try:
            made = getattr(module, model.class_)(**given, **copy.deepcopy(model.settings))
        except TypeError as error:
            if in_words(error) is not None:
                raise
            # No line of the user's has run, as if the class were abstract or its arguments had no names.
            raise UserError(f"{model.file}: {model.class_} cannot be made ({short(error)})") from None
        reseeded = torch.initial_seed() != seed
    fault = _fault(made, settings)
    if reseeded:
        fault = "sets torch's seed, so that all seeds of a study would begin alike; leave that out"
    if fault:
        raise UserError(f"{model.file}: {model.class_} {fault}")
    for path, child in list(made.named_modules(remove_duplicate=False)):
        if type(child) is nn.Dropout:
            # Its masks would depend on how ranks share a batch, and a resumed run would have others.
            parent, _, name = path.rpartition(".")
            setattr(made.get_submodule(parent), name, SampleDropout(child.p))
    return made


def _fault(made: object, settings: Settings) -> str | None:
    """Why a model of a user's own cannot be trained, and what to do."""
    import torch
    from torch import nn
    from torch.nn.parameter import is_lazy

    if not isinstance(made, nn.Module):
        return "is no torch.nn.Module; derive it from that"
    if type(made).forward is nn.Module.forward:
        return "has no forward(self, x); write it"
    tensors = [*made.parameters(), *made.buffers()]
    if any(map(is_lazy, tensors)):
        return "has parameters without a shape, as nn.LazyLinear has; give their sizes, of which `inputs` is the first"
    if not settings.model.fitted and not any(tensor.requires_grad for tensor in tensors):
        return "has no parameter to train; give it one, or a method fit (ketscale.Fitted)"
    if any(tensor.is_meta for tensor in tensors):
        return "has parameters without values, on the device meta; make them on the usual one"
    if not all(isinstance(each, torch.Tensor) for each in made.state_dict().values()):
        return "keeps other things than tensors in its state (get_extra_state); leave them out"
    norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    if settings.run.ranks > 1 and any(isinstance(each, norms) for each in made.modules()):
        return (
            "has batch normalisation, whose results depend on how ranks share a batch: train it on one rank, or take "
            "nn.LayerNorm or nn.GroupNorm"
        )
    return None


def saved(settings: Settings, problem: Problem) -> bytes:
    """The model's weights as the bytes of a safetensors file, whose metadata say how to build the model.

    The metadata have the digest of both, so that a damaged file is not taken for another model.

    A complex tensor is written as real pairs (..., 2), since the format has no complex128.
    """
    import torch
    from safetensors.torch import save

    about = {
        "settings": settings.content,
        "arguments": dict(problem.arguments),
        "preprocessing": msgspec.to_builtins(problem.preprocessing),
    }
    # Copies: the format takes no tensor twice, as a layer has that is used under two names.
    state = {
        name: tensor.detach().to("cpu", copy=True) for name, tensor in problem.model.state_dict().items()
    }
    real = {
        name: (torch.view_as_real(tensor) if tensor.is_complex() else tensor).contiguous()
        for name, tensor in state.items()
    }
    return save(real, {INFO: json.dumps({**about, "digest": digest(about, real)}, sort_keys=True)})


def digest(about: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 of a trained model: of all that builds it, and of names, types, shapes and values of its weights."""
    from safetensors.torch import save

    return hashlib.sha256(canonical(about).encode() + save(dict(weights))).hexdigest()
