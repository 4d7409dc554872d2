"""`ketscale plan`: which runs come first on a budget, what a cluster is asked for, and what is said."""

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest
import yaml

from ketscale import cli
from ketscale.analysis.advice import plan, priority
from ketscale.grid import Run
from ketscale.jobs.costs.forecast import Forecast
from ketscale.jobs.costs.interval import Interval
from ketscale.jobs.slurm.site import Site, SiteFile
from tests import record_maker as maker

HOUR = Interval(3600.0, 1800.0, 7200.0)


@pytest.fixture(autouse=True)
def outside_slurm(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)


def points(hours, seeds=5):
    """Runs of points whose seeds take so many hours each, with forecasts."""
    study = maker.study(batch=[2 ** (4 + i) for i in range(len(hours))], seed=list(range(seeds)))
    config = maker.config(one=study)
    cost = dict(zip(sorted({run.batch for run in config.runs}), hours, strict=True))
    forecasts = {
        run: Forecast(run, HOUR.times(cost[run.batch]), HOUR, Interval(3e8, 2e8, 4e8), "repeat", False)
        for run in config.runs
    }
    return config, forecasts


def chosen(config, forecasts, done, node_hours):
    """The chosen runs as (number of the point, seed)."""
    runs = priority.choose(
        config, [r for r in config.runs if (r.batch, r.seed) in done], forecasts, node_hours
    )
    return [(run.batch.bit_length() - 5, run.seed) for run in runs]


def test_what_is_nearly_complete_comes_first_then_what_is_cheap():
    config, forecasts = points([1.0, 2.0, 4.0])
    # The third point lacks one seed of three, the others all three.
    assert chosen(config, forecasts, {(64, 0), (64, 2)}, 7.0) == [(2, 1), (0, 0), (0, 1), (0, 2)]
    assert chosen(config, forecasts, {(64, 0), (64, 2)}, 6.9) == [(2, 1)]


def test_no_point_has_more_than_three_seeds_before_all_have_three():
    config, forecasts = points([1.0, 10.0])
    three = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert chosen(config, forecasts, set(), 33.0) == three
    # Then a fourth of each, the cheaper first, before a fifth.
    more = [(0, 3), (1, 3), (0, 4), (1, 4)]
    assert chosen(config, forecasts, set(), 1000.0) == three + more
    assert chosen(config, forecasts, set(), 34.0) == three + more[:1]


def test_a_point_is_not_begun_that_the_budget_does_not_complete():
    config, forecasts = points([1.0])
    assert chosen(config, forecasts, set(), 2.9) == []
    config, forecasts = points([1.0], seeds=2)
    assert chosen(config, forecasts, set(), 2.0) == [(0, 0), (0, 1)]


def test_the_chosen_cost_no_more_than_the_budget():
    config, forecasts = points([0.3, 1.1, 0.7, 2.3])
    for budget in (0.5, 1.0, 3.0, 5.0, 9.0, 30.0):
        found = priority.choose(config, [], forecasts, budget)
        assert sum(forecasts[run].node_hours.middle for run in found) <= budget
        assert len(set(found)) == len(found)


def test_limits_are_read_by_a_site_file_and_have_room():
    config, forecasts = points([1.0, 2.0])
    write(config)
    made = plan.make(config, Path("config.yaml"), None, [], Path())
    lines = yaml.safe_load(plan.as_limits(dataclasses.replace(made, forecasts=forecasts)))
    site = Site(SiteFile(limits=[{"minutes": 1, "memory_mb": 100}, *lines]), config.sizes)
    first, second = config.runs[0], next(run for run in config.runs if run.batch == 32)
    assert (site.minutes(first), site.minutes(second)) == (180, 360)
    # 400 MB and a quarter, and what starts the run.
    assert site.memory_mb(first) == 500 + 700


def write(config, **changes):
    Path("config.yaml").write_text(json.dumps({**config.given, **changes}))


def finish(config, run, minutes=6.0):
    timing = maker.timed(run, 60 * minutes - 1)
    stopped = f"2026-01-01T00:{int(minutes):02}:00+00:00"
    maker.write(Path("results"), config.settings(run), timing=timing, stopped=stopped, **maker.used(run))


