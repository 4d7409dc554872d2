"""A config that cannot work is refused before anything runs, in one or two lines that say what to change."""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from snakemake.common.configfile import load_configfile
from snakemake.utils import update_config

from ketscale import analysis, grid
from ketscale import config as settings
from ketscale.config import published_schema
from ketscale.errors import UserError
from ketscale.problems.registry import FAMILIES
from tests import ROOT
from tests.ready_made import ALL

Config = dict[str, Any]
MNIST = {
    "split": "test-images",
    "folder": "/data",
    "split_seed": 0,
    "weights": "selfsupervised",
    "image_size": 32,
}


@pytest.fixture(scope="module")
def default() -> Config:
    return settings.load(ROOT / "tests" / "data" / "study.yaml")


GONE = object()


def at(path: str, value: Any) -> Callable[[Config], None]:
    """Set the setting at a dotted path ('/' where a name has dots in it), or take it out (`GONE`)."""

    def change(config: Config) -> None:
        *parents, last = path.split("/") if "/" in path else path.split(".")
        for key in parents:
            config = config[int(key) if isinstance(config, list) else key]
        config.pop(last) if value is GONE else config.update({last: value})

    return change


def every(*changes: Callable[[Config], None]) -> Callable[[Config], None]:
    def change(config: Config) -> None:
        for one in changes:
            one(config)

    return change


def sentences(held_out: int = 2) -> Callable[[Config], None]:
    """The accuracy study on sentences."""

    def change(config: Config) -> None:
        config["workloads"]["sentences"] = {"seed": 0, "held_out": held_out, "split_seed": 0}
        axes = {**config["studies"]["accuracy"]["axes"], "workload": "sentences", "qubits": 4, "layers": 1}
        axes |= {"model": "superposition_transformer", "simulator": "fused", "protocol": "quality"}
        config["studies"]["accuracy"] = {"kind": "accuracy", "question": "?", "axes": axes}

    return change


LBFGS = {
    "precision": "fp64", "features": "cached", "timed": False, "epochs": 5, "learning_rate": 0.1, "optimiser": "l-bfgs"
}  # fmt: skip

