"""The problem of a gate: columns of a unitary, driven by a complex Hamiltonian."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ketscale.config import Settings
from ketscale.problems import models
from ketscale.problems.problem import Problem
from ketscale.problems.samplers import All


class Pulses(nn.Module):
    """Amplitudes (segments, 2), from N(0, 0.5^2) at the start."""

    def __init__(self, levels: int, segments: int) -> None:
        super().__init__()
        self.amplitudes = nn.Parameter(0.5 * torch.randn(segments, 2))


class Gate(Problem):
    """1 - |mean over columns of <target|evolved>|^2."""

    linear = False

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        levels, segments = settings.sizes["levels"], settings.sizes["segments"]
        workload = settings.workload
        self.step_time, self.effort = workload.time / segments, workload.effort
        self.exact = settings.simulator.device == "matrix-exponential"
        self.model = models.of_settings(settings, simulator=None)
        self.sampler = All(levels)
        self.splits = {"validation": levels, "test": levels}
        hop = torch.diag(torch.ones(levels - 1), 1)
        drift = torch.diag(torch.arange(levels, dtype=torch.float32) ** 2 / levels)
        operators = torch.stack([drift + 0j, hop + hop.T + 0j, 1j * (hop - hop.T)])
        self.register_buffer("operators", operators, persistent=False)
        self.register_buffer("target", torch.eye(levels).roll(1, 0) + 0j, persistent=False)

    def evolved(self, columns: torch.Tensor) -> torch.Tensor:
        """The columns of the evolution's unitary, (levels, columns)."""
        drift, *drives = self.get_buffer("operators")
        state = torch.eye(len(drift), dtype=drift.dtype, device=drift.device)[:, columns]
        for first, second in self.model.amplitudes:
            hamiltonian = drift + first * drives[0] + second * drives[1]
            if self.exact:
                state = torch.linalg.matrix_exp(-1j * self.step_time * hamiltonian) @ state
            else:
                energies, basis = torch.linalg.eigh(hamiltonian)
                phases = torch.exp(-1j * self.step_time * energies)
                state = basis @ (phases[:, None] * (basis.mH @ state))
        return state

    def overlaps(self, columns: torch.Tensor) -> torch.Tensor:
        return (self.get_buffer("target")[:, columns].conj() * self.evolved(columns)).sum(0)

    def sums(self, indices: torch.Tensor, step: int) -> torch.Tensor:
        return self.overlaps(indices).sum().reshape(1)

    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        return 1 - (sums[0] / count).abs() ** 2

    def penalty(self) -> torch.Tensor:
        return self.effort * self.model.amplitudes.square().mean()

    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.overlaps(indices)

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        infidelity = float(self.combine(outputs.sum().reshape(1), len(outputs)))
        return {"loss": infidelity + float(self.penalty().detach()), "infidelity": infidelity}
