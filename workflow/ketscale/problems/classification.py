"""Classification: the `Problem` of every workload that has labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ketscale.engines.vjp import VJP
from ketscale.errors import UserError
from ketscale.layers import losses
from ketscale.problems import scores
from ketscale.problems.supervised import Supervised


class Classification(Supervised):
    """Mean cross-entropy, or hinge loss, of `model`, whose outputs are logits (batch, classes), over labelled samples.

    targets: the labels, int64 (n,), classes 0, 1, ...
    """

    usual_metric = "accuracy"

    def scaled(self, targets: torch.Tensor, train: torch.Tensor) -> torch.Tensor:
        """The labels as they are."""
        self.classes = int(targets.max()) + 1
        weights = self.class_weights
        if weights == "balanced":
            counts = targets[train].bincount(minlength=self.classes).double()
            weights = (len(train) / ((counts > 0).sum() * counts.clamp(min=1))).tolist()
        if weights is not None and len(weights) != self.classes:
            raise UserError(
                f"class_weights: {len(weights)} numbers for {self.classes} classes; give one for each"
            )
        made = None if weights is None else torch.tensor(weights, dtype=torch.float64)
        self.register_buffer("weights", made, persistent=False)
        return targets

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The summed loss, shape (1,)."""
        weights = self._buffers["weights"]
        weights = None if weights is None else weights.to(outputs)
        if self.loss_name == "hinge":
            return _hinge(outputs, targets, weights)
        if weights is not None:
            return nn.functional.cross_entropy(outputs, targets, weights, reduction="sum").reshape(1)
        return losses.cross_entropy(outputs, targets, self.classes)

    def loss_vjp(self, outputs: torch.Tensor, targets: torch.Tensor) -> VJP | None:
        """`loss`, see `engines.vjp`; None of a weighted loss and of the hinge loss."""
        usual = self.loss_name != "hinge" and self._buffers["weights"] is None
        return losses.cross_entropy_vjp(outputs, targets, self.classes) if usual else None

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """Loss and accuracy of the logits `outputs` (n, classes) of a whole split.

        When full also `count` (samples), `chance` (the accuracy of always naming the split's most frequent class),
        AUC (one-vs-rest, macro average), weighted F1, the confusion matrix (rows are true classes), and the chosen
        metric, whose chance is that of naming the shares of the classes. AUC is None if a class is missing from the
        split, since it is then undefined.
        """
        labels = self._labels(split)
        logits = outputs.double().cpu()
        right = (logits.argmax(1) == labels).double()
        found: dict[str, Any] = {"loss": self._mean_loss(logits, labels), "accuracy": float(right.mean())}
        if full:
            classes = logits.shape[1]
            everything = len(labels.unique()) == classes
            confusion = scores.confusion(labels, logits.argmax(1), classes)
            shares = labels.bincount(minlength=classes).double() / len(labels)
            found["count"] = len(labels)
            found["chance"] = float(shares.max())
            found["auc"] = scores.auc(labels, logits.softmax(1)) if everything else None
            found["f1"] = scores.weighted_f1(confusion)
            found["confusion"] = confusion.tolist()
            if self.metric not in found:
                found[self.metric] = scores.named(self.metric, labels, logits.softmax(1))
                found["chance"] = scores.named(self.metric, labels, shares.expand_as(logits))
        return found

    def _mean_loss(self, logits: torch.Tensor, labels: torch.Tensor) -> float:
        if self.loss_name != "hinge" and self._buffers["weights"] is None:
            return float(nn.functional.cross_entropy(logits, labels))
        return float(self.loss(logits, labels)) / len(labels)

    def right(self, split: str, outputs: torch.Tensor) -> torch.Tensor | None:
        """Whether the largest logit is that of the true class, (n,); None if another metric than the accuracy counts."""
        named = outputs.cpu().argmax(1)
        return (named == self._labels(split)).to(torch.int8) if self.metric == self.usual_metric else None

    def influence(self, split: str, outputs: torch.Tensor) -> torch.Tensor | None:
        """See `Problem.influence`."""
        if self.metric == self.usual_metric:
            return None
        return scores.influence(self.metric, self._labels(split), outputs.double().cpu().softmax(1))

    def predictions(self, split: str, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Logits (n, classes), true labels (n,) and the samples' indices in the workload's data (n,)."""
        return {"outputs": outputs, "labels": self._labels(split), "samples": self.rows(split)}

    def _labels(self, split: str) -> torch.Tensor:
        return self.get_buffer("targets").cpu()[self.rows(split)]


def _hinge(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """torch's multi_margin_loss (n, classes), summed, (1,); torch.func.vmap does not take that."""
    own = labels.unsqueeze(1)
    # The label's own margin is 1 too much.
    margins = (1 + logits - logits.gather(1, own)).clamp(min=0).sum(1) - 1
    each = margins / logits.shape[1]
    return (each if weights is None else each * weights[labels]).sum().reshape(1)