def call(capsys, *options):
    assert cli.main(["plan", *options]) == 0
    return capsys.readouterr().out


def test_without_records_it_says_so_and_names_what_to_measure(capsys):
    config = maker.config(one=maker.study(simulator=["fused", "qiskit"], batch=[64, 32]))
    write(config)
    out = call(capsys, "--node-hours", "1")
    assert out.startswith("12 runs missing, and no record tells what any of them costs: measure first\n")
    named = [Run.parse(word) for word in re.findall(r"results/runs/\S+", out)]
    assert [(run.simulator, run.batch, run.seed) for run in named] == [("fused", 32, 0), ("qiskit", 32, 0)]
    assert "node-hours" not in out
    # Without a target, Snakemake would run the whole study.
    assert cli.main(["plan", "--targets"]) != 0
    said = capsys.readouterr()
    assert said.out == "" and "measure one of each kind first" in said.err
    assert "measure first" in call(capsys, "--limits")


def test_the_plan_names_costs_and_the_command(capsys):
    config = maker.config(one=maker.study(batch=[64, 32], seed=[0, 1, 2]))
    write(config)
    done = [run for run in config.runs if run.batch == 64][:2]
    for run in done:
        finish(config, run)
    left = next(run for run in config.runs if run.batch == 64 and run.seed == 2)
    out = call(capsys, "--node-hours", "0.11")
    assert out.startswith("4 missing runs: ") and "learned from 2 records (A processor, 2 cores)" in out
    assert re.search(r"^1 +6 min \(.+ to .+\) .* 300 MB \(to \d+\) +digits/vqc/q4-l3-b64", out, re.MULTILINE)
    assert "(beyond the records)" in out
    assert "on 0.11 node-hours first: 1 run, 0.1 node-hours (" in out
    assert f"  snakemake --profile profiles/local \\\n    results/{left.path}\n" in out
    assert call(capsys, "--node-hours", "0.11", "--targets") == f"results/{left.path}\n"
    said = json.loads(call(capsys, "--json"))
    assert said["records"] == 2 and len(said["runs"]) == 4 and all(run["known"] for run in said["runs"])
    for run in config.runs:
        if run not in done:
            finish(config, run)
    assert call(capsys) == "nothing is missing\n"


@pytest.mark.parametrize("budget", ["-1", "much", "nan", "inf"])
def test_a_budget_is_a_number(capsys, budget):
    with pytest.raises(SystemExit):
        cli.main(["plan", "--node-hours", budget])
    assert f"'{budget}' should be a number of at least 0" in capsys.readouterr().err


def test_records_of_another_folder_tell_costs_too(capsys):
    config = maker.config(one=maker.study(seed=[0, 1]))
    write(config)
    finish(config, config.runs[0])
    Path("results").rename("elsewhere")
    assert "no record tells" in call(capsys)
    assert call(capsys, "--records", "elsewhere").startswith("2 missing runs: 0.2 node-hours (")
    assert cli.main(["plan", "--records", "nowhere"]) == 2
    assert "--records nowhere: not a results folder" in capsys.readouterr().err


def test_limits_say_nothing_of_runs_beyond_the_records(capsys):
    config = maker.config(one=maker.study(batch=[64, 512]))
    write(config)
    for run in config.runs:
        if run.batch == 64 and run.seed < 2:
            finish(config, run)
    out = call(capsys, "--limits")
    assert out.count("minutes: ") == 1 and "batch: 64," in out
    assert "# 3 runs beyond the records: give their limits by hand" in out


def test_a_fit_is_not_to_be_measured_first(capsys):
    given = maker.given(one=maker.study(model="kernel", batch=1, simulator="fused", protocol="fit"))
    given["protocols"]["fit"] = {"precision": "fp64", "timed": False}
    Path("config.yaml").write_text(
        yaml.safe_dump(given | {"studies": {"one": given["studies"]["one"] | {"kind": "accuracy"}}})
    )
    assert cli.main(["plan"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "3 runs missing", "", "3 runs that fit or probe a model, of which no steps tell the time"
    ]  # fmt: skip
