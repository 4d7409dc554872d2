"""The `Problem` contract: what a workload and a model give the trainer, and no more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ketscale.errors import UserError


class Problem(nn.Module, ABC):
    """Differentiable sums over training samples, and how they combine to the loss.

    A sample is whatever the data-parallel axis is: an image, a trial, a basis state, a task. The trainer
    adds the sums of all ranks, differentiates `combine` and pulls the result back through the local
    `forward`; this is exact for any sharding. A subclass writes `sums`, `combine`, `outputs` and `metrics`.

    Attributes:
        model: holds all trainable parameters.
        samples: number of training samples; the trainer's indices run over 0..samples-1.
        linear: `combine` is linear in the sums, so no all-reduce is needed before the backward pass.
        splits: what `evaluate` may be asked for, with the number of samples of each.
    """

    model: nn.Module
    samples: int
    linear: bool = True
    splits: Mapping[str, int]

    def forward(self, indices: torch.Tensor, step: int) -> torch.Tensor:
        """The sums (a vector, possibly complex) over the samples `indices` at global step `step`.

        It must be `forward`: DistributedDataParallel reduces nothing when another method is called.
        """
        if len(indices) == 0:
            # A rank without samples still runs the graph once, so that every rank joins the reduction.
            return self.sums(torch.zeros(1, dtype=torch.int64, device=indices.device), step) * 0
        return self.sums(indices, step)

    def share_tasks(self, rank: int, ranks: int) -> None:
        """Let ranks share other work than samples: each then has all samples, and sums that add up all the same.

        Raises:
            UserError: this problem has only samples to share.
        """
        raise UserError("parallel: tasks needs a model whose gradient is made of tasks of parameter-shift")

    @abstractmethod
    def sums(self, indices: torch.Tensor, step: int) -> torch.Tensor:
        """The sums over at least one sample."""

    @abstractmethod
    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        """The loss, a real scalar, of the sums over `count` samples."""

    @abstractmethod
    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        """What the model says (rows in the order of `indices`) about samples of a split."""

    @abstractmethod
    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """Metrics of the outputs of a whole split; `loss` is always there, costly ones only when `full`."""

    def evaluate(self, split: str) -> dict[str, Any]:
        """All metrics of a split, computed in one go."""
        return self.metrics(split, self.outputs(split, torch.arange(self.splits[split])), full=True)
