"""`ketscale compare`: doctored records of known truth, of two folders A and B."""

from __future__ import annotations

import csv
import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from ketscale import analysis, cli
from ketscale.analysis import comparison, points
from ketscale.analysis.columns import Trained
from ketscale.analysis.compare import compare, read
from ketscale.analysis.verdicts import FEW
from ketscale.problems.registry import FAMILIES
from tests import records_factory as factory
from tests import tiny_study
from tests.record_maker import others

BUSY = others(others_share=0.5)


def config(**axes):
    axes = {"batch": [32, 64, 128], "seed": [0, 1, 2, 3, 4], **axes}
    return factory.small_config({"s": {"kind": "batch", "question": "?", "axes": factory.point(**axes)}})


def quality(**axes):
    """A study of one point and three seeds with a metric, whose steps are not timed."""
    axes = factory.point(protocol="quality", **axes)
    return factory.small_config({"asked": {"kind": "accuracy", "question": "?", "axes": axes}})


def noise(run, spread):
    return math.exp(np.random.default_rng([run.batch, run.seed]).normal(0.0, spread))


def folders(tmp_path, changes, of=None, first=lambda run: {"step_s": 0.01}):
    """The folders A and B, whose records `first` and `changes` give."""
    of = of or config()
    factory.write_all(of, tmp_path / "a", first)
    factory.write_all(of, tmp_path / "b", changes)
    return tmp_path / "a", tmp_path / "b"


def words(a, b, measure="step_s", threshold=1.05):
    rows = compare(a, b, threshold)["rows"]
    return {row["batch"]: row["verdict"] for row in rows if row["measure"] == measure}


def status(a, b, *options):
    return cli.main(["compare", str(a), str(b), *map(str, options)])


@pytest.mark.parametrize(("factor", "verdict", "code"), [(1.3, "slower", 1), (1 / 1.3, "faster", 0)])
def test_one_point_that_changed_is_found_and_sets_the_exit_code(tmp_path, factor, verdict, code):
    a, b = folders(tmp_path, lambda run: {"step_s": 0.01 * factor ** (run.batch == 64) * noise(run, 0.01)})
    table, complete = tmp_path / "c.csv", tmp_path / "c.json"
    assert status(a, b, "--csv", table, "--json", complete) == code
    (row,) = [row for row in json.loads(complete.read_text())["rows"] if row["verdict"] == verdict]
    assert row["batch"] == 64 and row["n"] == 5 and row["low"] < factor < row["high"]
    assert row["unit"] == "times as long" and row["b"] / row["a"] == pytest.approx(factor, rel=0.02)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {one["batch"]: one["verdict"] for one in rows} == {"32": "same", "64": verdict, "128": "same"}
    assert words(a, b, threshold=1.5)[64] == "same"


def test_noise_and_few_seeds_decide_nothing(tmp_path):
    a, b = folders(tmp_path, lambda run: {"step_s": 0.0103 * noise(run, 0.05)})
    assert set(words(a, b).values()) == {"cannot tell"} and status(a, b) == 0
    shutil.rmtree(a)
    few = folders(tmp_path, lambda run: {"step_s": 0.02}, config(seed=[0, 1]))
    assert {(row["verdict"], row["why"]) for row in compare(*few, 1.05)["rows"]} == {("cannot tell", FEW)}


@pytest.mark.parametrize("changes", [{}, {"quiet": BUSY}, {"status": "diverged"}])
@pytest.mark.parametrize("of", [config(seed=[0]), quality()])
def test_a_copy_is_the_same_however_little_its_runs_say(tmp_path, of, changes):
    a, b = folders(tmp_path, lambda run: changes, of, lambda run: changes)
    shutil.rmtree(b)
    shutil.copytree(a, b)
    for pair in ((a, b), (a, a / ".." / "a")):
        rows = compare(*pair, 1.05)["rows"]
        assert {row["verdict"] for row in rows} == {"same"}
        assert len({row["batch"] for row in rows}) == len({run.batch for run in of.runs})
        assert status(*pair) == 0


@pytest.mark.parametrize("quiet", [others(), BUSY])
def test_other_losses_are_not_called_faster(tmp_path, quiet):
    def other(run):
        losses = [2.3 * 0.9**step * (1.01 if run.batch == 64 else 1 + 1e-5) for step in range(20)]
        return {"step_s": 0.005 * noise(run, 0.01), "losses": losses, "quiet": quiet}

    a, b = folders(tmp_path, other)
    rest = "cannot tell" if quiet == BUSY else "faster"
    assert words(a, b) == {64: "differs", 32: rest, 128: rest} and status(a, b) == 1


@pytest.mark.parametrize(
    ("share", "flag", "verdict"), [(0.06, "bounded", "slower"), (0.5, "busy", "cannot tell")]
)
def test_busy_runs_count_as_in_the_report(tmp_path, share, flag, verdict):
    quiet = {**others(others_share=share), "watched_s": 0.3}
    a, b = folders(tmp_path, lambda run: {"step_s": 0.03 * noise(run, 0.01), "quiet": quiet})
    sides = [
        [Trained(one.record, of).row for run, (one, of) in read(folder).items() if run.batch == 32]
        for folder in (a, b)
    ]
    other = [{**row, "protocol": "other"} for row in sides[0]]
    ratio = comparison.Times({}).speedup(other, sides[1]).ratio
    assert points.usable(sides[1])[1] == flag
    row = next(row for row in compare(a, b, 1.05)["rows"] if row["batch"] == 32)
    assert (row["effect"], row["n"], row["verdict"]) == (pytest.approx(ratio.value), 5, verdict)
    assert (row["low"], row["high"]) == pytest.approx((ratio.low, ratio.high))


