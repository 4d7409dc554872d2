"""The `Problem` contract: what a workload and a model give the trainer, and no more."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import nn

from ketscale.errors import UserError
from ketscale.problems.samplers import Sampler


class Problem(nn.Module, ABC):
    """Differentiable sums over training samples, and how they combine to the loss.

    A sample is whatever the data-parallel axis is: an image, a trial, a basis state, a task. The trainer
    adds the sums of all ranks, differentiates `combine` and pulls the result back through the local
    `forward`; this is exact for any sharding. A subclass states `linear` and writes `sums`, `combine`,
    `outputs` and `metrics`.

    Attributes:
        model: holds all trainable parameters.
        sampler: which samples each training step takes.
        linear: `combine` is linear in the sums (a constant may be added), so its derivative is known before
            the ranks have added them and no all-reduce is needed before the backward pass. There is no
            default: a wrong one gives wrong gradients on several ranks, without an error.
        splits: the data that `outputs` and `metrics` may be asked about, with the number of samples of each.
        arguments: of the model's constructor, what the data decide, such as its inputs; kept with its weights.

    Raises:
        TypeError: when a subclass that is not abstract is defined without `linear`.
    """

    model: nn.Module
    sampler: Sampler
    linear: bool
    splits: Mapping[str, int]
    arguments: Mapping[str, Any] = MappingProxyType({})

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if not inspect.isabstract(cls) and not isinstance(getattr(cls, "linear", None), bool):
            raise TypeError(
                f"{cls.__name__} must state `linear`: True where its `combine` is linear in the sums, else False"
            )

    def convert(self, device: torch.device, dtype: torch.dtype) -> Self:
        """Move all parameters and buffers to `device` in the precision of `dtype` (float32 or float64).

        Complex tensors become complex64 or complex128, where `to(dtype=...)` would drop their imaginary parts;
        integers keep their type.
        """
        pair = dtype.to_complex()

        def converted(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.is_complex():
                return tensor.to(device, pair)
            return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)

        return self._apply(converted)

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
        """The loss, a real scalar, of the sums over `count` samples; it depends on parameters through them alone."""

    def penalty(self) -> torch.Tensor | None:
        """A real scalar of the parameters alone, which the trainer adds to the loss once; None for no such term.

        It must not be part of `combine`, which several ranks evaluate.
        """
        return None

    @abstractmethod
    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        """What the model says (rows in the order of `indices`) about samples of a split."""

    @abstractmethod
    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """Metrics of the outputs of a whole split; `loss` is always there, costly ones only when `full`.

        When full also `count`, how many cases the headline metric is of, and `chance`, what guessing gives, where these
        mean something.
        """

    def predictions(self, split: str, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """What is kept of the outputs of a whole split: arrays by name, a row a sample."""
        return {"outputs": outputs}
