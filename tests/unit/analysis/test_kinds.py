"""Kinds of studies: a comparison that runs cannot give is refused, and every family has what it needs.

A family of its own (error rates that should fall, sizes of its own, no data) is checked, tabulated, drawn and reported
by what it says of itself.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest

from ketscale import analysis
from ketscale.analysis import kinds
from ketscale.config import Config, Families, Family, Metric, Model, Simulator, SizeAxis, Workload
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.problems.registry import FAMILIES
from tests import records_factory as factory


def study(kind: str, points: list[dict[str, Any]] | None = None, **axes: Any) -> dict[str, Any]:
    """Settings with one study."""
    block = {"kind": kind, "question": "?", "axes": factory.point(**axes)}
    return factory.small_study({"asked": {**block, **({"points": points} if points else {})}})


REFUSED = {
    "no such kind": study("simulators"),
    "one value": study("batch"),
    "cached alone": study("features"),
    "several batches": study("strong", batch=[8, 16]),
    "no run on one core": study("strong", backend="cpu-n1r1t2"),
    "shares of a batch that differ": study("weak", backend=["cpu-n1r1t1", "mpi-n1r2t1"]),
    "one layout": study("break-even"),
    "no mistake": study("mistakes"),
    "no epochs": study("accuracy"),
    "single precision": study("parity"),
}


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_a_comparison_that_the_runs_cannot_give_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"^studies\.asked"):
        analysis.of(given)


class Gate(Workload, frozen=True, kw_only=True):
    """A gate to be made."""

    generated: ClassVar[bool] = True


class Shaped(Model, frozen=True, kw_only=True):
    """A model that declares its control."""

    control: ClassVar[str | None] = "constant"


class Constant(Model, frozen=True, kw_only=True):
    """The control."""


class Sine(Model, frozen=True, kw_only=True):
    """Another model."""

    control: ClassVar[str | None] = "constant"


class Integrator(Simulator, frozen=True, kw_only=True):
    """Steps in time."""

    devices: ClassVar[tuple[str, ...]] = ("rk4", "expm")


def build(*given: Any) -> None:
    """Nothing is trained here."""


TOY = Family(
    name="toy",
    title="toy",
    samples="columns",
    sizes=(SizeAxis("q", "qubits", "qubits"), SizeAxis("d", "levels", "levels")),
    sampler="all",
    workloads={"gate": Gate},
    models={"shaped": Shaped, "constant": Constant, "sine": Sine},
    simulators=(Integrator,),
    metrics=(Metric("infidelity", "infidelity", "", "down"), Metric("leakage", "leakage", "", "down")),
    tiny={},
    build=build,
)
WITH_TOY: Families = {**FAMILIES, "toy": TOY}
AXES = {
    "workload": "gate", "model": "shaped", "qubits": 2, "levels": 2, "batch": 4, "simulator": "expm",
    "backend": "cpu-n1r1t1", "protocol": "quality", "seed": [0, 1, 2],
}  # fmt: skip


def of(studies: dict[str, Any]) -> Config:
    """A config of the family beside digits."""
    given = copy.deepcopy(factory.default_study())
    given["workloads"]["gate"] = {}
    given["simulators"] |= {"rk4": {"device": "rk4"}, "expm": {"device": "expm"}}
    config = Config.of({**given, "studies": studies}, WITH_TOY)
    kinds.check(config)
    return config


def test_a_size_that_no_model_of_a_study_has_is_refused() -> None:
    digits = {"kind": "accuracy", "question": "?", "axes": {**factory.point(protocol="quality"), "levels": 3}}
    with pytest.raises(
        UserError, match=r"studies.asked.axes.levels: no model of this study has levels; leave it out"
    ):
        of({"asked": digits})


def test_a_sweep_over_a_size_that_some_models_lack_is_refused() -> None:
    axes = {name: AXES[name] for name in ("backend", "seed")} | {"protocol": "timing", "qubits": 4}
    points = [
        {**AXES, **axes, "levels": [2, 3]},
        {name: value for name, value in (factory.point() | axes).items() if name not in axes},
    ]
    block = {"kind": "levels", "question": "?", "axes": axes, "points": points}
    with pytest.raises(UserError, match=r"models of digits have no levels; give them a study of their own"):
        of({"asked": block})


def quality_study(**axes: Any) -> dict[str, Any]:
    models = ["sine", "shaped", "constant"]
    return {"kind": "accuracy", "question": "?", "axes": {**AXES, "model": models, **axes}}


def better_than_constant(run: Run, config: Config) -> dict[str, Any]:
    """Each seed of `shaped` has about a hundredth of the control's infidelity, of `sine` ten times as much."""
    if config.protocols[run.protocol].by_epochs and run.workload == "gate":
        factor = {"constant": 1.0, "shaped": 0.01 * 1.1**run.seed, "sine": 10.0 * 1.2**run.seed}[run.model]
        metrics = {"loss": 0.1, "leakage": 1e-5, "infidelity": factor * 1e-2 * (1 + 0.01 * run.seed)}
        return {
            "quality": {"epochs": 30, "best_epoch": 20, "chosen": {}, "validation": metrics, "test": metrics}
        }
    return {}


