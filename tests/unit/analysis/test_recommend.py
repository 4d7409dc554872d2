"""`ketscale recommend`: candidates, trials, and when two layouts cannot be told apart."""

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import yaml

from ketscale import cli
from ketscale.analysis import comparison
from ketscale.analysis.advice import recommend, trials
from ketscale.analysis.advice.recommend import Choice, Recommendation
from ketscale.analysis.analysed import Analysed
from ketscale.analysis.comparison import Compared
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs.costs import Forecast, Interval, records
from ketscale.measure import form, host
from ketscale.problems.control.specification import FAMILY
from tests import record_maker as maker
from tests.tiny_study import config as tiny_config

MACHINE = maker.machine()
EVERY = {"simulator": [], "layout": []}


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def study(**axes):
    return maker.config(one=maker.study(**{"simulator": "fused", "seed": [0, 1, 2], **axes}))


def finish(config, run, step_s, **changes):
    train_s = 40 * step_s
    stopped = f"2026-01-01T00:00:{train_s + 1:09.6f}+00:00"
    timing = maker.timed(run, train_s)
    maker.write(
        Path("results"), config.settings(run), timing=timing, stopped=stopped, **maker.used(run), **changes
    )


def advised(config, limit_s=0.0, only=EVERY):
    point = config.runs[0]
    return recommend.recommend(config, point, limit_s, only, MACHINE, Path(), lambda line: None)


def test_the_fastest_layout_of_the_records_is_recommended():
    config = study(backend=["cpu-n1r1t1", "cpu-n1r1t2"])
    for run in config.runs:
        finish(config, run, (0.4 if run.threads == 1 else 0.1) * (1 + 0.01 * run.seed), quiet=maker.beside())
    only = {"simulator": ["fused"], "layout": ["cpu-n1r1t1", "cpu-n1r1t2"]}
    said = advised(config, only=only)
    assert [choice.run.layout for choice in said.choices] == ["cpu-n1r1t2", "cpu-n1r1t1"]
    assert said.apart and said.machine == "A processor, 2 cores"
    assert said.choices[0].forecast.step_s.middle == pytest.approx(0.101, rel=0.02)
    text = recommend.as_text(said)
    assert "take fused on cpu-n1r1t2. The runner-up, fused on cpu-n1r1t1, takes 4.00 times (3.9" in text
    # Four times as fast on two cores: there is no room for two of them.
    assert "many seeds" not in text


def test_many_seeds_run_side_by_side_where_that_takes_less_core_time():
    config = study(backend=["cpu-n1r1t1", "cpu-n1r1t2"])
    for run in config.runs:
        finish(config, run, 0.4 if run.threads == 1 else 0.3, quiet=maker.beside())
    said = advised(config, only={"simulator": ["fused"], "layout": ["cpu-n1r1t1", "cpu-n1r1t2"]})
    text = recommend.as_text(said)
    assert "take fused on cpu-n1r1t2. The runner-up" in text
    last = text.splitlines()[-1]
    assert last.startswith("many seeds: run them side by side on fused on cpu-n1r1t1, two at a time, in 0.6")
    assert last.endswith(" of the core time of fused on cpu-n1r1t2")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"quiet": maker.beside(others_share=0.5)}, "busy machine"),
        ({"status": "diverged", "reason": "NaN"}, "failed seeds"),
    ],
)
def test_what_the_report_leaves_undecided_is_not_told_apart(changes, why):
    """The forecasts of the two are far apart, but they are of the same records."""
    config = study(backend=["cpu-n1r1t1", "cpu-n1r1t2"], seed=[0, 1, 2, 3, 4])
    for run in config.runs:
        spoilt = changes if "quiet" in changes or (run.threads == 2 and run.seed > 1) else {}
        finish(config, run, 0.4 if run.threads == 1 else 0.1, **{"quiet": maker.beside(), **spoilt})
    said = advised(config, only={"simulator": ["fused"], "layout": ["cpu-n1r1t1", "cpu-n1r1t2"]})
    assert said.known[0].forecast.step_s.high < said.known[1].forecast.step_s.low and not said.apart
    scaling = Analysed.of(replace_kind(config), Path("results")).tables["scaling"].set_index("layout")
    assert said.undecided == scaling.loc["cpu-n1r1t2", "verdict"] == f"undecided: {why}"
    text = recommend.as_text(said)
    assert f"fused on cpu-n1r1t1, cannot be told apart: {why} (" in text
    assert "take fused on cpu-n1r1t2, which is the fastest as far as is known" in text


