"""Gates in plain torch, as one would write them: exponentials of Hamiltonians, and autograd."""

from __future__ import annotations

import torch

from benchmarks.dynamics import Outcome
from benchmarks.gates import GateTasks
from benchmarks.runner import Call


class Gates:
    """`torch.linalg.matrix_exp` of all segments of all pulses at once, whose neighbours are multiplied, all pairs at once."""

    def __init__(self, name: str) -> None:
        pass

    def prepare(self, tasks: GateTasks) -> Call:
        """See `gates.Own.prepare`."""
        drift, operators, target = map(torch.from_numpy, (tasks.drift, tasks.operators, tasks.target.conj()))
        controls, size = torch.from_numpy(tasks.controls).requires_grad_(), float(target.norm()) ** 2

        def call() -> Outcome:
            driven = torch.einsum("tsk,kab->tsab", controls.to(drift.dtype), operators)
            steps = torch.linalg.matrix_exp(-1j * tasks.tau * (drift + driven))
            while (segments := steps.shape[1]) > 1:
                pairs = steps[:, 1::2] @ steps[:, : segments - 1 : 2]
                steps = torch.cat([pairs, steps[:, -1:]], 1) if segments % 2 else pairs
            final = steps[:, 0]
            infidelities = 1 - (target * final).sum((-1, -2)).abs() ** 2 / size**2
            (gradient,) = torch.autograd.grad(infidelities.sum(), controls)
            return infidelities.detach().numpy(), gradient.numpy()

        return call