def test_less_is_better_where_the_family_says_so(tmp_path: Path) -> None:
    levels = {"kind": "levels", "question": "?", "axes": {**AXES, "levels": [2, 3, 4], "protocol": "timing"}}
    points = [{}, {"model": "mlp", "qubits": 0, "layers": 0, "simulator": "none"}]
    digits = {
        "kind": "accuracy",
        "question": "?",
        "axes": factory.point(protocol="quality"),
        "points": points,
    }
    config = of({"gates": quality_study(), "levels": levels, "digits": digits})
    factory.write_all(config, tmp_path, lambda run: better_than_constant(run, config))
    factory.collect(config, tmp_path)
    quality = pd.read_csv(tmp_path / "tables/quality.csv").set_index("model")
    assert quality["metric"].to_dict() == {
        "sine": "infidelity", "shaped": "infidelity", "constant": "infidelity", "vqc": "accuracy", "mlp": "accuracy"
    }  # fmt: skip
    assert quality["verdict"].fillna("").to_dict() == {
        "sine": "worse", "shaped": "better", "constant": "", "vqc": "cannot tell", "mlp": "",
    }  # fmt: skip
    # The control is the declared one, though it is no classical model and not the first.
    assert quality["control"].fillna("").to_dict() == {
        "sine": "constant", "shaped": "constant", "constant": "", "vqc": "mlp", "mlp": ""
    }  # fmt: skip
    assert quality["leakage"].notna().tolist() == [True, True, True, False, False]
    assert quality["unit"].fillna("").to_dict()["shaped"] == "times"
    assert quality["effect"]["shaped"] == pytest.approx(0.011, rel=1e-6), "the geometric mean of the ratios"


def test_without_its_declared_control_a_model_is_compared_with_a_classical_one(tmp_path: Path) -> None:
    points = [{}, {"model": "classical_mamba", "qubits": 0, "layers": 0, "simulator": "none"}]
    axes = factory.point(workload="eeg-synthetic", model="hydra", protocol="quality")
    config = factory.small_config(
        {"s": {"kind": "accuracy", "question": "?", "axes": axes, "points": points}}
    )
    factory.write_all(config, tmp_path)
    factory.collect(config, tmp_path)
    quality = pd.read_csv(tmp_path / "tables/quality.csv")
    assert quality["control"].fillna("").tolist() == ["classical_mamba", ""]


def test_folds_are_the_replicates_where_each_seed_leaves_another_one_out(tmp_path: Path) -> None:
    axes = factory.point(workload="eeg-synthetic", model="hydra", protocol="quality")
    study = factory.small_study({"s": {"kind": "accuracy", "question": "?", "axes": axes}})
    study["workloads"]["eeg-synthetic"] |= {"subjects": 1, "trials": 45, "split": "runs"}
    config = analysis.of(study)

    def fold(run: Run) -> dict[str, Any]:
        return {"split": {"by": "runs", "fold": run.seed, "folds": 3, "held_out": 4 + run.seed, "shared": 0}}

    factory.write_all(config, tmp_path, fold)
    factory.collect(config, tmp_path)
    row = pd.read_csv(tmp_path / "tables/quality.csv").iloc[0]
    # Folds of 0.94, 0.95 and 0.96: Student's interval has a half width of 2.5 points, Wilson's is bent inwards.
    assert row["value"] == pytest.approx(0.95)
    assert row["value_low"] == pytest.approx(0.9189, abs=1e-4) and row["value_high"] < 0.975