def test_equal_layouts_are_not_told_apart_and_the_one_with_fewer_cores_is_taken():
    config = study(backend=["cpu-n1r1t1", "cpu-n1r1t2"])
    for run in config.runs:
        finish(config, run, (0.2 if run.threads == 1 else 0.19) * (1 + 0.05 * run.seed))
    said = advised(config, only={"simulator": ["fused"], "layout": ["cpu-n1r1t1", "cpu-n1r1t2"]})
    assert not said.apart
    text = recommend.as_text(said)
    assert "fused on cpu-n1r1t2 and the runner-up, fused on cpu-n1r1t1, cannot be told apart" in text
    assert "take fused on cpu-n1r1t1, which needs the fewest cores" in text


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (4.0, "take fused on cpu-n1r1t2. The runner-up, fused on cpu-n1r1t1, takes 4.00 times (3.9"),
        (1.02, "are too close for more cores (1.02 times (1.0"),
    ],
)
def test_what_the_report_compares_is_quoted_from_it(factor, words):
    """Seed by seed the ratio is the same, whatever the seeds' own times are."""
    config = study(backend=["cpu-n1r1t1", "cpu-n1r1t2"])
    for run in config.runs:
        step_s = 0.1 * (factor if run.threads == 1 else 1.0) * (1 + 0.1 * run.seed)
        finish(config, run, step_s, quiet=maker.beside())
    said = advised(config, only={"simulator": ["fused"], "layout": ["cpu-n1r1t1", "cpu-n1r1t2"]})
    assert words in recommend.as_text(said) and "95 %, 3 seeds)" in recommend.as_text(said)
    scaling = Analysed.of(replace_kind(config), Path("results")).tables["scaling"].set_index("layout")
    reported = scaling.loc["cpu-n1r1t2"]
    assert (said.compared.ratio.value, said.compared.ratio.low, said.compared.ratio.high) == (
        reported["speedup_same"], reported["speedup_same_low"], reported["speedup_same_high"],
    )  # fmt: skip


def replace_kind(config):
    """The same runs as a study of layouts."""
    one = {**config.given["studies"]["one"], "kind": "strong"}
    return Config.of({**config.given, "studies": {"one": one}}, config.families)


def test_records_of_another_machine_say_nothing():
    config = study()
    for run in config.runs:
        finish(config, run, 0.1)
    other = msgspec.structs.replace(MACHINE, cpu="Another processor")
    said = recommend.recommend(config, config.runs[0], 0.0, EVERY, other, Path(), lambda line: None)
    assert said.known == () and "nothing is known of any" in recommend.as_text(said)


def choice(config, layout, step, low, high):
    run = replace(config.runs[0], threads=layout)
    anything = Interval(1.0, 1.0, 1.0)
    return Choice(run, Forecast(run, anything, Interval(step, low, high), anything, anything, "repeat"))


def test_rounds_of_trials_tell_apart_what_intervals_do_not():
    config = study()
    two = (choice(config, 1, 1.0, 0.5, 2.0), choice(config, 2, 1.2, 0.6, 2.4))
    assert not Recommendation("m", two, Compared(None)).apart
    for values, apart in (((1.21, 1.2, 1.22), True), ((1.4, 0.9, 1.2), False)):
        ratio = comparison.paired(dict(enumerate(values)), dict.fromkeys(range(3), 1.0), 0.0)
        assert Recommendation("m", two, Compared(ratio), "rounds").apart is apart


@pytest.mark.parametrize(("rounds", "over"), [(3, "rounds"), (2, "seeds")])
def test_the_ratio_is_that_of_three_rounds_of_both(monkeypatch, rounds, over):
    """Both are noisy from round to round, but in every round the second takes a fifth longer."""
    config = study(backend=["cpu-n1r1t1", "cpu-n1r1t2"], seed=0)
    slow, fast = config.runs
    steps = {slow: [1.2, 2.42, 0.6], fast: [1.0, 2.0, 0.5]}

    def tried(*_):
        for run, values in steps.items():
            finish(config, run, values[0])
        return trials.Trials({run: dict(enumerate(values[:rounds])) for run, values in steps.items()})

    monkeypatch.setattr(trials, "run", tried)
    said = advised(config, 1.0, {"simulator": ["fused"], "layout": [slow.layout, fast.layout]})
    assert [choice.run for choice in said.choices] == [fast, slow] and said.over == over
    assert said.compared.ratio.value == pytest.approx(1.2, rel=0.01)
    assert said.compared.ratio.n == (3 if over == "rounds" else 1)


def test_what_this_machine_has_not_is_refused():
    for name in ("gpu-n1r1t1", "mpi-n1r4t1", "cpu-n1r1t4", "mpi-n2r2t1"):
        with pytest.raises(UserError, match=f"--layouts {name}: this machine has 2 cores and 0 GPUs; name"):
            advised(study(), only={"simulator": [], "layout": [name]})
    config = study()
    with pytest.raises(UserError, match="qubits: 40 is too large; it should be at most 30"):
        config.settings(replace(config.runs[0], size="q40-l3"))


def test_trials_are_made_in_turn_and_kept_as_records(capsys, monkeypatch):
    monkeypatch.setattr(trials, "ROUNDS", 2)
    given = {**tiny_config(FAMILY.tiny), "results": "results"}
    Path("config.yaml").write_text(yaml.safe_dump(given))
    run = Run("qubit-spectrum", "policy", "q1-s5", 7, "exact", "cpu", 1, 1, 1, "quality", 0)
    only = ["--layouts", "cpu-n1r1t1", "--simulators", "exact"]
    assert cli.main(["recommend", f"results/{run.path}", "--minutes", "2", *only]) == 0
    out = capsys.readouterr().out
    assert "take exact on cpu-n1r1t1; nothing is known of any other" in out
    assert len([*Path("results", trials.FOLDER).rglob("metrics.json")]) == 2
    # The quiet one of the two is learned from.
    found = records.below([Path("results", trials.FOLDER)])
    assert {one.case.names["machine"] for one in found} == {
        recommend.hardware(msgspec.convert(host.describe(), form.Host))
    }
    assert {one.steps for one in found} == {40}
    # They are no runs of the study.
    assert not Path("results", "runs").exists()
