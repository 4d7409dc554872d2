"""The `Problem` contract: all that the trainer needs from a workload and a model."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self, TypeVar

import torch
from torch import nn

from ketscale.engines.evolved import Evolved
from ketscale.engines.randomness import Step
from ketscale.engines.vjp import VJP
from ketscale.errors import UserError
from ketscale.private_torch import mapped
from ketscale.problems.fitted import Samples
from ketscale.problems.preprocessing import Preprocessing
from ketscale.problems.samplers import Sampler

M = TypeVar("M", bound=nn.Module)


class Problem(nn.Module, ABC):
    """Differentiable sums over training samples, and how they combine to the loss.

    A sample is one element of the data-parallel axis: an image, a trial, a basis state, a task. The trainer
    adds the sums of all ranks, differentiates `combine` and backpropagates the result through each rank's
    `forward`. This is exact for any sharding. A subclass defines `linear`, `sums`, `combine`, `outputs` and
    `metrics`.

    Attributes:
        model: holds all trainable parameters.
        sampler: chooses the samples of each training step.
        linear: whether `combine` is linear in the sums, up to a constant. Its derivative is then known before
            the ranks have added the sums, so the backward pass needs no all-reduce before it. There is no
            default, since a wrong value gives wrong gradients on several ranks without an error.
        separable: whether entry i of the sums depends on the i-th of as many equal parts of the parameters alone. Each
            part then minimises its own entry, and `combine` only reports: no part's descent depends on another's.
        splits: the splits that `outputs` and `metrics` accept, with the number of samples in each.
        seed: seed of its random numbers in training: the run's, an int; inside `seeded` the seeds given there.
        arguments: arguments of the model's constructor that depend on the data, such as `inputs`; kept with its weights.
        preprocessing: how raw samples become the model's inputs; kept too.

    Example:
        >>> class Square(Problem):
        ...     "The mean of (model(x) - 2 x)^2 over ten numbers."
        ...     linear = True
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.model, self.sampler = torch.nn.Linear(1, 1), Shuffled(10)
        ...         self.x, self.splits = torch.linspace(0, 1, 10)[:, None], {"train": 10}
        ...     def sums(self, indices, step):
        ...         return (self.model(self.x[indices]) - 2 * self.x[indices]).square().sum(0)
        ...     def combine(self, sums, count):
        ...         return sums[0] / count
        ...     def outputs(self, split, indices):
        ...         return self.model(self.x[indices])
        ...     def metrics(self, split, outputs, *, full):
        ...         return {"loss": (outputs - 2 * self.x).square().mean().item()}
        >>> problem = Square()
        >>> problem.combine(problem(torch.arange(10), 0), 10).backward()
    """

    model: nn.Module
    sampler: Sampler
    linear: bool
    separable: bool = False
    seed: Any = 0
    splits: Mapping[str, int]
    arguments: Mapping[str, Any] = MappingProxyType({})
    preprocessing: Preprocessing | None = None

    def convert(self, device: torch.device, dtype: torch.dtype) -> Self:
        """Move all parameters and buffers to `device` in the precision of `dtype`; see the function `convert`."""
        return convert(self, device, dtype)

    @contextlib.contextmanager
    def seeded(self, seed: torch.Tensor | Sequence[int]) -> Iterator[None]:
        """Inside the block the problem draws with other seeds.

        seed: under torch.func.vmap each member's own, int64 (); for `vjp` those of all runs.
        """
        own, self.seed = self.seed, seed
        try:
            yield
        finally:
            self.seed = own

    def forward(self, indices: torch.Tensor, step: Step) -> torch.Tensor:
        """The sums (a vector, possibly complex) over the samples `indices` at global step `step`.

        It must be `forward`: DistributedDataParallel reduces nothing when another method is called.
        """
        if indices.shape[0] == 0:
            # A rank without samples still runs the graph once, so that every rank joins the reduction.
            return self.sums(torch.zeros(1, dtype=torch.int64, device=indices.device), step) * 0
        return self.sums(indices, step)

    def vjp(self, indices: torch.Tensor, step: Step) -> VJP | None:
        """`sums` for n >= 1 samples of a training step on a CPU, without autograd; None if there is no such way.

        See `engines.vjp`. Only for a problem without a penalty. Several runs share its buffers; then there are indices (runs, n), sums (runs, ...), one `seed` each, and parameters with a first dimension of runs.
        """
        return None

    @property
    def replays(self) -> bool:
        """Whether a training step on a GPU launches the same kernels whatever its numbers are, and copies none of them
        from the host, so that it can be captured once and replayed; the number of the step is then a `DeviceStep`.
        """
        return False

    def share_tasks(self, rank: int, ranks: int) -> None:
        """Let ranks share tasks instead of samples: each rank has all samples, and the ranks' sums still add up.

        Raises:
            UserError: this problem can share only samples.
        """
        raise UserError("parallel: tasks needs a problem whose gradient is evaluated by parameter-shift")

    @abstractmethod
    def sums(self, indices: torch.Tensor, step: Step) -> torch.Tensor:
        """The sums (a vector, possibly complex) over the samples `indices`, int64 (n,), n >= 1, at step `step`."""

    @abstractmethod
    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        """The loss, a real scalar, from the sums over `count` samples; it depends on parameters only through them."""

    def penalty(self) -> torch.Tensor | None:
        """A term of the loss that depends on the parameters alone, a real scalar; None if there is none.

        The trainer adds it once. It must not be part of `combine`, which every rank evaluates.
        """
        return None

    @abstractmethod
    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        """The model's outputs for samples of a split, one row each in the order of `indices`, int64 (n,), n >= 0.

        A rank has no samples if a split has fewer than there are ranks.
        """

    @abstractmethod
    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """Metrics of the outputs of a whole split: `loss` always, costly ones only when `full`; None if undefined.

        When full, and where it makes sense, also `count`, the number of cases that the headline metric is taken over
        (those of `right`, if it is a share); and `chance`, the value of the headline metric that guessing gives, if the specification says 'data'.
        """

    def samples(self, split: str) -> Samples:
        """All samples of a split, for a model that is `Fitted`; a problem without such models has no samples."""
        raise TypeError(f"{type(self).__name__} has no models that are fitted")

    def right(self, split: str, outputs: torch.Tensor) -> torch.Tensor | None:
        """Which cases of a whole split are right that the headline metric is the share of; None if it is no share.

        int8 (samples,): 1 if right, else 0; or (samples, most cases), with -1 where a sample has fewer cases.
        """
        return None

    def influence(self, split: str, outputs: torch.Tensor) -> torch.Tensor | None:
        """How much each sample of a whole split moves the logarithm of the headline metric, (n,); None if it is a share.

        It is n times what a small weight more of the sample would change (Hampel, J. Am. Stat. Assoc. 69, 383, 1974): the
        variance of the metric over other samples is its variance divided by n. Its mean is 0.
        """
        return None

    def evolution(self) -> Evolved | None:
        """What evolves its quantum system, for the record; None if there is none."""
        return None

    def predictions(self, split: str, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The part of a whole split's outputs that is kept: tensors by name, with one row for each sample."""
        return {"outputs": outputs}


def convert(module: M, device: torch.device, dtype: torch.dtype) -> M:
    """Move all parameters and buffers to `device` in the precision of `dtype` (float32 or float64), in place.

    Complex tensors become complex64 or complex128, where `to(dtype=...)` would drop their imaginary parts; integers
    keep their type.
    """
    pair = dtype.to_complex()

    def converted(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_complex():
            return tensor.to(device, pair)
        return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)

    return mapped(module, converted)
