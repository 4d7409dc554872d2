"""Learning outputs from inputs: what classification and regression have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ketscale.engines.circuits.simulator import replays
from ketscale.engines.members import selected
from ketscale.engines.randomness import Step, keyed
from ketscale.engines.vjp import VJP, offered, vjp_of
from ketscale.layers.dropout import name_dropouts
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
        arguments: arguments of the model's constructor that the data decide, kept with its weights.
        preprocessing: see `Problem`.
    """

    linear = True

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
    ) -> None:
        super().__init__()
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
        """The targets as `loss` takes them; train: indices of the training samples."""

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
            made = model(inputs)
        loss = made and self.loss_vjp(made.value, targets)
        if loss is None:
            return None
        return VJP(loss.value, lambda cotangent, slots: made.back(loss.back(cotangent, slots), slots))

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

    def rows(self, split: str) -> torch.Tensor:
        """The indices of a split's samples in the workload's data, int64 (n,), on the CPU."""
        return self.get_buffer(f"rows_{split}").cpu()
