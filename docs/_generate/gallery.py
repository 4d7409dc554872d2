"""The gallery: every figure that a study may have, with its caption and a measured one where there is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from docs._generate.markdown import code, table
from docs._generate.measured import DOCS

from ketscale.analysis.figures import OVERVIEWS
from ketscale.analysis.kinds import kinds
from ketscale.problems.registry import FAMILIES

# Pictures of docs/images by figure, and the page with their numbers.
MEASURED = {
    "break-even": {"scaling.svg": "2026-11-default-study.md"},
    "convergence": {
        "control-convergence.png": "2026-11-claims.md",
        "pulses-convergence.png": "2026-11-claims.md",
    },
    "changes": {"control-changes.png": "2026-11-claims.md"},
    "accuracy": {"noise.png": "2026-11-noise.md"},
}


def page() -> str:
    """The figures that were measured, with pictures; then the others, in the order of kinds and those of every study."""
    own = [replace(kind.figure, kinds=(kind.name,)) for kind in kinds(FAMILIES).values() if kind.figure]
    parts, others = list[str](), list[tuple[str, str, str]]()
    for figure in (*own, *OVERVIEWS):
        asked = ", ".join(map(code, figure.kinds)) if figure.kinds else "any kind"
        if figure.name not in MEASURED:
            others.append((code(figure.name), figure.title, asked))
            continue
        parts += [f"### {figure.title}", f"{code(figure.name)}, for studies of {asked}. {figure.caption}"]
        for picture, numbers in MEASURED[figure.name].items():
            # From the page that includes this.
            assert (DOCS / "images" / picture).exists()
            parts += [
                f"![{figure.title}](images/{picture})",
                f"Measured: [{Path(numbers).stem}](measurements/{numbers}).",
            ]
    return "\n\n".join((*parts, "### Others", table(("figure", "shows", "for studies of"), others)))
