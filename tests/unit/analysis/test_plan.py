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
from ketscale.jobs.provenance import code_hash
from ketscale.training import checkpoint
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
    Path("config.yaml").write_text(json.dumps(config.given))
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
    runs = (*one.chosen, *one.left_out)
    return {run: {"left_out": one.left_out.get(run), **_costs(one.costs.get(run))} for run in runs}


def _costs(one):
    """A forecast by names; nothing of a run whose cost is unknown."""
    intervals = ("node_hours", "seconds", "memory_bytes")
    return {"members": one.members, **{name: asdict(getattr(one, name)) for name in intervals}} if one else {}


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
    unknown = "whose cost no record tells: first train one of each model, simulator and backend"
    assert call(capsys, "--node-hours", "1").strip() == f"Left out: 12 runs {unknown}."
    # Without a target, Snakemake would run the whole study.
    assert cli.main(["plan", "--targets"]) != 0
    assert capsys.readouterr().out == ""


def test_the_plan_names_costs_and_the_command(capsys, monkeypatch):
    config = study(batch=[64, 32], seed=[0, 1, 2])
    done = [run for run in config.runs if run.batch == 64][:2]
    for run in done:
        finish(config, run)
    left = next(run for run in config.runs if run.batch == 64 and run.seed == 2)
    monkeypatch.setattr(sys, "argv", ["/bin/ketscale", "plan", "--node-hours", "0.11"])
    out = call(capsys, "--node-hours", "0.11")
    row = r"^1 of 1 +0\.1 +6 min \(.+ to .+\) +300 MB \(to \d+\) +digits/vqc/q4-l3-b64\S+$"
    assert re.search(row, out, re.MULTILINE)
    assert re.search(r"\nFirst: 1 run, 0\.1 node-hours \(.+ to .+\), on a budget of 0\.11\.\n", out)
    assert "\nLeft out: 3 runs over the budget, " in out
    assert out.endswith("  snakemake --profile profiles/local $(ketscale plan --node-hours 0.11 --targets)\n")
    assert call(capsys, "--node-hours", "0.11", "--targets") == f"results/{left.path}\n"
    for run in {*config.runs} - {*done}:
        finish(config, run)
    assert call(capsys) == "nothing is missing\n"


def test_hours_of_gpus_are_counted(capsys):
    config = study(backend="ddp-n1r2t1")
    finish(config, config.runs[0])
    assert re.search(r"First: 2 runs, 0\.2 node-hours \(.+\) and 0\.4 GPU-hours\.", call(capsys))


def test_runs_that_a_budget_pays_for_cost_what_they_do_in_cohorts_of_their_own(capsys):
    """All nine seeds that are missing would share a process, and each cost less there."""
    config = study(protocol="parity", simulator="fused", seed=list(range(12)))
    for run in config.runs[:3]:
        finish(config, run, minutes=30.0)
    whole = planned(capsys).values()
    assert all(one["members"] > 1 for one in whole)
    share = sum(one["node_hours"]["middle"] for one in whole) / len(whole)
    for budget in (3.5 * share, 5.5 * share, 8.9 * share):
        paid = [one for one in planned(capsys, "--node-hours", str(budget)).values() if not one["left_out"]]
        assert 0 < sum(one["node_hours"]["middle"] for one in paid) <= budget
        assert max(one["members"] for one in paid) <= len(paid) < 9


def test_of_a_run_with_a_checkpoint_what_is_left_is_counted(capsys):
    config = study(protocol=["timing", "quality"])
    timed, quality = ([run for run in config.runs if run.protocol == name] for name in ("timing", "quality"))
    finish(config, timed[0])
    # 100 epochs of 20 steps.
    save(config, quality[1], 1500)
    save(config, timed[1], 20)
    save(config, quality[2], 1900, key="of other settings")
    runs = planned(capsys)
    whole_s, left_s = (runs[run]["seconds"]["middle"] for run in quality[:2])
    # A second of it is no step.
    assert left_s - 1 == pytest.approx((whole_s - 1) / 4, rel=0.02)
    assert runs[quality[2]]["seconds"]["middle"] == pytest.approx(whole_s)
    # No timed run resumes.
    assert runs[timed[1]]["node_hours"] == runs[timed[2]]["node_hours"]


def test_of_the_members_of_a_cohort_what_is_left_of_each_is_counted(capsys):
    config = study(protocol="quality", simulator="fused", seed=list(range(9)))
    finish(config, config.runs[0])
    before = planned(capsys)
    run = next(run for run, one in before.items() if one["members"] > 1)
    save(config, run, 1500)
    whole, left = before[run], planned(capsys)[run]
    saved = whole["node_hours"]["middle"] - left["node_hours"]["middle"]
    assert left["members"] == whole["members"] and saved > 0.7 * whole["node_hours"]["middle"] > 0


def save(config, run, step, key=None):
    """The checkpoint of a run, as its header says it."""
    key = key or checkpoint.identify(config.settings(run).hash, maker.FEATURES, code_hash())
    path = checkpoint.path_of(Path("results") / run.folder, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(json.dumps({"key": key, "step": step}).encode() + b"\n...")
    manifest = Path("results/features/digits/features.json")
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"hash": maker.FEATURES}))


def test_without_node_hours_the_budget_is_what_the_site_file_leaves(capsys):
    config = study(seed=[0, 1, 2, 3, 4])
    for run in config.runs[:3]:
        finish(config, run, minutes=30.0)
    Path("profiles/slurm").mkdir(parents=True)
    Path("profiles/slurm/site.yaml").write_text("node_hours: 2.1\nlimits: [{minutes: 3, memory_mb: 100}]\n")
    assert re.search(r"First: 1 run, 0\.5 node-hours .+, on a budget of 0\.6\.", call(capsys))
    assert "First: 2 runs, 1 node-hours" in call(capsys, "--node-hours", "1.02")