def test_a_run_that_no_longer_completes_fails(tmp_path):
    diverged = {64: {"status": "diverged"}}
    a, b = folders(tmp_path, lambda run: {"step_s": 0.01, **diverged.get(run.batch, {})})
    assert len(compare(a, b, 1.05)["failed"]) == 5 and words(a, b)[64] == "failed"
    assert (status(a, b), status(b, a)) == (1, 0)
    path = next(b.rglob("q4-l3-b32/**/metrics.json"))
    path.write_text(path.read_text().replace('"Synthetic CPU"', '"Another CPU"'))
    assert len(compare(a, b, 1.05)["failed"]) == 6


def test_other_settings_are_named_and_other_hosts_or_data_are_left_out(tmp_path):
    of = config(batch=[16, 32, 64, 128, 256])
    longer = structs.replace(of.protocols["timing"], warmup=3)
    other = replace(of, protocols={**of.protocols, "timing": longer})
    a, b = tmp_path / "a", tmp_path / "b"
    factory.write_all(of, a, lambda run: None if run.batch == 16 else {"step_s": 0.01})
    machine = {**factory.record(of, of.runs[0])["machine"], "cpu": "Other CPU"}
    changes = {64: {"machine": machine}, 128: {"data_hash": "e"}, 256: {"packages": {"torch": "3"}}}
    for run in of.runs:
        used = other if run.batch == 256 else of
        change = {"step_s": 0.01 * noise(run, 0.001), **changes.get(run.batch, {})}
        factory.write(used, b, factory.record(used, run, **change))
    assert words(a, b) == {32: "same", 256: "same"}
    result = compare(a, b, 1.05)
    assert [row["why"] for row in result["rows"]] == ["", "other settings: protocol.warmup"]
    parts = "protocol.warmup 1 -> 3", "torch 2.9.0 -> 3", "5 only in B", "5 other hosts", "5 other data"
    assert all(part in " ".join(result["notes"]) for part in parts)


@pytest.mark.parametrize(("threshold", "why"), [("1.05", "10 only in A, 10 only in B"), ("0.9", "threshold")])
def test_nothing_in_common_or_a_wrong_threshold_is_refused(tmp_path, capsys, threshold, why):
    factory.write_all(config(batch=[32, 64]), tmp_path / "a")
    factory.write_all(config(batch=[128, 256]), tmp_path / "b")
    assert status(tmp_path / "a", tmp_path / "b", "--threshold", threshold) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("family", "change", "verdict"),
    [("images", -0.1, "worse"), ("pulses", 1e-4, "worse"), ("pulses", 1e-7, "same")],
)
def test_metrics_are_judged_in_their_own_direction(tmp_path, family, change, verdict):
    back, metric = {"worse": "better"}.get(verdict, verdict), FAMILIES[family].headline.name
    settings = tiny_study.config(tiny_study.TINY[family])
    (study := settings["studies"]["accuracy"])["axes"]["seed"] = [0, 1, 2, 3, 4]
    of = analysis.of({**settings, "studies": {"accuracy": study}})

    def measured(run, changed):
        result = factory.record(of, run)["quality"]
        value = result["test"][metric] + changed * change * (1 + 0.1 * run.seed)
        value = round(180 * value) / 180 if family == "images" else value
        return {"quality": {**result, "validation": {}, "test": {metric: value, "count": 180}}}

    a, b = folders(tmp_path, lambda run: measured(run, 1), of, lambda run: measured(run, 0))
    assert [{*words(*both, metric).values()} for both in ((a, b), (b, a))] == [{verdict}, {back}]
    assert [status(a, b), status(b, a)] == [int(verdict == "worse"), 0]


@pytest.mark.parametrize(("more", "verdict"), [(1, "cannot tell"), (45, "better")])
def test_a_count_of_few_samples_decides_nothing_however_many_seeds_agree(tmp_path, more, verdict):
    def measured(right):
        test = {"accuracy": right / 180, "count": 180}
        return lambda run: {"quality": {**factory.record(of, run)["quality"], "test": test}}

    of = quality()
    a, b = folders(tmp_path, measured(90 + more), of, measured(90))
    (row,) = compare(a, b, 1.05)["rows"]
    assert (row["verdict"], row["unit"]) == (verdict, "points")
    assert row["effect"] == pytest.approx(100 * more / 180)


def test_runs_of_two_codes_on_one_side_are_not_compared(tmp_path):
    of = quality()
    code = {**factory.record(of, of.runs[0])["code"], "imported": "nameHASH"}
    a, b = folders(tmp_path, lambda run: {"code": code} if run.seed else {}, of, lambda run: {})
    (row,) = compare(a, b, 1.05)["rows"]
    assert (row["verdict"], row["why"]) == ("not comparable", "other code")
