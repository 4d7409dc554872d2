"""What a model's quality is measured by, and the losses and metrics of what is learned from targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """A measure of a model's quality, or of what it was tested on.

    name: used in metrics and tables, e.g. 'accuracy'. title: used in figures and sentences. unit: on axes, e.g.
    'share correct'; one that begins with 'share' means a share of counted cases, from 0 to 1. better: which direction
    is better, 'up' or 'down'; None if it describes the samples, so that no value is better than another. chance: the
    value that guessing gives; 'data' if it depends on the data, so that the problem's metrics have it as `chance` (of
    the headline metric); None if there is no such value. about: what it is a property of. error: of the simulator, how
    far its results are from exact ones, on the test split alone, and equal for all seeds.
    """

    name: str
    title: str
    unit: str
    better: Literal["up", "down"] | None
    chance: float | Literal["data"] | None = None
    about: Literal["model", "error"] = "model"

    @property
    def is_share(self) -> bool:
        """Whether it is a share of counted cases, shown in per cent and pooled over folds."""
        return self.unit.startswith("share")


LOSS = "loss"
# What is to be predicted of samples: one of several classes, or real numbers.
Targets = Literal["classes", "numbers"]


# The task of workloads whose targets are numbers.
REGRESSION = "regression"
# The usual metrics of each kind, which `Classification.metrics` and `Regression.metrics` compute; the headline metric first.
METRICS: Mapping[Targets, tuple[Metric, ...]] = {
    "classes": (
        Metric("accuracy", "accuracy", "share correct", "up", chance="data"),
        Metric("auc", "AUC", "", "up", chance=0.5),
        Metric("f1", "weighted F1", "", "up"),
    ),
    "numbers": (
        Metric("rmse", "RMSE", "target units", "down", chance="data"),
        Metric("mae", "MAE", "target units", "down"),
        Metric("r2", "R²", "", "up"),
    ),
}
# The losses of each kind of targets, the usual one first.
LOSSES: Mapping[Targets | None, tuple[str, ...]] = {
    None: (),
    "classes": ("cross-entropy", "hinge"),
    "numbers": ("mean-squared-error", "huber"),
}
# scikit-learn's metrics of each kind, by which direction is better; it has those of `down` with `neg_` before the name.
_NAMES: Mapping[tuple[Targets, Literal["up", "down"]], str] = {
    ("classes", "up"): "average_precision balanced_accuracy d2_log_loss_score f1_macro f1_micro f1_weighted jaccard_macro "
    "jaccard_micro jaccard_weighted matthews_corrcoef precision_macro precision_micro precision_weighted recall_macro "
    "recall_micro recall_weighted roc_auc_ovo roc_auc_ovo_weighted roc_auc_ovr roc_auc_ovr_weighted top_k_accuracy",
    ("classes", "down"): "brier_score log_loss",
    ("numbers", "up"): "d2_absolute_error_score explained_variance",
    ("numbers", "down"): "max_error mean_absolute_error mean_absolute_percentage_error mean_gamma_deviance "
    "mean_poisson_deviance mean_squared_error mean_squared_log_error median_absolute_error root_mean_squared_error "
    "root_mean_squared_log_error",
}  # fmt: skip

# Metrics of probabilities, and those that several targets do not have.
OF_PROBABILITIES = frozenset({"brier_score", "d2_log_loss_score", "log_loss"})
OF_ONE_TARGET = frozenset({"max_error", "mean_gamma_deviance", "mean_poisson_deviance"})


def metrics_by_name(targets: Targets) -> dict[str, Metric]:
    """The metrics that a workload may choose: the usual ones, and scikit-learn's."""
    by_name = {
        name: Metric(name, name.replace("_", " "), "", better, "data")
        for (kind, better), names in _NAMES.items()
        if kind == targets
        for name in names.split()
    }
    return by_name | {metric.name: metric for metric in METRICS[targets]}
