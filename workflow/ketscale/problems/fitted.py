"""The contract of models that are fitted in one phase, where others are trained by steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn


class Samples(NamedTuple):
    """Samples with what is to be learned of them.

    inputs: (n, ...), as for `forward`. targets: classes, int64 (n,); or standardised numbers, real (n, columns).

    Example:
        >>> Samples(torch.zeros(10, 4), torch.arange(10) % 2).targets.unique()
        tensor([0, 1])
    """

    inputs: torch.Tensor
    targets: torch.Tensor


class Fitted(nn.Module, ABC):
    """A model that `fit` makes in one phase from all samples at once: it has no gradient, batch, steps and epochs.

    Its `forward` maps inputs (batch, ...) to outputs like those of other models: a score for each class (batch, classes),
    the largest of which decides, or standardised numbers (batch, columns). What it learns is in its parameters and buffers,
    whose shapes `fit` may change; a trained model is loaded with the shapes of its file.

    Attributes:
        logits: whether its scores are logarithms of probabilities, up to a constant; others have no probabilities.
        chosen: what `fit` has chosen by the validation samples, by name; the record has it.
        tried: out of how many settings. Say so in a model of your own that chooses: reports show each side's budget.

    Example:
        >>> class Mean(ketscale.Fitted):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.register_buffer("mean", torch.zeros(1))
        ...     def fit(self, train, validation):
        ...         self.mean = train.targets.mean(0)
        ...     def forward(self, x):
        ...         return self.mean.expand(len(x), -1)
        >>> mean = Mean()
        >>> mean.fit(Samples(torch.zeros(2, 3), torch.tensor([[1.0], [3.0]])), None)
        >>> mean(torch.zeros(1, 3))
        tensor([[2.]])
    """

    logits: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.chosen: dict[str, float] = {}
        self.tried = 1
        self.register_load_state_dict_pre_hook(_in_these_shapes)

    @abstractmethod
    def fit(self, train: Samples, validation: Samples | None) -> None:
        """Learn from the training samples; choose by those of validation, which may be empty.

        Raises:
            UserError: it cannot be fitted to these samples; says what to change.
        """


def _in_these_shapes(module: nn.Module, state: Mapping[str, torch.Tensor], prefix: str, *more: Any) -> None:
    """Give the module's parameters and buffers the shapes of a state that is to be loaded."""
    for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
        saved = state.get(f"{prefix}{name}")
        if saved is not None and saved.shape != tensor.shape:
            tensor.data = tensor.new_empty(saved.shape)
