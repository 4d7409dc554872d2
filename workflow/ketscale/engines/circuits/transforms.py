"""Circuits under torch.func: vmap, grad, jacobians and forward mode, in any order.

A function of rows computes each row of its results from the same row of its arguments alone. That makes the three rules
that torch.func needs short. Under vmap, rows of all copies are one longer batch. The gradient is again a function of
rows. And forward mode is the gradient of the gradient, unless the function knows better (`Rows`). A row is a sample
with weights of its own (`called`), or a group of samples that share theirs (`grouped`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, reduce

import torch

from ketscale.autograd_function import applied, at_once
from ketscale.engines.circuits.circuit import Angles, Circuit, Column
from ketscale.engines.circuits.simulator import Simulator, stacks
from ketscale.engines.derivatives import Rows, paired
from ketscale.private_torch import only_mapped, transforms_active


def called(
    simulator: Simulator, ask: Callable[[Circuit, Angles], torch.Tensor], circuit: Circuit, angles: Angles
) -> torch.Tensor:
    """`ask(circuit, angles)` for angles that are `transformed`, (batch, ...); it asks `simulator` alone.

    If a simulator knows no transforms, the weights become inputs, so that there may be other weights for each row.

    Raises:
        UserError: as for the simulator; or second derivatives or forward mode are asked of one without.
    """
    if stacks(simulator):
        return ask(circuit, angles)
    alone, own = weights_as_inputs(circuit, *angles)

    def values(inputs: torch.Tensor) -> tuple[torch.Tensor]:
        return (ask(alone, Angles(inputs, inputs.new_empty(0))),)

    (result,) = applied(_Recorded(values), own)
    return result


def grouped(function: Callable[..., torch.Tensor], rows: Rows, *tensors: torch.Tensor) -> torch.Tensor:
    """One group's result, where torch.func.vmap makes one call of all groups.

    function: maps tensors (groups, ...) to a result (groups, ...). rows: it with its derivatives. tensors: of one group.
    """
    if only_mapped():
        return at_once(function, *tensors)
    (result,) = applied(rows, *(tensor[None] for tensor in tensors))
    return result[0]


def weights_as_inputs(
    circuit: Circuit, inputs: torch.Tensor, weights: torch.Tensor
) -> tuple[Circuit, torch.Tensor]:
    """The circuit without weights, and its inputs (..., batch, columns): the inputs, and the weights of each group."""
    shared = weights[..., None, : circuit.weights].expand(*inputs.shape[:-1], -1)
    return inputs_only(circuit), torch.cat([inputs[..., : circuit.inputs], shared], dim=-1)


def as_rows(
    circuit: Circuit, inputs: torch.Tensor, weights: torch.Tensor, initial: torch.Tensor | None
) -> tuple[Circuit, torch.Tensor, torch.Tensor | None]:
    """Groups, (groups, batch, ...), as one batch in which weights are inputs: the circuit, inputs and initial states."""
    alone, rows = weights_as_inputs(circuit, inputs, weights)
    if initial is not None:
        each = initial if initial.ndim == 3 else initial[:, None].expand(*inputs.shape[:2], -1)
        initial = each.flatten(0, 1)
    return alone, rows.flatten(0, 1), initial


@lru_cache(maxsize=256)
def inputs_only(circuit: Circuit) -> Circuit:
    """The same circuit with weight k as input `circuit.inputs + k`; constants stay what they are."""

    def moved(column: Column) -> Column:
        return Column("input", circuit.inputs + column.index) if column.kind == "weight" else column

    gates = (replace(gate, columns=tuple(map(moved, gate.columns))) for gate in circuit.gates)
    return Circuit(circuit.qubits, tuple(gates))


class _Recorded(Rows):
    """A function of rows that autograd records. Its derivatives are gradients, and gradients of these."""

    recorded = True

    def __init__(self, function: Callable[..., tuple[torch.Tensor, ...]]) -> None:
        self.function = function

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.function(*tensors)

    def plainly(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `ByOperators.plainly`."""
        return applied(self, *tensors)

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], needed: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """See `Differentiable.pull`."""
        return applied(_GradientOfRows(self, len(tensors)), *tensors, *cotangents)


class _GradientOfRows(_Recorded):
    """The function of `count` tensors and then the cotangents of their results that gives the tensors' gradients."""

    recorded = False

    def __init__(self, function: Rows, count: int) -> None:
        super().__init__(function)
        self.count = count

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        arguments, cotangents = tensors[: self.count], tensors[self.count :]
        found = pulled(self.function, arguments, cotangents, [True] * self.count)[1]
        return tuple(each for each in found if each is not None)


def pulled(
    function: Callable[..., tuple[torch.Tensor, ...]],
    tensors: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor],
    needed: Sequence[bool],
    *others: torch.Tensor,
) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor | None]]:
    """The results of a function of torch's operators, and its gradients by the tensors that need one, None for the others.

    Both can be differentiated again where gradients are enabled, and in torch.func. others: what else the function holds.
    """
    places = [place for place, need in enumerate(needed) if need]
    again = torch.is_grad_enabled() and any(x.requires_grad for x in (*tensors, *cotangents, *others))

    def of_needed(*some: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = dict(zip(places, some, strict=True))
        return function(*(given.get(place, each) for place, each in enumerate(tensors)))

    if not places:
        return function(*tensors), [None] * len(needed)
    if transforms_active():
        values, pull = torch.func.vjp(of_needed, *(tensors[place] for place in places))[:2]
        found = pull(tuple(cotangents))
    else:
        tensors = [tensor if again else tensor.detach() for tensor in tensors]
        with torch.enable_grad():
            # Views, so that nothing is differentiated by way of what the tensors were made of.
            views = [tensors[place].view_as(tensors[place]) if again else tensors[place] for place in places]
            views = [view if view.requires_grad else view.detach().requires_grad_() for view in views]
            values = of_needed(*views)
            total = reduce(torch.add, map(paired, values, cotangents))
            if total.requires_grad:
                found = torch.autograd.grad(total, views, create_graph=again, materialize_grads=True)
            else:  # nothing that the results depend on
                found = tuple(map(torch.zeros_like, views))
        values = values if again else tuple(value.detach() for value in values)
    gradients = dict(zip(places, found, strict=True))
    return values, [gradients.get(place) for place in range(len(needed))]
