"""Control tasks in plain torch, as one would write them: exponentials of Liouvillians, and autograd."""

from __future__ import annotations

import torch

from benchmarks.dynamics import ControlTasks, Outcome
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
        made = (torch.from_numpy(each) for each in liouvillians(tasks))
        drift, controlled, jumps, target = made
        amplitudes = torch.from_numpy(tasks.controls).requires_grad_()
        rates, tau = torch.from_numpy(tasks.rates), tasks.duration / tasks.controls.shape[1]

        def call() -> Outcome:
            fixed = drift + torch.einsum("tj,jab->tab", rates.to(jumps.dtype), jumps)
            driven = torch.einsum("tsk,kab->tsab", amplitudes.to(jumps.dtype), controlled)
            steps = torch.linalg.matrix_exp(tau * (fixed[:, None] + driven))
            state = torch.zeros(len(steps), steps.shape[-1], 1, dtype=steps.dtype)
            state[:, 0] = 1
            for number in range(steps.shape[1]):
                state = steps[:, number] @ state
            overlaps = (state[..., 0] @ target).real
            (gradient,) = torch.autograd.grad(overlaps.sum(), amplitudes)
            return overlaps.detach().numpy(), gradient.numpy()

        return call
