"""Curves of trained models: the table of the best seeds, the figure, and files that are gone or damaged."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ketscale.analysis import catalogue
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import CURVES, HISTORY, Run
from tests import records_factory as factory

SIZES = (1, 6)


def config(**protocol: Any) -> Config:
    """Pulses of one and of six qubits with three seeds, beside a model without curves."""
    quality = {**factory.default_study()["protocols"]["quality"], **protocol}
    axes = {
        "workload": "fluxonium-chain", "model": "cosine_pulse", "levels": 2, "simulator": "interaction4",
        "backend": "cpu-n1r1t1", "protocol": "pulse", "seed": [0, 1, 2],
    }  # fmt: skip
    points = [{"qubits": qubits, "batch": 2**qubits} for qubits in SIZES]
    studies = {
        "gates": {"kind": "accuracy", "question": "?", "axes": axes, "points": points},
        "images": {"kind": "accuracy", "question": "?", "axes": factory.point(protocol="quality")},
    }
    given = factory.small_study(studies)
    return factory.small_config(
        studies,
        workloads={**given["workloads"], "fluxonium-chain": {}},
        simulators={
            **given["simulators"],
            "interaction4": {"device": "interaction4", "dt": 0.1, "tolerance": 1e-6},
        },
        protocols={**given["protocols"], "pulse": {**quality, "precision": "fp64"}},
    )


CONFIG = config()


def text(run: Run) -> str:
    """A curves.csv as long as the run's seed."""
    qubits = int(run.size[1])
    names = [
        f"{word}_{qubit}" for qubit in range(qubits) for word in ("envelope_re", "envelope_im", "signal")
    ]
    names += [*(f"population_{qubit}" for qubit in range(qubits)), "population_outside"]
    rows = [[0.5 * time, *(0.1 * number for number in range(len(names)))] for time in range(run.seed + 2)]
    return "\n".join([",".join(["time_ns", *names]), *(",".join(map(repr, row)) for row in rows)]) + "\n"


def written(results: Path, best: int = 1, others: float | None = 0.01) -> None:
    """All records. The seed `best` has the best infidelity on validation data, and the worst on test data.

    others: the infidelity of the other seeds on validation data; None if it is undefined.
    """

    def change(run: Run) -> dict[str, Any]:
        if run.model != "cosine_pulse":
            return {}
        made = {name: hashlib.sha256(content.encode()).hexdigest()
                for name, content in ((HISTORY, factory.history(CONFIG, run)), (CURVES, text(run)))}  # fmt: skip
        figures = {"infidelity": 0.01, "leakage": 0.0, "loss": 0.2, "infidelity_without_z": 0.01,
                   "simulator_error": 0.0, "norm_error": 0.0, "count": 2, "chance": 0.1}  # fmt: skip
        splits = {"validation": {**figures, "infidelity": others}, "test": figures}
        if run.seed == best:
            splits = {
                "validation": {**figures, "infidelity": 1e-3},
                "test": {**figures, "infidelity": 0.0625},
            }
        return {"files": made, "quality": {"epochs": 30, "best_epoch": 20, "chosen": {}, **splits}}

    factory.write_all(CONFIG, results, change)
    for run in CONFIG.runs:
        if run.model == "cosine_pulse":
            (results / run.folder / CURVES).write_text(text(run))


@pytest.mark.parametrize(("best", "others"), [(0, 0.01), (2, None)])
def test_the_table_has_the_drawn_curves_of_the_best_seed_on_validation(
    tmp_path: Path, best: int, others: float | None
) -> None:
    written(tmp_path, best, others)
    factory.collect(CONFIG, tmp_path)
    table = pd.read_csv(tmp_path / "tables/curves.csv")
    assert set(table["seed"]) == {best}
    assert set(table["panel"]) == {"envelope", "population"}
    assert table.groupby("qubits").size().to_dict() == {n: (3 * n + 1) * (best + 2) for n in SIZES}
    assert tuple(table.columns[-4:]) == ("curve", "panel", "time", "value")
    one = table[(table["qubits"] == 1) & (table["curve"] == "population_0")]
    assert one["time"].tolist() == [0.5 * time for time in range(best + 2)]
    assert set(one["value"]) == {0.1 * 3}


def test_without_curves_there_is_no_figure() -> None:
    for other in (config(keep_model=False), factory.default_config()):
        assert "curves" not in [figure.name for figure in catalogue.overviews(other)]


@pytest.mark.parametrize(
    "damage, why",
    [(Path.unlink, "its curves.csv is missing"), (lambda path: path.write_text("time\n0\n"), "its curves.csv is not")],
)  # fmt: skip
def test_a_record_without_the_curves_that_its_run_wrote_is_refused(
    tmp_path: Path, damage: Callable[[Path], object], why: str
) -> None:
    written(tmp_path)
    damage(tmp_path / next(run for run in CONFIG.runs if run.model == "cosine_pulse").folder / CURVES)
    with pytest.raises(UserError, match=why):
        factory.collect(CONFIG, tmp_path)
