"""How the workflow scales: dry run, status and report of very many runs, beside a bare Snakemake of as many jobs.

    python -m tests.scale --runs 20000 [--folder FOLDER]

It trains nothing: the records are synthetic. Each line is wall time, CPU time, peak memory, and the CPU time over that
of the bare dry run (each is one busy thread), whose Snakefile has one rule with the same wildcards and files, and
nothing else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from ketscale import grid
from tests import ROOT
from tests import records_factory as factory

SEEDS = 20
SIMULATORS = ["default.qubit", "fused", "lightning.qubit", "qiskit"]
BARE = f"""\
rule all:
    input:
        open("paths.txt").read().split(),


rule train:
    output:
        record="results/{grid.RUNS}/{grid.PATTERN}/{grid.RECORD}",
        history="results/{grid.RUNS}/{grid.PATTERN}/{grid.HISTORY}",
    log:
        "results/{grid.RUNS}/{grid.PATTERN}/train.log",
    wildcard_constraints:
        **{grid.CONSTRAINTS!r},
    shell:
        "false > {{output.record}} 2> {{log}}"
"""


def study(runs: int) -> dict[str, Any]:
    """A config of so many runs (to the next multiple of 80): batches, simulators and seeds at one size."""
    batches = list(range(1, -(-runs // (SEEDS * len(SIMULATORS))) + 1))
    axes = factory.point(batch=batches, simulator=SIMULATORS, seed=list(range(SEEDS)))
    given = factory.small_study({"many": {"kind": "simulator", "question": "Which is fast?", "axes": axes}})
    timing = {name: value for name, value in given["protocols"]["timing"].items() if name != "limit_s"}
    return {**given, "protocols": {**given["protocols"], "timing": timing}}


def measured(what: str, folder: Path, *command: str, bare_s: float | None = None) -> float:
    """Run a command, print what it took, and return its CPU time in seconds."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    start = time.perf_counter()
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - start
    if process.returncode:
        sys.exit(f"{what}: exit status {process.returncode}\n{(folder / 'log.txt').read_text()[-3000:]}")
    cpu_s = used.ru_utime + used.ru_stime
    over = "" if bare_s is None else f"  {cpu_s / bare_s:5.2f}x"
    print(
        f"{what:32} {wall_s:7.1f} s  {cpu_s:7.1f} s CPU  {used.ru_maxrss / 2**20:5.2f} GiB{over}", flush=True
    )
    return cpu_s


def main() -> None:
    """Make the study, and measure each command on it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="an empty folder to work in (default: a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        (folder / "bare").mkdir(parents=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(study(options.runs)))
        config = factory.analysis.of(study(options.runs))
        paths = [f"results/{run.path}" for run in config.runs]
        (folder / "bare" / "Snakefile").write_text(BARE)
        (folder / "bare" / "paths.txt").write_text("\n".join(paths))
        print(f"{len(paths)} runs")
        ours = ("snakemake", "-s", str(ROOT / "Snakefile"), "--profile", str(ROOT / "profiles" / "local"))
        dry = ("--dry-run", "--quiet", "all", "--")
        bare_s = measured("bare dry run", folder / "bare", "snakemake", "--cores", "1", *dry, "all")
        measured("dry run", folder, *ours, *dry, "runs", bare_s=bare_s)
        measured("status, nothing trained", folder, "ketscale", "status", bare_s=bare_s)
        factory.write_all(config, folder / "results")
        for path in paths:
            here = folder / "bare" / path
            here.parent.mkdir(parents=True)
            here.touch()
            (here.parent / grid.HISTORY).touch()
        bare_s = measured(
            "bare dry run, all trained", folder / "bare", "snakemake", "--cores", "1", *dry, "all"
        )
        measured("dry run, all trained", folder, *ours, *dry, "runs", bare_s=bare_s)
        measured("status, all trained", folder, "ketscale", "status", bare_s=bare_s)
        measured("report", folder, "ketscale", "report", bare_s=bare_s)


if __name__ == "__main__":
    main()
