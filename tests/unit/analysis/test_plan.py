"""`ketscale plan`: what missing runs cost, which come first on a budget, and what is said."""

import json
import os
import re
import sys
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import pytest

from ketscale import cli
from ketscale.analysis.advice import plan
from tests import record_maker as maker


@pytest.fixture(autouse=True)
def outside_slurm(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").touch()


def study(**axes):
    config = maker.config(one=maker.study(**axes))
    Path("config.yaml").write_text(json.dumps(config.raw))
    return config


def finish(config, run, minutes=6.0):
    timing = maker.timed(run, 60 * minutes - 1)
    stopped = f"2026-01-01T00:{int(minutes):02}:00+00:00"
    maker.write(Path("results"), config.settings(run), timing=timing, stopped=stopped, **maker.used(run))


def call(capsys, *options):
    assert cli.main(["plan", *options]) == 0
    return capsys.readouterr().out


def planned(capsys, *options):
    """What the plan says of each run."""
    plans = []
    with patch.object(plan, "as_text", lambda one: plans.append(one) or ""):
        call(capsys, *options)
    (one,) = plans
    runs = (*one.first, *one.omitted)
    return {run: {"left_out": one.omitted.get(run), **_costs(one.costs.get(run))} for run in runs}


def _costs(one):
    """A forecast by names; nothing of a run whose cost is unknown."""
    intervals = ("node_hours", "seconds")
    return {name: asdict(getattr(one, name)) for name in intervals} if one else {}


def test_the_cheapest_completion_of_a_point_comes_first_and_then_further_seeds(capsys):
    """Seeds take 0.1 and 0.5 hours. Two of the cheap point lack to its three, and one of the dear point."""
    config = study(batch=[16, 32], seed=list(range(6)))
    for run in config.runs:
        if (run.batch, run.seed) in ((16, 5), (32, 0), (32, 1)):
            finish(config, run, minutes=6.0 if run.batch == 16 else 30.0)
    cheap, dear = ([run for run in config.runs if run.batch == batch] for batch in (16, 32))
    expected = {0.15: [], 0.25: cheap[:2], 0.45: cheap[:4], 0.69: cheap[:5], 0.93: [*cheap[:4], dear[2]]}
    for budget, first in expected.items():
        runs = planned(capsys, "--node-hours", str(budget))
        assert {run for run, one in runs.items() if not one["left_out"]} == {*first}


def test_without_records_it_says_so_and_what_to_measure(capsys):
    study(simulator=["fused", "qiskit"], batch=[64, 32])
    unknown = "without records to predict the cost from: first train one of each model, simulator and backend"
    assert call(capsys, "--node-hours", "1").strip() == f"Left out: 12 runs {unknown}."
    # Without a target, Snakemake would run the whole study.
    assert cli.main(["plan", "--targets"]) != 0
    assert capsys.readouterr().out == ""


def test_the_plan_names_costs_and_the_command(capsys, monkeypatch):
    config = study(batch=[64, 32], seed=[0, 1, 2])
    result = [run for run in config.runs if run.batch == 64][:2]
    for run in result:
        finish(config, run)
    left = next(run for run in config.runs if run.batch == 64 and run.seed == 2)
    monkeypatch.setattr(sys, "argv", ["/bin/ketscale", "plan", "--node-hours", "0.11"])
    out = call(capsys, "--node-hours", "0.11")
    row = r"^1 of 1 +0\.1 +6 min \(to .+\) +digits/vqc/q4-l3-b64\S+$"
    assert re.search(row, out, re.MULTILINE)
    assert re.search(r"\nFirst: 1 run, 0\.1 node-hours \(.+ to .+\), on a budget of 0\.11\.\n", out)
    assert "\nLeft out: 3 runs over the budget, " in out
    assert out.endswith("  snakemake --profile profiles/local $(ketscale plan --node-hours 0.11 --targets)\n")
    assert call(capsys, "--node-hours", "0.11", "--targets") == f"results/{left.path}\n"
    for run in {*config.runs} - {*result}:
        finish(config, run)
    assert call(capsys) == "nothing is missing\n"


def test_hours_of_gpus_are_counted(capsys):
    config = study(backend="ddp-n1r2t1")
    finish(config, config.runs[0])
    assert re.search(r"First: 2 runs, 0\.2 node-hours \(.+\) and 0\.4 GPU-hours\.", call(capsys))
