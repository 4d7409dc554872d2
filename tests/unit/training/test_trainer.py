"""The trainer: exact gradients, best weights, early stopping, divergence, and what it times."""

import copy
import math
import time

import pytest
import torch

from ketscale.config import Metric
from ketscale.errors import UserError
from ketscale.jobs import outcome, results
from ketscale.measure.clock import Clock, sampled_steps
from ketscale.parallel.single import Single
from ketscale.training.loop import Diverged
from ketscale.training.pace import Pace
from tests.toys import PROBLEMS, classification, protocol_of, run_at, trainer


def test_last_smaller_batch_counts_by_its_samples():
    problem = classification(samples=10, dropout=0.0)
    loop = trainer(problem, {"epochs": 1, "learning_rate": 1e-12}, batch=4)
    before = problem.metrics("train", problem.outputs("train", torch.arange(10)), full=False)["loss"]
    loop.run()
    assert loop.step == 3 and loop.samples_seen == 10
    assert loop.history[0]["train_loss"] == pytest.approx(before, rel=1e-8)


def test_best_weights_are_restored_not_the_last():
    problem = classification()
    loop = trainer(problem, {"epochs": 12, "learning_rate": 0.2})
    loop.run()
    losses = [row["validation_loss"] for row in loop.history]
    best = losses.index(min(losses))
    assert best < 11, "the learning rate was to be so large that the last epoch is not the best"
    assert loop.best["epoch"] == best
    outputs = loop.outputs("validation")
    assert problem.metrics("validation", outputs, full=False)["loss"] == losses[best]


@pytest.mark.parametrize("monitor", ["loss", "accuracy"])
def test_early_stopping_waits_patience_epochs_after_the_best(monitor):
    stopping = {"monitor": monitor, "patience": 3}
    loop = trainer(classification(), {"epochs": 60, "learning_rate": 0.2, "early_stopping": stopping})
    loop.run()
    assert len(loop.history) == loop.best["epoch"] + 1 + 3 < 60


def monitored(monkeypatch, accuracies):
    """A trainer that stops early by an accuracy that has these values in turn."""
    problem, values = classification(), iter(accuracies)
    metrics = problem.metrics
    monkeypatch.setattr(
        problem, "metrics", lambda *a, full: {**metrics(*a, full=full), "accuracy": next(values)}
    )
    stopping = {"monitor": "accuracy", "patience": 3}
    headline = Metric("accuracy", "accuracy", "", "up")
    return trainer(problem, {"epochs": 60, "early_stopping": stopping}, metrics=(headline,))


def test_a_metric_that_is_undefined_is_no_better_and_one_that_is_not_finite_is_divergence(monkeypatch):
    loop = monitored(monkeypatch, [None, 0.5, None, None, None])
    loop.run()
    assert loop.best["epoch"] == 1 and len(loop.history) == 5
    with pytest.raises(UserError, match=r"accuracy is undefined .* in every epoch.*: monitor loss"):
        monitored(monkeypatch, [None] * 3).run()
    with pytest.raises(Diverged, match="the accuracy on the validation samples is nan after step"):
        monitored(monkeypatch, [0.5, math.nan]).run()


def test_plateau_lowers_the_learning_rate():
    loop = trainer(
        classification(), {"epochs": 15, "learning_rate": 0.2, "plateau": {"factor": 0.5, "patience": 1}}
    )
    loop.run()
    rates = [row["learning_rate"] for row in loop.history]
    assert rates[0] == 0.2 and rates[-1] < 0.2


def test_divergence_ends_the_run_with_the_step_named():
    problem = classification()
    loop = trainer(problem, {"steps": 50})
    original = problem.sums
    problem.sums = lambda indices, step: original(indices, step) * (math.nan if step == 7 else 1)
    with pytest.raises(Diverged, match="loss is nan at step 7"):
        loop.run()
    assert len(loop.losses) == 7


def test_a_test_metric_that_is_not_finite_is_divergence_too(monkeypatch):
    problem = classification()
    metrics = problem.metrics
    bad = {"loss": math.inf}
    monkeypatch.setattr(
        problem, "metrics", lambda s, o, full: metrics(s, o, full=full) | (bad if s == "test" else {})
    )
    result = outcome.run(trainer(problem, {"epochs": 2}))
    assert result.status == "diverged" and "the loss on the test samples is inf" in result.reason


def late_from(loop, step):
    """Make a trainer's time be over from so many finished steps on."""
    original = loop.problem.sums

    def sums(indices, number):
        if number + 1 == step:
            loop.pace._began -= 3600
        return original(indices, number)

    loop.problem.sums = sums
    return loop


