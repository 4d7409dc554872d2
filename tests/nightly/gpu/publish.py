"""Tables and figures of one `gpu.json`: `python -m tests.nightly.gpu.publish gpu-check/gpu.json [--docs docs/gpu] [--results .]`.

Writes a page and its figures, named by the GPU and the day, and puts the records of whole runs where `ketscale report`
finds them: in the results folders of their studies. A record of another host is never replaced.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import output
from benchmarks.circuits import Circuits, factors
from benchmarks.figures import bars, heatmap, save
from benchmarks.models import Models
from benchmarks.runner import Benchmark
from ketscale.errors import UserError
from ketscale.files import write_atomic
from ketscale.grid import HISTORY
from ketscale.problems.registry import read_config
from ketscale.words import duration
from tests import ROOT

# The parts that train whole runs, and the config with the folder of their results.
STUDIES = {"ranks": "one-gpu.yaml", "devices": "one-gpu.yaml", "control": "control.yaml"}
# The parts that are benchmarks, with the heading of their tables.
BENCHMARKS: dict[str, tuple[str, type[Benchmark]]] = {
    "simulators": ("Simulators", Circuits),
    "peers": ("Simulators of others", Circuits),
    "models": ("Training steps", Models),
}
SCHEMA = 1
NOT_MEASURED = "Not measured: "

Result = dict[str, Any]
Findings = list[dict[str, Any]]


def read(path: Path) -> Result:
    """The file that `check` has written.

    Raises:
        UserError: it is missing, damaged, or of another version.
    """
    try:
        content: Result = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: cannot be read ({error}); it is what tests/nightly/gpu/check writes"
        ) from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise UserError(f"{path}: is not of this version of tests/nightly/gpu/check; run it again")
    return content


def part(result: Result, name: str) -> Findings:
    """What a part has found; nothing if it did not run."""
    value: Findings = result["parts"].get(name, {}).get("results") or []
    return value


def absent(result: Result, name: str) -> str:
    """Why a part has found nothing."""
    ended = result["parts"].get(name)
    return NOT_MEASURED + (
        "the part was not asked for." if ended is None else f"{ended['reason'] or ended['status']}."
    )


def machine(result: Result) -> dict[str, Any]:
    """What the machine is."""
    value = part(result, "machine")
    if not value:
        raise UserError(
            "the file does not say on which machine it was made; run tests/nightly/gpu/check with the part machine"
        )
    return value[0]


def title(result: Result) -> str:
    """The GPU, or the processor of a machine without."""
    about = machine(result)
    return about["gpus"][0]["name"] if about["gpus"] else f"no GPU, {about['cpu']}"


def slug(result: Result) -> str:
    """The name of the page: GPU and day."""
    words = "".join(c if c.isalnum() else " " for c in title(result).lower()).split()
    return "-".join([*words, result["started"][:10]])


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """The lines of a Markdown table."""
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in (head, ["---"] * len(head), *rows)]


# --- the sections ---


def hardware(result: Result) -> list[str]:
    """The machine, the code and the command."""
    about, code = machine(result), result["code"]
    gpus = [f"{gpu['name']} ({gpu['memory_bytes'] / 2**30:.0f} GiB)" for gpu in about["gpus"]]
    versions = {name: version for name, version in about["packages"].items() if version}
    missing = [name for name, version in about["packages"].items() if not version]
    commit = f"{(code['commit'] or 'unknown')[:10]}{' with uncommitted changes' if code['dirty'] else ''}"
    return [
        f"- GPU: {', '.join(gpus) or 'none'}; driver {about['driver'] or 'none'}, CUDA {about['cuda'] or 'none'}",
        f"- Processor: {about['cpu']}, {about['cores']} cores, {about['memory_bytes'] / 2**30:.0f} GiB",
        f"- Commit {commit}, {result['started']}, Python {result['python']}",
        f"- Command: `{result['command']}`",
        f"- Packages: {', '.join(f'{name} {version}' for name, version in versions.items())}",
        f"- Not installed there: {', '.join(missing) or 'nothing'}",
    ]


def proofs(result: Result) -> list[str]:
    """How each part ended, and every test that failed."""
    rows, failed = [], []
    for name, ended in result["parts"].items():
        tests = [row for row in ended["results"] if "outcome" in row]
        counts = (
            [f"{sum(t['outcome'] == o for t in tests)} {o}" for o in ("passed", "failed", "skipped")]
            if tests
            else []
        )
        rows.append(
            [name, ended["status"], f"{ended['seconds']:.0f} s", ", ".join(counts), ended["reason"] or ""]
        )
        failed += [f"- `{t['test']}`: {t['why'].splitlines()[-1]}" for t in tests if t["outcome"] == "failed"]
    return [
        *table(["part", "ended", "time", "tests", "why"], rows),
        *(["", "Failed:", *failed] if failed else []),
    ]


def merged(result: Result, name: str) -> Result | None:
    """The benchmark results of a part as one; None if it finished no cell."""
    findings = part(result, name)
    rows = [row for finding in findings for row in finding.get("rows", [])]
    if not rows:
        return None
    about = next((finding for finding in reversed(findings) if "machine" in finding), None)
    keys = ("ansatz", "layers", "model", "qubits", "batch", "simulator")
    # A cell of two grids counts once.
    distinct = {tuple(row.get(key) for key in keys): row for row in rows}
    return {"reference": None, **(about or {"machine": _machine_of(result)}), "rows": list(distinct.values())}


def _machine_of(result: Result) -> dict[str, Any]:
    """The machine of a benchmark that its limit ended before it had measured the ceilings."""
    about = machine(result)
    gpu = about["gpus"][0] if about["gpus"] else None
    return {**result["code"], "gpu": gpu, "cpu": about["cpu"], "threads": about["cores"], "ceiling": {}}


def times_table(result: Result) -> list[str]:
    """Times of `fused` by size, batch, and device or number of threads; of a GPU the shorter of eager and graph."""
    times = {
        (value["cell"]["qubits"], value["cell"]["batch"], value["device"], value["threads"]): min(
            value["median_s"].values()
        )
        for value in part(result, "crossing")
        if "cell" in value
    }
    if not times:
        return [absent(result, "crossing")]
    lines = sorted({key[2:] for key in times})
    points = sorted({key[:2] for key in times})
    head = ["GPU" if where == "cuda" else f"{count} thread{'s' * (count > 1)}" for where, count in lines]
    rows = [
        [*point, *(duration(times[key]) if (key := (*point, *line)) in times else "" for line in lines)]
        for point in points
    ]
    return table(["qubits", "batch", *head], rows)


def compiled(result: Result) -> list[str]:
    """Registers, spills and occupancy of the kernels."""
    rows = [row for row in part(result, "kernels") if "registers" in row]
    if not rows:
        return [absent(result, "kernels")]
    return table(list(rows[0]), [["" if value is None else value for value in row.values()] for row in rows])


# --- the figures ---


def figures(result: Result) -> Iterator[tuple[str, Any]]:
    """The figures that the findings allow, by name."""
    for name in ("simulators", "peers"):
        timed = merged(result, name)
        if timed is not None and factors(timed["rows"]):
            yield name, heatmap(timed, factors(timed["rows"]))
    trained = merged(result, "models")
    if trained is not None:
        yield "models", bars(trained)


# --- writing ---


def page(result: Result, drawn: Sequence[str]) -> str:
    """The whole page."""
    sections = {"What was proved": proofs(result)}
    for name, (heading, benchmark) in BENCHMARKS.items():
        timed = merged(result, name)
        sections[heading] = (
            [output.as_markdown(benchmark, timed).decode()] if timed else [absent(result, name)]
        )
    sections |= {"GPU against cores": times_table(result), "Kernels": compiled(result)}
    lines = [
        f"# {title(result)}",
        "",
        "Written by `make gpu-docs` from what `make gpu-check` found.",
        "",
        *hardware(result),
    ]
    for heading, body in sections.items():
        rows = [
            f"![{heading}]({slug(result)}-{name}.svg)" for name in drawn if BENCHMARKS[name][0] == heading
        ]
        lines += ["", f"## {heading}", "", *rows, *([""] if rows else []), *body]
    return "\n".join(line.rstrip() for line in "\n".join(lines).split("\n")).rstrip() + "\n"


def keep_records(result: Result, folder: Path) -> int:
    """Write the records of whole runs and their histories below their studies' results folders; how many.

    Raises:
        UserError: there is a record of another host at the same path.
    """
    value: dict[Path, dict[str, Any]] = {}
    for name, study in STUDIES.items():
        results = folder / read_config(ROOT / "workflow" / "studies" / study).results
        value |= {results / one["run"]: one for one in part(result, name) if "record" in one}
    for place, one in value.items():
        if place.exists():
            there, here = json.loads(place.read_text())["machine"], one["record"]["machine"]
            # Lent machines often share a name.
            if any(there.get(name) != here.get(name) for name in ("host", "cpu", "cores", "gpus")):
                raise UserError(
                    f"{place}: is a record of another host ({there['host']}); move its results folder away to keep hosts apart"
                )
    for place, one in value.items():
        write_atomic(place, (json.dumps(one["record"], indent=1) + "\n").encode())
        # Results from before records had schema 4 have none.
        if "history" in one:
            write_atomic(place.with_name(HISTORY), one["history"].encode())
    return len(value)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--docs", type=Path, default=Path("docs/gpu"))
    parser.add_argument("--results", type=Path, default=Path())
    options = parser.parse_args()
    try:
        result = read(options.file)
        drawn = []
        for name, figure in figures(result):
            save(figure, options.docs / f"{slug(result)}-{name}.svg")
            drawn.append(name)
        write_atomic(options.docs / f"{slug(result)}.md", page(result, drawn).encode())
        count = keep_records(result, options.results)
    except UserError as error:
        print(f"gpu-docs: {error}", file=sys.stderr)
        return 1
    print(f"written: {options.docs / slug(result)}.md, {len(drawn)} figure(s), {count} record(s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
