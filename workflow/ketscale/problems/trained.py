"""The trained model of a run: a torch module on prepared inputs, and an estimator on samples as they were brought."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ketscale.config import OwnCode, Settings
from ketscale.errors import UserError
from ketscale.problems import models
from ketscale.problems.fitted import Fitted
from ketscale.problems.preprocessing import Preprocessing, of_plain
from ketscale.problems.problem import convert
from ketscale.problems.registry import FAMILIES
from ketscale.shapes import Shaped

# Samples that are evaluated at once.
BATCH = 1024


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
            raise UserError(
                "ONNX has no operator for circuits; use torch.export, which takes the model whole"
            )
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
            raise UserError("this model takes no samples; call it as a torch module")
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
        frozen = [name for name, parameter in self.named_parameters() if not parameter.requires_grad]
        state = {name: tensor.detach().cpu() for name, tensor in self.module.state_dict().items()}
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
