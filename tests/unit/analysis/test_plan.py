"""`ketscale plan`: which runs come first on a budget, what a cluster is asked for, and what is said."""

import argparse
import dataclasses
import itertools
import json
import os
import random
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from ketscale import cli, commands
from ketscale.analysis.advice import plan, priority
from ketscale.grid import Run
from ketscale.jobs.costs import Forecast, Interval
from ketscale.jobs.provenance import code_hash
from ketscale.jobs.slurm.site import Site, SiteFile
from ketscale.training import checkpoint
from tests import record_maker as maker

HOUR = Interval(3600.0, 1800.0, 7200.0)


@pytest.fixture(autouse=True)
def outside_slurm(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").touch()


def points(hours, seeds=5):
    """Runs of points whose seeds take so many hours each, with forecasts."""
    study = maker.study(batch=[2 ** (4 + i) for i in range(len(hours))], seed=list(range(seeds)))
    config = maker.config(one=study)
    cost = dict(zip(sorted({run.batch for run in config.runs}), hours, strict=True))
    costs = {run: forecast(run, cost[run.batch]) for run in config.runs}
    return config, costs


def forecast(run, hours, start_s=60.0):
    start = Interval(start_s, start_s, start_s)
    return Forecast(run, HOUR.times(hours), HOUR, start, Interval(3e8, 2e8, 4e8), "repeat")


def chosen(config, costs, done, node_hours):
    """The chosen runs as (number of the point, seed)."""
    hours = {run: one.node_hours.middle for run, one in costs.items()}
    have = [run for run in config.runs if (run.batch, run.seed) in done]
    ordered = priority.steps(config, have, hours)
    runs = priority.choose(ordered, lambda run: run, lambda of: sum(hours[run] for run in of), node_hours)
    return [(run.batch.bit_length() - 5, run.seed) for run in runs]


def test_what_is_nearly_complete_comes_first_then_what_is_cheap():
    config, forecasts = points([1.0, 2.0, 4.0])
    # The third point lacks one seed of three, the others all three.
    assert chosen(config, forecasts, {(64, 0), (64, 2)}, 7.0) == [(2, 1), (0, 0), (0, 1), (0, 2)]
    assert chosen(config, forecasts, {(64, 0), (64, 2)}, 6.9) == [(2, 1)]


def test_points_without_results_have_three_seeds_each_before_one_is_completed():
    config, forecasts = points([1.0, 10.0])
    three = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert chosen(config, forecasts, set(), 33.0) == three
    more = [(0, 3), (0, 4), (1, 3), (1, 4)]
    assert chosen(config, forecasts, set(), 1000.0) == three + more
    # What completes no point pays for single seeds.
    assert chosen(config, forecasts, set(), 34.0) == three + more[:1]
    assert chosen(config, forecasts, set(), 46.0) == three + more[:3]
    # A dear point that has four of five seeds is completed before a cheap one is begun.
    config, forecasts = points([8.0, 1.0])
    have = {(16, seed) for seed in range(4)}
    assert chosen(config, forecasts, have, 11.0) == [(0, 4), (1, 0), (1, 1), (1, 2)]
    assert chosen(config, forecasts, have, 8.0) == [(0, 4)]


def drawn_processes(draw):
    """Runs of a point whose seeds some processes train, and what some of those cost: less each, the more there are."""
    sizes = [draw.randint(1, 4) for _ in range(draw.randint(1, 3))]
    config = maker.config(one=maker.study(seed=list(range(sum(sizes)))))
    seeds = list(config.runs)
    draw.shuffle(seeds)
    process = {run: number for number, size in enumerate(sizes) for run in (seeds.pop() for _ in range(size))}
    once = {run: draw.choice([1.0, 2.0, 3.0]) for run in config.runs}
    share = draw.choice([0.3, 0.7, 1.0])
    return config, process, lambda runs: max([0.0, *(once[run] for run in runs)]) * len(runs) ** share


@pytest.mark.parametrize("seed", range(12))
def test_a_budget_buys_as_many_further_seeds_as_any_choice_of_them_does(seed):
    """Against every set of them: whole cohorts are chosen where they are cheaper."""
    draw = random.Random(seed)
    config, process, cost = drawn_processes(draw)

    def whole(runs):
        parts = {}
        for run in runs:
            parts.setdefault(process[run], []).append(run)
        return sum(map(cost, parts.values()))

    sets = [
        of for number in range(len(config.runs) + 1) for of in itertools.combinations(config.runs, number)
    ]
    costs = {of: whole(of) for of in sets}
    alone = {run: cost([run]) for run in config.runs}
    for budget in (draw.uniform(0, max(costs.values())) for _ in range(5)):
        [step, *_] = priority.steps(config, (), alone)
        single = step._replace(needed=len(config.runs), further=True)
        found = priority.choose([single], process.get, cost, budget)
        assert costs[tuple(run for run in config.runs if run in found)] <= budget
        assert len(found) == max(len(of) for of in sets if costs[of] <= budget)


@pytest.mark.parametrize(("seeds", "cores"), [(5, 1), (9, 2)])
def test_a_budget_buys_as_many_seeds_of_a_point_as_any_choice_that_completes_it(seeds, cores):
    """Its cohorts are those that a call forms, of at most four; without three seeds, or all, a point is not begun."""
    config = maker.config(one=maker.study(seed=list(range(seeds))))
    runs = list(config.runs)
    size = 4 * cores
    process = {run: (place // size, place % cores) for place, run in enumerate(runs)}

    def whole(some):
        counts = Counter(process[run] for run in some)
        return sum(count**0.5 for count in counts.values())

    fewest = {0: 0.0}
    for number in range(3, seeds + 1):
        fewest[number] = min(map(whole, itertools.combinations(runs, number)))
    alone = dict.fromkeys(runs, 1.0)
    for budget in (0.5, 1.7, *(cost + 1e-9 for cost in fewest.values())):
        ordered = priority.steps(config, (), alone)
        found = priority.choose(ordered, process.get, lambda some: len(some) ** 0.5, budget)
        assert len(found) == max(number for number, cost in fewest.items() if cost <= budget)


def test_limits_are_read_by_a_site_file_and_have_room():
    config, forecasts = points([1.0, 2.0])
    write(config)
    made = plan.make(config, Path("config.yaml"), Path())
    costs = {run: plan.Cost(one, 1) for run, one in forecasts.items()}
    made = dataclasses.replace(made, costs=costs)
    lines = yaml.safe_load(plan.as_limits(made))
    site = Site(SiteFile(limits=[{"minutes": 1, "memory_mb": 100}, *lines]), config.sizes)
    first, second = config.runs[0], next(run for run in config.runs if run.batch == 32)
    assert (site.minutes(first), site.minutes(second)) == (180, 360)
    # 400 MB and a quarter, and what starts the run.
    assert site.memory_mb(first) == 500 + 700
    shorter = yaml.safe_load(plan.as_limits(dataclasses.replace(made, wall_s=7200.0)))
    assert [line["minutes"] for line in shorter] == [120, 120]


@pytest.mark.parametrize(
    ("hours", "wall_h", "jobs", "node_hours"),
    [(1.0, 3.0, 1, 1.0), (3.0, 3.0, 1, 3.0), (3.1, 3.0, 2, 3.2), (9.0, 3.0, 4, 9.3), (1.0, 0.1, 0, None)],
)
def test_a_run_longer_than_a_job_resumes_in_others_which_start_again(hours, wall_h, jobs, node_hours):
    """The start takes six minutes of each job."""
    one = forecast(maker.config(one=maker.study(protocol="quality")).runs[0], hours, start_s=360.0)
    assert plan._jobs(one, 3600 * wall_h) == jobs
    if jobs:
        cost = plan.Cost(one, jobs)
        assert cost.node_hours.middle == pytest.approx(node_hours)
        assert cost.start_hours.middle == pytest.approx(0.1 * jobs)


def test_what_does_not_fit_into_a_job_is_split_or_left_out_with_the_reason(capsys):
    studies = {"one": maker.study(protocol=["timing", "parity"], simulator="default.qubit", seed=[0, 1])}
    config = maker.config(**studies)
    write(config)
    for run in config.runs:
        if run.seed == 0:
            finish(config, run, minutes=20.0)
    said = json.loads(call(capsys, "--wall", "8min", "--json"))
    runs = {Run.parse(one["run"]).protocol: one for one in said["runs"]}
    assert (runs["parity"]["jobs"], runs["parity"]["chosen"]) == (2, True)
    assert runs["timing"]["left_out"] == "longer than a job, and a timed run has no checkpoints"
    assert said["wall_s"] == 480 and said["chosen"]["starts"]["middle"] > 0
    out = call(capsys, "--wall", "8min")
    assert "/timing (left out: longer than a job, and a timed run has no checkpoints)" in out
    assert (
        f"results/{next(run for run in config.runs if run.protocol == 'parity' and run.seed == 1).path}"
        in out
    )


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
    assert "12 runs missing, and no record tells what any of them costs.\n" in out
    named = [Run.parse(word) for word in re.findall(r"results/runs/\S+", out)]
    assert [(run.simulator, run.batch, run.seed) for run in named] == [("fused", 32, 0), ("qiskit", 32, 0)]
    assert "First" not in out
    # Without a target, Snakemake would run the whole study.
    assert cli.main(["plan", "--targets"]) != 0
    assert capsys.readouterr().out == ""


def test_the_plan_names_costs_and_the_command(capsys):
    config = maker.config(one=maker.study(batch=[64, 32], seed=[0, 1, 2]))
    write(config)
    done = [run for run in config.runs if run.batch == 64][:2]
    for run in done:
        finish(config, run)
    left = next(run for run in config.runs if run.batch == 64 and run.seed == 2)
    out = call(capsys, "--node-hours", "0.11")
    row = r"^ +1 +0\.1 +6 min \(.+ to .+\) +1 +300 MB \(to \d+\) +digits/vqc/q4-l3-b64\S+$"
    assert re.search(row, out, re.MULTILINE)
    assert "First: 1 run in 0.1 of 0.11 node-hours.\nLeft out: 3 runs (over the budget by " in out
    assert f"  snakemake --profile profiles/local \\\n    results/{left.path}\n" in out
    assert call(capsys, "--node-hours", "0.11", "--targets") == f"results/{left.path}\n"
    said = json.loads(call(capsys, "--json"))
    assert said["records"] == 2 and len(said["runs"]) == 4 and all(run["known"] for run in said["runs"])
    assert said["spent"]["node_hours"] == pytest.approx(0.2) and said["spent"]["by"] == "records"
    for run in config.runs:
        if run not in done:
            finish(config, run)
    assert call(capsys) == "nothing is missing\n"


def test_runs_that_a_budget_pays_for_cost_what_they_do_in_cohorts_of_their_own(capsys):
    """All nine seeds that are missing would share a process, and each cost less there."""
    config = maker.config(one=maker.study(protocol="parity", simulator="fused", seed=list(range(12))))
    write(config)
    for run in config.runs[:3]:
        finish(config, run, minutes=30.0)
    whole = json.loads(call(capsys, "--json"))
    assert all(one["members"] > 1 for one in whole["runs"])
    share = whole["chosen"]["node_hours"]["middle"] / len(whole["runs"])
    for budget in (3.5 * share, 5.5 * share, 8.9 * share):
        made = json.loads(call(capsys, "--node-hours", str(budget), "--json"))
        paid = [one for one in made["runs"] if one["chosen"]]
        assert made["chosen"]["node_hours"]["middle"] == pytest.approx(
            sum(one["node_hours"]["middle"] for one in paid)
        )
        assert made["chosen"]["node_hours"]["middle"] <= budget
        assert paid and max(one["members"] for one in paid) <= len(paid)


def test_of_a_run_with_a_checkpoint_what_is_left_is_counted(capsys):
    config = maker.config(
        one=maker.study(protocol=["timing", "quality"], simulator="default.qubit", seed=[0, 1, 2])
    )
    write(config)
    timed, quality = ([run for run in config.runs if run.protocol == name] for name in ("timing", "quality"))
    finish(config, timed[0])
    # 100 epochs of 20 steps.
    save(config, quality[1], 1500)
    save(config, timed[1], 20)
    save(config, quality[2], 1900, key="of other settings")
    runs = {Run.parse(one["run"]): one for one in json.loads(call(capsys, "--json"))["runs"]}
    start = runs[quality[0]]["start_s"]["middle"] / 3600
    whole, left = (runs[run]["node_hours"]["middle"] - start for run in quality[:2])
    assert left == pytest.approx(whole / 4)
    assert runs[quality[2]]["node_hours"]["middle"] - start == pytest.approx(whole)
    # No timed run resumes.
    assert runs[timed[1]]["node_hours"] == runs[timed[2]]["node_hours"]
    # A limit in the site file is for all of it.
    assert len(call(capsys, "--limits").splitlines()) == 2


def test_of_the_members_of_a_cohort_what_is_left_of_each_is_counted(capsys):
    config = maker.config(one=maker.study(protocol="quality", simulator="fused", seed=list(range(9))))
    write(config)
    finish(config, config.runs[0])
    made = json.loads(call(capsys, "--json"))["runs"]
    save(config, Run.parse(made[1]["run"]), 1500)
    again = json.loads(call(capsys, "--json"))["runs"]
    assert [one["members"] for one in again] == [one["members"] for one in made]
    mates = [one for one in again if one["members"] == again[1]["members"]]
    # The process of a cohort takes what all its members take.
    ours = next(one for one in again if one["run"] == made[1]["run"])
    saved = made[1]["node_hours"]["middle"] - ours["node_hours"]["middle"]
    assert saved > 0.7 * made[1]["node_hours"]["middle"] > 0
    assert ours["wall_s"]["middle"] == pytest.approx(made[1]["wall_s"]["middle"] - 3600 * saved)
    assert sum(one["wall_s"]["middle"] == pytest.approx(ours["wall_s"]["middle"]) for one in mates) >= 2


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
    config = maker.config(one=maker.study(seed=[0, 1, 2, 3, 4]))
    write(config)
    for run in config.runs[:3]:
        finish(config, run, minutes=30.0)
    Path("profiles/slurm").mkdir(parents=True)
    Path("profiles/slurm/site.yaml").write_text("node_hours: 2.1\nlimits: [{minutes: 3, memory_mb: 100}]\n")
    out = call(capsys)
    assert "First: 1 run in 0.5 of 0.6 node-hours." in out and "$(ketscale plan --targets)" not in out
    assert "First: 2 runs in 1 of 1 node-hours." in call(capsys, "--node-hours", "1.02")


@pytest.mark.parametrize(
    ("text", "seconds"), [("3h", 10800), ("90min", 5400), ("90m", 5400), ("1d12h", 129600), ("1h30m", 5400)]
)
def test_a_time_is_given_in_days_hours_and_minutes(text, seconds):
    assert commands.span(text) == seconds
    for wrong in ("3", "h", "", "3 h", "-3h", "1m1h", "0h"):
        with pytest.raises(argparse.ArgumentTypeError, match="should be a time such as 3h"):
            commands.span(wrong)
