"""The fit of a model that is not trained by steps: one phase on one process, without losses and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch

from ketscale.problems.fitted import Fitted
from ketscale.training.training import Training


class Fit(Training):
    """Fits a problem whose model is `Fitted`, with its training and validation samples; for the arguments see `Training`."""

    fitted: ClassVar[bool] = True
    tested = True
    no_checkpoints = "a fitted model"

    def run(self) -> None:
        """Fit the model to its end.

        Raises:
            UserError: the model cannot be fitted to these samples.
        """
        model = self.problem.model
        if not isinstance(model, Fitted):
            raise TypeError(f"{type(model).__name__} is declared to be fitted, but is no `Fitted`")
        samples = [
            self.problem.samples(split) if split in self.problem.splits else None
            for split in ("train", "validation")
        ]
        train, validation = samples
        assert train is not None
        start = time.perf_counter()
        with torch.no_grad():
            model.fit(train, validation)
        if self.world.device.type == "cuda":
            torch.cuda.synchronize(self.world.device)
        self.fit_s = time.perf_counter() - start
        self.samples_seen = len(train[0])

    def outputs(self, split: str) -> torch.Tensor:
        """The model's outputs for the samples of a split, all in one call."""
        return self.problem.outputs(split, torch.arange(self.problem.splits[split]))

    def metrics(self, split: str, outputs: torch.Tensor) -> dict[str, Any]:
        """All metrics of a split but the loss: the model minimises one of its own, for which its outputs are made."""
        return {**super().metrics(split, outputs), "loss": None}

    def course_in_short(self) -> Mapping[str, Any]:
        """It has no epochs, and what it has chosen."""
        assert isinstance(self.problem.model, Fitted)
        return {"epochs": None, "best_epoch": None, "chosen": self.problem.model.chosen}

    def weights(self) -> Iterable[torch.Tensor]:
        """All that the model keeps."""
        return self.problem.model.state_dict().values()
