"""What no answer of a study says."""

from __future__ import annotations

import re

import pandas as pd

NOBODY_SAYS = (
    r"(?<![\d.])1 times\b", r"(?<!\d)0?\.\d+ times (as|higher|lower)\b", r"\ball 1\b", r"-0\.0\b", r"\bnan\b", r"\bNone\b(?! of)", r"\binf\b",
    r"(?<![\d.])(?<!of )1 (comparisons|runs|points|qubits|circuit layers|seeds)\b", r"  ", r"\(\)", r": \.", r", \.", r"\.\.",
)  # fmt: skip


def faults(answers: pd.DataFrame) -> list[str]:
    """What is wrong with the sentences of answers.csv."""
    texts = [text for name in ("answer", "notes") for text in answers[name].dropna()]
    values = [f"{pattern}: {text!r}" for pattern in NOBODY_SAYS for text in texts if re.search(pattern, text)]
    return values + [
        f"no sentence: {text!r}" for text in answers["answer"] if not re.fullmatch(r"[A-Z0-9].*\.", text)
    ]
