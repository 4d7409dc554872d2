"""What tables say of the invariant "same numbers everywhere" (see measure/parity.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ketscale import grid
from ketscale.measure.parity import Comparison

# What a comparison is about: the workload, the model and its size, the simulator and the layout.
SUBJECT = tuple(name for name in grid.POINT if name not in ("batch", "protocol"))


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
