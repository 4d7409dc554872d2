"""Control tasks and gates in plain torch, as one would write them: exponentials of generators, and autograd."""

from __future__ import annotations

import torch

from benchmarks.dynamics import ControlTasks, Outcome
from benchmarks.gates import GateTasks
from benchmarks.peers.liouville import liouvillians
from benchmarks.runner import Call


class Control:
    """`torch.linalg.matrix_exp` of all segments of all tasks at once, applied in turn."""

    most: int | None = None
    exact = True

    def __init__(self, name: str) -> None:
        pass

    def prepare(self, tasks: ControlTasks) -> Call:
        """See `dynamics.Own.prepare`."""
        drift, controlled, jumps, target = map(torch.from_numpy, liouvillians(tasks))
        amplitudes = torch.from_numpy(tasks.controls).requires_grad_()
        rates, tau = torch.from_numpy(tasks.rates), tasks.duration / tasks.controls.shape[1]

        def call() -> Outcome:
            fixed = drift + torch.einsum("tj,jab->tab", rates.to(jumps.dtype), jumps)
            driven = torch.einsum("tsk,kab->tsab", amplitudes.to(jumps.dtype), controlled)
            steps = torch.linalg.matrix_exp(tau * (fixed[:, None] + driven))
            state = torch.zeros(len(steps), steps.shape[-1], 1, dtype=steps.dtype)
            state[:, 0] = 1
            states = [state]
            for number in range(steps.shape[1]):
                states.append(steps[:, number] @ states[-1])
            result = torch.stack(states, 1) if tasks.trajectory else states[-1]
            overlaps = (result[..., 0] @ target).real
            (gradient,) = torch.autograd.grad(overlaps.sum(), amplitudes)
            return overlaps.detach().numpy(), gradient.numpy()

        return call


class Gates(Control):
    """`torch.linalg.matrix_exp` of all segments of all pulses at once, whose neighbours are multiplied, all pairs at once."""

    def prepare(self, tasks: GateTasks) -> Call:  # type: ignore[override]
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
