"""Derivatives of circuits in torch, of first and second order, in reverse and forward mode.

With F the result of a circuit, D_k(t_1, ..., t_k) is F's derivative along k tangents, and P_k(c; t_1, ..., t_k) the
gradient of c . D_k. Each is linear in everything but the point, and symmetric in the tangents, so that the two are closed:
differentiating D_k or P_k along tangents adds one, and the gradient makes P_k and P_(k-1) of D_k, and D_(k+1) and P_(k+1)
of P_k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, NamedTuple, cast

import torch

from ketscale.engines.circuits.checks import one_gradient
from ketscale.engines.derivatives import Rows, paired
from ketscale.errors import UserError
from ketscale.private_torch import applied

Wanted = Literal["input", "weight", "initial", "mix"]

# How many tangents kernels take, with a cotangent one fewer.
MOST = 2


class Terms(NamedTuple):
    """The operands of D_k, or with a cotangent of P_k: the point (inputs, weights, perhaps an initial state), and tangents.

    All have groups in front, or none has: inputs (groups, batch, columns), weights (groups, columns), initial states
    (groups, 2**n) or (groups, batch, 2**n), cotangent (groups, batch, results). Those of JAX: see `interop.jax_primitive`.
    """

    point: Sequence[Any]
    tangents: Sequence[Sequence[Any]]
    cotangent: Any = None


def wanted_of(**tensors: torch.Tensor | None) -> tuple[Wanted, ...]:
    """The tensors by which a call must be differentiable, in their order."""
    if not torch.is_grad_enabled():
        return ()
    found = (name for name, tensor in tensors.items() if tensor is not None and tensor.requires_grad)
    return cast(tuple[Wanted, ...], tuple(found))


def changes(terms: Terms, moves: Terms) -> Iterator[Terms]:
    """What is to be added up for the change of D_k or P_k, where the operands change by `moves` (None for 0)."""
    if any(move is not None for move in moves.point):
        yield terms._replace(tangents=[*terms.tangents, moves.point])
    for number, moved in enumerate(moves.tangents):
        if any(move is not None for move in moved):
            others = terms.tangents[:number], terms.tangents[number + 1 :]
            yield terms._replace(tangents=[*others[0], moved, *others[1]])
    if moves.cotangent is not None:
        yield terms._replace(cotangent=moves.cotangent)


@dataclass(eq=False)
class Derivative(Rows):
    """D_k, or P_k by the `wanted` operands, as a function of its terms, one tensor after the other.

    values: F of a point, differentiable once. along: a kernel's result for terms with tangents, what is wanted, and `valued`.
    count: the operands of a point. order: k. valued: P_k is followed by D_k. saved: P_0 of a cotangent, if it is known
    without F. alone: the terms are of one group, without groups in front, which spares the time of many small operators.
    """

    values: Callable[..., torch.Tensor]
    along: Callable[..., tuple[torch.Tensor, ...]]
    count: int
    order: int = 0
    wanted: tuple[bool, ...] | None = None
    valued: bool = False
    saved: Callable[[torch.Tensor], tuple[torch.Tensor, ...]] | None = None
    alone: bool = False

    @property
    def recorded(self) -> bool:
        """See `Rows.recorded`."""
        return self.order == 0 and self.wanted is None

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        terms = self._terms(tensors)
        if self.order:
            return self.along(terms, self.wanted, self.valued)
        if self.wanted is None:
            return (self.values(*terms.point),)
        assert terms.cotangent is not None
        if self.saved is not None:
            return self.saved(terms.cotangent)
        if not any(tensor.numel() for tensor in terms.point):  # nothing that a result could depend on
            return tuple(
                torch.zeros_like(x) for x, there in zip(terms.point, self.wanted, strict=True) if there
            )
        with torch.enable_grad():
            point = [
                x.detach().requires_grad_(there) for x, there in zip(terms.point, self.wanted, strict=True)
            ]
            return torch.autograd.grad(
                paired(self.values(*point), terms.cotangent),
                [x for x in point if x.requires_grad],
                materialize_grads=True,
            )

    def many(self, members: int, mapped: Sequence[bool], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.many`."""
        if not self.alone:
            return super().many(members, mapped, *tensors)
        every = (x if each else x.expand(members, *x.shape) for x, each in zip(tensors, mapped, strict=True))
        return applied(replace(self, alone=False, saved=None), *every)

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], needed: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """See `Differentiable.pull`."""
        for cotangent in cotangents:
            one_gradient("simulator 'fused'", cotangent)
        terms = self._terms(tensors)
        point, tangents, c = terms
        blocks = [
            tuple(needed[n : n + self.count]) for n in range(0, (1 + self.order) * self.count, self.count)
        ]
        if self.wanted is None:
            (c,) = cotangents
            results = self._gradients(terms._replace(cotangent=c), blocks[0])
            for number, block in enumerate(blocks[1:]):
                others = (*tangents[:number], *tangents[number + 1 :])
                results += self._gradients(Terms(point, others, c), block)
            return results
        given = iter(cotangents)
        along = tuple(
            next(given) if there else torch.zeros_like(x) for x, there in zip(point, self.wanted, strict=True)
        )
        moved = Terms(point, (*tangents, along), c)
        results = self._gradients(moved, blocks[0], valued=needed[-1])
        value = results.pop() if needed[-1] else None
        for number, block in enumerate(blocks[1:]):
            turned = (*tangents[:number], along, *tangents[number + 1 :])
            results += self._gradients(Terms(point, turned, c), block)
        return [*results, value]

    def push(
        self, tensors: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.push`."""
        for tangent in tangents:
            if tangent is not None:
                one_gradient("simulator 'fused'", tangent)
        terms = self._terms(tensors)
        found = []
        for change in changes(terms, self._terms(tangents)):
            filled = (
                tuple(
                    torch.zeros_like(x) if t is None else t for x, t in zip(terms.point, moved, strict=True)
                )
                for moved in change.tangents
            )
            found.append(self._of(change._replace(tangents=tuple(filled)), self.wanted))
        return tuple(sum(each[1:], each[0]) for each in zip(*found, strict=True))

    def _terms(self, tensors: Sequence[torch.Tensor | None]) -> Terms:
        blocks = [tuple(tensors[n * self.count :][: self.count]) for n in range(1 + self.order)]
        return Terms(blocks[0], tuple(blocks[1:]), None if self.wanted is None else tensors[-1])

    def _gradients(
        self, terms: Terms, wanted: tuple[bool, ...], valued: bool = False
    ) -> list[torch.Tensor | None]:
        """P_k by each operand, None for those that are not wanted; and D_k after them if that is asked for too."""
        if not any(wanted):
            value = self._of(terms._replace(cotangent=None), None) if valued else ()
            return [*[None] * self.count, *value]
        found = iter(self._of(terms, wanted, valued))
        return [*(next(found) if there else None for there in wanted), *found]

    def _of(
        self, terms: Terms, wanted: tuple[bool, ...] | None, valued: bool = False
    ) -> tuple[torch.Tensor, ...]:
        order = len(terms.tangents)
        if self.valued or order > MOST - (wanted is not None):
            raise UserError(
                "simulator 'fused' has first and second derivatives, and no third ones: use simulator 'default.qubit' for these"
            )
        function = replace(self, order=order, wanted=wanted, valued=valued, saved=None)
        last = () if wanted is None else (terms.cotangent,)
        return applied(function, *terms.point, *chain.from_iterable(terms.tangents), *last)
