"""The figure of error against step and cost: its lines, its frontier, and the runs that it needs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ketscale import analysis
from ketscale.analysis import verdicts
from ketscale.analysis.kinds.convergence import method, on_frontier
from ketscale.config import Config
from ketscale.engines.dynamics.settings import DynamicsSimulator
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.problems.control.specification import FAMILY
from tests import records_factory as factory
from tests.sentences import answers_of, faults

# Error, negativity and step time of each simulator.
MEASURED = {
    "exact": (2e-15, 0.0, 0.001), "torch": (0.0, 0.0, 0.003), "rk4-coarse": (1e-4, 0.0, 0.002), "rk4": (6.25e-6, 1e-12, 0.004),
    "rk4-fine": (1e-15, 0.0, 0.1), "euler-coarse": (0.02, 0.07, 0.0005), "euler": (0.01, 0.03, 0.002),
}  # fmt: skip
SIMULATORS: dict[str, Any] = {
    "exact": {"device": "exact"},
    "torch": {"device": "exact", "route": "torch"},
    **{
        name: {"device": name.split("-")[0], "dt": dt, "tolerance": 0.1}
        for name, dt in zip(list(MEASURED)[2:], (0.05, 0.025, 1e-4, 0.02, 0.01), strict=True)
    },
    "literal": {"device": "rk4", "batching": "loop", "dt": 0.01, "tolerance": 0.1},
}


def given(protocol: dict[str, Any] | None = None, **axes: Any) -> dict[str, Any]:
    point = {
        "workload": "narrow", "model": "policy", "qubits": 1, "segments": 20, "batch": 7, "simulator": list(MEASURED),
        "backend": "cpu-n1r1t1", "protocol": "both", "seed": [0, 1, 2], **axes,
    }  # fmt: skip
    point = {name: value for name, value in point.items() if value is not None}
    both = {"precision": "fp64", "timed": True, "epochs": 3, "learning_rate": 0.001, **(protocol or {})}
    made = factory.small_study({"cost": {"kind": "convergence", "question": "?", "axes": point}})
    made["workloads"]["narrow"] = {"kind": "qubit-spectrum"}
    made["simulators"] |= SIMULATORS
    made["protocols"]["both"] = {name: value for name, value in both.items() if value is not None}
    return made


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, Path]:
    """The drawn data by simulator, and the results."""
    config, results = analysis.of(given()), tmp_path_factory.mktemp("results")
    factory.write_all(config, results, lambda run: measured(config, run))
    factory.draw(config, results)
    return pd.read_csv(results / "figures/cost.csv").set_index("simulator"), results


def measured(config: Config, run: Run) -> dict[str, Any]:
    error, negativity, step_s = MEASURED[run.simulator]
    values = {metric.name: 0.1 for metric in FAMILY.metrics} | {"loss": 0.1}
    undefined = {"simulator_error": None, "negativity": None}
    test = values | {"simulator_error": error, "negativity": negativity}
    quality = {"epochs": 3, "best_epoch": 1, "chosen": {}, "validation": values | undefined, "test": test}
    return {"quality": quality, "step_s": step_s * (1 + 0.1 * run.seed)}


def test_lines_are_methods_with_their_order(drawn: tuple[pd.DataFrame, Path]) -> None:
    data, _ = drawn
    assert data["line"].to_dict() == {
        name: {"torch": "exact, torch"}.get(name, name.split("-")[0]) for name in MEASURED
    }
    orders = data.groupby("line")["order"].first()
    assert orders["euler"] == pytest.approx(1.0) and orders.isna()[["exact", "exact, torch"]].all()
    assert method(DynamicsSimulator(**SIMULATORS["literal"])) == "rk4, loop"


def test_the_frontier_has_what_nothing_beats_and_rounding_is_no_gain(
    drawn: tuple[pd.DataFrame, Path],
) -> None:
    data, _ = drawn
    assert set(data.index[data["on_frontier"]]) == {"exact", "euler-coarse"}


def test_other_work_has_a_frontier_of_its_own_and_busy_times_none() -> None:
    work = {"workload": "w", "model": "m", "size": "q1", "batch": [1, 2]}
    measured = {"simulator": ["a", "b"], "step_s": [1.0, 2.0], "error": [1e-3, 1e-2], "dt": [0.1, 0.1]}
    points = pd.DataFrame({**work, **measured, "flag": None})
    assert on_frontier(points).tolist() == [True, True]
    assert on_frontier(points.assign(batch=1)).tolist() == [True, False]
    assert on_frontier(points.assign(batch=1, flag=["busy", None])).tolist() == [False, True]
    assert on_frontier(points.assign(flag="busy")).tolist() == [False, False]


def test_the_answer_names_the_cheapest_at_each_error(drawn: tuple[pd.DataFrame, Path]) -> None:
    (answer,) = answers_of(analysis.of(given()), drawn[1]).values()
    # At 1e-9 the next is the exact one in torch (3 ms).
    assert not faults(answer)
    assert answer.effect and answer.effect.value == pytest.approx(3.0) and answer.verdict == verdicts.SLOWER
    assert [note.split()[5] for note in answer.notes if "cheapest" in note] == ["most"] * 3
    rows = {row.point: row for row in answer.rows}
    # On the frontier nothing is as exact and faster, so they are compared with nothing.
    assert {name for name, row in rows.items() if not row.beside} == {"exact", "euler-coarse"}
    assert (rows["rk4-fine"].beside, rows["euler"].beside) == ("exact", "exact")
    assert rows["euler"].more["order"] == "1.0" and rows["euler"].more["states"] == "unphysical by 3.0e-02"
    assert rows["exact"].more["error"] == "2.0e-15"


def test_the_answer_is_as_sure_as_its_row(tmp_path: Path) -> None:
    """Torch is 5.2 % slower at 95 %; with another row that decides nothing, 3.2 % at 97.5 % count."""
    config = analysis.of(given(simulator=["exact", "torch", "rk4-fine"]))
    times = {"exact": (1.0, 0.0), "torch": (1.1, 0.01774), "rk4-fine": (1.2, 0.3)}

    def change(run: Run) -> dict[str, Any]:
        step_s, noise = times[run.simulator]
        return {**measured(config, run), "step_s": step_s * math.exp(noise * (run.seed - 1))}

    factory.write_all(config, tmp_path, change)
    (answer,) = answers_of(config, tmp_path).values()
    rows = {row.point: row.verdict for row in answer.rows}
    assert answer.verdict == rows["torch"] == rows["rk4-fine"] == verdicts.NO_LOSS
    assert "torch, the next, is not surely slower" in answer.text and not faults(answer)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"simulator": ["exact", "torch"]}, "at least one takes steps"),
        ({"protocol": {"timed": False}}, "protocol both has no epochs or is not timed"),
    ],
)
def test_runs_without_an_error_or_a_time_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=rf"^studies\.cost: .*{said}"):
        analysis.of(given(**changes))
