"""The invariant "same numbers everywhere": compares the first 20 losses of runs that must train alike.

Chaos makes later steps drift apart. So only the losses in the records (the first 20 steps) are compared, over the
steps that both runs took, and only at learning rates up to 3e-3. A simulator that declares itself approximate is
allowed its declared error against other simulators, but none against itself on other backends, ranks or threads. One
with shots is compared with itself alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ketscale import grid
from ketscale.config import Protocol
from ketscale.measure.form import Record
from ketscale.measure.record import State

Entry = tuple[grid.Run, Record]

# The largest relative differences of a loss.
ACROSS_SIMULATORS = 1e-9  # fp64
ACROSS_LAYOUTS = 1e-10  # fp64: backends, ranks and threads of one simulator
SINGLE_PRECISION = 1e-3  # fp32, across simulators and layouts
LARGEST_LEARNING_RATE = 3e-3

# Settings of a protocol, besides the precision, that change the arithmetic of the first steps. `features` is not among
# them: with the same features hash, cached and inline features must give the same losses.
ARITHMETIC = (
    "optimiser", "learning_rate", "weight_decay", "momentum", "clip_norm", "dropout", "loss", "class_weights", "cosine",
)  # fmt: skip


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
    def agrees(self) -> bool:
        """Whether the losses are the same within the limit."""
        return self.difference <= self.limit

    @property
    def why(self) -> str:
        """The breach in words."""
        other = self.reference
        return (
            f"its first {self.steps} losses differ by {self.difference:.1e} relative, over {self.limit:.0e} "
            f"({self.precision}), from those of {other.simulator} on {other.layout} ({other.protocol})"
        )


def difference(losses: Sequence[float], reference: Sequence[float]) -> float:
    """max_k |a_k - b_k| / |b_k| over the common steps (dimensionless)."""
    pairs = list(zip(losses, reference, strict=False))
    return max((abs(a - b) / max(abs(b), 1e-300) for a, b in pairs), default=0.0)


def compare(results: Mapping[grid.Run, State]) -> list[Comparison]:
    """Compare each run with its group's reference, and with the first run of its own simulator that held.

    Runs that were completed or timed out have losses to compare; of the others the numbers themselves failed.
    """
    groups: dict[tuple[Any, ...], list[Entry]] = {}
    for run, result in results.items():
        record = result.record
        if record is not None and record.losses and result.state in ("completed", "timed_out"):
            protocol = record.settings.protocol
            if protocol.precision in ("fp32", "fp64") and not _chaotic(protocol):
                groups.setdefault((*_work(run, record), protocol.precision), []).append((run, record))
    return [comparison for key in sorted(groups, key=repr) for comparison in _compare(groups[key])]


def _chaotic(protocol: Protocol) -> bool:
    """Whether rounding grows so fast that later losses need not agree."""
    return protocol.learning_rate is not None and protocol.learning_rate > LARGEST_LEARNING_RATE


def _work(run: grid.Run, record: Record) -> tuple[Any, ...]:
    """The key of runs that compute the same losses, up to rounding and the errors of their simulators."""
    protocol, simulator = record.settings.protocol, record.settings.simulator
    settings = tuple(repr(getattr(protocol, name)) for name in ARITHMETIC)
    # Trials of a search may have other settings of a model under its name.
    model = grid.canonical(record.config["model"])
    sampler = run.simulator if simulator and (simulator.shots or simulator.trajectories) else None
    noise = (
        (grid.canonical(simulator.noise), simulator.noise_in_training)
        if simulator and simulator.noise
        else None
    )
    names = run.without("simulator", *grid.LAYOUT, "protocol")
    return (*names, model, sampler, noise, *settings, record.data_hash, record.features_hash)


def between(entry: Entry, reference: Entry) -> float | None:
    """The largest relative difference of the first losses of two runs, in any precision; None if they do other work.

    Above the largest learning rate only the very first loss counts, which belongs to the same weights.
    """
    if _work(*entry) != _work(*reference):
        return None
    steps = 1 if _chaotic(entry[1].settings.protocol) else None
    return difference(entry[1].losses[:steps], reference[1].losses[:steps])


def _compare(group: Sequence[Entry]) -> list[Comparison]:
    def order(entry: Entry) -> tuple[Any, ...]:
        # Exact simulators and default.qubit on one rank and thread first. A run that timed out may have few losses.
        run, record = entry
        rank = run.simulator != "default.qubit", run.layout != "cpu-n1r1t1"
        return _tolerance(record) > 0, record.status != "completed", rank, run

    reference, *others = sorted(group, key=order)
    first, comparisons = {reference[0].simulator: reference}, list[Comparison]()
    for entry in others:
        own = first.get(entry[0].simulator, reference)
        pairs = [_pair(entry, other) for other in ([reference] if own is reference else [reference, own])]
        comparisons += pairs
        if all(one.agrees for one in pairs):
            first.setdefault(entry[0].simulator, entry)
    return comparisons


def _tolerance(record: Record) -> float:
    """The relative error that the run's simulator declares; 0 if it is exact."""
    simulator = record.settings.simulator
    return (simulator.tolerance if simulator else None) or 0.0


def _pair(entry: Entry, reference: Entry) -> Comparison:
    (run, record), (other, other_record) = entry, reference
    precision = record.settings.protocol.precision
    same = run.simulator == other.simulator
    limit = SINGLE_PRECISION if precision == "fp32" else ACROSS_LAYOUTS if same else ACROSS_SIMULATORS
    if not same:
        limit = max(limit, _tolerance(record) + _tolerance(other_record))
    steps = min(len(record.losses), len(other_record.losses))
    return Comparison(run, other, precision, steps, difference(record.losses, other_record.losses), limit)


def refuse(results: Mapping[grid.Run, State], comparisons: Sequence[Comparison]) -> dict[grid.Run, State]:
    """The checked records, where those that broke a limit are refused; the reference itself is kept."""
    breaches = [(one.run, one.why) for one in reversed(comparisons) if not one.agrees]
    return {**results, **{run: State("refused", f"{why}; delete it to try again") for run, why in breaches}}
