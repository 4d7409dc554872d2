"""`ketscale bench`: measure, say each cell as it finishes, write what was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ketscale.errors import UserError
from ketscale.optional import needed_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ketscale.bench.cohorts import CohortSelection
    from ketscale.bench.dynamics.pulses.selection import PulsesSelection
    from ketscale.bench.dynamics.selection import DynamicsSelection
    from ketscale.bench.layouts import LayoutSelection
    from ketscale.bench.models import ModelSelection
    from ketscale.bench.ranks import RanksSelection
    from ketscale.bench.selection import Selection

Result = Mapping[str, Any]


class Files(NamedTuple):
    """Where results go; each file is written only if it is named, atomically, at the end."""

    json: Path | None = None
    csv: Path | None = None
    figure: Path | None = None
    markdown: Path | None = None


def simulators(selection: Selection, files: Files) -> None:
    """Run the benchmark of simulators.

    Raises:
        UserError: a simulator that was asked for is not installed, the figure's format is unknown, or it was
            interrupted (what was measured is written).
    """
    from ketscale.bench import output
    from ketscale.bench import simulators as benchmark

    _check(files)
    result = benchmark.measure(selection, lambda cell, rows: print(output.line(cell, rows), flush=True))
    _publish(result, files, output.as_markdown, _heatmap, output.summary(result))


def models(selection: ModelSelection, files: Files) -> None:
    """Run the benchmark of models.

    Raises:
        UserError: the figure's format is unknown, or it was interrupted (what was measured is written).
    """
    from ketscale.bench import models as benchmark
    from ketscale.bench import output

    _check(files)
    result = benchmark.measure(
        selection, lambda cell, rows: print(output.models_line(cell, rows), flush=True)
    )
    _publish(result, files, output.models_markdown, _bars, benchmark.factors(result["rows"]))


def layouts(selection: LayoutSelection, files: Files) -> None:
    """Run the benchmark of layouts.

    Raises:
        UserError: a process failed, or it was interrupted (what was measured is written).
    """
    from ketscale.bench import layouts as benchmark
    from ketscale.bench import output

    result = benchmark.measure(
        selection, lambda cell, rows: print(output.layouts_line(cell, rows), flush=True)
    )
    _publish(result, files, output.layouts_markdown, None, benchmark.summary(result["rows"]))


def cohorts(selection: CohortSelection, files: Files) -> None:
    """Run the benchmark of cohorts.

    Raises:
        UserError: there are fewer cores than threads, or it was interrupted (what was measured is written).
    """
    from ketscale.bench import cohorts as benchmark

    result = benchmark.measure(selection, lambda cell, rows: print(benchmark.line(cell, rows), flush=True))
    _publish(result, files, benchmark.as_markdown, None, ())


def ranks(selection: RanksSelection, files: Files) -> None:
    """Run the benchmark of ranks.

    Raises:
        UserError: there are fewer cores than ranks, or it was interrupted (what was measured is written).
    """
    from ketscale.bench import ranks as benchmark

    result = benchmark.measure(selection, lambda cell, rows: print(benchmark.line(cell, rows), flush=True))
    _publish(result, files, benchmark.as_markdown, None, ())


def dynamics(selection: DynamicsSelection, files: Files) -> None:
    """Run the benchmark of dynamics.

    Raises:
        UserError: a propagator that was asked for is not installed, or it was interrupted (what was measured is written).
    """
    from ketscale.bench import output
    from ketscale.bench.dynamics import measure as benchmark
    from ketscale.bench.dynamics import rows as shown

    result = benchmark.measure(selection, lambda cell, rows: print(output.line(cell, rows), flush=True))
    _publish(result, files, shown.as_markdown, None, shown.factors(result["rows"]))


def pulses(selection: PulsesSelection, files: Files) -> None:
    """Run the benchmark of pulses; see `dynamics`."""
    from ketscale.bench import output
    from ketscale.bench.dynamics.pulses import measure as benchmark
    from ketscale.bench.dynamics.pulses import rows as shown

    result = benchmark.measure(selection, lambda cell, rows: print(output.line(cell, rows), flush=True))
    _publish(result, files, shown.as_markdown, None, shown.factors(result["rows"]))


def _check(files: Files) -> None:
    if files.figure:
        with needed_for("--figure"):
            from ketscale.bench import bars, heatmap  # noqa: F401
        heatmap.check(files.figure)


def _heatmap(result: Result) -> Figure:
    from ketscale.bench import heatmap

    return heatmap.draw(result)


def _bars(result: Result) -> Figure:
    from ketscale.bench import bars

    return bars.draw(result)


def _publish(
    result: Result,
    files: Files,
    as_markdown: Callable[[Result], bytes],
    draw: Callable[[Result], Figure] | None,
    lines: Iterable[str],
) -> None:
    from ketscale.bench import output
    from ketscale.files import write_atomic

    asked, measured = result["cells"]["asked"], result["cells"]["measured"]
    if not measured:
        raise UserError(f"interrupted before the first of {asked} cells was finished: nothing is written")
    writers = ((files.json, output.as_json), (files.csv, output.as_csv), (files.markdown, as_markdown))
    for path, write in writers:
        if path:
            write_atomic(path, write(result))
    if files.figure and draw:
        from ketscale.bench import heatmap

        heatmap.save(draw(result), files.figure)
    print(f"\n{output.hardware(result['machine'])}")
    for text in lines:
        print(text)
    if measured < asked:
        raise UserError(f"interrupted after {measured} of {asked} cells, which are written where asked for")
