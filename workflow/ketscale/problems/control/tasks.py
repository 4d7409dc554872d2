"""Draws tasks, each a function of a seed, a step or split, and its number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ketscale.engines import randomness
from ketscale.measure.spans import span
from ketscale.problems.control.workload import ControlWorkload, Rates

# FRESH draws the training tasks of a step; FIXED draws fixed sets, which belong to the workload.
FRESH = randomness.RandomStream("control.fresh")
FIXED = randomness.RandomStream("control.fixed")
SPLIT_KEYS = {"train": 0, "validation": 1, "test": 2}


class Drawn(NamedTuple):
    """Tasks: what a model sees of them (n, inputs), and their environments for adaptation and for judgement.

    values: the quantities of these two environments, fp64 (n, quantities) each.
    """

    inputs: torch.Tensor
    support: Rates
    query: Rates
    values: tuple[torch.Tensor, torch.Tensor]


class Distribution:
    """The tasks of a workload, whose environments are created for all at once, or `singly`."""

    def __init__(self, workload: ControlWorkload, singly: bool = False) -> None:
        self.workload = workload
        self._environment = self.created if singly else self._of_all
        quantities = workload.quantities
        self._low = torch.tensor([each.low for each in quantities], dtype=torch.float64)
        self._width = torch.tensor([each.high for each in quantities], dtype=torch.float64) - self._low
        self._seen = [quantities.index(each) for each in workload.varied]

    def fresh(
        self, seeds: Sequence[int], step: randomness.Step, numbers: torch.Tensor, dtype: torch.dtype
    ) -> Drawn:
        """The training tasks of a step with these numbers, int64 (n,); each seed in turn has as many of them."""
        keys = [FRESH.key(seed, step) for seed in seeds]
        key = keys[0] if len(keys) == 1 else randomness.each(keys, numbers)
        return self._drawn(key, numbers, dtype)

    def fixed(self, split: str, numbers: torch.Tensor, dtype: torch.dtype) -> Drawn:
        """The tasks of a split (train, validation or test) with these numbers, int64 (n,)."""
        return self._drawn(FIXED.key(self.workload.seed, 0, SPLIT_KEYS[split]), numbers, dtype)

    def _drawn(self, key: randomness.Key, numbers: torch.Tensor, dtype: torch.dtype) -> Drawn:
        """The tasks as `dtype`, on the device of the numbers; drawn in fp64."""
        low, width = self._low.to(numbers.device), self._width.to(numbers.device)
        task, support, query = randomness.uniform(key, numbers, 3 * len(low)).chunk(3, 1)
        values = low + width * task
        spread = self.workload.environment_spread
        own = [values * (1 + spread * (2 * part - 1)) for part in (support, query)] if spread else [values]
        environments = [self._environment(each, dtype) for each in own]
        return Drawn(values[:, self._seen].to(dtype), environments[0], environments[-1], (own[0], own[-1]))

    def created(self, values: torch.Tensor, dtype: torch.dtype) -> Rates:
        """The environments of tasks with these values (n, quantities), one after the other, as published."""
        with span("dynamics.creation"):
            parts = [self._of_all(task, dtype) for task in values.split(1)]
            return Rates(*map(torch.cat, zip(*parts, strict=True)))

    def _of_all(self, values: torch.Tensor, dtype: torch.dtype) -> Rates:
        return Rates(*(part.to(dtype) for part in self.workload.environment(values)))
