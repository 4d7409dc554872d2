"""Scores as scikit-learn defines them. It takes as long to import as torch, which runs without a chosen metric need not."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import nn

from ketscale.optional import needed_for


def auc(labels: torch.Tensor, scores: torch.Tensor) -> float:
    """The area under the receiver operating characteristic: one class against the rest, the mean over classes.

    With two classes only the second is counted, since the area of the first is the same.

    It is the probability that a sample of the class has a higher score than one of the rest, where equal scores count half
    (Hanley and McNeil 1982, Radiology 143, 29).

    Args:
        labels: true classes, int64 (n,); each class has a sample.
        scores: of each class, float64 (n, classes).
    """
    first = 1 if scores.shape[1] == 2 else 0
    ranks = torch.stack([_ranks(column) for column in scores.T[first:]])
    one_hot = nn.functional.one_hot(labels, scores.shape[1]).T[first:].to(ranks.dtype)
    own = one_hot.sum(1)
    higher = (ranks * one_hot).sum(1) - own * (own + 1) / 2
    return float((higher / (own * (len(labels) - own))).mean())


def score(name: str, truth: torch.Tensor, predicted: torch.Tensor) -> float | None:
    """A metric by scikit-learn's name, without `neg_`; None if it is undefined for these samples.

    Args:
        truth: true classes, int64 (n,), or numbers, float64 (n, columns).
        predicted: probabilities of the classes, float64 (n, classes), or numbers, float64 (n, columns).
    """
    with needed_for(f"metric: {name}", "estimators"):
        from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
        from sklearn.metrics import get_scorer, get_scorer_names

    classes = truth.ndim == 1

    class Predictor(ClassifierMixin if classes else RegressorMixin, BaseEstimator):  # type: ignore[misc]
        """Predicts what it is called with."""

        classes_ = torch.arange(predicted.shape[1]).numpy()

        def predict(self, outputs: Any) -> Any:
            return outputs.argmax(1) if classes else outputs

        def predict_proba(self, outputs: Any) -> Any:
            return outputs

    negative = f"neg_{name}" in get_scorer_names()
    scorer = get_scorer(f"neg_{name}" if negative else name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = float(scorer(Predictor(), predicted.numpy(), truth.numpy()))
    except ValueError:
        return None
    return (-value if negative else value) if math.isfinite(value) else None


# A metric takes some milliseconds, and a run waits for all of them.
MOST_SUBSETS = 200
# scikit-learn's names of the usual metrics.
_SCORERS = {"auc": "roc_auc_ovr", "f1": "f1_weighted", "mae": "mean_absolute_error", "r2": "r2"}


def influence(name: str, truth: torch.Tensor, predicted: torch.Tensor) -> torch.Tensor | None:
    """How much each of n samples moves the logarithm of a metric, see `Problem.influence`; truth, predicted: see `score`.

    By the metric without the sample (the jackknife of Tukey, 1958); beyond `MOST_SUBSETS` samples without as many in a row,
    whose share each gets by the root of their number, so that variances stay. None if it is not above 0 or undefined
    without some.
    """
    name, count = _SCORERS.get(name, name), len(truth)
    blocks = torch.arange(count).split(max(1, -(-count // MOST_SUBSETS)))
    keep = torch.ones(len(blocks), count, dtype=torch.bool)
    for row, block in zip(keep, blocks, strict=True):
        row[block] = False
    scores = [score(name, truth[row], predicted[row]) for row in keep] if count > 1 else [None]
    values = torch.tensor([value or 0.0 for value in scores], dtype=torch.float64)
    if not bool((values > 0).all()):
        return None
    logarithms, sizes = values.log(), torch.tensor([len(block) for block in blocks])
    return ((logarithms.mean() - logarithms) * (len(blocks) - 1) * sizes.sqrt()).repeat_interleave(sizes)


def _ranks(scores: torch.Tensor) -> torch.Tensor:
    """The place of each number in their order, from 1; equal numbers share the mean of their places."""
    _, group, counts = scores.unique(return_inverse=True, return_counts=True)
    return (counts.cumsum(0) - (counts - 1) / 2)[group].to(scores.dtype)
