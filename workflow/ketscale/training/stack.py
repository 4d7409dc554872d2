"""Runs of one shape as one: a leading axis of members through one model, by torch.func.vmap."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ketscale.config import Protocol
from ketscale.engines.randomness import Step
from ketscale.engines.vjp import VJP, offered
from ketscale.private_torch import pull_back
from ketscale.problems.problem import Problem
from ketscale.training import optimiser
from ketscale.training.direct import Direct, possible
from ketscale.training.flat import Flat
from ketscale.training.step import cotangent, on_device
from ketscale.training.step_sums import StepSums


class Stack:
    """Takes the steps of several problems together, which are equal but for numbers: parameters, seeds, folds of data.

    Args:
        problems: on one device and in their final precision.
        protocols: as many; they may differ in what changes no shape.

    Attributes:
        optimiser: of all members, in the order of the problems.
        problem: the one that is called, with each member's own tensors in place of its own.

    Raises:
        ValueError: a problem does not fit the first one, or has a penalty.
    """

    def __init__(self, problems: Sequence[Problem], protocols: Sequence[Protocol]) -> None:
        if not all(fits(problem, problems[0]) for problem in problems):
            raise ValueError("problems whose samples or tensors have other shapes cannot be stacked")
        self._problems, first = list(problems), problems[0]
        if first.penalty() is not None:
            raise ValueError("a problem with a penalty cannot be stacked")
        for problem in problems:
            share(problem, first)
        self._flat = Flat([[p for p in problem.parameters() if p.requires_grad] for problem in problems])
        self.optimiser = optimiser.create(protocols, self._flat)
        # One run is taken as if it were alone, to the last bit.
        self.problem = _template(first) if len(problems) > 1 else first
        # What is neither trained nor the same in all problems, such as drawn weights that stay: (problems, ...) by name.
        fixed = [_fixed(problem) for problem in problems]
        self._fixed = {
            name: torch.stack([tensors[name] for tensors in fixed])
            for name, tensor in fixed[0].items()
            if any(tensors[name] is not tensor for tensors in fixed)
        }
        names = (name for name, p in first.named_parameters() if p.requires_grad)
        self._slots = [_slot(self.problem, name) for name in (*names, *self._fixed)]
        able = not self._fixed and possible(first)
        self._direct = Direct(self._offered if able and offered(self.problem) else None, self._flat)
        # The cotangents of a linear problem, by the number of samples.
        self._pulls: dict[int, torch.Tensor] = {}

    def take(self, batches: Sequence[torch.Tensor], step: int) -> list[StepSums]:
        """Update each member's parameters with its own global batch, int64 (n,), at step `step`; all n are equal."""
        count = len(batches[0])
        indices = torch.stack(list(batches))
        sums = self._direct.sums(indices, step, lambda sums: self._pull(sums, count))
        if sums is None:
            sums = self._by_autograd(indices, step)
        norms = self._flat.norms()
        self.optimiser.step(norms)
        rows = zip(sums.detach(), norms, strict=True)
        return [StepSums(int(step), count, count, own, None, norm, norm) for own, norm in rows]

    def _by_autograd(self, indices: torch.Tensor, step: int) -> torch.Tensor:
        """The sums of all members, (members, ...), whose gradients are collected."""
        self._flat.clear()
        sums = self._each(lambda problem, row: problem(row, step), indices)
        pull_back([sums], [self._pull(sums, indices.shape[1])])
        self._flat.collect()
        return sums

    def _offered(self, indices: torch.Tensor, step: Step) -> VJP | None:
        """`Problem.vjp` of all members, as `Direct` asks for it."""
        if len(self._problems) == 1:
            # This is as if the run were alone, to the last bit.
            vjp = self._problems[0].vjp(indices[0], step)
            return vjp and VJP(vjp.value[None], lambda pull, slots: vjp.back(pull[0], slots))
        self._bind(self._flat.leaves)
        with self.problem.seeded([int(problem.seed) for problem in self._problems]):
            return self.problem.vjp(indices, step)

    def _bind(self, tensors: Sequence[torch.Tensor]) -> None:
        """Let the template work with these tensors in place of its own."""
        # What torch.func.functional_call does takes as long as a small model's forward pass.
        for (owner, name), tensor in zip(self._slots, tensors, strict=True):
            owner[name] = tensor

    def _pull(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        """`cotangent` of each member, (members, ...) as the sums."""
        first = self._problems[0]
        if not first.linear:
            return torch.stack([cotangent(first, own, count) for own in sums])
        if count not in self._pulls:
            self._pulls[count] = cotangent(first, sums[0], count).expand_as(sums).contiguous()
        return self._pulls[count]

    def outputs(self, split: str, most: int) -> list[torch.Tensor]:
        """Each member's outputs for all samples of a split, which are evaluated at most `most` at a time."""
        samples = torch.arange(self._problems[0].splits[split])
        return list(torch.cat([self.outputs_of(split, part) for part in samples.split(most)], dim=1))

    def outputs_of(self, split: str, samples: torch.Tensor) -> torch.Tensor:
        """All members' outputs (members, n, ...) for some samples of a split, int64 (n,)."""
        rows = samples.expand(len(self._problems), -1)
        return self._each(lambda problem, row: problem.outputs(split, row), rows)

    def _each(
        self, function: Callable[[Problem, torch.Tensor], torch.Tensor], indices: torch.Tensor
    ) -> torch.Tensor:
        """The results (members, ...) of a function of each member's problem and its row of the indices."""
        indices = on_device(indices, self._flat.values.device)
        if len(self._problems) == 1:
            # This is as if the run were alone, to the last bit.
            return function(self._problems[0], indices[0])[None]

        def of_one(own: Sequence[torch.Tensor], seed: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
            self._bind(own)
            with self.problem.seeded(seed):
                return function(self.problem, row)

        seeds = torch.tensor([int(problem.seed) for problem in self._problems])
        tensors = [*self._flat.leaves, *self._fixed.values()]
        results: torch.Tensor = torch.func.vmap(of_one)(tensors, seeds, indices)
        return results


def _template(problem: Problem) -> Problem:
    """A copy of a problem for vmap, which shares what is not trained."""
    return copy.deepcopy(problem, {id(tensor): tensor for tensor in _fixed(problem).values()}).train()


def fits(problem: Problem, first: Problem) -> bool:
    """Whether a problem can be in one stack with another: all samples, parts and tensors have the same shapes."""
    return _form(problem) == _form(first)


def _form(problem: Problem) -> tuple[Any, ...]:
    tensors = (*problem.named_parameters(), *problem.named_buffers())
    shapes = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors}
    samples = type(problem.sampler), problem.sampler.samples, dict(problem.splits)
    return type(problem), samples, dict(problem.arguments), shapes


def share(problem: Problem, first: Problem) -> None:
    """Let a problem use what is not trained in another that equals its own, such as the data, so that there is one copy."""
    own = _fixed(problem)
    for name, tensor in _fixed(first).items():
        if own[name] is not tensor and torch.equal(own[name], tensor):
            tensors, last = _slot(problem, name)
            tensors[last] = tensor


def _fixed(problem: Problem) -> dict[str, torch.Tensor]:
    """What is not trained."""
    frozen = {name: p for name, p in problem.named_parameters() if not p.requires_grad}
    return dict(problem.named_buffers()) | frozen


def _slot(problem: Problem, name: str) -> tuple[dict[str, Any], str]:
    """The place of a problem's parameter or buffer of this name: a dictionary and a key."""
    path, _, last = name.rpartition(".")
    module = problem.get_submodule(path)
    tensors: Any = module._parameters if last in module._parameters else module._buffers
    return tensors, last