@pytest.mark.parametrize("step", [1, 7])
def test_a_run_ends_when_its_time_is_over_and_keeps_what_it_measured(step):
    loop = late_from(trainer(classification(), {"steps": 50, "limit_s": 1800}), step)
    result = outcome.run(loop)
    assert (result.status, result.quality) == ("timed_out", None)
    assert result.reason == f"its time of 1800 s (limit_s) was over after step {step} of 50"
    assert (loop.step, len(loop.losses)) == (step, step)
    timing = results.timing(loop, result)
    # Not the last step of an epoch, which has a smaller batch.
    full = [number for number in range(2, step) if (number + 1) % loop.steps_per_epoch]
    assert (timing["steps"], timing["step"]["count"]) == (step, len(full))
    assert (timing["step"]["median_s"] is None) == (timing["samples_per_s"] is None) == (step == 1)


def test_a_run_that_is_finished_has_not_timed_out():
    late = late_from(trainer(classification(), {"steps": 12, "limit_s": 1800}), 12)
    assert outcome.run(late).status == "completed"


def test_the_time_before_a_resume_counts():
    states = []
    first = trainer(
        classification(),
        {"steps": 50, "limit_s": 1800, "checkpoint_steps": 10},
        save=lambda state: states.append(copy.deepcopy(state)),
    )
    assert outcome.run(late_from(first, 15)).status == "timed_out"
    assert 0 < states[0]["trained_s"] < 1800
    second = trainer(classification(), {"steps": 50, "limit_s": 1800})
    second.restore({**states[0], "trained_s": 1799.999})
    assert outcome.run(second).status == "timed_out" and 10 < second.step < 50


@pytest.mark.parametrize("problem, batch", [("without dropout", 37), ("grape", 5)])
def test_the_iterations_of_lbfgs_end_with_the_time_too(problem, batch):
    protocol = {"optimiser": "l-bfgs", "steps": 20, "limit_s": 1e-9}
    result = outcome.run(trainer(PROBLEMS[problem](), protocol, batch=batch))
    assert result.status == "timed_out" and "after step 1 of 20" in result.reason


def test_checkpoints_come_k_steps_after_the_last():
    states = []
    loop = trainer(
        classification(),
        {"steps": 33, "checkpoint_steps": 10},
        save=lambda state: states.append(state["step"]),
    )
    loop.run()
    assert states == [10, 20, 30] and loop.step == 33


@pytest.mark.parametrize("step_s, steps", [(0.001, 10), (0.5, 4), (30.0, 1)])
def test_ranks_agree_sooner_where_steps_are_slow(step_s, steps, monkeypatch):
    """So that a request to stop is heard within seconds, however slow a step is."""
    pace = Pace(protocol_of({"steps": 8}), Single(run_at("cpu-n1r1t1")), lambda: False, members=2)
    began = time.perf_counter()
    monkeypatch.setattr("ketscale.training.pace.time.perf_counter", lambda: began)
    pace.begin()
    monkeypatch.setattr("ketscale.training.pace.time.perf_counter", lambda: began + 2 * step_s)
    assert pace.look(2).after == steps


def test_sampled_steps_are_spread_and_leave_most_steps_undisturbed():
    assert sampled_steps(60, 2, 5) == frozenset({3, 17, 31, 45, 59})
    assert (sampled_steps(3, 1, 5), sampled_steps(3, 2, 5)) == ({2}, set())
    loop = trainer(classification(samples=1024), {"steps": 30}, batch=512)
    loop.clock.sampled = sampled_steps(30, 2, 4)
    loop.run()
    clock = loop.clock
    assert len(clock.sampled_s) == 4 and len(clock.steady_s) == 30 - 4 - 2
    shares = [sum(each) / all_ for *each, all_ in zip(*clock.spans_s.values(), clock.sampled_s, strict=True)]
    # The system may take time for others between two spans of one step; in most steps it does not.
    assert max(shares) <= 1 and sorted(shares)[1] == pytest.approx(1, rel=0.1)
    parts = {f"{of}.{way}" for of in ("circuit", "classical") for way in ("forward", "backward")}
    assert set(clock.spans_s) == parts | {"data", "optimiser"}


def test_steps_that_warm_up_are_sampled_or_prepare_others_are_no_steady_ones():
    clock, unsteady = Clock(torch.device("cpu"), 2, frozenset({4})), []
    for step in range(8):
        clock.start_step(step)
        clock.stop_step(preparing=step == 6)
        unsteady.append(clock.unsteady)
    assert unsteady == [1, 2, 2, 2, 5, 5, 7, 7] and clock.count == 8 and len(clock.steady_s) == 4
