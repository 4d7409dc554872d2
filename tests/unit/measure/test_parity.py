"""The invariant "same numbers everywhere": who is compared with whom, how closely, and who is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ketscale.grid import Run
from ketscale.measure import parity
from ketscale.measure.record import State
from tests import records_factory as factory
from tests.record_maker import typed

CONFIG = factory.default_config()
RUN = Run("digits", "vqc", "q4-l3", 8, "default.qubit", "cpu", 1, 1, 1, "parity", 0)
LIGHTNING = replace(RUN, simulator="lightning.qubit")
RANKS = replace(RUN, backend="mpi", ranks=2)
LOSSES = [2.3 * 0.9**step for step in range(20)]


Found = tuple[Run, State]


def run_of(run: Run, off: float = 0.0, **changes: Any) -> Found:
    """A finished run whose losses are off by a relative amount."""
    losses = [loss * (1 + off) for loss in LOSSES]
    return run, State("completed", record=typed(factory.record(CONFIG, run, **{"losses": losses, **changes})))


def compare(*pairs: Found) -> list[parity.Comparison]:
    return parity.compare(dict(pairs))


def approximate(run: Run, off: float, tolerance: float) -> Found:
    """The same of a run whose simulator declares its error."""
    run, state = run_of(run, off)
    assert state.record is not None
    state.record.config["simulator"]["tolerance"] = tolerance
    return run, state


def refused_runs(*pairs: Found) -> set[Run]:
    """The runs that the comparison refuses."""
    states = parity.refuse(dict(pairs), compare(*pairs))
    assert all((result.record is None) == (result.state == "refused") for result in states.values())
    return {run for run, state in states.items() if state.state == "refused"}


TIMING = replace(RUN, protocol="timing", batch=16)


@pytest.mark.parametrize(
    ("reference", "run", "limit"),
    [
        (RUN, LIGHTNING, 1e-9),
        (RUN, RANKS, 1e-10),
        (TIMING, replace(TIMING, simulator="qiskit"), 1e-3),
        (replace(TIMING, batch=64), replace(TIMING, batch=64, protocol="timing-inline"), 1e-3),
    ],
)
def test_each_precision_is_held_to_its_limit(reference: Run, run: Run, limit: float) -> None:
    assert refused_runs(run_of(reference), run_of(run, 0.5 * limit)) == set()
    assert refused_runs(run_of(reference), run_of(run, 2 * limit)) == {run}


def test_default_qubit_on_one_rank_and_thread_is_the_reference_in_any_order() -> None:
    assert refused_runs(run_of(LIGHTNING, 1e-3), run_of(RANKS), run_of(RUN)) == {LIGHTNING}
    # Exact simulators are compared as closely beside an approximate one.
    other = replace(RUN, simulator="qiskit")
    assert refused_runs(approximate(RUN, 1e-2, 2e-2), run_of(LIGHTNING), run_of(other, 1e-8)) == {other}


def test_ranks_are_also_compared_with_their_own_simulator() -> None:
    ranks = replace(LIGHTNING, backend="mpi", ranks=2)
    assert refused_runs(run_of(RUN), run_of(LIGHTNING), run_of(ranks, 5e-10)) == {ranks}
    assert refused_runs(approximate(LIGHTNING, 0.0, 1e-2), approximate(ranks, 1e-9, 1e-2)) == {ranks}


def test_two_approximate_simulators_may_differ_by_the_errors_of_both() -> None:
    other = replace(RUN, simulator="qiskit")
    pair = [approximate(LIGHTNING, 0.0, 1e-2), approximate(other, 2.5e-2, 2e-2)]
    assert refused_runs(*pair) == set()
    assert refused_runs(pair[0], approximate(other, 3.5e-2, 2e-2)) == {other}


def test_shots_are_compared_with_themselves_alone() -> None:
    def drawn(run: Run, off: float) -> Found:
        run, state = run_of(run, off)
        assert state.record is not None
        state.record.config["simulator"]["shots"] = 100
        return run, state

    other = replace(RUN, simulator="qiskit")
    assert compare(run_of(RUN), drawn(LIGHTNING, 0.1), drawn(other, 0.2)) == []
    ranks = replace(RANKS, simulator="lightning.qubit")
    assert refused_runs(drawn(LIGHTNING, 0.1), drawn(ranks, 0.2)) == {ranks}


def test_only_common_steps_are_compared() -> None:
    assert refused_runs(run_of(RUN), run_of(LIGHTNING, losses=LOSSES[:4])) == set()
    assert refused_runs(run_of(RUN), run_of(LIGHTNING, losses=[*LOSSES[:3], 9.9])) == {LIGHTNING}


@pytest.mark.parametrize(
    ("run", "changes"),
    [
        (replace(LIGHTNING, seed=1), {}),
        (replace(LIGHTNING, batch=16), {}),
        (replace(LIGHTNING, size="q4-l6"), {}),
        (LIGHTNING, {"features_hash": "other"}),
    ],
    ids=str,
)
def test_runs_that_train_differently_are_not_compared(run: Run, changes: dict[str, Any]) -> None:
    assert compare(run_of(RUN), run_of(run, 0.5, **changes)) == []


@pytest.mark.parametrize(
    "setting", [{"loss": "hinge"}, {"class_weights": [1.0, 2.0]}, {"momentum": 0.5}], ids=str
)
def test_runs_of_another_loss_or_optimiser_are_not_compared(setting: dict[str, Any]) -> None:
    pair = run_of(RUN), run_of(LIGHTNING, 0.5)
    assert pair[1][1].record is not None
    pair[1][1].record.config["protocol"].update(setting)
    assert compare(*pair) == []


def test_nothing_is_promised_above_the_largest_learning_rate() -> None:
    pair = [run_of(RUN), run_of(LIGHTNING, 0.5)]
    for _, state in pair:
        assert state.record is not None
        state.record.config["protocol"]["learning_rate"] = 0.01
    assert compare(*pair) == []


@pytest.mark.parametrize(("state", "number"), [("diverged", 0), ("timed_out", 1)])
def test_of_failed_runs_those_that_timed_out_are_compared(state: Any, number: int) -> None:
    run, checked = run_of(LIGHTNING, 0.5)
    result = compare(run_of(RUN), (run, replace(checked, state=state)))
    assert len(result) == number and not any(one.agrees for one in result)


def test_settings_of_another_version_are_typed() -> None:
    """A setting that this version does not know is ignored, and one that the record lacks has its default."""
    _, state = approximate(RUN, 0.0, 0.25)
    assert state.record is not None
    arguments = state.record.config["protocol"]
    arguments |= {"unheard_of": 1}
    del arguments["dropout"]
    settings = state.record.settings
    assert settings.simulator is not None and settings.simulator.tolerance == 0.25
    assert (settings.protocol.dropout, settings.protocol.learning_rate) == (0.0, arguments["learning_rate"])
    assert parity.between((RUN, state.record), (RUN, state.record)) == 0
