"""The figures of a split's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ketscale.config import Metric

if TYPE_CHECKING:
    import torch

    from ketscale.problems.control.objective import Objective

# Numbers of adaptation steps whose infidelity is always measured.
SHOWN = (0, 1, 5, 20)

# Of the run's propagator; see `deviations`.
DEVIATIONS = (
    Metric(
        "simulator_error", "largest error of a random pulse's fidelity", "", "down", least=0, about="error"
    ),
    Metric("negativity", "negativity of a random pulse's state", "", "down", least=0, about="unphysical"),
)

METRICS = (
    Metric("infidelity", "infidelity", "", "down", chance="data"),
    Metric("worst_infidelity", "largest infidelity of a task", "", "down"),
    *(
        Metric(f"infidelity_{steps}", f"infidelity after {steps} adaptation steps", "", "down")
        for steps in SHOWN
    ),
    *DEVIATIONS,
)


def figures(objective: Objective, final: torch.Tensor, course: torch.Tensor | None) -> dict[str, Any]:
    """The loss and the mean infidelity 1 - Tr(rho sigma) of tasks with these overlaps (n,); and, if there is a course of
    overlaps (n, steps + 1), the other metrics."""
    found: dict[str, Any] = {
        "loss": float(objective.loss(final).mean()),
        "infidelity": float((1 - final).mean()),
    }
    if course is not None:
        found["worst_infidelity"] = float((1 - final).max())
        for steps in SHOWN:
            defined = course.shape[1] > steps
            found[f"infidelity_{steps}"] = float((1 - course[:, steps]).mean()) if defined else None
        found["chance"] = objective.chance
        found["count"] = len(final)
    return found
