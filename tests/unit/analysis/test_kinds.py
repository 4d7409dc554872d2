"""Kinds of studies: a comparison that runs cannot give is refused, and every family has what it needs.

A family of its own (error rates that should fall, sizes of its own, no data) is checked, tabulated, drawn and reported
by what it says of itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from ketscale import analysis
from ketscale.analysis import kinds, verdicts
from ketscale.config import Config, Families, Family, Metric, Model, Simulator, SizeAxis, Workload
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.problems.registry import FAMILIES
from tests import records_factory as factory
from tests.unit.analysis.test_speed import CONTROL, settings_of

BOTH = {"backend": ["cpu-n1r1t1", "mpi-n1r2t1"]}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such kind": (settings_of("simulators"), "simulator"),
    "one value": (settings_of("batch"), "batch"),
    "one size": (settings_of("qubits"), "qubits"),
    "one simulator": (settings_of("simulator"), "simulator"),
    "cached alone": (settings_of("features"), "inline"),
    "no run on one core": (settings_of("strong", backend="cpu-n1r1t2"), "cpu-n1r1t1"),
    "one layout": (settings_of("break-even"), "layouts"),
    "several layouts, but not one core": (settings_of("break-even", backend=["cpu-n1r1t2", "mpi-n1r2t1"]), "one core"),
    "no mistake": (settings_of("mistakes", **BOTH), "mistake"),
    "one change": (settings_of("changes", **CONTROL), "points"),
    "no error is measured": (settings_of("convergence", protocol="quality"), "error of simulator fused"),
    "an error without a test": (settings_of("convergence", **{**CONTROL, "simulator": ["exact", "coarse"]}), "protocol double"),
    "no epochs": (settings_of("accuracy"), "epochs"),
    "single precision": (settings_of("parity"), "fp32"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_comparison_that_the_runs_cannot_give_is_refused(name: str) -> None:
    settings, message = REFUSED[name]
    with pytest.raises(UserError, match=rf"^studies\.asked.*{message}"):
        analysis.of(settings)


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
    name="toy", title="toy", samples="columns", sampler="all", build=build, simulators=(Integrator,),
    sizes=(SizeAxis("q", "qubits", "qubits"), SizeAxis("d", "levels", "levels")),
    workloads={"gate": Gate}, models={"shaped": Shaped, "constant": Constant, "sine": Sine},
    metrics=(Metric("infidelity", "infidelity", "", "down"), Metric("leakage", "leakage", "", "down")),
)  # fmt: skip
WITH_TOY: Families = {**FAMILIES, "toy": TOY}
AXES = {
    "workload": "gate", "model": "shaped", "qubits": 2, "levels": 2, "batch": 4, "simulator": "expm",
    "backend": "cpu-n1r1t1", "protocol": "quality", "seed": [0, 1, 2],
}  # fmt: skip


def of(studies: dict[str, Any]) -> Config:
    """A config of the family beside digits."""
    settings = factory.default_study()
    settings["workloads"]["gate"] = {}
    settings["simulators"] |= {"rk4": {"device": "rk4"}, "expm": {"device": "expm"}}
    config = Config.of({**settings, "studies": studies}, WITH_TOY)
    kinds.check(config)
    return config


def test_a_size_that_no_model_or_not_every_one_of_a_study_has_is_refused() -> None:
    digits = factory.point(protocol="timing")
    gates = {**AXES, "protocol": "timing", "levels": [2, 3]}
    own = {name: value for name, value in gates.items() if name not in ("backend", "seed", "protocol")}
    points = [
        own,
        {name: digits[name] for name in ("workload", "model", "qubits", "layers", "batch", "simulator")},
    ]
    axes = {name: gates[name] for name in ("backend", "seed", "protocol")}
    with pytest.raises(UserError, match=r"studies.asked.axes.levels: no model of this study has levels"):
        of({"asked": {"kind": "depth", "question": "?", "axes": {**digits, "levels": 3}}})
    with pytest.raises(UserError, match=r"studies.asked: models of digits have no levels"):
        of({"asked": {"kind": "levels", "question": "?", "axes": axes, "points": points}})


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
    gates = {"kind": "accuracy", "question": "?", "axes": {**AXES, "model": ["sine", "shaped", "constant"]}}
    config = of({"gates": gates, "levels": levels, "digits": digits})
    factory.write_all(config, tmp_path, lambda run: better_than_constant(run, config))
    quality = factory.collect(config, tmp_path).tables["quality"].set_index("model")
    # The control is the declared one, though it is no classical model and not the first.
    result = quality[["metric", "verdict", "control"]].astype(object).fillna("")
    assert dict(zip(result.index, result.itertuples(index=False, name=None), strict=True)) == {
        "sine": ("infidelity", verdicts.WORSE, "constant"), "shaped": ("infidelity", verdicts.BETTER, "constant"),
        "constant": ("infidelity", "", ""), "vqc": ("accuracy", verdicts.CANNOT_TELL, "mlp"), "mlp": ("accuracy", "", ""),
    }  # fmt: skip
    assert quality["unit"].fillna("").to_dict()["shaped"] == "times"
    assert quality["effect"]["shaped"] == pytest.approx(0.011, rel=1e-6), "the geometric mean of the ratios"


def test_without_its_declared_control_a_model_is_compared_with_a_classical_one(tmp_path: Path) -> None:
    points = [{}, {"model": "classical_mamba", "qubits": 0, "layers": 0, "simulator": "none"}]
    axes = factory.point(workload="eeg-synthetic", model="hydra", protocol="quality")
    config = factory.small_config(
        {"s": {"kind": "accuracy", "question": "?", "axes": axes, "points": points}}
    )
    factory.write_all(config, tmp_path)
    quality = factory.collect(config, tmp_path).tables["quality"]
    assert quality["control"].fillna("").tolist() == ["classical_mamba", ""]


def test_folds_are_the_replicates_where_each_seed_leaves_another_one_out(tmp_path: Path) -> None:
    axes = factory.point(workload="eeg-synthetic", model="hydra", protocol="quality")
    study = factory.small_study({"s": {"kind": "accuracy", "question": "?", "axes": axes}})
    study["workloads"]["eeg-synthetic"] |= {"subjects": 1, "trials": 45, "split": "runs"}
    config = analysis.of(study)

    def fold(run: Run) -> dict[str, Any]:
        return {"split": {"by": "runs", "fold": run.seed, "folds": 3, "held_out": 4 + run.seed, "shared": 0}}

    factory.write_all(config, tmp_path, fold)
    row = factory.collect(config, tmp_path).tables["quality"].iloc[0]
    # Folds of 0.94, 0.95 and 0.96: Student's interval has a half width of 2.5 points, Wilson's is bent inwards.
    assert row["value"] == pytest.approx(0.95)
    assert row["value_low"] == pytest.approx(0.9189, abs=1e-4) and row["value_high"] < 0.975
