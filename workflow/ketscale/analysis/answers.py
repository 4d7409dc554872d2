"""The answer of every study, computed from its rows by its kind, with a caution where runs are missing or disturbed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ketscale.analysis.kinds import kinds
from ketscale.analysis.points import TIMED_OUT
from ketscale.analysis.wording import listed
from ketscale.grid import Study

if TYPE_CHECKING:
    from ketscale.analysis.drawing.inputs import Inputs


def table(inputs: Inputs) -> list[dict[str, Any]]:
    """Rows of answers.csv, one per study, in the config's order."""
    return [_row(study, inputs) for study in inputs.config.studies]


def _row(study: Study, inputs: Inputs) -> dict[str, Any]:
    found = kinds(inputs.config.families)[study.kind].answer(study, inputs)
    return {
        "study": study.name,
        "kind": study.kind,
        "question": study.question,
        "answer": found.text + caution(study, inputs),
        "of": found.of,
        "effect": found.effect,
        "low": found.low,
        "high": found.high,
        "n": found.n,
        "verdict": found.verdict,
    }


def caution(study: Study, inputs: Inputs) -> str:
    """The sentence about runs that are not completed and points whose ratios are from a busy machine; may be empty."""
    runs = inputs.completeness
    mine = runs[runs["studies"].fillna("").map(lambda names: study.name in names.split())]
    states = mine["state"].value_counts().drop("completed", errors="ignore").sort_index()
    parts = []
    if len(states):
        counts = listed(f"{count} {str(state).replace('_', ' ')}" for state, count in states.items())
        parts.append(f"of {len(mine)} runs, {counts}")
    points = inputs.points(study.name)
    flags = points["flag"].dropna()
    # The states above tell of those.
    flags = flags[~flags.str.startswith(TIMED_OUT)]
    if len(flags):
        why = ", ".join(sorted(set(flags)))
        parts.append(f"{len(flags)} of {len(points)} points were timed on a machine with other work ({why})")
    return f" Careful: {'; '.join(parts)}." if parts else ""
