"""Effects, intervals and verdicts of all ready-made studies are those of the analysis before it had one frame (31c5907d).

The rows in tests/data/golden.jsonl.xz were made by that commit from the same made-up records: whole, and with missing, busy
and diverged seeds. What is meant to differ: the verdict of a sweep of a size is on the time of its step (it was on its growth in
proportion), a study of simulators of which nothing was timed says "missing" where it said nothing, and so does a model of which
every seed failed: "failed". Rows of pulses and of control are left out where later changes of their points changed the runs, and
those of a search of which trials are missing, whose choice is not known.
"""

from __future__ import annotations

import json
import lzma
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ketscale import analysis
from ketscale.analysis import columns
from ketscale.analysis.analysed import Analysed
from ketscale.config import load
from ketscale.grid import POINT
from tests import ROOT, ready_made
from tests import records_factory as factory

OPEN = {"same", "cannot tell"}
WORDS = {
    "pays": {"faster"}, "does not pay": {"slower", *OPEN}, "no clear gain": OPEN, "slower": {"slower"}, "not slower": {"faster", *OPEN},
    "no clear loss": OPEN, "better": {"better"}, "worse": {"worse"}, "equal": {"same"}, "cannot tell": {"cannot tell"},
    "no control": {"missing"}, "held": {"same"},
    "not held": {"differs"}, "undecided: fewer than 3 seeds": {"cannot tell"}, "undecided: busy machine": {"cannot tell"},
    "undecided: not comparable": {"not comparable"}, "undecided: failed seeds": {"failed"}, "open": {"missing", "failed", "cannot tell"}, "": {""},
}  # fmt: skip
PROPORTION = {"less than in proportion", "about in proportion", "more than in proportion", "undecided"}
GOLDEN: dict[tuple[str, str], list[Any]] = defaultdict(list)
for line in lzma.decompress((ROOT / "tests/data/golden.jsonl.xz").read_bytes()).splitlines():
    name, fate, *row = json.loads(line)
    GOLDEN[name, fate].append(row)


def config_of(name: str) -> Any:
    if name == "default":
        return factory.default_config()
    if name == "config":
        # The fates of runs are drawn one after the other, and its baselines are newer than the rows.
        settings = load(ROOT / "config.yaml")
        assert settings["studies"]["accuracy"]["points"].pop()["model"] == ["linear", "majority"]
        return analysis.of(settings)
    return ready_made.small(ready_made.FOLDER / f"{name}.yaml")


def known(value: Any) -> Any:
    return None if value != value else value


def alike(one: Any, other: Any) -> bool:
    one, other = known(one), known(other)
    return one == other if None in (one, other) else math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.parametrize(("name", "fate"), sorted(GOLDEN))
def test_effects_intervals_and_verdicts_are_as_they_were(name: str, fate: str, tmp_path: Path) -> None:
    config = factory.partial(config_of(name))
    factory.write_all(config, tmp_path, factory.fates()[fate])
    tables = {table: columns.rows(frame) for table, frame in Analysed.of(config, tmp_path).tables.items()}
    at_point = {
        (row["study"], *(row[axis] for axis in POINT)): row
        for row in (*tables["speed"], *tables["quality"])
        if row["kind"] != "parity"
    }
    others = [row for row in tables["speed"] if row["kind"] == "parity"]
    for study, kind, _, point, effect, low, high, verdict in GOLDEN[name, fate]:
        if point is None:
            rows = [row for row in others if row["study"] == study and alike(row["effect"], effect)]
            assert effect is None or any(
                alike(row["low"], low) and known(row["verdict"]) in WORDS[verdict] for row in rows
            )
            continue
        row = at_point[study, *point]
        assert all(map(alike, (row["effect"], row["low"], row["high"]), (effect, low, high))), row["point"]
        word = known(row["verdict"]) or ""
        if verdict in PROPORTION:
            assert word in {"slower", "faster", *OPEN}
        elif (verdict, word) == ("", "failed"):
            assert row["failed"] > 0 and row["n"] == 0, row["point"]
        elif not (kind == "simulator" and word == "missing"):
            assert word in WORDS[verdict], (row["point"], verdict, word)
