"""Records a propagator's forward and backward passes as spans of a sampled step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from numpy.typing import ArrayLike

from ketscale.engines.dynamics.propagators import Propagator
from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.tasks import Tasks
from ketscale.measure.spans import active, span, with_backward_span


@dataclass(frozen=True)
class SpannedPropagator:
    """`propagator`, with its time recorded as the spans `dynamics.forward` and `dynamics.backward`.

    A gradient's own derivatives, of any order, count as `dynamics.backward` too.
    """

    propagator: Propagator

    def state(self, system: System, tasks: Tasks) -> torch.Tensor:
        """See `Propagator.state`."""
        return _counted(lambda given: self.propagator.state(system, given), tasks)

    def expval(self, system: System, tasks: Tasks, observables: ArrayLike) -> torch.Tensor:
        """See `Propagator.expval`."""
        return _counted(lambda given: self.propagator.expval(system, given, observables), tasks)


def _counted(evaluate: Callable[[Tasks], torch.Tensor], tasks: Tasks) -> torch.Tensor:
    if active() is None:
        return evaluate(tasks)
    optional = {"rates": tasks.rates, "parameters": tasks.parameters, "initial": tasks.initial}
    given = {name: tensor for name, tensor in optional.items() if tensor is not None}

    def forward(controls: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        with span("dynamics.forward"):
            return evaluate(Tasks(controls, tasks.duration, **dict(zip(given, rest, strict=True))))

    return with_backward_span("dynamics.backward", forward, tasks.controls, *given.values())
