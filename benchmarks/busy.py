"""`python -m benchmarks.busy RESULTS [--seeds 6]`: what is measured beside a real load, against quiet runs of the same points.

A process on one core works for a share of each 20 ms, in turns with quiet runs. For every three seeds beside a load the ratio
of two points is compared with that of all quiet seeds: how often its interval contains that, and how often a verdict is
wrong. RESULTS: a results folder of config.yaml with the prepared data of digits. Nothing else may run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from ketscale import analysis
from ketscale.analysis import columns, verdicts
from ketscale.analysis.columns import Trained
from ketscale.analysis.comparison import Times
from ketscale.analysis.points import Group, point, usable
from ketscale.files import write_csv
from ketscale.grid import PREPARED, RECORD, layout
from ketscale.measure.record import check

SHARES = (0.0, 0.03, 0.06, 0.1, 0.2, 0.4, 0.6)
# Layout and batch of each point.
POINTS = (("cpu-n1r1t1", 1024), ("cpu-n1r1t2", 1024), ("mpi-n1r2t1", 1024), ("cpu-n1r1t1", 1280))
_PERIOD_S = 0.02


def load(share: float) -> None:
    """Keep the first core busy for a share of the time."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    while True:
        start = time.perf_counter()
        while time.perf_counter() - start < share * _PERIOD_S:
            pass
        time.sleep((1 - share) * _PERIOD_S)


def measured(results: Path, seeds: int) -> Iterator[dict[str, Any]]:
    """The row of runs.csv of each run, with its `share`: every point beside every load, in turns, seed by seed."""
    config = analysis.read(Path("config.yaml"))
    large = next(run for run in config.runs if run.protocol == "timing-large")
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            for share in SHARES:
                other = multiprocessing.get_context("spawn").Process(target=load, args=(share,), daemon=True)
                if share:
                    other.start()
                    time.sleep(1.0)
                for text, batch in POINTS:
                    run = replace(large, seed=seed, batch=batch, **layout(text))
                    settings = config.settings(run)
                    record = Path(folder, f"{share}", run.folder, RECORD)
                    record.parent.mkdir(parents=True)
                    features = str(results / PREPARED.format(workload=run.workload))
                    call = [sys.executable, "-m", "ketscale", "launch", str(record)]
                    call += ["--settings", settings.text, "--features", features]
                    subprocess.run(call, check=True, capture_output=True)
                    result = check(record, settings, None).record
                    assert result is not None
                    passes = result.quiet.passes
                    yield {
                        **next(columns.RUNS.of([Trained(result, settings)], config)),
                        "share": share,
                        "passes": passes,
                    }
                if share:
                    other.terminate()
                    other.join()


def counts_of(rows: list[dict[str, Any]], share: float) -> Counter[str]:
    """Counts over every three seeds of every two points: an interval, with the quiet ratio in it, and a right verdict."""
    counts: Counter[str] = Counter()
    groups = {key: _of(rows, key, share) for key in dict.fromkeys(map(point, rows))}
    quiet = {key: _of(rows, key, 0.0) for key in groups}
    for one, other in combinations(groups, 2):
        truth = Times(quiet).speedup(quiet[one], quiet[other]).ratio
        assert truth is not None
        for seeds in combinations(range(len(groups[one])), 3):
            actual, expected = ([groups[key][seed] for seed in seeds] for key in (one, other))
            result = Times({one: actual, other: expected}).speedup(actual, expected)
            ((word, _),) = verdicts.ratios([result])
            right = (
                verdicts.FASTER
                if truth.value > verdicts.WORTH
                else verdicts.SLOWER
                if truth.value < 1 / verdicts.WORTH
                else verdicts.SAME
            )
            sound = word in verdicts.DECIDED or (
                result.ratio and result.ratio.low is not None and not verdicts.undecided(result)
            )
            counts["comparisons"] += 1
            counts["with an interval"] += bool(sound)
            if sound and result.ratio and result.ratio.low is not None and result.ratio.high is not None:
                counts["covered"] += result.ratio.low <= truth.value <= result.ratio.high
            counts["decided"] += word in verdicts.DECIDED
            counts["wrong"] += word in verdicts.DECIDED and word != right
    counts["busy"] = sum(usable([row])[1] == "busy" for group in groups.values() for row in group)
    counts["bounded"] = sum(usable([row])[1] == "bounded" for group in groups.values() for row in group)
    counts["passes"] = sum(row["passes"] or 1 for group in groups.values() for row in group)
    return counts


def _of(rows: list[dict[str, Any]], key: object, share: float) -> Group:
    return [row for row in rows if point(row) == key and row["share"] == share]


def main() -> None:
    """Measure, and print a line for each load; `--csv` keeps the runs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.busy", description=__doc__)
    parser.add_argument("results", type=Path, metavar="RESULTS")
    parser.add_argument("--seeds", type=int, default=6, metavar="NUMBER")
    parser.add_argument("--csv", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows = list(measured(options.results, options.seeds))
    if options.csv:
        write_csv(options.csv, rows, tuple(rows[0]))
    for share in SHARES:
        print(
            f"{100 * share:.0f} %:",
            ", ".join(f"{count} {name}" for name, count in counts_of(rows, share).items()),
        )


if __name__ == "__main__":
    main()
