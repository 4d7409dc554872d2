"""The invariant "same numbers everywhere": compares the first 20 losses of runs that must train alike.

Chaos makes later steps drift apart. So only the losses in the records (the first 20 steps) are compared, over the
steps that both runs took, and only at learning rates up to 3e-3. A simulator that declares itself approximate is
allowed its declared error against other simulators, but none against itself on other backends, ranks or threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketscale import grid
from ketscale.analysis.completeness import Finding
from ketscale.config import TOLERANCE

# Largest relative difference of a loss.
ACROSS_SIMULATORS = 1e-9  # fp64
ACROSS_LAYOUTS = 1e-10  # fp64: backends, ranks and threads of one simulator
SINGLE_PRECISION = 1e-3  # fp32, across simulators and layouts
LARGEST_LEARNING_RATE = 3e-3
REFERENCE = ("default.qubit", "cpu-n1r1t1")
COLUMNS = ("run", "reference", "precision", "steps", "difference", "limit", "held")

# Settings of a protocol that change the arithmetic of the first steps. `features` is not among them: with the same
# features hash, cached and inline features must give the same losses.
ARITHMETIC = ("precision", "optimiser", "learning_rate", "weight_decay", "clip_norm", "dropout")
# What a comparison is about: the workload, the model and its size, the simulator and the layout.
SUBJECT = tuple(name for name in grid.POINT if name not in ("batch", "protocol"))


@dataclass(frozen=True)
class Comparison:
    """Two runs that must have the same first losses, and their largest relative difference (dimensionless)."""

    run: grid.Run
    reference: grid.Run
    precision: str
    steps: int
    difference: float
    limit: float

    @property
    def held(self) -> bool:
        """Whether the losses are the same within the limit."""
        return self.difference <= self.limit

    @property
    def why(self) -> str:
        """The breach in words."""
        return (
            f"its first {self.steps} losses differ by {self.difference:.1e} relative, over {self.limit:.0e} "
            f"({self.precision}), from those of {self.reference.simulator} on {self.reference.layout} "
            f"({self.reference.protocol})"
        )


def difference(losses: Sequence[float], reference: Sequence[float]) -> float:
    """max_k |a_k - b_k| / |b_k| over the common steps (dimensionless)."""
    pairs = list(zip(losses, reference, strict=False))
    return max((abs(a - b) / max(abs(b), 1e-300) for a, b in pairs), default=0.0)


def compare(findings: Iterable[Finding]) -> list[Comparison]:
    """Compare each completed run with its group's reference, and with the first run of its own simulator."""
    groups: dict[tuple[Any, ...], list[Finding]] = {}
    for finding in findings:
        key = _group(finding)
        if key is not None:
            groups.setdefault(key, []).append(finding)
    return [comparison for key in sorted(groups, key=repr) for comparison in _compare(groups[key])]


def _group(finding: Finding) -> tuple[Any, ...] | None:
    """The key of runs whose first losses must agree; None if a run's losses need not agree with any other's."""
    if finding.state != "completed" or finding.record is None or not finding.record["losses"]:
        return None
    run, protocol = finding.run, finding.record["config"]["protocol"]
    settings = tuple(protocol[name] for name in ARITHMETIC)
    if protocol["precision"] not in ("fp32", "fp64") or protocol["learning_rate"] > LARGEST_LEARNING_RATE:
        return None
    data = (finding.record["data_hash"], finding.record["features_hash"])
    return (*run.without("simulator", *grid.LAYOUT, "protocol"), *settings, *data)


def _compare(group: Sequence[Finding]) -> list[Comparison]:
    ordered = sorted(group, key=lambda f: (_tolerance(f) > 0, _distance(f.run), f.run))
    reference, found = ordered[0], []
    own = {finding.run.simulator: finding for finding in reversed(ordered)}
    broken: set[grid.Run] = set()
    for finding in ordered[1:]:
        against = [reference]
        serial = own[finding.run.simulator]
        if serial not in (reference, finding) and serial.run not in broken:
            against.append(serial)
        for other in against:
            comparison = _pair(finding, other)
            found.append(comparison)
            if not comparison.held:
                broken.add(finding.run)
    return found


def _tolerance(finding: Finding) -> float:
    """The relative error that the run's simulator declares; 0 if it is exact."""
    assert finding.record is not None
    return (finding.record["config"]["simulator"] or {}).get(TOLERANCE) or 0.0


def _distance(run: grid.Run) -> tuple[bool, bool]:
    """Sort key of exact simulators that puts the reference first: default.qubit on one rank and thread, if it is there."""
    return run.simulator != REFERENCE[0], run.layout != REFERENCE[1]


def _pair(finding: Finding, reference: Finding) -> Comparison:
    assert finding.record is not None
    assert reference.record is not None
    precision = finding.record["config"]["protocol"]["precision"]
    same = finding.run.simulator == reference.run.simulator
    limit = SINGLE_PRECISION if precision == "fp32" else ACROSS_LAYOUTS if same else ACROSS_SIMULATORS
    if not same:
        limit = max(limit, _tolerance(finding) + _tolerance(reference))
    ours, theirs = finding.record["losses"], reference.record["losses"]
    steps = min(len(ours), len(theirs))
    return Comparison(finding.run, reference.run, precision, steps, difference(ours, theirs), limit)


def refuse(findings: Iterable[Finding], comparisons: Iterable[Comparison]) -> list[Finding]:
    """The findings, with every run refused that broke a limit; the reference itself is kept."""
    breaches: dict[grid.Run, str] = {}
    for comparison in comparisons:
        if not comparison.held:
            breaches.setdefault(comparison.run, comparison.why)
    return [
        finding.refused(breaches[finding.run]) if finding.run in breaches else finding for finding in findings
    ]


def held(comparisons: Iterable[Comparison]) -> dict[tuple[Any, ...], str]:
    """The precisions in which parity held, in words, by `subject`.

    The batch is left out on purpose: fp64 parity is tested at a small batch, and other batches run the same code.
    """
    precisions: dict[tuple[Any, ...], set[str]] = {}
    for comparison in comparisons:
        if comparison.held:
            for run in (comparison.run, comparison.reference):
                precisions.setdefault(subject(run), set()).add(comparison.precision)
    return {key: "held " + "+".join(sorted(found, reverse=True)) for key, found in precisions.items()}


def subject(run: grid.Run | Mapping[str, Any]) -> tuple[Any, ...]:
    """What the parity of a run is about: its values of `SUBJECT`."""
    return tuple(run[name] if isinstance(run, Mapping) else getattr(run, name) for name in SUBJECT)


def table(comparisons: Iterable[Comparison], results: str) -> list[dict[str, Any]]:
    """Rows of parity.csv, one per comparison; the records are below the folder `results`."""
    return [
        {
            "run": f"{results}/{comparison.run.path}",
            "reference": f"{results}/{comparison.reference.path}",
            "precision": comparison.precision,
            "steps": comparison.steps,
            "difference": comparison.difference,
            "limit": comparison.limit,
            "held": comparison.held,
        }
        for comparison in comparisons
    ]
