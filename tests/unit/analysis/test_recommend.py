"""`ketscale recommend`: trials in turns, what they say of each candidate, and which one is taken."""

from pathlib import Path

import pytest
import yaml

from ketscale import cli
from ketscale.analysis import verdicts
from ketscale.analysis.advice import recommend
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.measure.record import read
from tests import record_maker as maker
from tests.tiny_study import TINY
from tests.tiny_study import config as tiny_config


def study():
    return maker.config(one=maker.study(simulator="fused"))


def candidates(config, *layouts):
    return recommend.candidates(config, config.runs[0], ["fused"], layouts)


def advised(monkeypatch, found):
    """The row of each layout, and the last line, from the steps of each round by layout, or why it has none."""
    config = study()
    runs = candidates(config, *found)
    failed = {run: found[run.layout] for run in runs if isinstance(found[run.layout], str)}
    steps = {run: dict(enumerate(found[run.layout])) for run in runs if run not in failed}
    monkeypatch.setattr(recommend, "trials", lambda *_: (steps, failed))
    *rows, _, answer = recommend.recommend(config, runs, 60.0).splitlines()
    return {row.split()[1]: row for row in rows[1:]}, answer


ONE, TWO = "cpu-n1r1t1", "cpu-n1r1t2"


@pytest.mark.parametrize(
    ("one", "two", "verdict", "taken"),
    [
        # Noisy from round to round, but in every round the ratio is the same.
        ([4.0, 8.1, 2.0], [2.0, 4.0, 1.0], verdicts.SLOWER, TWO),
        ([1.01, 1.02, 1.0], [1.0, 1.0, 1.0], verdicts.SAME, ONE),
        ([1.4, 0.9, 1.2], [1.0, 1.0, 1.0], verdicts.CANNOT_TELL, ONE),
        ([1.5, 1.5], [1.0, 1.0], verdicts.CANNOT_TELL, ONE),
        ([3.5], [1.0, 1.0, 1.0], verdicts.SLOWER, TWO),
    ],
)
def test_more_cores_are_taken_only_if_they_are_surely_faster(monkeypatch, one, two, verdict, taken):
    rows, answer = advised(monkeypatch, {ONE: one, TWO: two})
    assert verdict in rows[ONE] and "fastest" in rows[TWO]
    assert answer.startswith(f"take fused on {taken}")


def test_a_candidate_whose_trial_failed_is_never_taken(monkeypatch):
    rows, answer = advised(monkeypatch, {ONE: "out of memory", TWO: [1.0] * 3})
    assert "out of memory" in rows[ONE] and answer == f"take fused on {TWO}"
    with pytest.raises(UserError, match="out of memory"):
        advised(monkeypatch, {ONE: "out of memory"})


def test_rounds_are_taken_in_turns_until_the_time_is_over(monkeypatch):
    """The third takes more than three times as long, and has one round; the fourth fails."""
    config, now, calls = study(), [0.0], []
    runs = candidates(config, ONE, TWO, "cpu-n1r1t4", "cpu-n1r1t8")

    def trial(results, settings, seed, limit_s):
        calls.append((settings.run.threads, seed))
        now[0] += 10
        return {1: 1.0, 2: 2.0, 4: 3.5, 8: "it failed"}[settings.run.threads]

    monkeypatch.setattr(recommend, "_step_s", trial)
    monkeypatch.setattr(recommend.time, "monotonic", lambda: now[0])
    steps, failed = recommend.trials(config, runs, 75.0)
    assert calls == [(1, 0), (2, 0), (4, 0), (8, 0), (1, 1), (2, 1), (1, 2), (2, 2)]
    assert [len(steps[run]) for run in runs[:3]] == [3, 3, 1] and failed == {runs[3]: "it failed"}
    assert set(recommend.trials(config, runs, 0.0)[1]) == set(runs)


def test_what_the_config_or_the_machine_has_not_is_refused():
    config = study()
    for simulators, layouts in ((["fuse"], [ONE]), (["fused"], ["nowhere-n1r1t1"])):
        with pytest.raises(UserError, match=r"fuse|nowhere"):
            recommend.candidates(config, config.runs[0], simulators, layouts)


def test_trials_are_kept_as_records_and_are_no_runs_of_the_study(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recommend, "ROUNDS", 2)
    Path("config.yaml").write_text(yaml.safe_dump({**tiny_config(TINY["control"]), "results": "results"}))
    run = Run("qubit-spectrum", "policy", "q1-s5", 7, "exact", "cpu", 1, 1, 1, "quality", 0)
    only = ["--layouts", ONE, "--simulators", "exact"]
    assert cli.main(["recommend", f"results/{run.path}", *only]) == 0
    assert capsys.readouterr().out.endswith(f"take exact on {ONE}\n")
    values = [read(path).record for path in Path("results", recommend.FOLDER).rglob("metrics.json")]
    assert sorted((one.run["seed"], one.timing.steps) for one in values) == [(0, 40), (1, 40)]
    assert not Path("results", "runs").exists()
