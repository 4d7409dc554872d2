"""`linear`: logistic or ridge regression, the baseline of whoever claims that more than a plane is needed."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from ketscale.optional import needed_for
from ketscale.problems.fitted import Fitted, Samples

# Here, so that it is no part of the time of a fit.
with needed_for("a linear model", "estimators"):
    from sklearn.linear_model import LogisticRegression, Ridge

# As many as the other fitted models try, the strongest first: of equals the first is kept.
PENALTIES = tuple(10 ** (power / 4) for power in range(16, -16, -1))


class Linear(Fitted):
    """W x + b of features x (batch, inputs): logits, or numbers (batch, outputs). Fitted by scikit-learn.

    penalty: the factor of |W|^2 / 2 next to the sum of the cross-entropies, or of |W|^2 next to the squared errors;
        None to choose among `PENALTIES` by the accuracy of validation, then by its loss; without validation it is 1.
    """

    logits: ClassVar[bool] = True

    def __init__(self, inputs: int = 512, outputs: int = 10, penalty: float | None = None) -> None:
        super().__init__()
        self.penalties = PENALTIES if penalty is None else (penalty,)
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits, or numbers (batch, outputs), of features (batch, inputs)."""
        return nn.functional.linear(x, self.weight, self.bias)

    def fit(self, train: Samples, validation: Samples | None) -> None:
        """Fit to features (n, inputs) with classes, int64 (n,), or standardised numbers (n, outputs)."""
        if validation is None and len(self.penalties) > 1:
            self.penalties = (1.0,)
        best = (-float("inf"), -float("inf"))
        for penalty in self.penalties:
            weight, bias = self._fitted(train, penalty)
            score = (
                _score(nn.functional.linear(validation.inputs, weight, bias), validation.targets)
                if validation
                else (0.0, 0.0)
            )
            if score > best:
                best, best_penalty = score, penalty
                self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
        self.chosen = {"penalty": best_penalty} if len(self.penalties) > 1 else {}
        self.tried = len(self.penalties)

    def _fitted(self, train: Samples, penalty: float) -> tuple[torch.Tensor, torch.Tensor]:
        """The weights (outputs, inputs) and the biases (outputs,) with this penalty."""
        weight, bias = torch.zeros_like(self.weight), torch.zeros_like(self.bias)
        x, targets = (each.cpu().numpy() for each in train)
        make = LogisticRegression(C=1 / penalty, max_iter=1000) if targets.ndim == 1 else Ridge(alpha=penalty)
        estimator = make.fit(x, targets)
        # scikit-learn has the difference of two classes' logits alone, and no axis of columns for one column.
        directions, shifts = np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_)
        weight[-len(directions) :] = torch.from_numpy(directions)
        bias[-len(shifts) :] = torch.from_numpy(shifts)
        return weight, bias


def _score(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, float]:
    """How good outputs are, larger is better: the share of right classes, then minus the loss."""
    if targets.ndim == 2:
        error = float(mse_loss(outputs, targets))
        return -error, -error
    return float((outputs.argmax(1) == targets).double().mean()), -float(cross_entropy(outputs, targets))
