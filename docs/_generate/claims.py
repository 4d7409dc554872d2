"""The verdicts on published claims: `python -m docs._generate.claims` judges each by its latest recorded readings.

The readings are those of measurements/2026-11-claims-readings.csv, as `python -m benchmarks.claims FOLDER --csv FILE` gives them.
The table of verdicts is written beside that file, and the part of measurements/2026-11-claims.md between two comments.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from docs._generate.markdown import sentence, table
from docs._generate.measured import DOCS, read

from benchmarks.claims.ledger import MORE, NOT_MEASURED, REFUTED, SUPPORTED, UNDECIDED, load
from benchmarks.claims.verdicts import Judgement, recorded
from ketscale import analysis
from ketscale.files import csv_of

NAME = "2026-11-claims"
PAGE = DOCS / "measurements" / f"{NAME}.md"
READINGS, VERDICTS = (PAGE.with_name(f"{NAME}-{part}.csv") for part in ("readings", "verdicts"))
STUDIES = DOCS.parent / "workflow" / "studies"
PART = re.compile(r"(<!-- verdicts -->\n).*(<!-- end of verdicts -->)", re.DOTALL)
HEADLINES = ("0.1", "1.1", "2.1", "3.1", "4.4")
HEADING = (
    "claim",
    "statement",
    "about",
    "verdict",
    "rests on",
    "what decides, or what there is",
    "beside it",
)
COLUMNS = (*HEADING, "needs", "file", "study", "rule")


def judgements() -> list[Judgement]:
    """The verdict on each claim, in the ledger's order."""
    claims = load()
    files = {claim.studies[0].partition("#")[0] for claim in claims if claim.readings}
    configs = {file: analysis.read(STUDIES / file) for file in files}
    return [
        recorded(READINGS, claim, configs[claim.studies[0].partition("#")[0]] if claim.readings else None)
        for claim in claims
    ]


def row(found: Judgement, machines: dict[str, str]) -> dict[str, str]:
    """The cells of a claim. machines: of the readings, by claim."""
    claim, needs = found.claim, "; ".join(found.claim.needs)
    machine = machines.get(claim.id, "")
    reason = f"needs {needs}" if found.rests_on == "nothing" and needs else found.reason
    cells = (
        claim.id,
        claim.statement,
        claim.hardware,
        found.verdict + ", after the fact" * found.after_the_fact,
        f"{found.rests_on} ({machine})" if machine and found.readings else found.rests_on,
        sentence(reason),
        sentence(claim.note),
        needs,
        claim.file,
        ", ".join(claim.studies),
        f"supported if {claim.rule.supported}; refuted if {claim.rule.refuted}"
        + f"; more than claimed if {claim.rule.more}" * bool(claim.rule.more),
    )
    # A star would begin emphasis.
    return dict(zip(COLUMNS, (" ".join(cell.replace("*", "x").split()) for cell in cells), strict=True))


def part(rows: list[dict[str, str]], found: list[Judgement]) -> str:
    """The generated part of the page."""
    grounds = ("measured", "by argument", "a proxy", "nothing")
    counts = Counter((each.verdict, _ground(each)) for each in found)
    counted = [
        [verdict, *(str(counts[verdict, ground] or "") for ground in grounds)]
        for verdict in (SUPPORTED, MORE, REFUTED, UNDECIDED, NOT_MEASURED)
    ]
    parts = [table(("verdict", *grounds), counted), "## The five headlines"]
    for each in rows:
        if each["claim"] in HEADLINES:
            more = "" if each["rests on"] == "nothing" else f" Missing: {each['needs']}."
            decides, beside = (each[name] for name in HEADING[5:])
            verdict = "" if decides.startswith("Not measured") else f" *{each['verdict'].capitalize()}.*"
            parts += [f"**{each['claim']}** {each['statement']}{verdict} {decides} {beside}{more}"]
    for section in dict.fromkeys(claim.claim.id.partition(".")[0] for claim in found):
        own = [each for each in found if each.claim.id.startswith(f"{section}.")]
        files = Counter(each.claim.file for each in own)
        (usual, _), *others = files.most_common()
        elsewhere = [
            f"{', '.join(each.claim.id for each in own if each.claim.file == file)} from {file}"
            for file, _ in others
        ]
        source = own[0].claim.source
        cells = [[each[name] for name in HEADING] for each in rows if each["claim"].startswith(f"{section}.")]
        parts += [
            f"## {source.partition(',')[0].partition(' (')[0]}",
            f"Source: {source}, {'; '.join([usual, *elsewhere])}.",
            table(HEADING, cells),
            f"[CSV]({VERDICTS.name})",
        ]
    return "\n\n".join(parts)


def _ground(found: Judgement) -> str:
    start = found.rests_on.partition(":")[0].partition(" in part")[0]
    return start if start in ("measured", "a proxy", "nothing") else "by argument"


def files() -> dict[Path, str]:
    """The page and the table as they have to be."""
    machines = {each["claim"]: each["machine"] for each in read(READINGS.name)}
    found = judgements()
    rows = [row(each, machines) for each in found]
    page = PART.sub(lambda old: f"{old[1]}\n{part(rows, found)}\n\n{old[2]}", PAGE.read_text())
    return {PAGE: page, VERDICTS: csv_of(rows, COLUMNS).decode()}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_bytes(text.encode())
