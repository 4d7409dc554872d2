"""What every sentence of a report keeps: its length, its numbers, and words that nobody says."""

from __future__ import annotations

import re
from pathlib import Path

from ketscale.analysis.analysed import Analysed
from ketscale.analysis.kinds.kind import Answer
from ketscale.config import Config
from tests import records_factory as factory

# A number stands by itself: fp64, q4-l3 and euler-0.02 are names.
NUMBER = re.compile(r"(?<![\w.\-])[-+]?\d[\d.,]*(?:e[-+]?\d+)?")
NOBODY_SAYS = (
    r"(?<![\d.])1 times\b", r"(?<!\d)0?\.\d+ times\b", r"(?<!\d)0\.\d+x\b", r"\ball 1\b", r"-0\.0\b", r"\bnan\b", r"\bNone\b(?! of)", r"\binf\b",
    r"(?<![\d.])1 (comparisons|runs|points|qubits|circuit layers)\b", r"takes takes", r"  ", r"\(\)", r": \.", r", \.", r"\.\.",
)  # fmt: skip


def faults(answer: Answer) -> list[str]:
    """In what an answer is not one finding that is read in a second."""
    found = []
    for words, numbers, text in ((25, 3, answer.text), (12, 3, answer.short)):
        count = len([word for word in text.split() if re.search(r"\w", word)])
        if not text or count > words:
            found.append(f"{count} words: {text!r}")
        if len(NUMBER.findall(text)) > numbers:
            found.append(f"numbers {NUMBER.findall(text)}: {text!r}")
    told = [answer.text, answer.short, answer.of, *answer.notes]
    told += [cell for row in answer.rows for cell in (row.point, row.beside, row.verdict, *row.more.values())]
    found += [f"{pattern}: {text!r}" for pattern in NOBODY_SAYS for text in told if re.search(pattern, text)]
    for name in (row.point for row in answer.rows):
        if len(parts := re.split(r", | \(|\)", name)) != len(set(parts)):
            found.append(f"said twice: {name!r}")
    if not re.fullmatch(r"[A-Z0-9].*\.", answer.text) or ". " in answer.text:
        found.append(f"no sentence: {answer.text!r}")
    if not re.match(r"[A-Z0-9]", answer.short):
        found.append(f"no capital: {answer.short!r}")
    return found


def answers_of(config: Config, results: Path) -> dict[str, Answer]:
    """The answers of a config's studies to the records in a results folder, by name."""
    parts = Analysed.of(factory.partial(config), results).parts
    return {part.study.name: part.answer for part in parts}
