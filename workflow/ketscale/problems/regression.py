"""Regression: the `Problem` of every workload whose targets are numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ketscale.engines.vjp import VJP
from ketscale.layers import losses
from ketscale.measure.right import influence_on_rmse
from ketscale.problems import scores
from ketscale.problems.supervised import Supervised


class Regression(Supervised):
    """Mean squared error, or Huber's loss, of `model`, whose outputs are standardised targets (batch, columns).

    Each column of the targets is standardised by its mean and standard deviation over the training samples, so that
    columns of all units count alike; the loss is the mean over the columns.

    targets: float64 (n, columns), in their own units; no column is constant over the training samples.
    """

    usual_metric = "rmse"

    def scaled(self, targets: torch.Tensor, train: torch.Tensor) -> torch.Tensor:
        """Standardised by the training samples."""
        # Metrics are in double precision, whatever the precision of the run, so these are no buffers.
        self._numbers = targets.double()
        known = self._numbers[train]
        self._mean, self._deviation = known.mean(0), known.std(0, correction=0)
        return (self._numbers - self._mean) / self._deviation

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The losses, their mean over columns summed over samples: shape (1,)."""
        return self._losses(outputs, targets).mean(1).sum().reshape(1)

    def _losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self.loss_name == "huber":
            return nn.functional.huber_loss(outputs, targets, reduction="none")
        return (outputs - targets).square()

    def loss_vjp(self, outputs: torch.Tensor, targets: torch.Tensor) -> VJP | None:
        """`loss`, see `engines.vjp`; None of Huber's."""
        return None if self.loss_name == "huber" else losses.squared_error_vjp(outputs, targets)

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """Loss and RMSE of the outputs (n, columns) of a whole split.

        When full also `count` (samples), `chance` (the RMSE of the training samples' mean), MAE, R2, and the chosen metric,
        whose chance is that of this mean. Of several columns, RMSE, MAE and R2 are the means over them, and `errors` has the RMSE of each; all but R2 are in the targets'
        units. R2 is None if a column is constant in the split, since it is then undefined.
        """
        truth, predicted = self._numbers[self.rows(split)], self.predicted(outputs)
        scaled = (predicted - truth) / self._deviation
        loss = float(self._losses(scaled, torch.zeros_like(scaled)).mean())
        found: dict[str, Any] = {"loss": loss, "rmse": scores.rmse(truth, predicted)}
        if full:
            guess = self._mean.expand_as(truth)
            found["count"] = len(truth)
            found["chance"] = scores.rmse(truth, guess)
            found["mae"] = float((predicted - truth).abs().mean())
            found["r2"] = scores.r2(truth, predicted)
            if truth.shape[1] > 1:
                found["errors"] = (predicted - truth).square().mean(0).sqrt().tolist()
            if self.metric not in found:
                found[self.metric] = scores.named(self.metric, truth, predicted)
                found["chance"] = scores.named(self.metric, truth, guess)
        return found

    def influence(self, split: str, outputs: torch.Tensor) -> torch.Tensor | None:
        """See `Problem.influence`; None if nothing is wrong."""
        truth = self._numbers[self.rows(split)]
        if self.metric != self.usual_metric:
            return scores.influence(self.metric, truth, self.predicted(outputs))
        found: torch.Tensor | None = influence_on_rmse(truth, self.predicted(outputs))
        return found

    def predicted(self, outputs: torch.Tensor) -> torch.Tensor:
        """The targets that outputs (n, columns) mean, in their own units, float64 on the CPU."""
        return outputs.double().cpu() * self._deviation + self._mean

    def predictions(self, split: str, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Predicted and true targets (n, columns) in their own units, and the samples' indices in the workload's data (n,)."""
        rows = self.rows(split)
        return {"outputs": self.predicted(outputs), "targets": self._numbers[rows], "samples": rows}
