"""Models for notebooks: built by the name of their kind, or loaded as a run has trained them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ketscale import strict_json
from ketscale.config import FileModel, OwnCode, Settings, model_kinds
from ketscale.errors import UserError, short
from ketscale.files import sha256
from ketscale.grid import CODE, PREPARED, RECORD, Run
from ketscale.measure.record import vouching
from ketscale.problems import models
from ketscale.problems.fitted import Fitted
from ketscale.problems.preprocessing import Preprocessing, of_plain
from ketscale.problems.problem import convert
from ketscale.problems.registry import FAMILIES
from ketscale.shapes import Shaped
from ketscale.words import suggestion

# Samples that are evaluated at once.
BATCH = 1024


def construct(kind: str, **arguments: Any) -> nn.Module:
    """The model of a kind, such as 'hydra', with these arguments and defaults for the rest.

    Raises:
        UserError: there is no such kind, or the model rejects an argument's value.
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

    run: the run's folder, its record, or its model.safetensors, which may be elsewhere. A record with the file must vouch
        for it.
    simulator: a name or an object that evaluates its circuits; None for fused, whatever the model was trained with.
    trust: whether the code of a model in a file of somebody's own may run; it is the copy in the run's folder that runs.
    weights: the weights of ResNet-18 for raw images; None for those in the results folder of the run.

    Raises:
        UserError: there is no trained model, or the file is damaged, from another version or of another run; or a simulator
            is given to a model without one; or `trust` is needed.

    Example:
        >>> run = "results/runs/digits/vqc/q8-l3-b64/fused/cpu-n1r1t1/quality/seed0"
        >>> model = ketscale.load(run)  # doctest: +SKIP
    """
    from safetensors import SafetensorError, safe_open

    path = Path(run)
    path = (path.parent if path.name in (RECORD, models.WEIGHTS) else path) / models.WEIGHTS
    record = vouching(path.parent, path.name) if path.exists() else None
    try:
        with safe_open(path, framework="pt") as file:
            about = strict_json.loads((file.metadata() or {})[models.INFO])
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        about.pop("digest", None)  # of earlier versions
        expected = (about["preprocessing"] or {}).get("weights_hash")
        settings = Settings.of(about["settings"], FAMILIES, str(path))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: there is no trained model; train with keep_model: true") from None
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: is no model of this version ({short(error)}); train it again") from None
    if _is_of_another(path.parent, settings.run) or (record and record.config != about["settings"]):
        raise UserError(f"{path}: is the model of another run, {settings.run.path}; train this one again")
    own = _copy_of(path.parent, settings.model, trust) if isinstance(settings.model, FileModel) else None
    if weights is None and expected:
        results = Path(str(path.parent.absolute()).removesuffix(settings.run.folder))
        folder = (results / PREPARED.format(workload=settings.run.workload)).parent
        weights = next(
            (file for file in folder.glob("*/weights.safetensors") if sha256(file) == expected), None
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
            f"{folder / CODE}: is code that came with this run; read it, and load with trust=True"
        )
    if not (folder / CODE).exists():
        raise UserError(f"{folder / CODE}: the code of the model is missing; bring it back")
    return OwnCode.unpacked(folder / CODE, model.file)


class Trained(nn.Module):
    """A trained model, in evaluation mode, on the CPU.

    It pickles, `torch.save` and `torch.export` take it, and `torch.onnx.export` does if it has no circuits.

    Attributes:
        module: the model itself, as its class made it.
        classes: the names of the classes; none of a regression.
        metric: the name of the metric that models of its study are compared by.
        preprocessing: what turns raw samples into inputs; None for families without samples of a user's.

    Example:
        >>> model = ketscale.load(run)  # doctest: +SKIP
        >>> model.predict(pandas.read_csv("new.csv"))  # doctest: +SKIP
        array(['upper', 'lower'], dtype='<U5')
    """

    def __init__(
        self,
        about: Mapping[str, Any],
        state: Mapping[str, torch.Tensor],
        simulator: object = None,
        own: OwnCode | None = None,
        weights: Path | None = None,
    ) -> None:
        """Build the model again.

        about: how, as `models.saved` keeps it. state: its weights, complex ones maybe as pairs. simulator, weights: see
        `ketscale.load`. own: the code of a model in a user's file.
        """
        super().__init__()
        self._rebuilt_from = about, simulator, own, weights
        settings = Settings.of(about["settings"], FAMILIES, "settings")
        plain = about["preprocessing"]
        self.preprocessing: Preprocessing | None = None
        self.classes: tuple[str, ...] = ()
        if plain is not None:
            self.preprocessing = of_plain(plain)
            self.classes = self.preprocessing.names if self.preprocessing.targets is None else ()
        self.metric = settings.family.headline.name
        self.module = models.of_settings(settings, simulator, own, **about["arguments"])
        dtype = next((tensor.dtype for tensor in state.values() if tensor.is_floating_point()), None)
        if dtype is not None:
            convert(self.module, torch.device("cpu"), dtype)
        self._dtype = dtype or torch.float32
        paired = {name for name, tensor in self.module.state_dict().items() if tensor.is_complex()}
        self.module.load_state_dict(
            {
                name: torch.view_as_complex(tensor) if name in paired and not tensor.is_complex() else tensor
                for name, tensor in state.items()
            }
        )
        self.eval()

    def forward(self, x: torch.Tensor | None = None) -> Any:
        """The model's outputs of prepared inputs, such as logits of standardised features.

        Raises:
            UserError: it is exported to ONNX and has circuits.
        """
        if torch.onnx.is_in_onnx_export() and any(map(_is_circuit, self.modules())):
            raise UserError("ONNX has no operator for circuits; use torch.export")
        return self.module() if x is None else self.module(x)

    def predict(self, x: Any) -> Shaped[np.ndarray, "samples ..."]:
        """The names of the classes of raw samples (n,), or numbers, (n,) or (n, targets), in the targets' units.

        x: samples as they were brought for training: a DataFrame with the columns of the table (others are left alone), an
        array of features, trials or images, or a list of image files or Pillow's images.

        Raises:
            UserError: the samples are of another kind or shape, or the model has no such samples.
        """
        preprocessing, outputs = self._outputs(x)
        return preprocessing.predicted(outputs)

    def predict_proba(self, x: Any) -> Shaped[np.ndarray, "samples classes"]:
        """The probabilities (n, classes) of raw samples, in the order of `classes`; as for `predict`.

        Raises:
            UserError: as for `predict`, or it is a regression, or a model that is fitted without probabilities.
        """
        preprocessing, outputs = self._outputs(x)
        if preprocessing.targets is not None:
            raise UserError("a regression has no probabilities; call predict")
        if isinstance(self.module, Fitted) and not self.module.logits:
            raise UserError(f"{type(self.module).__name__} has votes in place of probabilities; call predict")
        return torch.from_numpy(outputs).double().softmax(1).numpy()

    def _outputs(self, x: Any) -> tuple[Preprocessing, NDArray[Any]]:
        """The model's outputs of raw samples, (n, width), in evaluation mode."""
        if self.preprocessing is None:
            raise UserError("this model does not predict from samples; call it as a torch module")
        weights = self._rebuilt_from[3]
        first = next(self.module.parameters(), torch.zeros(0, dtype=self._dtype))
        inputs = torch.from_numpy(self.preprocessing.inputs(x, weights)).to(first.device, self._dtype)
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                parts = [self.module(part) for part in inputs.split(BATCH)]
        finally:
            self.train(training)
        return self.preprocessing, torch.cat(parts).cpu().numpy()

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuilt from its settings, since a model of a user's own has a class, or a QNode, that no pickle holds."""
        about, simulator, own, weights = self._rebuilt_from
        state = {name: tensor.detach().cpu() for name, tensor in self.module.state_dict().items()}
        frozen = [name for name, parameter in self.named_parameters() if not parameter.requires_grad]
        return type(self), (about, state, simulator, own, weights), (self.training, frozen)

    def __setstate__(self, state: Any) -> None:
        """Whether it was in training, and which of its parameters were frozen."""
        training, frozen = state
        self.train(training)
        for name in frozen:
            self.get_parameter(name).requires_grad_(False)


def _is_circuit(part: nn.Module) -> bool:
    """Whether a module evaluates a circuit, as one of ours, of PennyLane's, or by a converted QNode in an attribute."""
    origins = {type(each).__module__ for each in (part, *vars(part).values())}
    return hasattr(part, "simulator") or any(
        each.startswith(("pennylane", "ketscale.interop")) for each in origins
    )
