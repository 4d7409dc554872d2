"""The trials of a search, and the runs that train with what their records choose."""

from __future__ import annotations

from pathlib import Path

import yaml

from ketscale import analysis
from tests.searched import GIVEN
from tests.study.workflow.project import LOCAL, calls, planned, record, run_in

CONFIG = analysis.of(GIVEN)
TRIALS = [run for run in CONFIG.runs if CONFIG.is_trial(run)]
FINALS = [run for run in CONFIG.runs if not CONFIG.is_trial(run)]


def test_trials_come_first_and_are_inputs_of_all_seeds(fresh: Path) -> None:
    (fresh / "config.yaml").write_text(yaml.safe_dump(GIVEN))
    assert planned(run_in(fresh, *LOCAL, "-n"))["train"] == len(CONFIG.runs) == 14
    run_in(fresh, *LOCAL)
    order = [call["name"] for call in calls(fresh)]
    # Trials that train the others of their point with them begin at once, on two cores.
    first = [name for name in order if "/tuned-t" in name][:3]
    assert ["/tuned-t00/" in name for name in first] == [True, True, False]
    for run in FINALS:
        before = order[: order.index(record(run))]
        assert {record(trial) for trial in CONFIG.trials_of(run)} <= {*before}
        # The graph stays fixed: what was chosen is in no parameter of a rule.
        assert (fresh / record(run)).read_text() == CONFIG.settings(run).text
    assert planned(run_in(fresh, *LOCAL, "-n")) == {}

    # One seed that is asked for brings its trials with it, and no other's.
    final = next(run for run in FINALS if TRIALS[0] in CONFIG.trials_of(run))
    for run in (TRIALS[0], TRIALS[-1], final):
        (fresh / record(run)).unlink()
    assert planned(run_in(fresh, *LOCAL, "-n", record(final))) == {"train": 2}
