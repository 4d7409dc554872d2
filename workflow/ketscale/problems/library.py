"""Models for notebooks: built by the name of their kind, or loaded as a run has trained them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ketscale import strict_json
from ketscale.config import Settings, model_kinds, suggestion
from ketscale.errors import UserError, short
from ketscale.files import require_regular
from ketscale.grid import RECORD
from ketscale.problems import models
from ketscale.problems.registry import FAMILIES

if TYPE_CHECKING:
    from torch import nn


def construct(kind: str, **arguments: Any) -> nn.Module:
    """The model of a kind, such as 'hydra', with these arguments and defaults for the rest.

    Raises:
        UserError: there is no such kind, or the model refuses an argument's value.
        TypeError: the model has no such argument.
    """
    kinds = model_kinds(FAMILIES.values())
    if kind not in kinds:
        raise UserError(f"no kind of model is called {kind}{suggestion(kind, list(kinds))}")
    return models.implementation(kinds[kind])(**arguments)


def load(run: Path | str, simulator: Any = None) -> nn.Module:
    """The trained model of a run, in evaluation mode, on the CPU.

    run: the run's folder, its record, or its model.safetensors.
    simulator: a name or an object that evaluates its circuits; None for fused, whatever the model was trained with.

    Raises:
        UserError: there is no trained model, or the file is damaged or from another version; or a simulator is given
            to a model that takes none.
    """
    import torch
    from safetensors import SafetensorError, safe_open

    from ketscale.problems.precision import convert

    path = Path(run)
    if path.name != models.WEIGHTS:
        path = (path.parent if path.name == RECORD else path) / models.WEIGHTS
    try:
        require_regular(path)
        with safe_open(path, framework="pt") as file:
            about = strict_json.loads((file.metadata() or {})[models.INFO])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        if about.pop("digest") != models.digest(about, state):
            raise ValueError("its digest is not that of its content")
        settings = Settings.of(about["settings"], FAMILIES, str(path))
    except FileNotFoundError:
        raise UserError(
            f"{path}: there is no trained model; train the run with keep_model: true in its protocol"
        ) from None
    except (
        OSError,
        SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:
        raise UserError(
            f"{path}: is damaged, or not a model of this version ({short(error)}); train the run again"
        ) from None
    if simulator is not None and not models.takes(settings, "simulator"):
        raise UserError(f"{path}: {settings.model_kind} takes no simulator; leave it out")
    model = models.of_settings(settings, simulator, **about["arguments"])
    dtype = next((tensor.dtype for tensor in state.values() if tensor.is_floating_point()), None)
    if dtype is not None:
        convert(model, torch.device("cpu"), dtype)
    paired = {name for name, tensor in model.state_dict().items() if tensor.is_complex()}
    model.load_state_dict(
        {name: torch.view_as_complex(tensor) if name in paired else tensor for name, tensor in state.items()}
    )
    return model.eval()
