"""The answer of each study: its leading row in a sentence, how many comparisons have which verdict, and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ketscale.analysis import verdicts
from ketscale.analysis.collected import Collected
from ketscale.analysis.kinds import Kind
from ketscale.analysis.points import TIMED_OUT, Row, failed
from ketscale.analysis.wording import capital, modes, sentence, unfinished
from ketscale.config import Config
from ketscale.files import read_csv
from ketscale.grid import Study
from ketscale.words import counted

# The columns of the leading row that the answer has too.
LEADING = ("point", "reference", "effect", "low", "high", "unit", "verdict", "why")
# No more answers are told.
MOST = 12


def answer(
    study: Study, kind: Kind, made: Sequence[Row], collected: Collected, states: Mapping[str, int]
) -> dict[str, Any]:
    """The row of answers.csv of a study.

    made: its rows. states: how many of its runs have which status.
    """
    compared = [row for row in made if row.get("verdict")]
    known = [row for row in compared if row.get("effect") is not None]
    runs = [row for group in collected.groups(study) for row in group]
    text = ""
    if whole := [row for row in compared if row.get("row") == "data sets"]:
        (lead,) = whole
    elif known:
        lead = kind.lead(known)
    elif compared:
        lead = compared[0]
    elif runs and all(map(failed, runs)):
        lead, text = {"verdict": verdicts.FAILED}, f"Failed: all {len(runs)} runs."
    else:
        lead, text = {"verdict": verdicts.MISSING}, "Missing: there is nothing to compare yet."
    text = text or capital(sentence(lead))
    counts = Counter(row["verdict"] for row in compared if not row.get("row"))
    if counts.total() > 1:
        listed = (f"{counts[word]} {word}" for word in verdicts.MEANINGS if counts[word])
        text += f" Of {counts.total()} comparisons: {', '.join(listed)}."
    notes = [*kind.notes(list(made), study, collected), *_cautions(study, made, collected.config, states)]
    return {
        "question": study.question,
        "answer": text,
        **{name: lead.get(name) for name in LEADING},
        "n": lead.get("pairs") or lead.get("n"),
        "notes": "\n".join(dict.fromkeys([*notes, *unlike_steps(runs)])),
    }


def _cautions(study: Study, made: Iterable[Row], config: Config, states: Mapping[str, int]) -> Iterator[str]:
    """What of the study's runs has not completed, whose numbers are noisy, and which points a busy machine disturbed."""
    if text := unfinished(states):
        yield f"{text}."
    yield from (f"{mode}." for mode in modes(config, (run.simulator for run in study.runs)))
    flags = [row["flag"] for row in made if row.get("flag") and not row["flag"].startswith(TIMED_OUT)]
    if flags:
        yield f"{counted(len(flags), 'point')} not as good as it could be: {', '.join(sorted(set(flags)))}."


def unlike_steps(runs: Iterable[Row]) -> Iterator[str]:
    """A note that some runs on GPUs took their steps as CUDA graphs and others, as those of several ranks, did not."""
    if len({bool(run["replayed"]) for run in runs if run["gpu_hours"]}) > 1:
        yield "Some runs replay a step as a CUDA graph (replayed in runs.csv) and others launch it kernel by kernel: a ratio of both has that in it too."


def summary(results: Path) -> list[str]:
    """The question of each study in the tables of a results folder and, indented below it, the answer.

    Raises:
        OSError: there are no such tables.
    """
    found = read_csv(results / "tables/answers.csv")
    lines = []
    for row in found[:MOST]:
        lines += [row["question"], f"    {row['answer']}"]
    left = len(found) - MOST
    return [*lines, f"... and {counted(left, 'more answer')} in the report"] if left > 0 else lines
