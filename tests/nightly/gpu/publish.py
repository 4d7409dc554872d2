"""Tables and figures of one `gpu.json`: `python -m tests.nightly.gpu.publish gpu-check/gpu.json [--docs docs/gpu] [--results .]`.

Writes a page and its figures, named by the GPU and the day, and puts the records of whole runs where `ketscale report`
finds them: in the results folders of their studies. A record of another host is never replaced.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib.pyplot as plt

from benchmarks import output
from benchmarks.circuits import Circuits, factors
from benchmarks.figures import bars, heatmap, save
from benchmarks.models import Models
from benchmarks.runner import best_s
from ketscale.analysis.drawing import style
from ketscale.errors import UserError
from ketscale.files import write_atomic
from ketscale.grid import HISTORY, Run
from ketscale.problems.registry import read_config
from ketscale.words import duration
from tests import ROOT

# The parts that train whole runs, and the config with the folder of their results.
STUDIES = {"ranks": "one-gpu.yaml", "devices": "one-gpu.yaml", "control": "control.yaml"}
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
        found: Result = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: cannot be read ({error}); it is what tests/nightly/gpu/check writes"
        ) from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise UserError(f"{path}: is not of this version of tests/nightly/gpu/check; run it again")
    return found


def part(result: Result, name: str) -> Findings:
    """What a part has found; nothing if it did not run."""
    found: Findings = result["parts"].get(name, {}).get("results") or []
    return found


def absent(result: Result, name: str) -> str:
    """Why a part has found nothing."""
    ended = result["parts"].get(name)
    return NOT_MEASURED + (
        "the part was not asked for." if ended is None else f"{ended['reason'] or ended['status']}."
    )


def machine(result: Result) -> dict[str, Any]:
    """What the machine is."""
    found = part(result, "machine")
    if not found:
        raise UserError(
            "the file does not say on which machine it was made; run tests/nightly/gpu/check with the part machine"
        )
    return found[0]


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
    return {"reference": None, **(about or {"machine": _known(result)}), "rows": list(distinct.values())}


def _known(result: Result) -> dict[str, Any]:
    """The machine of a benchmark that its limit ended before it had measured the ceilings."""
    about = machine(result)
    gpu = about["gpus"][0] if about["gpus"] else None
    return {**result["code"], "gpu": gpu, "cpu": about["cpu"], "threads": about["cores"], "ceiling": {}}


def goals(result: Result) -> list[str]:
    """What was to be reached, and what was."""
    timed = merged(result, "simulators")
    if timed is None:
        return [absent(result, "simulators")]
    chosen = [row for row in timed["rows"] if row["ansatz"] == "strongly_entangling" and row["qubits"] == 8]
    said = []
    for row in chosen:
        if row["simulator"] == "fused" and row["batch"] == 32 and best_s(row):
            said.append(
                f"- 8 qubits, 3 layers, batch 32: {duration(best_s(row))} for values and gradients (goal: below 0.3 ms)"
            )
        if row["simulator"] == "fused" and row["batch"] == 8192 and row["fraction"] is not None:
            said.append(
                f"- the same at batch 8192: {100 * row['fraction']:.0f} % of the multiply-add rate (goal: 25 %)"
            )
    others = merged(result, "peers")
    rows = [timed["rows"], others["rows"] if others else []]
    lost = [f for each in rows for f in factors(each) if f.speedup < 1]
    said += [f"- slower than {f.peer} in {f.case}: {f.speedup:.2f}x" for f in lost]
    return said or ["Not measured: no cell of 8 qubits was finished."]


def crossings(result: Result) -> list[str]:
    """For each size and number of cores, the smallest batch from which the GPU is faster for all larger ones."""
    times = cells(part(result, "crossing"))
    lines = sorted({line for line, *_ in times if line[0] == "cpu"}, key=lambda line: line[1])
    if not times:
        return [absent(result, "crossing")]
    if not any(line[0] == "cuda" for line, *_ in times):
        return ["Not measured: no GPU was there to compare with.", "", *table(*times_table(times))]
    sizes = sorted({qubits for _, qubits, _ in times})
    rows = [[qubits, *(crossing(times, qubits, line) for line in lines)] for qubits in sizes]
    head = ["qubits", *(f"faster than {count} core{'s' * (count > 1)} from batch" for _, count in lines)]
    return [*table(head, rows), "", *table(*times_table(times))]


Line = tuple[str, int]


def cells(findings: Findings) -> dict[tuple[Line, int, int], float]:
    """Seconds by (device, threads), qubits and batch; of a GPU the shorter of eager and graph."""
    return {
        ((found["device"], found["threads"]), found["cell"]["qubits"], found["cell"]["batch"]): min(
            found["median_s"].values()
        )
        for found in findings
        if "cell" in found
    }


def crossing(times: Mapping[tuple[Line, int, int], float], qubits: int, line: Line) -> str:
    """In words."""
    gpu = ("cuda", 1)
    batches = sorted(b for where, q, b in times if where == line and q == qubits and (gpu, q, b) in times)
    wins = [times[gpu, qubits, b] < times[line, qubits, b] for b in batches]
    if not batches:
        return "not measured"
    if not wins[-1]:
        return f"not up to {batches[-1]}"
    first = max((i + 1 for i, won in enumerate(wins) if not won), default=0)
    return str(batches[first])


def times_table(times: Mapping[tuple[Line, int, int], float]) -> tuple[list[str], list[list[object]]]:
    """Head and rows of all times."""
    lines = sorted({line for line, *_ in times})
    points = sorted({(qubits, batch) for _, qubits, batch in times})
    names = ["GPU" if where == "cuda" else f"{count} thread{'s' * (count > 1)}" for where, count in lines]
    rows: list[list[object]] = [
        [*point, *(duration(times[line, *point]) if (line, *point) in times else "" for line in lines)]
        for point in points
    ]
    return ["qubits", "batch", *names], rows


def records(result: Result) -> dict[str, dict[str, Any]]:
    """The records of whole runs, by path."""
    found = (one for name in STUDIES for one in part(result, name))
    return {one["run"]: one["record"] for one in found if "record" in one}


def ranks(result: Result) -> list[str]:
    """Step times of whole runs, and what each layout gains over one core at the same work, paired by seed."""
    found = records(result)
    if not found:
        return [absent(result, "ranks")]
    # A run that diverged or ran out of memory has a record, and no time.
    steps = {
        Run.parse(path): record["timing"]["step"]["median_s"]
        for path, record in found.items()
        if record["timing"]["step"]["median_s"]
    }
    rows = []
    for run in sorted(dict.fromkeys(_without_seed(run) for run in steps)):
        seeds = {each.seed: each for each in steps if _without_seed(each) == run}
        some = next(iter(seeds.values()))
        pairs = [
            steps[base] / steps[each] for each in seeds.values() for base in steps if _one_core_of(base, each)
        ]
        gain = f"{median(pairs):.2f}x" if pairs else ""
        busy = sum(
            not record["quiet"]["quiet"]
            for path, record in found.items()
            if Run.parse(path) in seeds.values()
        )
        step = duration(median(steps[each] for each in seeds.values()))
        about = (some.model, some.size, some.batch, some.simulator, some.layout)
        rows.append([*about, len(seeds), step, gain, busy or ""])
    head = ["model", "size", "batch", "simulator", "layout", "seeds", "step", "over one core", "not quiet"]
    return table(head, rows)


def _without_seed(run: Run) -> tuple[object, ...]:
    return (
        run.workload,
        run.model,
        run.size,
        run.batch,
        run.simulator,
        run.backend,
        run.nodes,
        run.ranks,
        run.threads,
    )


def _one_core_of(base: Run, run: Run) -> bool:
    same = all(
        getattr(base, name) == getattr(run, name)
        for name in ("workload", "model", "size", "batch", "simulator", "seed")
    )
    return same and base.layout == "cpu-n1r1t1"


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
    times = cells(part(result, "crossing"))
    if times:
        yield "crossing", lines_of(times, title(result))


def lines_of(times: Mapping[tuple[Line, int, int], float], name: str) -> Any:
    """Time against batch, a panel for each size and a line for each device."""
    style.theme()
    sizes = sorted({qubits for _, qubits, _ in times})
    figure, axes = plt.subplots(
        1, len(sizes), figsize=(1 + 3.6 * len(sizes), 3.8), sharey=True, layout="constrained"
    )
    panels = [axes] if len(sizes) == 1 else list(axes)
    for panel, qubits in zip(panels, sizes, strict=True):
        for number, line in enumerate(sorted({line for line, *_ in times})):
            points = sorted(
                (batch, s) for (where, q, batch), s in times.items() if where == line and q == qubits
            )
            label = name if line[0] == "cuda" else f"{line[1]} thread{'s' * (line[1] > 1)}"
            colour = style.colour(number)
            panel.plot(*zip(*points, strict=True), label=label, marker="o", ms=4, lw=1.5, color=colour)
        panel.set_xscale("log", base=2)
        panel.set_xticks([1, 8, 64, 512, 4096], ["1", "8", "64", "512", "4096"])
        panel.set(title=f"{qubits} qubits", xlabel="batch")
    style.log_seconds(panels[0].yaxis)
    panels[0].set_ylabel("values and gradients")
    panels[-1].legend(fontsize=7)
    return figure


# --- writing ---


def page(result: Result, drawn: Sequence[str]) -> str:
    """The whole page."""
    timed, trained = merged(result, "simulators"), merged(result, "models")
    others = merged(result, "peers")
    sections = {
        "What was proved": proofs(result),
        "Goals": goals(result),
        "Simulators": [output.as_markdown(Circuits, timed).decode()]
        if timed
        else [absent(result, "simulators")],
        "Simulators of others": [output.as_markdown(Circuits, others).decode()]
        if others
        else [absent(result, "peers")],
        "Training steps": [output.as_markdown(Models, trained).decode()]
        if trained
        else [absent(result, "models")],
        "GPU against cores": crossings(result) if part(result, "crossing") else [absent(result, "crossing")],
        "Whole runs": ranks(result),
        "Kernels": compiled(result),
    }
    pictures = {
        "simulators": "Simulators",
        "peers": "Simulators of others",
        "models": "Training steps",
        "crossing": "GPU against cores",
    }
    lines = [
        f"# {title(result)}",
        "",
        "Written by `make gpu-docs` from what `make gpu-check` found.",
        "",
        *hardware(result),
    ]
    for name, body in sections.items():
        shown = [f"![{name}]({slug(result)}-{key}.svg)" for key in drawn if pictures[key] == name]
        lines += ["", f"## {name}", "", *shown, *([""] if shown else []), *body]
    return "\n".join(line.rstrip() for line in "\n".join(lines).split("\n")).rstrip() + "\n"


def keep_records(result: Result, folder: Path) -> int:
    """Write the records of whole runs and their histories below their studies' results folders; how many.

    Raises:
        UserError: there is a record of another host at the same path.
    """
    found: dict[Path, dict[str, Any]] = {}
    for name, study in STUDIES.items():
        results = folder / read_config(ROOT / "workflow" / "studies" / study).results
        found |= {results / one["run"]: one for one in part(result, name) if "record" in one}
    for place, one in found.items():
        if place.exists():
            there, here = json.loads(place.read_text())["machine"], one["record"]["machine"]
            # Lent machines often share a name.
            if any(there.get(name) != here.get(name) for name in ("host", "cpu", "cores", "gpus")):
                raise UserError(
                    f"{place}: is a record of another host ({there['host']}); move its results folder away to keep hosts apart"
                )
    for place, one in found.items():
        write_atomic(place, (json.dumps(one["record"], indent=1) + "\n").encode())
        # Results from before records had schema 4 have none.
        if "history" in one:
            write_atomic(place.with_name(HISTORY), one["history"].encode())
    return len(found)


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
