"""`pade4`: commutator-free steps of order 4 whose exponentials are diagonal Pade approximants."""

from collections.abc import Mapping
from typing import Any

import torch

from ketscale.engines.dynamics.system import System
from ketscale.engines.evolved import CodeKind
from ketscale.engines.pulses.evolution import WholeSpace


class Pade(WholeSpace):
    """(12 + 6 i H - H^2)^-1 (12 - 6 i H - H^2) instead of exp(-i H), which it is up to terms in H^5."""

    def columns(
        self,
        system: System,
        amplitudes: torch.Tensor,
        duration: torch.Tensor,
        columns: torch.Tensor,
        parameters: torch.Tensor | None,
    ) -> torch.Tensor:
        drift, drives = matrices(system.drift, columns), matrices(system.controls, columns)
        factors = torch.tensor(system.parameter_values) if parameters is None else parameters
        controls, durations = self.segments(amplitudes, duration)
        hamiltonians = torch.einsum("t,tab->ab", factors.to(columns), drift) + torch.einsum(
            "sk,kab->sab", controls.to(columns), drives
        )
        scaled = durations[:, None, None] * hamiltonians
        even = 12 * torch.eye(system.dimension, device=scaled.device) - scaled @ scaled
        state = columns
        for each in torch.linalg.solve(even + 6j * scaled, even - 6j * scaled):
            state = each @ state
        return state

    def code(self, device: torch.device) -> CodeKind:
        return "torch"


def matrices(operators: Mapping[str, Any], like: torch.Tensor) -> torch.Tensor:
    """Operators of the whole space, which may be sparse, as one tensor (operators, d, d)."""
    dense = (each.toarray() if hasattr(each, "toarray") else each for each in operators.values())
    tensors = (each if isinstance(each, torch.Tensor) else torch.tensor(each) for each in dense)
    return torch.stack([each.to(like) for each in tensors])
