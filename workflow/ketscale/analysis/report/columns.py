"""Which columns of each table the page shows, under which heading and in which group; the CSV files have all columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ketscale.analysis.points import metrics, size_axes
from ketscale.config import Config


@dataclass(frozen=True)
class Group:
    """Columns that a reader shows or hides together: their headings by name. folded: hidden at first.

    A name LOW..HIGH is one column of two: 'LOW to HIGH'.
    """

    title: str
    columns: dict[str, str]
    folded: bool = False


def groups(configs: Sequence[Config]) -> dict[str, tuple[Group, ...]]:
    """The groups of each table of the page, in the order of their columns; of several configs, also the results folder."""
    sizes = {name: axis.title for config in configs for name, axis in size_axes(config).items()}
    figures = tuple(dict.fromkeys(name for config in configs for name in metrics(config)))
    found = _groups(sizes, figures)
    if len(configs) > 1:
        folder = Group("folder", {"results": "results"})
        found = {name: (folder, *of_table) for name, of_table in found.items()}
    return found


def _groups(sizes: Mapping[str, str], figures: Sequence[str]) -> dict[str, tuple[Group, ...]]:
    return {
        "claims": (
            Group("claim", {"id": "id", "verdict": "verdict", "statement": "claim"}),
            Group(
                "why",
                {
                    "effect": "effect", "low..high": "95 % interval", "n": "n",
                    "reason": "reason", "records": "records",
                },
            ),
            Group("published", {"number": "published number", "source": "source"}, folded=True),
            Group("test", {"study": "study", "effect_of": "effect of", "hardware": "hardware"}, folded=True),
            Group(
                "rule",
                {"estimator": "estimator", "rule": "rule", "smallest_effect": "smallest effect", "needs": "needs"},
                folded=True,
            ),
        ),
        "scaling": (
            Group("point", {"study": "study", "value": "point", "batch": "batch", "workers": "workers", "n": "n"}),
            Group(
                "time",
                {"step_s": "step (ms)", "step_low_s..step_high_s": "range (ms)", "circuit_s": "circuits alone (ms)"},
            ),
            Group(
                "gain",
                {
                    "efficiency": "efficiency", "speedup_same": "speedup",
                    "speedup_same_low..speedup_same_high": "its 95 % interval",
                    "speedup_best_serial": "over best serial", "cost_s": "cost of 1,000 samples (s)",
                },
            ),
            Group(
                "trust",
                {
                    "parity": "same numbers", "timed_steps": "steps timed", "timed_out": "timed out", "busy": "busy",
                    "flag": "flag",
                },
            ),
            Group(
                "baselines",
                {
                    "same_reference": "speedup over", "best_serial_reference": "best serial is",
                    "karp_flatt": "serial fraction",
                },
                folded=True,
            ),
        ),
        "laws": (
            Group(
                "series",
                {"study": "study", "simulator": "simulator", "series": "series", "law": "law", "verdict": "verdict"},
            ),
            Group(
                "parameter",
                {"parameter": "parameter", "estimate": "estimate", "low..high": "95 % interval", "unit": "unit", "n": "n"},
            ),
            Group(
                "held-out point",
                {
                    "held_out": "held out", "predicted_s": "predicted (ms)", "measured_s": "measured (ms)",
                    "error": "error", "error_low..error_high": "its 95 % interval",
                },
            ),
            Group("reason", {"reason": "reason"}),
            Group(
                "fit",
                {"points": "points", "p_value": "p", "residual": "residual", "spread": "spread", "regimes": "regimes"},
                folded=True,
            ),
            Group("model", {"workload": "workload", "model": "model", "size": "size", "batch": "batch"}, folded=True),
        ),
        "quality": (
            Group(
                "model",
                {"study": "study", "workload": "workload", "model": "model", **sizes, "batch": "batch", "n": "n"},
            ),
            Group(
                "result",
                {
                    "metric": "metric", "value": "mean", "value_low..value_high": "range", "chance": "chance",
                    "shared": "samples in two parts", "failed": "failed",
                },
            ),
            Group(
                "against the control",
                {
                    "control": "control", "difference": "difference",
                    "difference_low..difference_high": "95 % interval", "verdict": "verdict",
                },
            ),
            Group(
                "pooled over folds",
                {"pooled": "pooled", "pooled_low..pooled_high": "its 95 % interval", "pooled_count": "samples"},
                folded=True,
            ),
            Group("other metrics", {**{name: name for name in figures}, "epochs": "epochs"}, folded=True),
        ),
        "parity": (
            Group("pair", {"run": "run", "reference": "compared with", "precision": "precision"}),
            Group(
                "losses",
                {
                    "steps": "steps", "difference": "largest relative difference", "limit": "limit", "held": "held",
                },
            ),
        ),
        "completeness": (
            Group("run", {"run": "run", "studies": "studies"}),
            Group("state", {"state": "state", "why": "why", "code": "code"}),
        ),
        "runs": (
            Group(
                "run",
                {
                    "record": "record", "workload": "workload", "model": "model", **sizes, "batch": "batch",
                    "simulator": "simulator", "layout": "layout", "protocol": "protocol", "seed": "seed",
                    "status": "status",
                },
            ),
            Group("time", {"step_s": "step (ms)", "first_step_s": "first step (ms)", "samples_per_s": "samples/s"}),
            Group(
                "quality",
                {**{f"test_{name}": f"test {name}" for name in figures}, "epochs": "epochs"},
                folded=True,
            ),
            Group(
                "trust",
                {
                    "quiet": "quiet", "busy_why": "why not", "others_share": "others' share", "resumed": "resumed",
                },
                folded=True,
            ),
            Group(
                "more",
                {
                    "studies": "studies", "peak_rss_bytes": "memory (MB)", "parameters": "parameters",
                    "split": "split by", "shared": "samples in two parts",
                },
                folded=True,
            ),
        ),
    }  # fmt: skip
