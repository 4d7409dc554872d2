"""The parameters of models that train together in one buffer, a row for each model, and their gradients in another.

So one operator updates or sends all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from ketscale.private_torch import copy_all
from ketscale.training import updates

# Every parameter begins where it could if it were allocated by itself: matrix products are fastest, and the same to
# the last bit, at equally aligned addresses.
ALIGNED_BYTES = 64


class Flat:
    """The trainable parameters of one or several models of the same shape, the *members*.

    From now on each parameter's data are a view of its member's row. A complex number takes two real ones, and between
    parameters there may be a few zeros.

    Attributes:
        members: the parameters of each member.
        values: all numbers, real (members, numbers).
        gradients: those that `collect` found, of the same shape.
        leaves: what to differentiate: the parameters if there is one member; else views (members, ...) of all members'
            values, one for each parameter.

    Raises:
        ValueError: there is no parameter, members differ in shape, or parameters differ in precision or device.
    """

    def __init__(self, members: Sequence[Sequence[nn.Parameter]]) -> None:
        forms = {tuple((parameter.shape, parameter.dtype) for parameter in member) for member in members}
        kinds = {(parameter.dtype.to_real(), parameter.device) for member in members for parameter in member}
        if len(forms) != 1 or len(kinds) != 1:
            raise ValueError(
                "parameters that train together must have the same shapes, one precision and one device, but they "
                f"have {len(forms)} kinds of shapes, and these precisions and devices: {sorted(map(str, kinds))}"
            )
        (self._form,), ((dtype, device),) = forms, kinds
        aligned = ALIGNED_BYTES // dtype.itemsize
        self._starts, numbers = [], 0
        for shape, kind in self._form:
            self._starts.append(numbers)
            numbers += math.ceil(math.prod(shape) * (1 + kind.is_complex) / aligned) * aligned
        self.members = [list(member) for member in members]
        values = torch.zeros(len(members), numbers, dtype=dtype, device=device)
        for row, member in zip(values, self.members, strict=True):
            for view, parameter in zip(self.views(row), member, strict=True):
                view.copy_(parameter.detach())
        self.values, self.gradients = values, torch.zeros_like(values)
        for member, value, gradient in zip(self.members, values, self.gradients, strict=True):
            for parameter, view, slot in zip(member, self.views(value), self.views(gradient), strict=True):
                parameter.data, parameter.grad = view, slot
        single = len(self.members) == 1
        self.writes = 0
        self._slots = self.views(self.gradients[0] if single else self.gradients)
        self.leaves: list[torch.Tensor] = (
            list(self.members[0]) if single else [view.requires_grad_() for view in self.views(values)]
        )
        # By the leaf's id.
        self._places = {id(leaf): slot for leaf, slot in zip(self.leaves, self._slots, strict=True)}

    def views(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """The parameters' parts of rows (..., numbers): views (..., *shape) of each parameter's type."""
        views = []
        for start, (shape, dtype) in zip(self._starts, self._form, strict=True):
            pair = (2,) if dtype.is_complex else ()
            part = rows[..., start : start + math.prod((*shape, *pair))].view(
                (*rows.shape[:-1], *shape, *pair)
            )
            views.append(torch.view_as_complex(part) if dtype.is_complex else part)
        return views

    def clear(self) -> None:
        """Forget the gradients of the last step."""
        # Autograd then keeps its own results, where it would add them to what is there.
        for leaf in self.leaves:
            leaf.grad = None

    def collect(self) -> None:
        """After the backward passes: copy the leaves' gradients to `gradients`, whose views become the leaves'."""
        sources = [
            torch.zeros_like(slot) if leaf.grad is None else leaf.grad
            for leaf, slot in zip(self.leaves, self._slots, strict=True)
        ]
        copy_all(self._slots, sources)
        for leaf, slot in zip(self.leaves, self._slots, strict=True):
            leaf.grad = slot

    def slot(self, parameter: torch.Tensor) -> torch.Tensor:
        """The view of `gradients` for a leaf; see `engines.vjp`."""
        self.writes += 1
        return self._places[id(parameter)]

    def norms(self) -> torch.Tensor:
        """The norm of each member's gradients (members,)."""
        if self.gradients.is_cpu:
            return updates.norms(self.gradients)
        # Row by row, so that how a member's squares are added does not depend on how many members there are.
        return torch.cat([torch.linalg.vector_norm(row, dim=1) for row in self.gradients.split(1)])


def state_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """A copy of the model's state dict, each tensor in memory of its own.

    The tensors of the state dict itself change with training, and saving a view saves its whole buffer.
    """
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}
