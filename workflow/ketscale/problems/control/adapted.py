"""Pulses of a trained network for environments of one's own, outside of any run."""

from __future__ import annotations

import torch
from numpy.typing import ArrayLike
from torch import nn

from ketscale.engines.dynamics.propagators import Propagator, propagator
from ketscale.errors import UserError
from ketscale.problems.control.meta_learning import Inner, course
from ketscale.problems.control.policy import Network
from ketscale.problems.control.problem import Objective, Outputs
from ketscale.problems.control.workloads import ControlWorkload, Rates


def adapted(
    model: nn.Module,
    workload: ControlWorkload,
    tasks: ArrayLike | torch.Tensor,
    steps: int = 10,
    rate: float = 0.02,
    simulator: Propagator | None = None,
) -> Outputs:
    """The pulses of a network for tasks, after gradient steps on each task's loss, and the overlaps on the way.

    The overlaps (n, steps + 1) are Tr(rho sigma) after 0, 1, ... steps; the pulses (n, segments, controls) are those
    after the last one, in units of the system's controls. Both are in the model's precision, without gradients.

    model: a policy or a robust_grape, such as `ketscale.load` gives; it is left as it is.
    workload: the workload that the model was trained on, with its settings.
    tasks: an array (n, inputs), in the order of `workload.varied`; values may be outside the ranges of the training.
    steps, rate: the model's `inner_steps` and `inner_learning_rate`, or others.
    simulator: evaluates the dynamics; None: `exact`.

    Raises:
        UserError: the tasks have another shape or are not finite, their environments are impossible, or the model does not adapt.

    Example:
        >>> workload = QubitSpectrum()
        >>> task = [[quantity.low for quantity in workload.varied]]
        >>> overlaps, pulses = adapted(ketscale.construct("policy"), workload, task, steps=2)
        >>> overlaps.shape
        torch.Size([1, 3])
    """
    model = getattr(model, "module", model)
    if not isinstance(model, Network):
        raise UserError(
            f"model: a {type(model).__name__} does not adapt to tasks; use a policy or a robust_grape"
        )
    parameter = next(model.parameters())
    values = torch.as_tensor(tasks, dtype=torch.float64, device=parameter.device)
    names = [quantity.name for quantity in workload.varied]
    if values.ndim != 2 or values.shape[1] != len(names):
        raise UserError(f"tasks: must be (n, {len(names)}), of {', '.join(names)}, not {tuple(values.shape)}")
    if not bool(values.isfinite().all()):
        raise UserError("tasks: some are not finite; give numbers")
    environment = Rates(
        *(part.to(parameter.dtype) for part in workload.environment(_completed(workload, values)))
    )
    objective = Objective(workload, simulator or propagator("exact"))
    pulses = list(
        course(
            model,
            model.layers(),
            values.to(parameter.dtype),
            Inner(steps, rate),
            lambda controls: objective.losses(controls, environment),
        )
    )
    with torch.no_grad():
        overlaps = torch.stack([objective.overlaps(each, environment) for each in pulses], 1)
    return Outputs(overlaps, pulses[-1])


def _completed(workload: ControlWorkload, values: torch.Tensor) -> torch.Tensor:
    """All quantities (n, quantities) of tasks; those that do not vary have their one value."""
    columns = iter(values.unbind(1))
    return torch.stack(
        [
            next(columns) if quantity in workload.varied else values.new_full((len(values),), quantity.low)
            for quantity in workload.quantities
        ],
        1,
    )
