"""Models for notebooks: built by the name of their kind, or loaded as a run has trained them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ketscale import strict_json
from ketscale.config import FileModel, OwnCode, Settings, model_kinds
from ketscale.errors import UserError, damaged, short
from ketscale.files import sha256
from ketscale.grid import CODE, PREDICTIONS, PREPARED, RECORD, Run
from ketscale.measure.record import vouching
from ketscale.problems import models
from ketscale.problems.registry import FAMILIES
from ketscale.shapes import Shaped
from ketscale.words import suggestion

if TYPE_CHECKING:
    from torch import nn

    from ketscale.problems.trained import Trained


def construct(kind: str, **arguments: Any) -> nn.Module:
    """The model of a kind, such as 'hydra', with these arguments and defaults for the rest.

    Raises:
        UserError: there is no such kind, or the model refuses an argument's value.
        TypeError: the model has no such argument.

    Example:
        >>> ketscale.construct("vqc", qubits=2, inputs=8, outputs=3)(torch.zeros(5, 8)).shape
        torch.Size([5, 3])
    """
    kinds = model_kinds(FAMILIES.values())
    if kind not in kinds:
        raise UserError(f"no kind of model is called {kind}{suggestion(kind, list(kinds))}")
    return models.implementation(kinds[kind])(**arguments)


def load(
    run: Path | str, simulator: object = None, trust: bool = False, weights: Path | str | None = None
) -> Trained:
    """The trained model of a run: an estimator on samples as they were brought, and a torch module.

    run: the run's folder, its record, or its model.safetensors, which may be elsewhere. A record beside the file must vouch
    for it. simulator: a name or an object that evaluates its circuits; None for fused, whatever the model was trained with.
    trust: whether the code of a model in a file of somebody's own may run; it is the copy in the run's folder that runs.
    weights: the weights of ResNet-18 for raw images; None for those in the results folder of the run.

    Raises:
        UserError: there is no trained model, another file is named, or the file is damaged, from another version or of
            another run; or a simulator is given to a model that takes none; or `trust` is needed.

    Example:
        >>> run = "results/runs/digits/vqc/q8-l3-b64/fused/cpu-n1r1t1/quality/seed0"
        >>> model = ketscale.load(run)  # doctest: +SKIP
    """
    from safetensors import SafetensorError, safe_open

    from ketscale.problems.trained import Trained

    path = _beside(run, models.WEIGHTS)
    record = vouching(path.parent, path.name) if path.exists() else None
    try:
        with safe_open(path, framework="pt") as file:
            about = strict_json.loads((file.metadata() or {})[models.INFO])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        if about.pop("digest") != models.digest(about, state):
            raise ValueError("its digest is not that of its content")
        if "preprocessing" not in about:
            raise ValueError("it has not kept how samples are prepared")
        settings = Settings.of(about["settings"], FAMILIES, str(path))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{path}: there is no trained model; train the run with keep_model: true in its protocol"
        ) from None
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: is damaged, or not a model of this version ({short(error)}); train the run again"
        ) from None
    if _is_of_another(path.parent, settings.run) or (record and record.config != about["settings"]):
        raise UserError(f"{path}: is the model of another run, {settings.run.path}; train this one again")
    own = _copy_of(path.parent, settings.model, trust) if isinstance(settings.model, FileModel) else None
    wanted = (about["preprocessing"] or {}).get("weights_hash")
    if weights is None and wanted:
        results = Path(str(path.parent.absolute()).removesuffix(settings.run.folder))
        folder = (results / PREPARED.format(workload=settings.run.workload)).parent
        weights = next(
            (file for file in folder.glob("*/weights.safetensors") if sha256(file) == wanted), None
        )
    return Trained(about, state, simulator, own, None if weights is None else Path(weights))


def _is_of_another(folder: Path, run: Run) -> bool:
    """Whether a folder's path is that of another run; one elsewhere is of none."""
    try:
        return Run.parse(str(folder.absolute())) != run
    except UserError:
        return False


def _copy_of(folder: Path, model: FileModel, trust: bool) -> OwnCode:
    """The copy of a model's code in its run's folder, if it may run; whoever runs it checks its hash."""
    if not trust:
        raise UserError(
            f"{folder / CODE}: the model is {model.class_} of {model.file}, code that came with this run: read it, and "
            "load with trust=True to run it"
        )
    if not (folder / CODE).exists():
        raise UserError(f"{folder / CODE}: the code of the model is missing; bring it back")
    return OwnCode.unpacked(folder / CODE, model.file)


def predictions(run: Path | str) -> dict[str, Shaped[np.ndarray, "samples ..."]]:
    """The outputs of a run's trained model for the test samples: arrays by name, with a row for each sample.

    run: the run's folder, its record, or its predictions.npz.

    Raises:
        UserError: there are none, another file is named, or the record beside them does not vouch for them.

    Example:
        >>> run = "results/runs/digits/vqc/q8-l3-b64/fused/cpu-n1r1t1/quality/seed0"
        >>> logits = ketscale.predictions(run)["outputs"]  # doctest: +SKIP
    """
    path = _beside(run, PREDICTIONS)
    if not path.exists():
        raise UserError(
            f"{path}: there are no predictions; train the run with epochs, and keep_model: true in its protocol"
        )
    if vouching(path.parent, path.name) is None:
        raise UserError(
            f"{path}: there is no {RECORD} beside it to say whose predictions they are; train the run again"
        )
    with damaged(f"{path}: cannot be read", "train the run again"), np.load(path) as archive:
        return dict(archive)


def _beside(run: Path | str, name: str) -> Path:
    """A file of a run, which is named by its folder, its record or the file itself.

    Raises:
        UserError: it is named by another file.
    """
    path = Path(run)
    if path.name == name:
        return path
    if path.name == RECORD:
        return path.parent / name
    if path.exists() and not path.is_dir():
        raise UserError(f"{path}: give the run's folder, its {RECORD} or its {name}")
    return path / name
