"""`ketscale bench`: measure, say each cell as it finishes, write what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ketscale.bench.models import Selection as ModelSelection
from ketscale.bench.selection import Selection
from ketscale.errors import UserError


def simulators(
    selection: Selection,
    *,
    json: Path | None = None,
    csv: Path | None = None,
    figure: Path | None = None,
    markdown: Path | None = None,
) -> None:
    """Run the benchmark; each file is written only if it is named, atomically, at the end.

    Raises:
        UserError: a simulator that was asked for is not installed, the figure's format is unknown, or it was
            interrupted (what was measured is written).
    """
    from ketscale.bench import heatmap, output, run, summary
    from ketscale.records import write_atomic

    if figure:
        heatmap.check(figure)
    result = run.run(selection, lambda cell, rows: print(output.line(cell, rows), flush=True))
    _demand_some(result)
    for path, write in ((json, output.as_json), (csv, output.as_csv), (markdown, output.as_markdown)):
        if path:
            write_atomic(path, write(result))
    if figure:
        heatmap.save(heatmap.draw(result), figure)
    print(f"\n{output.hardware(result['machine'])}")
    for text in summary.lines(result["rows"]):
        print(text)
    _demand_all(result)


def models(
    selection: ModelSelection,
    *,
    json: Path | None = None,
    csv: Path | None = None,
    figure: Path | None = None,
    markdown: Path | None = None,
) -> None:
    """Run the benchmark of models; each file is written only if it is named, atomically, at the end.

    Raises:
        UserError: the figure's format is unknown, or it was interrupted (what was measured is written).
    """
    from ketscale.bench import bars, heatmap, output
    from ketscale.bench import models as benchmark
    from ketscale.records import write_atomic

    if figure:
        heatmap.check(figure)
    result = benchmark.run(selection, lambda cell, rows: print(output.models_line(cell, rows), flush=True))
    _demand_some(result)
    for path, write in ((json, output.as_json), (csv, output.as_csv), (markdown, output.models_markdown)):
        if path:
            write_atomic(path, write(result))
    if figure:
        heatmap.save(bars.draw(result), figure)
    print(f"\n{output.hardware(result['machine'])}")
    for text in benchmark.factors(result["rows"]):
        print(text)
    _demand_all(result)


def _demand_some(result: Mapping[str, Any]) -> None:
    if not result["cells"]["measured"]:
        raise UserError(
            f"interrupted before the first of {result['cells']['asked']} cells was finished: nothing is written"
        )


def _demand_all(result: Mapping[str, Any]) -> None:
    asked, measured = result["cells"]["asked"], result["cells"]["measured"]
    if measured < asked:
        raise UserError(f"interrupted after {measured} of {asked} cells, which are written where asked for")
