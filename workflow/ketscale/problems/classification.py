"""Classification with cross-entropy: the `Problem` of every workload that has labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ketscale.engines.vjp import VJP
from ketscale.layers import losses
from ketscale.problems import scores
from ketscale.problems.supervised import Supervised


class Classification(Supervised):
    """Mean cross-entropy of `model`, whose outputs are logits (batch, classes), over labelled samples.

    targets: the labels, int64 (n,), classes 0, 1, ...
    """

    def scaled(self, targets: torch.Tensor, train: torch.Tensor) -> torch.Tensor:
        """The labels as they are."""
        self.classes = int(targets.max()) + 1
        return targets

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The summed cross-entropy, shape (1,)."""
        return losses.cross_entropy(outputs, targets, self.classes)

    def loss_vjp(self, outputs: torch.Tensor, targets: torch.Tensor) -> VJP | None:
        """`loss`, see `engines.vjp`."""
        return losses.cross_entropy_vjp(outputs, targets, self.classes)

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """Loss and accuracy of the logits `outputs` (n, classes) of a whole split.

        When full also `count` (samples), `chance` (the accuracy of always naming the split's most frequent class),
        AUC (one-vs-rest, macro average), weighted F1 and the confusion matrix (rows are true classes). AUC is None
        if a class is missing from the split, since it is then undefined.
        """
        labels = self._labels(split)
        logits = outputs.double().cpu()
        found: dict[str, Any] = {
            "loss": float(nn.functional.cross_entropy(logits, labels)),
            "accuracy": float(self.right(split, outputs).double().mean()),
        }
        if full:
            classes = logits.shape[1]
            everything = len(labels.unique()) == classes
            confusion = scores.confusion(labels, logits.argmax(1), classes)
            found["count"] = len(labels)
            found["chance"] = float(labels.bincount().max()) / len(labels)
            found["auc"] = scores.auc(labels, logits.softmax(1)) if everything else None
            found["f1"] = scores.weighted_f1(confusion)
            found["confusion"] = confusion.tolist()
        return found

    def right(self, split: str, outputs: torch.Tensor) -> torch.Tensor:
        """Whether the largest logit is that of the true class, (n,)."""
        return (outputs.cpu().argmax(1) == self._labels(split)).to(torch.int8)

    def predictions(self, split: str, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Logits (n, classes), true labels (n,) and the samples' indices in the workload's data (n,)."""
        return {"outputs": outputs, "labels": self._labels(split), "samples": self.rows(split)}

    def _labels(self, split: str) -> torch.Tensor:
        return self.get_buffer("targets").cpu()[self.rows(split)]
