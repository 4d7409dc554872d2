"""What each kind of study means: a comparison that its runs cannot give is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ketscale.grid import Run, Study


def _check_parity(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
    for run in study.runs:
        protocol = config["protocols"][run.protocol]
        if protocol["precision"] != "fp64":
            yield f"parity compares losses in fp64, but protocol {run.protocol} has precision: {protocol['precision']}"
        if protocol.get("steps", 0) < 1:
            yield f"parity compares the first steps, but protocol {run.protocol} has epochs; give it steps"


def _check_strong(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
    batches = sorted({run.batch for run in study.runs})
    if len(batches) > 1:
        yield f"strong scaling has one global batch, not {', '.join(map(str, batches))}; give one, or make it kind: weak"
    yield from _check_baseline(study, config)


def _check_weak(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
    """The batch is in proportion to the cores (ranks x threads)."""
    series: dict[tuple[Any, ...], dict[float, Run]] = {}
    for run in study.runs:
        key = (run.workload, run.model, run.qubits, run.layers, run.simulator, run.protocol, run.seed)
        shares = series.setdefault(key, {})
        shares.setdefault(run.batch / (run.ranks * run.threads), run)
        if len(shares) > 1:
            first, second = shares.values()
            yield (
                f"weak scaling keeps batch / (ranks x threads) the same, but batch {first.batch} on {first.place} "
                f"and {second.batch} on {second.place} differ; give each place its batch in points"
            )
    yield from _check_baseline(study, config)


def _check_baseline(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
    if not any(run.ranks * run.threads == 1 for run in study.runs):
        yield f"a study of kind {study.kind} needs a run on one core to compare with; add backend: cpu-n1r1t1"


def _check_accuracy(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
    for run in study.runs:
        if "epochs" not in config["protocols"][run.protocol]:
            yield f"accuracy needs validation and test, but protocol {run.protocol} has steps; give it a protocol with epochs"


def _check_varies(*axes: str) -> Callable[[Study, Mapping[str, Any]], Iterable[str]]:
    """A sweep has at least two values of what it varies."""

    def check_sweep(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
        for axis in axes:
            if len({getattr(run, axis) for run in study.runs}) < 2:
                yield f"a study of kind {study.kind} compares values of {axis}, but has only one; give a list of them"

    return check_sweep


def _check_features(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
    if {config["protocols"][run.protocol]["features"] for run in study.runs} != {"cached", "inline"}:
        yield "a study of kind features compares protocols with features: cached and features: inline; give it one of each"


def _check_mistakes(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
    if not any("mistake" in config["protocols"][run.protocol] for run in study.runs):
        yield "a study of kind mistakes needs a protocol with a mistake; give it one"
    yield from _check_baseline(study, config)


def _check_break_even(study: Study, config: Mapping[str, Any]) -> Iterator[str]:
    if len({run.place for run in study.runs}) < 2:
        yield "a study of kind break-even compares places, but has only one; give several backends"
    yield from _check_baseline(study, config)


KINDS: dict[str, Callable[[Study, Mapping[str, Any]], Iterable[str]]] = {
    "simulator": _check_varies("simulator"),
    "strong": _check_strong,
    "weak": _check_weak,
    "break-even": _check_break_even,
    "batch": _check_varies("batch"),
    "depth": _check_varies("layers"),
    "qubits": _check_varies("qubits"),
    "features": _check_features,
    "mistakes": _check_mistakes,
    "accuracy": _check_accuracy,
    "parity": _check_parity,
}
