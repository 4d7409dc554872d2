"""Several sets of weights, as of seeds that are trained together: in one call of `fused`, or one call after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.func import vmap

from ketscale.bench.agreement import TOLERANCES, distance, vector
from ketscale.bench.cases import Call, Case
from ketscale.bench.selection import SETS
from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.spanned import Spanned

Parts = tuple[torch.Tensor, ...]


class Groups:
    """`SETS` sets of inputs and weights; the first are the case's, whose loss and gradients a call returns.

    name: of `selection.GROUPS`.
    """

    uncapturable: str | None = None

    def __init__(self, name: str, device: torch.device) -> None:
        self._together = name == "fused-together"
        self._device = device

    def prepare(self, case: Case) -> Call:
        """See `Subject.prepare`.

        Raises:
            ValueError: the numbers of any set are not those of a call of its own.
        """
        together, apart = (self._call(case, together) for together in (True, False))
        error = max(
            distance(vector(found), vector(expected))
            for found, expected in zip(zip(*together(), strict=True), zip(*apart(), strict=True), strict=True)
        )
        if not error <= TOLERANCES[case.real.type]:
            raise ValueError(
                f"a set's numbers are off by {error:.1e} of the norm from those of a call of its own"
            )
        call = together if self._together else apart
        return lambda: tuple(part[0] for part in call())

    def _call(self, case: Case, together: bool) -> Call:
        """Losses and gradients of all sets, each (SETS, ...)."""
        coefficients = torch.tensor(case.coefficients, device=self._device)
        parts = (torch.tensor(part, device=self._device) for part in (case.inputs, case.weights))
        # Sets differ, so that one cannot pass for another.
        inputs, weights = (torch.stack([part + k / SETS for k in range(SETS)]) for part in parts)
        simulator = Spanned(Fused())

        def loss(inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
            return (simulator.expval(case.circuit, Angles(inputs, weights), case.words) * coefficients).sum()

        def differentiated(function: Callable[..., torch.Tensor], angles: Sequence[torch.Tensor]) -> Parts:
            values = function(*angles)
            # autograd refuses a tensor that nothing depends on, such as weights of shape (0,).
            leaves = [tensor for tensor in angles if tensor.numel()]
            return values.detach(), *torch.autograd.grad(values.sum(), leaves)

        if together:
            leaves = [tensor.requires_grad_() for tensor in (inputs, weights)]
            return lambda: differentiated(vmap(loss), leaves)
        sets = [[part.clone().requires_grad_() for part in own] for own in zip(inputs, weights, strict=True)]
        return lambda: tuple(zip(*(differentiated(loss, own) for own in sets), strict=True))
