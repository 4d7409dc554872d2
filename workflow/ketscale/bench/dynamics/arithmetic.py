"""The arithmetic of a compiled propagator on a case."""

from __future__ import annotations

import numpy as np
import torch

from ketscale.bench.dynamics.case import Case
from ketscale.engines.dynamics.evolution import Division
from ketscale.engines.dynamics.plan import BLOCK, Forms
from ketscale.engines.dynamics.tasks import Tasks, coefficients


def flops(case: Case, division: Division) -> int:
    """Floating point operations of value and gradient; a multiply-add counts as two.

    Only the products of generators and vectors and their gradients are counted: what the mathematics asks for.
    """
    generators = case.system.generators
    tasks = Tasks(torch.from_numpy(case.controls), case.duration, torch.from_numpy(case.rates))
    fixed, controls, initial = coefficients(case.system, tasks)
    shared, controlled = generators.dense(initial)
    matrices = torch.einsum("tf,fab->tab", fixed, shared)[:, None] + torch.einsum(
        "tsk,kab->tsab", controls, controlled
    )
    norms = (tasks.segment * matrices).abs().sum(-1).amax(-1).numpy()
    if division.reaches:
        steps = np.maximum(1, np.ceil(norms / division.reaches[-1]))
        degrees = np.array(division.degrees)[
            np.searchsorted(division.reaches[:-1], norms / steps, side="left")
        ]
    else:
        steps, degrees = np.full_like(norms, division.steps), np.full_like(norms, division.degrees[0])
    forms = Forms(generators)
    entries, rows = len(forms.entries), len(forms.rows)
    # Forward; again within a segment, in blocks; and each step back: forward once more, gradients and adjoint.
    blocks = np.ceil(steps / BLOCK)
    again = steps - 1 + BLOCK * blocks * (blocks - 1) / 2
    multiplied = (steps + again) * (entries + rows) + steps * (3 * entries + 2 * rows)
    return int(2 * (degrees * multiplied).sum())
