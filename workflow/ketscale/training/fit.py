"""The fit of a model that is not trained by steps: one phase on one process, without losses and checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch

from ketscale.errors import UserError, short
from ketscale.problems import importer
from ketscale.problems.fitted import Fitted, Samples
from ketscale.problems.problem import Problem
from ketscale.training.training import Training


def fit(problem: Problem, most: int | None = None) -> int:
    """Fit the problem's model to its training and validation samples, at most so many of each; return how many it learned of.

    Raises:
        UserError: the model cannot be fitted to these samples.
    """
    model = problem.model
    if not isinstance(model, Fitted):
        raise UserError(
            f"{type(model).__name__} is no ketscale.Fitted: derive it from that, or give it a protocol with steps or epochs"
        )
    parts = {name: problem.samples(name) for name in ("train", "validation") if name in problem.splits}
    if most is not None:
        # Spread over the split, which may be in the order of classes.
        rows = {
            name: torch.linspace(0, len(part[0]) - 1, min(most, len(part[0]))).long()
            for name, part in parts.items()
        }
        parts = {name: Samples(*(each[rows[name]] for each in part)) for name, part in parts.items()}
    with torch.no_grad():
        model.fit(parts["train"], parts.get("validation"))
    model.chosen = {str(name): _number(model, str(name), value) for name, value in model.chosen.items()}
    return len(parts["train"].inputs)


def _number(model: Fitted, name: str, value: Any) -> float:
    """What a model has chosen, as the record keeps it.

    Raises:
        UserError: it is no finite number.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(
            f"{type(model).__name__}.chosen: {name} is {short(repr(value))}, not a finite number; leave it out"
        )
    return number


class Fit(Training):
    """Fits a problem whose model is `Fitted`, with its training and validation samples; for the arguments see `Training`."""

    stepped: ClassVar[bool] = False
    tested = True
    no_checkpoints = "a fitted model"

    def run(self) -> None:
        """Fit the model to its end.

        Raises:
            UserError: the model cannot be fitted to these samples.
        """
        # A user's model may draw from the generators that all code shares.
        with importer.running(self.problem.seed):
            start = time.perf_counter()
            self.samples_seen = fit(self.problem)
            if self.world.device.type == "cuda":
                torch.cuda.synchronize(self.world.device)
            self.fit_s = time.perf_counter() - start

    def metrics(self, split: str, outputs: torch.Tensor) -> dict[str, Any]:
        """All metrics of a split but the loss: the model minimises one of its own, for which its outputs are made."""
        return {**super().metrics(split, outputs), "loss": None}

    def summary(self) -> Mapping[str, Any]:
        """It has no epochs, and what it has chosen."""
        assert isinstance(self.problem.model, Fitted)
        model = self.problem.model
        return {"epochs": None, "best_epoch": None, "chosen": model.chosen, "tried": int(model.tried)}

    def weights(self) -> Iterable[torch.Tensor]:
        """All that the model keeps."""
        return self.problem.model.state_dict().values()
