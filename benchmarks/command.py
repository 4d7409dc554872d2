"""`ketscale bench NAME`: measure, say each case as it finishes, and write what was asked for."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import output
from benchmarks.chains import Chains
from benchmarks.circuits import Circuits
from benchmarks.costs import Costs
from benchmarks.dynamics import Dynamics
from benchmarks.gates import Gates
from benchmarks.grams import Grams
from benchmarks.models import Models
from benchmarks.options import add_options
from benchmarks.pulses import PulsedGates
from benchmarks.runner import Benchmark
from benchmarks.table import Table
from ketscale.errors import UserError
from ketscale.files import write_atomic
from ketscale.optional import needed_for

BENCHMARKS: dict[str, type[Benchmark]] = {
    "simulators": Circuits,
    "table": Table,
    "models": Models,
    "dynamics": Dynamics,
    "gates": Gates,
    "chains": Chains,
    "costs": Costs,
    "pulses": PulsedGates,
    "grams": Grams,
}
# Each file is written only if it is named, atomically, at the end.
FILES = ("json", "csv", "markdown", "figure")


def parser() -> argparse.ArgumentParser:
    """The command line of all benchmarks."""
    result = argparse.ArgumentParser(
        prog="ketscale bench", description="Time subjects against each other, in turns."
    )
    commands = result.add_subparsers(required=True, metavar="BENCHMARK", dest="benchmark")
    for name, benchmark in BENCHMARKS.items():
        about = f"Time {benchmark.text}. See docs/benchmarks.md."
        sub = commands.add_parser(name, help=benchmark.text, description=about)
        add_options(sub, benchmark)
        for each in FILES if benchmark.drawn else FILES[:-1]:
            sub.add_argument(f"--{each}", type=Path, metavar="FILE", help=f"write the results as {each}")
    return result


def main(arguments: Sequence[str]) -> None:
    """Run one benchmark.

    Raises:
        UserError: an option is wrong, a subject that was asked for is not installed, or it was interrupted (what was
            measured is written).
    """
    options = vars(parser().parse_args(list(arguments)))
    benchmark = BENCHMARKS[options.pop("benchmark")]
    files = {name: options.pop(name) for name in FILES if name in options}
    inputs = {name: value for name, value in options.items() if value is not None}
    built = benchmark(**inputs, asked="simulators" in inputs)
    built.check()
    if files.get("figure"):
        # Figures are files. The variable may name a window, or a notebook's backend that is not installed here.
        os.environ["MPLBACKEND"] = "agg"
        with needed_for("--figure"):
            from benchmarks import figures
        figures.check(files["figure"])
    result = built.run(lambda case, rows: print(output.line(benchmark, case, rows), flush=True))
    day = datetime.now(UTC).date().isoformat()
    result["command"], result["day"] = _measuring(arguments), day
    _publish(benchmark, result, files)


def _measuring(arguments: Sequence[str]) -> str:
    """The command without the files that it writes."""
    words = iter(arguments)
    options: list[str] = []
    for word in words:
        name, inputs, _ = word.partition("=")
        if name not in [f"--{file}" for file in FILES]:
            options.append(word)
        elif not inputs:
            next(words)
    return f"ketscale bench {shlex.join(options)}"


def _publish(benchmark: type[Benchmark], result: dict[str, Any], files: dict[str, Path | None]) -> None:
    asked, measured = result["cells"]["asked"], result["cells"]["measured"]
    if not measured:
        raise UserError(f"interrupted before the first of {asked} cells was finished: nothing is written")
    for name, path in files.items():
        if path is None:
            continue
        if name == "json":
            write_atomic(path, output.as_json(result))
        elif name == "csv":
            write_atomic(path, output.as_csv(result))
        elif name == "markdown":
            write_atomic(path, output.as_markdown(benchmark, result))
        else:
            from benchmarks import figures

            figures.save(benchmark.draw(result), path)
    print(f"\n{output.hardware(result['machine'])}")
    for text in output.summary(benchmark, result):
        print(text)
    if measured < asked:
        raise UserError(f"interrupted after {measured} of {asked} cells, which are written where asked for")
