"""`ketscale compare`: doctored records of known truth, and how often noise alone is called a change."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from ketscale import analysis, cli
from ketscale.analysis import intervals
from ketscale.analysis.compare import compare
from ketscale.analysis.comparison import Compared
from ketscale.analysis.verdicts import APART, FEW, changes
from ketscale.errors import UserError
from ketscale.grid import config_hash
from ketscale.problems.registry import FAMILIES
from tests import records_factory as factory
from tests import tiny_study
from tests.record_maker import beside

SEEDS = [0, 1, 2, 3, 4]


def config(seeds=SEEDS, **axes):
    axes = {"batch": [32, 64, 128], "seed": seeds, **axes}
    return factory.small_config({"s": {"kind": "batch", "question": "?", "axes": factory.point(**axes)}})


def noise(run, spread, salt=0):
    return math.exp(np.random.default_rng([salt, run.batch, run.seed]).normal(0.0, spread))


def written(tmp_path, changes, of=None):
    """The folders A, whose steps take 10 ms without noise, and B, whose records `changes` gives."""
    of = of or config()
    factory.write_all(of, tmp_path / "a", lambda run: {"step_s": 0.01})
    factory.write_all(of, tmp_path / "b", changes)
    return tmp_path / "a", tmp_path / "b"


def verdicts(result, measure="step_s"):
    return {row["batch"]: row["verdict"] for row in result["rows"] if row["measure"] == measure}


def test_a_small_change_within_noise_is_none(tmp_path):
    a, b = written(tmp_path, lambda run: {"step_s": 0.0103 * noise(run, 0.05)})
    result = compare(a, b, 1.05)
    assert verdicts(result) == dict.fromkeys((32, 64, 128), "no clear change")
    assert cli.main(["compare", str(a), str(b)]) == 0


@pytest.mark.parametrize(("factor", "verdict", "status"), [(1.3, "slower", 1), (1 / 1.3, "faster", 0)])
def test_one_point_that_changed_is_found_and_sets_the_exit_code(tmp_path, capsys, factor, verdict, status):
    slow = {64: factor}
    a, b = written(tmp_path, lambda run: {"step_s": 0.01 * slow.get(run.batch, 1.0) * noise(run, 0.01)})
    table, whole = tmp_path / "c.csv", tmp_path / "c.json"
    assert cli.main(["compare", str(a), str(b), "--csv", str(table), "--json", str(whole)]) == status
    said = capsys.readouterr().out
    assert f"3 step times: 1 {verdict}, 2 no clear change (beyond 5 %)" in said.splitlines()[-1]
    (row,) = [row for row in json.loads(whole.read_text())["rows"] if row["verdict"] == verdict]
    assert row["batch"] == 64 and row["seeds"] == 5 and row["low"] < factor < row["high"]
    first = next(csv.DictReader(table.read_text().splitlines()))
    assert (first["batch"], first["verdict"]) == ("64", verdict)  # the largest change comes first
    shown = [row for row in compare(a, b, 1.05)["rows"] if row["measure"] == "first_step_s"]
    assert len(shown) == 3 and all(row["verdict"] is None and row["low"] for row in shown)
    assert verdicts(compare(a, b, 1.5))[64] == "no clear change"


def test_points_of_one_seed_are_undecided_and_judged_together(tmp_path):
    of = config([0])
    a, b = written(tmp_path, lambda run: {"step_s": 0.013 * noise(run, 0.01)}, of)
    rows = [row for row in compare(a, b, 1.05)["rows"] if row["measure"] == "step_s"]
    assert [(row["points"], row["verdict"]) for row in rows] == [(1, FEW)] * 3 + [(3, "slower")]
    assert rows[-1]["change"] == pytest.approx(math.prod(row["change"] for row in rows[:3]) ** (1 / 3))


@pytest.mark.parametrize(
    ("change", "measure"), [({}, "step_s"), ({"quiet": beside(others_share=0.5)}, "losses")]
)
def test_other_losses_are_not_called_faster_and_are_told_without_times(tmp_path, capsys, change, measure):
    def other(run):
        losses = [2.3 * 0.9**step * (1.01 if run.batch == 64 else 1 + 1e-5) for step in range(20)]
        return {"step_s": 0.005 * noise(run, 0.01), "losses": losses, **change}

    a, b = written(tmp_path, other)
    times = {32: "faster", 128: "faster"} if measure == "step_s" else {}
    assert verdicts(compare(a, b, 1.05), measure) == {64: "other losses", **times}
    assert cli.main(["compare", str(a), str(b)]) == 1
    assert ("; over 2 points a step of B takes 0." in capsys.readouterr().out) == bool(times)


def test_disturbed_runs_are_left_out_of_times(tmp_path):
    busy = beside(others_share=0.5)
    a, b = written(
        tmp_path, lambda run: {"step_s": 0.02, "quiet": busy} if run.batch == 64 else {"step_s": 0.01}
    )
    result = compare(a, b, 1.05)
    assert verdicts(result) == {32: "no clear change", 128: "no clear change"}
    assert result["not_timed"] == {"busy": 5}


def test_a_run_that_no_longer_completes_fails(tmp_path, capsys):
    a, b = written(
        tmp_path, lambda run: {"step_s": 0.01, **({"status": "diverged"} if run.batch == 64 else {})}
    )
    assert cli.main(["compare", str(a), str(b)]) == 1
    assert capsys.readouterr().out.count("completes in A and not in B: ") == 5
    assert cli.main(["compare", str(b), str(a)]) == 0
    assert "left out: 5 diverged in A" in capsys.readouterr().out


def test_runs_of_one_folder_or_of_other_hardware_settings_or_data_are_counted(tmp_path):
    of = config(batch=[16, 32, 64, 128, 256])
    other = replace(
        of, protocols={**of.protocols, "timing": structs.replace(of.protocols["timing"], warmup=3)}
    )
    a, b = tmp_path / "a", tmp_path / "b"
    factory.write_all(of, a, lambda run: None if run.batch == 16 else {"step_s": 0.01})
    machine = factory.record(of, of.runs[0])["machine"]

    def change(run):
        changes = {64: {"machine": {**machine, "cpu": "Other CPU"}}, 128: {"data_hash": "e"}}
        return {"step_s": 0.01, **changes.get(run.batch, {})}

    for run in of.runs:
        config_of = other if run.batch == 256 else of
        factory.write(config_of, b, factory.record(config_of, run, **change(run)))
    result = compare(a, b, 1.05)
    assert result["left_out"] == dict.fromkeys(
        ("only in B", "other hosts", "other data", "other settings"), 5
    )
    assert list(verdicts(result)) == [32] and result["pairs"] == 5


def test_nothing_in_common_is_refused_with_the_reason(tmp_path, capsys):
    factory.write_all(config(batch=[32, 64]), tmp_path / "a")
    factory.write_all(config(batch=[128, 256]), tmp_path / "b")
    assert cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "have no run whose records can be compared: 10 only in A, 10 only in B" in capsys.readouterr().err
    for wrong in ("0.9", "nan"):
        with pytest.raises(UserError, match="threshold"):
            compare(tmp_path / "a", tmp_path / "a", float(wrong))


@pytest.mark.parametrize(
    ("family", "metric", "change"), [("images", "accuracy", -0.1), ("pulses", "infidelity", 1e-4)]
)
def test_metrics_are_judged_in_their_own_direction(tmp_path, family, metric, change):
    made = tiny_study.config(FAMILIES[family].tiny)
    study = made["studies"]["accuracy"]
    study["axes"]["seed"] = SEEDS
    of = analysis.of({**made, "studies": {"accuracy": study}})

    def measured(changed):
        def change_of(run):
            quality = factory.record(of, run)["quality"]
            value = quality["test"][metric] + changed * change * (1 + 0.1 * run.seed)
            value = round(180 * value) / 180 if family == "images" else value
            return {"quality": {**quality, "validation": {}, "test": {metric: value, "count": 180}}}

        return change_of

    a, b = tmp_path / "a", tmp_path / "b"
    factory.write_all(of, a, measured(0))
    factory.write_all(of, b, measured(1))
    assert set(verdicts(compare(a, b, 1.05), metric).values()) == {"worse"}
    assert set(verdicts(compare(b, a, 1.05), metric).values()) == {"better"}
    assert [cli.main(["compare", *map(str, folders)]) for folders in ((a, b), (b, a))] == [1, 0]


@pytest.mark.parametrize(("samples", "verdict"), [(1, "cannot tell"), (45, "better")])
def test_a_count_of_few_samples_decides_nothing_however_many_seeds_agree(tmp_path, samples, verdict):
    """The same samples of the test are right in all three seeds, and 1 or 45 of 180 more in B."""
    made = tiny_study.config(FAMILIES["images"].tiny)
    study = {**made["studies"]["accuracy"], "points": [{}]}
    study["axes"] = {**study["axes"], "seed": [0, 1, 2]}
    of = analysis.of({**made, "studies": {"accuracy": study}})

    def measured(right):
        def change_of(run):
            quality = factory.record(of, run)["quality"]
            return {"quality": {**quality, "test": {"accuracy": right / 180, "count": 180}}}

        return change_of

    factory.write_all(of, tmp_path / "a", measured(90))
    factory.write_all(of, tmp_path / "b", measured(90 + samples))
    assert set(verdicts(compare(tmp_path / "a", tmp_path / "b", 1.05), "accuracy").values()) == {verdict}


def test_an_edited_record_fails_in_b_and_is_left_out_of_a(tmp_path):
    a, b = written(tmp_path, lambda run: {"step_s": 0.01})
    path = next(b.rglob("metrics.json"))
    path.write_text(path.read_text().replace('"Synthetic CPU"', '"Another CPU"'))
    assert len(compare(a, b, 1.05)["failed"]) == 1
    assert compare(b, a, 1.05)["left_out"] == {"refused record": 1}


def test_a_record_from_before_a_setting_counts_with_its_default_and_another_schema_is_stale(tmp_path):
    of = config()
    a, b = written(tmp_path, lambda run: {"step_s": 0.01}, of)
    for run, change in zip(of.runs, ("default", "other", "schema"), strict=False):
        path = a / run.path
        made = json.loads(path.read_text())
        del made["digest"]
        if change == "schema":
            made["schema"] = 3
        else:
            protocol = made["config"]["protocol"]
            assert protocol["checkpoint_steps"] == 200
            if change == "default":
                del protocol["checkpoint_steps"]
            else:
                protocol["checkpoint_steps"] = 100
            made["config_hash"] = config_hash(made["config"])
        path.write_text(json.dumps(factory.sealed(made)))
    result = compare(a, b, 1.05)
    assert result["left_out"] == {"other settings": 1, "stale record": 1}
    assert result["pairs"] == 13


def changed(draws):
    """The verdicts on log ratios, a row for each point."""
    found = [Compared(intervals.typical(list(logs)).mapped(math.exp)) for logs in draws]
    return changes(found, 1.0, 1.0, "slower", "faster", "no clear change")


def test_one_clear_change_among_forty_points_of_five_seeds_is_found():
    """1.3x with noise of 2 %, in steps: after the first is accepted, 39 are left."""
    values = np.random.default_rng(1).normal(0.0, 0.02, (40, 5))
    values[7] += math.log(1.3)
    assert [number for number, word in enumerate(changed(values)) if word != "no clear change"] == [7]


def test_a_metric_of_runs_of_two_codes_is_not_judged(tmp_path: Path) -> None:
    axes = factory.point(protocol="quality")
    made = factory.small_config({"asked": {"kind": "accuracy", "question": "?", "axes": axes}})
    code = factory.record(made, made.runs[0])["code"]
    factory.write_all(made, tmp_path / "a")
    factory.write_all(
        made, tmp_path / "b", lambda run: {"code": {**code, "imported": "nameHASH"}} if run.seed else {}
    )
    (row,) = compare(tmp_path / "a", tmp_path / "b", 1.05)["rows"]
    assert (row["verdict"], row["why"]) == (APART, "other code")


@pytest.mark.parametrize(
    ("of_a", "of_b", "left_out", "verdict"),
    [
        ((), (0, 1, 2), {"other splits (samples 200 and 100)": 3}, None),
        ((), (1,), {"other splits (samples 200 and 100)": 1}, FEW),
        ((1,), (1,), {}, APART),
    ],
)
def test_tests_of_other_samples_under_the_same_hash_are_not_compared(
    tmp_path: Path, of_a: tuple[int], of_b: tuple[int], left_out: dict[str, int], verdict: str | None
) -> None:
    """Records of some seeds were sealed again with half of the test."""
    axes = factory.point(protocol="quality")
    made = factory.small_config({"asked": {"kind": "accuracy", "question": "?", "axes": axes}})

    def halved(run, seeds):
        quality = factory.record(made, run)["quality"]
        test = {**quality["test"], "accuracy": 0.9, "count": 100 if run.seed in seeds else 200}
        return {"quality": {**quality, "test": test}}

    factory.write_all(made, tmp_path / "a", lambda run: halved(run, of_a))
    factory.write_all(made, tmp_path / "b", lambda run: halved(run, of_b))
    if verdict is None:
        with pytest.raises(UserError, match=r"3 other splits \(samples 200 and 100\)"):
            compare(tmp_path / "a", tmp_path / "b", 1.05)
        return
    result = compare(tmp_path / "a", tmp_path / "b", 1.05)
    assert result["left_out"] == left_out
    assert [row["verdict"] for row in result["rows"]] == [verdict]
