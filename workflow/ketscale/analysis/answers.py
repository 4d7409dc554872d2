"""The answer of each study: its leading row in a sentence, how many comparisons have which verdict, and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ketscale.analysis import verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.kinds import Kind
from ketscale.analysis.points import TIMED_OUT, Row, failed
from ketscale.analysis.wording import capital, modes, sentence, unfinished
from ketscale.config import Config
from ketscale.grid import Study
from ketscale.words import counted

# The columns of the leading row that the answer has too.
LEADING = ("point", "reference", "effect", "low", "high", "unit", "verdict", "why")


def answer(
    study: Study, host: str, kind: Kind, made: Sequence[Row], collected: Collected, states: Mapping[str, int]
) -> dict[str, Any]:
    """The row of answers.csv of a study on one class of hosts.

    Args:
        host: '' where all of the study's points are of one class.
        made: its rows.
        states: how many of its runs have which status.
    """
    about = {"study": study.name, "kind": study.kind, "on": host, "question": study.question}
    compared = [row for row in made if row.get("verdict")]
    known = [row for row in compared if row.get("effect") is not None]
    notes = [*kind.notes(list(made), study, collected), *_cautions(study, made, collected.config, states)]
    notes += unlike_steps(row for group in collected.groups(study) for row in group)
    whole = [row for row in compared if row.get("row") == "data sets"]
    if whole:
        (lead,) = whole
        text = sentence(lead)
    elif known:
        lead = kind.lead(known)
        text = sentence(lead)
    elif compared:
        lead = compared[0]
        text = sentence(lead)
    else:
        runs = [row for group in collected.groups(study) for row in group]
        lost = bool(runs) and all(map(failed, runs))
        lead = {"verdict": verdicts.FAILED if lost else verdicts.MISSING}
        text = f"Failed: all {len(runs)} runs." if lost else "Missing: there is nothing to compare yet."
    text = " ".join((capital(text), *_tally(compared)))
    n = lead.get("pairs") or lead.get("n")
    return {
        **about,
        "answer": text,
        **{name: lead.get(name) for name in LEADING},
        "n": n,
        "notes": "\n".join(dict.fromkeys(notes)),
    }


def _tally(compared: Sequence[Row]) -> Iterator[str]:
    """How many comparisons have which verdict."""
    words = Counter(row["verdict"] for row in compared if not row.get("row"))
    if words.total() > 1:
        counts = [f"{words[word]} {word}" for word in verdicts.MEANINGS if words[word]]
        yield f"Of {words.total()} comparisons: {', '.join(counts)}."


def _cautions(study: Study, made: Iterable[Row], config: Config, states: Mapping[str, int]) -> Iterator[str]:
    """What of the study's runs has not completed, whose numbers are noisy, and which points a busy machine disturbed."""
    if text := unfinished(states):
        yield f"{text}."
    yield from (f"{mode}." for mode in modes(config, study.name))
    flags = [row["flag"] for row in made if row.get("flag") and not row["flag"].startswith(TIMED_OUT)]
    if flags:
        yield f"{counted(len(flags), 'point')} not as good as it could be: {', '.join(sorted(set(flags)))}."


def unlike_steps(runs: Iterable[Row]) -> Iterator[str]:
    """A note that some runs on GPUs took their steps as CUDA graphs and others, as those of several ranks, did not."""
    if len({bool(run["replayed"]) for run in runs if run["gpu_hours"]}) > 1:
        yield "Some runs replay a step as a CUDA graph (replayed in runs.csv) and others launch it kernel by kernel: a ratio of both has that in it too."
