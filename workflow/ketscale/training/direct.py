"""Sums and their gradients without autograd, where a problem offers that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ketscale.engines.randomness import Step
from ketscale.engines.vjp import VJP
from ketscale.problems.problem import Problem
from ketscale.spans import span
from ketscale.training.flat import Flat

# `Problem.vjp` of one run or of several.
Offer = Callable[[torch.Tensor, Step], VJP | None]


class Direct:
    """Computes sums and their gradients without autograd if the problem offers that (`engines.vjp`), into a `Flat`.

    offer: None if there is none.
    """

    def __init__(self, offer: Offer | None, flat: Flat) -> None:
        self._offer, self._flat = offer, flat
        self._without = {0}  # the numbers of samples for which nothing was offered, as for none
        self._unrecorded = torch.no_grad()  # as a decorator it would be made in each call

    def sums(
        self, indices: torch.Tensor, step: Step, pull: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor | None:
        """The sums for indices (n,) or (runs, n), with the gradients in their slots; None without an offer.

        pull: gives the gradient of the loss by the sums.

        Raises:
            RuntimeError: the problem left out a parameter, or has one in two places.
        """
        samples, flat = indices.shape[-1], self._flat
        if self._offer is None or samples in self._without:
            return None
        with self._unrecorded:
            with span("classical.forward"):
                vjp = self._offer(indices, step)
            if vjp is None:
                self._without.add(samples)
                return None
            cotangent = pull(vjp.value)
            flat.writes = 0
            with span("classical.backward"):
                vjp.back(cotangent, flat)
        if flat.writes != len(flat.leaves):
            raise RuntimeError(
                f"a problem's `vjp` wrote {flat.writes} gradients of {len(flat.leaves)} parameters"
            )
        return vjp.value


def possible(problem: Problem) -> bool:
    """Whether a problem may be differentiated without autograd: on a CPU, all of it trained, and no hook of a tensor."""
    parameters: list[Any] = list(problem.parameters())
    return all(p.is_cpu and p.requires_grad for p in parameters) and not any(
        p._backward_hooks or p._post_accumulate_grad_hooks for p in parameters
    )
