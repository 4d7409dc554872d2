"""Circuits under torch.func: vmap, grad, jacobians and forward mode, in any order.

A function of rows computes each row of its results from the same row of its arguments alone. That makes the three rules
that torch.func needs short. Under vmap, rows of all copies are one longer batch. The gradient is again a function of
rows. And forward mode is the gradient of the gradient, unless the function knows better (`Rows`). A row is a group of
samples that share their weights (`grouped`), or a sample with weights of its own (`as_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, reduce

import torch

from ketscale.autograd_function import applied, at_once
from ketscale.engines.circuits.circuit import Circuit, Column
from ketscale.engines.derivatives import Rows, paired
from ketscale.private_torch import only_mapped, transforms_active


def grouped(function: Callable[..., torch.Tensor], rows: Rows, *tensors: torch.Tensor) -> torch.Tensor:
    """One group's result, where torch.func.vmap makes one call of all groups.

    function: maps tensors (groups, ...) to a result (groups, ...). rows: it with its derivatives. tensors: of one group.
    """
    if only_mapped():
        return at_once(function, *tensors)
    (result,) = applied(rows, *(tensor[None] for tensor in tensors))
    return result[0]


def side_by_side(inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Inputs (..., batch, columns), and after them the weights (..., columns) of their group."""
    return torch.cat([inputs, weights[..., None, :].expand(*inputs.shape[:-1], -1)], dim=-1)


def weights_as_inputs(
    circuit: Circuit, inputs: torch.Tensor, weights: torch.Tensor
) -> tuple[Circuit, torch.Tensor]:
    """The circuit without weights, and its inputs (..., batch, columns): the inputs, and the weights of each group."""
    return inputs_only(circuit), side_by_side(inputs[..., : circuit.inputs], weights[..., : circuit.weights])


def as_rows(
    circuit: Circuit, inputs: torch.Tensor, weights: torch.Tensor, initial: torch.Tensor | None
) -> tuple[Circuit, torch.Tensor, torch.Tensor | None]:
    """Groups, (groups, batch, ...), as one batch in which weights are inputs: the circuit, inputs and initial states."""
    shared, rows = weights_as_inputs(circuit, inputs, weights)
    if initial is not None:
        each = initial if initial.ndim == 3 else initial[:, None].expand(*inputs.shape[:2], -1)
        initial = each.flatten(0, 1)
    return shared, rows.flatten(0, 1), initial


@lru_cache(maxsize=256)
def inputs_only(circuit: Circuit) -> Circuit:
    """The same circuit with weight k as input `circuit.inputs + k`; constants stay what they are."""

    def moved(column: Column) -> Column:
        return Column("input", circuit.inputs + column.index) if column.kind == "weight" else column

    gates = (replace(gate, columns=tuple(map(moved, gate.columns))) for gate in circuit.gates)
    return Circuit(circuit.qubits, tuple(gates))


def pulled(
    function: Callable[..., tuple[torch.Tensor, ...]],
    tensors: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor],
    needs: Sequence[bool],
    *others: torch.Tensor,
) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor | None]]:
    """The results of a function of torch's operators, and its gradients by the tensors that need one, None for the others.

    Both can be differentiated again where gradients are enabled, and in torch.func. others: what else the function holds.
    """
    places = [place for place, need in enumerate(needs) if need]
    again = torch.is_grad_enabled() and any(x.requires_grad for x in (*tensors, *cotangents, *others))

    def of_needed(*some: torch.Tensor) -> tuple[torch.Tensor, ...]:
        by_place = dict(zip(places, some, strict=True))
        return function(*(by_place.get(place, each) for place, each in enumerate(tensors)))

    if not places:
        return function(*tensors), [None] * len(needs)
    if transforms_active():
        values, pull = torch.func.vjp(of_needed, *(tensors[place] for place in places))[:2]
        slopes = pull(tuple(cotangents))
    else:
        tensors = [tensor if again else tensor.detach() for tensor in tensors]
        with torch.enable_grad():
            # Views, so that nothing is differentiated by way of what the tensors were made of.
            views = [tensors[place].view_as(tensors[place]) if again else tensors[place] for place in places]
            views = [view if view.requires_grad else view.detach().requires_grad_() for view in views]
            values = of_needed(*views)
            total = reduce(torch.add, map(paired, values, cotangents))
            if total.requires_grad:
                slopes = torch.autograd.grad(total, views, create_graph=again, materialize_grads=True)
            else:  # nothing that the results depend on
                slopes = tuple(map(torch.zeros_like, views))
        values = values if again else tuple(value.detach() for value in values)
    gradients = dict(zip(places, slopes, strict=True))
    return values, [gradients.get(place) for place in range(len(needs))]
