"""Learning outputs from inputs: classification, of every workload that has labels, and regression, of numbers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ketscale.engines.circuits.simulator import replays
from ketscale.engines.members import selected
from ketscale.engines.randomness import Step, keyed
from ketscale.engines.vjp import VJP, offered, vjp_of
from ketscale.errors import UserError
from ketscale.layers import losses
from ketscale.layers.dropout import name_dropouts
from ketscale.measure.right import influence_on_rmse
from ketscale.problems import scores
from ketscale.problems.fitted import Samples
from ketscale.problems.preprocessing import Preprocessing
from ketscale.problems.problem import Problem
from ketscale.problems.samplers import Shuffled
from ketscale.spans import span

# In place of a training step's number: every evaluation draws the same shots, so that epochs are compared alike.
EVALUATION = -1


class Supervised(Problem):
    """The mean of a loss of `model`'s outputs over samples with targets.

    Args:
        model: maps inputs (batch, ...) to outputs (batch, width).
        inputs: all samples (n, ...): features, or raw data if there is a `backbone`.
        targets: what is to be predicted, (n, ...).
        splits: indices (int64) of the samples in `train`, `validation`, which may have none, and `test`.
        seed: seed of the dropout masks.
        backbone: frozen module that turns raw data into the model's inputs in every step; None for cached features.
        arguments: arguments of the model's constructor that the data determine, kept with its weights.
        preprocessing: see `Problem`.
        loss: the name of the loss in a protocol; None for the usual one.
        class_weights: factors of the losses of each class's samples, or 'balanced'; None without.
        metric: the metric that models are compared by, by scikit-learn's name; None for the usual one.

    Raises:
        UserError: there are not as many weights as classes.
    """

    linear = True
    # The headline metric unless another is chosen.
    main_metric: str

    def __init__(
        self,
        model: nn.Module,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        splits: Mapping[str, torch.Tensor],
        seed: int,
        backbone: nn.Module | None = None,
        arguments: Mapping[str, Any] | None = None,
        preprocessing: Preprocessing | None = None,
        loss: str | None = None,
        class_weights: str | Sequence[float] | None = None,
        metric: str | None = None,
    ) -> None:
        super().__init__()
        self.loss_name, self.class_weights = loss, class_weights
        self.metric = metric or self.main_metric
        name_dropouts(model)
        self.model = model
        self.backbone = backbone
        self.seed = seed
        self.arguments = arguments or {}
        self.preprocessing = preprocessing
        self.splits = {name: len(rows) for name, rows in splits.items() if len(rows)}
        self.sampler = Shuffled(self.splits["train"])
        scaled = self.scaled(targets, splits["train"])
        rows = {f"rows_{name}": each for name, each in splits.items()}
        # Rows side by side, since a batch copies rows: a user's arrays may have another order.
        for name, tensor in {"inputs": inputs, "targets": scaled, **rows}.items():
            self.register_buffer(name, tensor.contiguous(), persistent=False)

    @abstractmethod
    def scaled(self, targets: torch.Tensor, train: torch.Tensor) -> torch.Tensor:
        """The targets as `loss` needs them; train: indices of the training samples."""

    @property
    def replays(self) -> bool:
        """See `Problem.replays`: a model of ours, or of torch's modules, whose circuits are those of `fused` in place."""
        origins = {type(part).__module__.partition(".")[0] for part in self.modules()}
        return self.backbone is None and origins <= {"ketscale", "torch"} and replays(self.model)

    @abstractmethod
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss of outputs (n, width), summed over the samples: shape (1,)."""

    @abstractmethod
    def loss_vjp(self, outputs: torch.Tensor, targets: torch.Tensor) -> VJP | None:
        """`loss`, see `engines.vjp`; None if there is no such way."""

    def train(self, mode: bool = True) -> Supervised:
        """Switch the model's mode. A frozen backbone stays in evaluation mode: its statistics must not drift."""
        super().train(mode)
        if self.backbone is not None:
            self.backbone.eval()
        return self

    def _batch(self, split: str, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        with span("data"):
            # `get_buffer` takes as long as a small copy.
            buffers: Any = self._buffers
            rows = buffers[f"rows_{split}"]
            rows = selected(rows, indices.to(rows.device))
            inputs, targets = selected(buffers["inputs"], rows), selected(buffers["targets"], rows)
        if self.backbone is not None:
            with span("features"), torch.no_grad():
                inputs = self.backbone(inputs)
        return rows, inputs, targets

    def sums(self, indices: torch.Tensor, step: Step) -> torch.Tensor:
        """The summed loss, shape (1,)."""
        rows, inputs, targets = self._batch("train", indices)
        with keyed(self.seed, step, rows):
            outputs = self.model(inputs)
        return self.loss(outputs, targets)

    @vjp_of(sums)
    def vjp(self, indices: torch.Tensor, step: Step) -> VJP | None:
        """`sums`, see `engines.vjp`; None if the model has no such method."""
        model = offered(self.model)
        if model is None or self.backbone is not None:
            return None
        rows, inputs, targets = self._batch("train", indices)
        with keyed(self.seed, step, rows):
            forward = model(inputs)
        loss = forward and self.loss_vjp(forward.value, targets)
        if loss is None:
            return None
        return VJP(loss.value, lambda cotangent, slots: forward.back(loss.back(cotangent, slots), slots))

    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        """The mean loss."""
        return sums[0] / count

    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        """The model's outputs (len(indices), width), without gradients, in evaluation mode."""
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                rows, inputs, _ = self._batch(split, indices)
                with keyed(self.seed, EVALUATION, rows):
                    return self.model(inputs)
        finally:
            self.train(training)

    def samples(self, split: str) -> Samples:
        """All samples of a split with their targets, as the model and the loss get them."""
        _, inputs, targets = self._batch(split, torch.arange(self.splits[split]))
        return Samples(inputs, targets)

    @abstractmethod
    def compared(self, split: str, outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What is true of a whole split, and its outputs, as `scores.score` needs them."""

    def influence(self, split: str, outputs: torch.Tensor) -> torch.Tensor | None:
        """See `Problem.influence`."""
        return scores.influence(self.metric, *self.compared(split, outputs))

    def rows(self, split: str) -> torch.Tensor:
        """The indices of a split's samples in the workload's data, int64 (n,), on the CPU."""
        return self.get_buffer(f"rows_{split}").cpu()


class Classification(Supervised):
    """Mean cross-entropy, or hinge loss, of `model`, whose outputs are logits (batch, classes), over labelled samples.

    targets: the labels, int64 (n,), classes 0, 1, ...
    """

    main_metric = "accuracy"

    def scaled(self, targets: torch.Tensor, train: torch.Tensor) -> torch.Tensor:
        """The labels as they are."""
        self.classes = int(targets.max()) + 1
        weights = self.class_weights
        if weights == "balanced":
            counts = targets[train].bincount(minlength=self.classes).double()
            weights = (len(train) / ((counts > 0).sum() * counts.clamp(min=1))).tolist()
        if weights is not None and len(weights) != self.classes:
            raise UserError(f"class_weights: {len(weights)} numbers for {self.classes} classes")
        tensor = None if weights is None else torch.tensor(weights, dtype=torch.float64)
        self.register_buffer("weights", tensor, persistent=False)
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
        plain = self.loss_name != "hinge" and self._buffers["weights"] is None
        return losses.cross_entropy_vjp(outputs, targets, self.classes) if plain else None

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """Loss and accuracy of the logits `outputs` (n, classes) of a whole split.

        When full also `count` (samples), `chance` (the accuracy of always naming the split's most frequent class),
        AUC (one-vs-rest, macro average), weighted F1, the confusion matrix (rows are true classes), and the chosen
        metric, whose chance is that of naming the shares of the classes. AUC is None if a class is missing from the
        split, since it is then undefined.
        """
        labels, logits = self._labels(split), outputs.double().cpu()
        predicted = logits.argmax(1)
        accuracy = float((predicted == labels).double().mean())
        metrics: dict[str, Any] = {"loss": self._mean_loss(logits, labels), "accuracy": accuracy}
        if full:
            classes, probabilities = logits.shape[1], logits.softmax(1)
            confusion = (labels * classes + predicted).bincount(minlength=classes**2).view(classes, classes)
            of_class, as_class = confusion.sum(1).double(), confusion.sum(0).double()
            # Classes that neither occur nor are predicted have weight 0.
            f1 = 2 * confusion.diagonal() / (of_class + as_class).clamp(min=1)
            shares = of_class / len(labels)
            metrics["count"] = len(labels)
            metrics["chance"] = float(shares.max())
            metrics["auc"] = scores.auc(labels, probabilities) if bool((of_class > 0).all()) else None
            metrics["f1"] = float((f1 * of_class).sum() / of_class.sum())
            metrics["confusion"] = confusion.tolist()
            if self.metric not in metrics:
                metrics[self.metric] = scores.score(self.metric, labels, probabilities)
                metrics["chance"] = scores.score(self.metric, labels, shares.expand_as(logits))
        return metrics

    def _mean_loss(self, logits: torch.Tensor, labels: torch.Tensor) -> float:
        if self.loss_name != "hinge" and self._buffers["weights"] is None:
            return float(nn.functional.cross_entropy(logits, labels))
        return float(self.loss(logits, labels)) / len(labels)

    def right(self, split: str, outputs: torch.Tensor) -> torch.Tensor | None:
        """Whether the largest logit is that of the true class, (n,); None if another metric than the accuracy counts."""
        predicted = outputs.cpu().argmax(1)
        return (predicted == self._labels(split)).to(torch.int8) if self.metric == self.main_metric else None

    def influence(self, split: str, outputs: torch.Tensor) -> torch.Tensor | None:
        """See `Problem.influence`; None of the accuracy, a share."""
        return None if self.metric == self.main_metric else super().influence(split, outputs)

    def compared(self, split: str, outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The labels (n,), and probabilities (n, classes)."""
        return self._labels(split), outputs.double().cpu().softmax(1)

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


class Regression(Supervised):
    """Mean squared error, or Huber's loss, of `model`, whose outputs are standardised targets (batch, columns).

    Each column of the targets is standardised by its mean and standard deviation over the training samples, so that
    columns of all units count alike; the loss is the mean over the columns.

    targets: float64 (n, columns), in their own units; no column is constant over the training samples.
    """

    main_metric = "rmse"

    def scaled(self, targets: torch.Tensor, train: torch.Tensor) -> torch.Tensor:
        """Standardised by the training samples."""
        # Metrics are in double precision, whatever the precision of the run, so these are no buffers.
        self._numbers = targets.double()
        numbers = self._numbers[train]
        self._mean, self._deviation = numbers.mean(0), numbers.std(0, correction=0)
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
        truth, predicted = self.compared(split, outputs)
        scaled = (predicted - truth) / self._deviation
        loss = float(self._losses(scaled, torch.zeros_like(scaled)).mean())
        squares = (predicted - truth).square()
        metrics: dict[str, Any] = {"loss": loss, "rmse": float(squares.mean(0).sqrt().mean())}
        if full:
            guess = self._mean.expand_as(truth)
            around = (truth - truth.mean(0)).square().sum(0)
            metrics["count"] = len(truth)
            metrics["chance"] = float((guess - truth).square().mean(0).sqrt().mean())
            metrics["mae"] = float((predicted - truth).abs().mean())
            metrics["r2"] = float((1 - squares.sum(0) / around).mean()) if bool((around > 0).all()) else None
            if truth.shape[1] > 1:
                metrics["errors"] = squares.mean(0).sqrt().tolist()
            if self.metric not in metrics:
                metrics[self.metric] = scores.score(self.metric, truth, predicted)
                metrics["chance"] = scores.score(self.metric, truth, guess)
        return metrics

    def influence(self, split: str, outputs: torch.Tensor) -> torch.Tensor | None:
        """See `Problem.influence`; None if nothing is wrong."""
        if self.metric != self.main_metric:
            return super().influence(split, outputs)
        values: torch.Tensor | None = influence_on_rmse(*self.compared(split, outputs))
        return values

    def compared(self, split: str, outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """True and predicted targets (n, columns) in their own units, float64 on the CPU."""
        return self._numbers[self.rows(split)], outputs.double().cpu() * self._deviation + self._mean

    def predictions(self, split: str, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Predicted and true targets (n, columns) in their own units, and the samples' indices in the workload's data (n,)."""
        truth, predicted = self.compared(split, outputs)
        return {"outputs": predicted, "targets": truth, "samples": self.rows(split)}