# What each setting allows alone: tests/property/test_config.py. Here the path, and a setting that must be named.
BAD: dict[str, tuple[Callable[[Config], None], str, str]] = {
    "epochs and steps": (at("protocols.quality.steps", 5), "protocols.quality", ""),
    "neither epochs nor steps": (at("protocols.quality.epochs", GONE), "protocols.quality", ""),
    "study without axes": (at("studies.strong.axes", GONE), "studies.strong", "workload"),
    "classical model with a simulator": (at("studies.accuracy.points", [{"model": "mlp", "simulator": "qiskit"}]), "studies.accuracy", "simulator"),
    "quantum model without a simulator": (at("studies.strong.axes.simulator", "none"), "studies.strong", "simulator"),
    "quantum model without qubits": (at("studies.strong.axes.qubits", 0), "studies.strong", "qubits"),
    "cpu with two ranks": (at("studies.parity.points", [{"simulator": "qiskit", "backend": "cpu-n1r2t1"}]), "studies.parity", "backend"),
    "more nodes than ranks": (at("studies.parity.points", [{"simulator": "qiskit", "backend": "mpi-n4r2t1"}]), "studies.parity", "backend"),
    "amp on a CPU": (every(at("protocols.quality.precision", "amp")), "studies.accuracy", "precision"),
    "GPU simulator on a CPU": (at("simulators/default.qubit/placement", "gpu"), "studies.simulators", "simulator"),
    "tasks of a model without": (at("protocols.timing.parallel", "tasks"), "studies.simulators", "parallel"),
    "l-bfgs in steps": (at("protocols.timing.optimiser", "l-bfgs"), "studies.simulators", "optimiser"),
    "l-bfgs with dropout": (at("protocols.quality", {**LBFGS, "dropout": 0.1}), "studies.accuracy", "optimiser"),
    "l-bfgs with shots": (every(at("protocols.quality", LBFGS), at("simulators.fused.shots", 100), at("simulators.fused.gradient", "shift")), "studies.accuracy", "optimiser"),
    "held out of whole studies": (sentences(held_out=0), "studies.accuracy", "epochs"),
    "plateau with steps": (at("protocols.timing.plateau", {"factor": 0.5, "patience": 2}), "protocols.timing.plateau", ""),
    "steps_for with epochs": (at("protocols.quality.steps_for", {"qiskit": 3}), "protocols.quality.steps_for", ""),
    "all steps are warm-up": (at("protocols.timing.warmup", 400), "protocols.timing.steps", ""),
    "every step is sampled": (at("protocols.timing.sampled_steps", 399), "protocols.timing.sampled_steps", ""),
    "dropout of a model without": (every(sentences(), at("protocols.quality.dropout", 0.1)), "studies.accuracy", "dropout"),
    "sizes of another family": (at("studies.strong.axes.segments", 4), "studies.strong.axes.segments", ""),
    "momentum of another": (at("protocols.quality.momentum", 0.9), "protocols.quality.momentum", ""),
    "two schedules": (every(at("protocols.quality.plateau", {"factor": 0.5, "patience": 1}), at("protocols.quality.cosine", {})), "protocols.quality.cosine", ""),
    "cosine with steps": (at("protocols.timing.cosine", {}), "protocols.timing.cosine", ""),
    "a loss of numbers for classes": (at("protocols.quality.loss", "huber"), "studies.accuracy", "loss"),
    "weights of sentences": (every(sentences(), at("protocols.quality.class_weights", "balanced")), "studies.accuracy", "class_weights"),
    "l-bfgs with a schedule": (at("protocols.quality", {**LBFGS, "cosine": {}}), "studies.accuracy", "cosine"),
    "a metric of numbers for classes": (at("workloads.digits.metric", "max_error"), "studies", "metric"),
    "nothing behind a name": (at("protocols.quality.clip_norm", None), "protocols.quality.clip_norm", ""),
    "no such metric": (at("protocols.quality.early_stopping.monitor", "acuracy"), "studies.accuracy", "monitor"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_settings_that_do_not_go_together_are_refused(name: str, default: Config) -> None:
    change, path, other = BAD[name]
    config = copy.deepcopy(default)
    change(config)
    with pytest.raises(UserError, match=rf"^{re.escape(path)}\b.*\b{other}"):
        analysis.of(config)


def test_all_faults_are_told_at_once_each_with_its_path_and_ten_of_many(default: Config) -> None:
    wrong = {
        "protocols.quality.epoch": 3, "protocols.quality.epochs": 0, "protocols.timing.learning_rate": "1e-3",
        "workloads.digits.image_size": 4, "simulators.fused.gradient": "adjont", "titel": "", "models": {"a": {"kind": "mlp", "w": 1}},
    }  # fmt: skip
    config = copy.deepcopy(default)
    for path, value in wrong.items():
        at(path, value)(config)
    with pytest.raises(UserError) as error:
        analysis.of(config)
    lines = str(error.value).splitlines()
    assert {line.split(":")[0] for line in lines} == {*wrong.keys() - {"models"}, "models.a.w"}
    for path, words in (
        ("epoch:", "epochs"),
        ("gradient", "adjoint"),
        ("titel", "title"),
        ("learning_rate", "0.001"),
    ):
        assert words in next(line for line in lines if path in line)
    at("models", {f"m{number}": {"kind": "mlp", "w": 1} for number in range(20)})(config)
    with pytest.raises(UserError) as error:
        analysis.of(config)
    assert str(error.value).splitlines()[10:] == ["and 16 more"]


def test_a_key_that_is_given_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for line, text in (
        (2, "title: a\ntitle: b\n"),
        (4, "protocols:\n  a: {steps: 1}\n  b: {steps: 2}\n  a: {steps: 3}\n"),
        (2, "base: &b {x: 1}\nother: {<<: *b, y: 1, y: 2}\n"),
        (2, "title: [a\n"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=rf"{re.escape(str(path))}.* line {line}\b"):
            settings.load(path)


def test_a_file_is_laid_over_another_block_by_block_as_snakemake_merges_files(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    base, upper = tmp_path / "below/base.yaml", tmp_path / "upper.yaml"
    base.write_text("title: base\nstudies: {a: {kind: x, points: [1, 2]}, b: 1}\n")
    upper.write_text("over: below/base.yaml\nstudies: {a: {points: [3]}, c: 2}\n")
    third = tmp_path / "below/third.yaml"
    third.write_text("over: ../upper.yaml\ntitle: third\n")
    merged: dict[str, Any] = {}
    for path in (base, upper, third):
        update_config(merged, load_configfile(path))
    del merged["over"]
    assert settings.load(third) == merged
    assert merged == {"title": "third", "studies": {"a": {"kind": "x", "points": [3]}, "b": 1, "c": 2}}


@pytest.mark.parametrize("below", ["nowhere.yaml", "[base.yaml]", "./config.yaml", "other.yaml"])
def test_a_file_without_a_base_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "config.yaml").write_text(f"over: {below}\ntitle: a\n")
    (tmp_path / "other.yaml").write_text("over: config.yaml\n")
    with pytest.raises(UserError, match=r"\.yaml: over: "):
        settings.load(tmp_path / "config.yaml")


PLAIN = (
    "0", "-0", "+5", "20", "0o20", "0x10", "0b11", "1_000", ".5", "5.", "007.5", "1e3", "1e-3", "1.0e3", "1.0e-3",
    "1.0E+3", "1:99", "12:30:45 text", "yes", "no", "On", "off", "true", "y", "Null", "~", "", ".inf", "'020'",
    '"1:30"', "'2026-01-01'", "!!str 020", "!!str 1:30", "[1, {a: 2}]", "|\n  020",
)  # fmt: skip
JSON = (
    '{"text": "\\ud83d\\ude00", "path": "a\\/b", "rate": 1e-3}', '\n {"date": "2026-01-01",\t"at": "1:30"}', "{a: 1}",
    "base: &b {x: 1, y: 1}\nother: &o {<<: *b, y: 2}\nlist: [{<<: *o, y: 4}]\n",
)  # fmt: skip
AMBIGUOUS = (
    "020", "-020", "+020", "00", "0_1", "1:30", "-1:30", "190:20:30", "1:30.5", "!!int '020'", "!!float '1:30'", "[1, 020]",
    "{a: 1:30}", "{020: a}", "&a 020", "=", "<<", "!!python/tuple [1]",
)  # fmt: skip


def test_a_plain_value_is_what_snakemake_reads(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for text in (*(f"key: {value}\n" for value in PLAIN), *JSON):
        path.write_text(text)
        assert settings.load(path) == load_configfile(path), text


def test_a_value_that_others_read_otherwise_is_refused_with_its_line(tmp_path: Path) -> None:
    """A person, like YAML 1.2, takes 020 for twenty, and 1:30 for text; Snakemake alone takes the others."""
    path = tmp_path / "config.yaml"
    for value in AMBIGUOUS:
        for text in (f"title: a\nkey: {value}\n", f"a: [1,\n {value}]\n"):
            path.write_text(text)
            with pytest.raises(UserError, match=f"^{re.escape(str(path))}, line 2: "):
                settings.load(path)
    for text in ('{"a": 1, "a": 2}', '{"a": 020}', "a: !!int x", "a: !!bool x", "a: !!timestamp x", "[]: 1"):
        path.write_text(text)
        with pytest.raises(UserError, match=re.escape(str(path))):
            settings.load(path)


def test_more_runs_than_anybody_trains_are_refused_before_they_are_expanded(
    default: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid.study, "_combinations", pytest.fail)
    arguments = copy.deepcopy(default)
    study = arguments["studies"]["accuracy"]
    study["axes"] |= {"seed": list(range(2000)), "batch": list(range(1, 2001))}
    arguments["studies"] = {"accuracy": study}
    with pytest.raises(UserError, match=r"^studies\.accuracy: its lists multiply to 8,000,000 runs"):
        analysis.of(arguments)


def with_mnist(default: Config, **settings: Any) -> settings.Config:
    arguments = copy.deepcopy(default)
    arguments["workloads"]["mnist"] = {
        key: value for key, value in {**MNIST, **settings}.items() if value is not None
    }
    return analysis.of(arguments)


def test_missing_data_files_are_refused_by_the_setting_that_names_them(
    default: Config, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"workloads\.mnist\.folder: split: test-images needs one"):
        settings.sources(with_mnist(default, folder=None), "mnist")
    config = with_mnist(default, folder=str(tmp_path))
    with pytest.raises(UserError, match=r"workloads\.mnist\.folder: .* has no t10k-images-idx3-ubyte\.gz"):
        settings.sources(config, "mnist")
    (tmp_path / "t10k-images-idx3-ubyte").touch()
    (tmp_path / "t10k-labels-idx1-ubyte.gz").touch()
    names = [path.name for path in settings.sources(config, "mnist")]
    assert names == ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte.gz"]


def test_a_study_says_nothing_of_where_data_are_and_is_a_config_itself(default: Config) -> None:
    arguments = {**copy.deepcopy(default), "partial": True}
    arguments["workloads"]["mnist"] = MNIST
    study = json.loads(analysis.of(arguments).text)
    assert "partial" not in study
    assert "folder" not in study["workloads"]["mnist"]
    assert arguments["workloads"]["mnist"] == MNIST
    analysis.of(study, placed=False)


@pytest.mark.parametrize("written", ["out", "out/", "./out", "in/..//out"])
def test_the_results_folder_is_named_as_snakemake_names_it(default: Config, written: str) -> None:
    config = analysis.of({**default, "results": written})
    assert config.results == "out"
    assert analysis.of(json.loads(config.text), placed=False).results == "out"


def test_the_published_schema_is_made_from_the_types_and_takes_every_config() -> None:
    schema = json.loads(json.dumps(published_schema(FAMILIES)))
    assert json.loads((ROOT / "docs" / "config.schema.json").read_text()) == schema
    validator = jsonschema.Draft202012Validator(schema)
    for path in (ROOT / "config.yaml", *ALL):
        # As it is written, which is what an editor sees.
        complete = yaml.safe_load(path.read_text())
        assert list(validator.iter_errors(complete)) == []
        for name in complete.keys() - {"over"}:
            # What must be there must be there, unless it is laid over another.
            part = {key: value for key, value in complete.items() if key != name}
            assert validator.is_valid({"over": "a.yaml", **part}), (path, name)
            if name in ("title", "protocols", "studies") and "over" not in complete:
                assert not validator.is_valid(part), (path, name)
    for wrong in ({"titel": 1}, {"over": "a.yaml", "title": 3}):
        assert not validator.is_valid(wrong)
