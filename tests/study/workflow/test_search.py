"""The trials of a search, the rule that chooses, and the runs that train with its choice."""

from __future__ import annotations

import json
import os
from pathlib import Path

import yaml

from ketscale import analysis
from tests.searched import GIVEN
from tests.study.workflow.project import LOCAL, calls, planned, record, run_in

CONFIG = analysis.of(GIVEN)
TRIALS = [run for run in CONFIG.runs if CONFIG.is_trial(run)]
FINALS = [run for run in CONFIG.runs if not CONFIG.is_trial(run)]


def test_trials_come_first_and_their_choice_is_an_input_of_all_seeds(fresh: Path) -> None:
    (fresh / "config.yaml").write_text(yaml.safe_dump(GIVEN))
    jobs = planned(run_in(fresh, *LOCAL, "-n"))
    assert (jobs["train"], jobs["choose"]) == (len(CONFIG.runs), 2) == (14, 2)
    done = run_in(fresh, *LOCAL)
    assert "choose" not in done.stdout + done.stderr
    order = [call["name"] for call in calls(fresh)]
    # Trials that train the others of their point with them begin at once, on two cores.
    first = [name for name in order if "/tuned-t" in name][:3]
    assert ["/tuned-t00/" in name for name in first] == [True, True, False]
    for run in FINALS:
        before = order[: order.index(record(run))]
        choice = f"{CONFIG.results}/{run.choice}"
        assert choice in before
        assert {record(trial) for trial in CONFIG.trials_of(run)} <= {*order[: order.index(choice)]}
        # The graph stays fixed: what was chosen is in no parameter of a rule.
        assert (fresh / record(run)).read_text() == CONFIG.settings(run).text
    assert planned(run_in(fresh, *LOCAL, "-n")) == {}

    # Contents decide, not times.
    choice = fresh / CONFIG.results / FINALS[0].choice
    choice.write_text(json.dumps({**json.loads(choice.read_text()), "chosen": 1}))
    os.utime(choice, (1_000_000_000, 1_000_000_000))
    jobs = planned(run_in(fresh, *LOCAL, "-n"))
    alike = sum(run.choice == FINALS[0].choice for run in FINALS)
    assert (jobs["choose"], jobs["train"]) == (1, alike)

    # One seed that is asked for brings its trials with it, and no other's.
    (fresh / record(TRIALS[0])).unlink()
    asked = next(run for run in FINALS if TRIALS[0] in CONFIG.trials_of(run))
    assert planned(run_in(fresh, *LOCAL, "-n", record(asked))) == {"train": 2, "choose": 1}
