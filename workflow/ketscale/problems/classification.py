"""Classification with cross-entropy: the `Problem` of every workload that has labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ketscale.engines.members import selected
from ketscale.engines.vjp import VJP, offered, vjp_of
from ketscale.layers import cross_entropy
from ketscale.layers.dropout import keyed, name_dropouts
from ketscale.layers.randomness import Step
from ketscale.measure.spans import span
from ketscale.problems import scores
from ketscale.problems.fitted import Samples
from ketscale.problems.problem import Problem
from ketscale.problems.samplers import Shuffled


class Classification(Problem):
    """Mean cross-entropy of `model` over labelled samples.

    Args:
        model: maps inputs (batch, ...) to logits (batch, classes).
        inputs: all samples (n, ...): features, or raw data if there is a `backbone`.
        labels: int64 (n,), classes 0, 1, ...
        splits: indices (int64) of the samples in `train`, `validation` and `test`.
        seed: seed of the dropout masks.
        backbone: frozen module that turns raw data into the model's inputs in every step; None for cached features.
        arguments: arguments of the model's constructor that the data decide, kept with its weights.
    """

    linear = True

    def __init__(
        self,
        model: nn.Module,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        splits: Mapping[str, torch.Tensor],
        seed: int,
        backbone: nn.Module | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        name_dropouts(model)
        self.model = model
        self.backbone = backbone
        self.seed = seed
        self.arguments = arguments or {}
        self.classes = int(labels.max()) + 1
        self.splits = {name: len(rows) for name, rows in splits.items()}
        self.sampler = Shuffled(self.splits["train"])
        self.register_buffer("inputs", inputs, persistent=False)
        self.register_buffer("labels", labels, persistent=False)
        for name, rows in splits.items():
            self.register_buffer(f"rows_{name}", rows, persistent=False)

    def train(self, mode: bool = True) -> Classification:
        """Switch the model's mode. A frozen backbone stays in evaluation mode: its statistics must not drift."""
        super().train(mode)
        if self.backbone is not None:
            self.backbone.eval()
        return self

    def _batch(self, split: str, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        with span("data"):
            rows = self.get_buffer(f"rows_{split}")
            rows = selected(rows, indices.to(rows.device))
            inputs = selected(self.get_buffer("inputs"), rows)
            labels = selected(self.get_buffer("labels"), rows)
        if self.backbone is not None:
            with span("features"), torch.no_grad():
                inputs = self.backbone(inputs)
        return rows, inputs, labels

    def samples(self, split: str) -> Samples:
        """All samples of a split with their classes."""
        _, inputs, labels = self._batch(split, torch.arange(self.splits[split]))
        return Samples(inputs, labels)

    def sums(self, indices: torch.Tensor, step: Step) -> torch.Tensor:
        """The summed cross-entropy, shape (1,)."""
        rows, inputs, labels = self._batch("train", indices)
        with keyed(self.seed, step, rows):
            logits = self.model(inputs)
        return cross_entropy.summed(logits, labels, self.classes)

    @vjp_of(sums)
    def vjp(self, indices: torch.Tensor, step: Step) -> VJP | None:
        """`sums`, see `engines.vjp`; None if the model has no such method."""
        model = offered(self.model)
        if model is None or self.backbone is not None:
            return None
        if indices.ndim == 1:
            rows, inputs, labels = self._batch("train", indices)
        else:
            parts = self._batch("train", indices.flatten())
            rows, inputs, labels = (part.unflatten(0, indices.shape) for part in parts)
        with keyed(self.seed, step, rows):
            made = model(inputs)
        loss = made and cross_entropy.vjp(made.value, labels, self.classes)
        if loss is None:
            return None
        return VJP(loss.value, lambda cotangent, slots: made.back(loss.back(cotangent, slots), slots))

    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        """The mean cross-entropy."""
        return sums[0] / count

    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        """Logits (len(indices), classes), without gradients, in evaluation mode."""
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                _, inputs, _ = self._batch(split, indices)
                return self.model(inputs)
        finally:
            self.train(training)

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
        rows = self.get_buffer(f"rows_{split}").cpu()
        return {"outputs": outputs, "labels": self._labels(split), "samples": rows}

    def _labels(self, split: str) -> torch.Tensor:
        return self.get_buffer("labels")[self.get_buffer(f"rows_{split}")].cpu()
