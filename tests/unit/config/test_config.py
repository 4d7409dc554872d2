"""A config that cannot work is refused before anything runs, in one or two lines that say what to change."""

import copy
import dataclasses
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
from ketscale.config import Model, Simulator, SizeAxis, published_schema
from ketscale.errors import UserError
from ketscale.problems.registry import FAMILIES, distinct
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


def at(path: str, value: Any) -> Callable[[Config], None]:
    """Set the setting at a dotted path ('/' where a name has dots in it)."""

    def change(config: Config) -> None:
        *parents, last = path.split("/") if "/" in path else path.split(".")
        for key in parents:
            config = config[int(key) if isinstance(config, list) else key]
        config[last] = value

    return change


def gone(path: str) -> Callable[[Config], None]:
    def change(config: Config) -> None:
        *parents, last = path.split("/") if "/" in path else path.split(".")
        for key in parents:
            config = config[int(key) if isinstance(config, list) else key]
        del config[last]

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


def eeg(**settings: Any) -> Callable[[Config], None]:
    """A workload of recordings with some settings."""
    usual = {"subjects": [1], "runs": [4, 8], "rate": 80, "split": "runs", "split_seed": 0, "folder": "."}
    return at("workloads.eegmmidb", {**usual, **settings})


LBFGS = {
    "precision": "fp64", "features": "cached", "timed": False, "epochs": 5, "learning_rate": 0.1, "optimiser": "l-bfgs"
}  # fmt: skip

# What each setting allows alone: tests/property/test_config.py. Here the path, and a setting that must be named.
BAD: dict[str, tuple[Callable[[Config], None], str, str]] = {
    "no such backend": (at("studies.strong.axes.backend", ["cpu-n1r1t1", "gloo-n1r2t1"]), "studies.strong", "backend"),
    "zero ranks": (at("studies.parity.axes.backend", "mpi-n1r0t1"), "studies.parity.axes.backend", ""),
    "epochs and steps": (at("protocols.quality.steps", 5), "protocols.quality", ""),
    "neither epochs nor steps": (gone("protocols.quality.epochs"), "protocols.quality", ""),
    "study without axes": (gone("studies.strong.axes"), "studies.strong", "workload"),
    "classical model with a simulator": (at("studies.accuracy.points", [{"model": "mlp", "simulator": "qiskit"}]), "studies.accuracy", "simulator"),
    "quantum model without a simulator": (at("studies.strong.axes.simulator", "none"), "studies.strong", "simulator"),
    "quantum model without qubits": (at("studies.strong.axes.qubits", 0), "studies.strong", "qubits"),
    "cpu with two ranks": (at("studies.parity.points", [{"simulator": "qiskit", "backend": "cpu-n1r2t1"}]), "studies.parity", "backend"),
    "gpu on two nodes": (at("studies.parity.points", [{"simulator": "default.qubit", "backend": "gpu-n2r2t1"}]), "studies.parity", "backend"),
    "more nodes than ranks": (at("studies.parity.points", [{"simulator": "qiskit", "backend": "mpi-n4r2t1"}]), "studies.parity", "backend"),
    "ranks not divisible by nodes": (at("studies.parity.points", [{"simulator": "qiskit", "backend": "mpi-n2r3t1"}]), "studies.parity", "backend"),
    "unsupported simulator": (at("simulators/qiskit/gradient", "backprop"), "simulators.qiskit", ""),
    "unsupported batching": (at("simulators/lightning.qubit/batching", "broadcast"), "simulators.lightning.qubit", ""),
    "amp on a CPU": (every(at("protocols.quality.precision", "amp")), "studies.accuracy", "precision"),
    "a CPU's simulator on a GPU": (at("simulators/lightning.qubit/placement", "gpu"), "simulators.lightning.qubit.placement", ""),
    "GPU simulator on a CPU": (at("simulators/default.qubit/placement", "gpu"), "studies.simulators", "simulator"),
    "parity in fp32": (at("protocols.parity.precision", "fp32"), "studies.parity", "precision"),
    "parity in epochs": (every(gone("protocols.parity.steps"), at("protocols.parity.epochs", 2)), "studies.parity", "steps"),
    "scaling without a baseline": (at("studies.strong.axes.backend", "mpi-n1r2t1"), "studies.strong", "kind"),
    "weak scaling with one batch": (at("studies.weak.points", [{"batch": 64, "backend": ["cpu-n1r1t1", "mpi-n1r2t1"]}]), "studies.weak", "batch"),
    "accuracy in steps": (at("studies.accuracy.axes.protocol", "timing"), "studies.accuracy", "steps"),
    "a sweep of one value": (at("studies.depth.axes.layers", 3), "studies.depth", "kind"),
    "features of one kind": (at("studies.features.axes.protocol", "timing"), "studies.features", "kind"),
    "a mistake of one rank": (at("protocols.timing.mistake", "unsharded"), "studies.simulators", "mistake"),
    "a study of mistakes without one": (at("studies.depth.kind", "mistakes"), "studies.depth", "kind"),
    "a model that takes something else": (at("studies.strong.axes.model", "superposition_transformer"), "studies.strong", "model"),
    "a way to evaluate another model": (every(at("simulators.closed", {"device": "closed-form", "gradient": "backprop", "batching": "broadcast", "placement": "model"}), at("studies.strong.axes.simulator", "closed")), "studies.strong", "simulator"),
    "a closed form sample by sample": (at("simulators.closed", {"device": "closed-form", "gradient": "backprop", "batching": "loop", "placement": "model"}), "simulators.closed", ""),
    "tasks of a model without": (at("protocols.timing.parallel", "tasks"), "studies.simulators", "parallel"),
    "l-bfgs in steps": (at("protocols.timing.optimiser", "l-bfgs"), "studies.simulators", "optimiser"),
    "l-bfgs with dropout": (at("protocols.quality", {**LBFGS, "dropout": 0.1}), "studies.accuracy", "optimiser"),
    "l-bfgs with shots": (every(at("protocols.quality", LBFGS), at("simulators.fused.shots", 100), at("simulators.fused.gradient", "shift")), "studies.accuracy", "optimiser"),
    "held out of whole studies": (sentences(held_out=0), "studies.accuracy", "epochs"),
    "sentences on five qubits": (every(sentences(), at("studies.accuracy.axes.qubits", 5)), "studies.accuracy", "qubits"),
    "plateau with steps": (at("protocols.timing.plateau", {"factor": 0.5, "patience": 2}), "protocols.timing.plateau", ""),
    "early stopping with steps": (at("protocols.timing.early_stopping", {"monitor": "loss", "patience": 2}), "protocols.timing.early_stopping", ""),
    "steps_for with epochs": (at("protocols.quality.steps_for", {"qiskit": 3}), "protocols.quality.steps_for", ""),
    "all steps are warm-up": (at("protocols.timing.warmup", 400), "protocols.timing.steps", ""),
    "a slow simulator's steps are all warm-up": (at("protocols/timing/steps_for/qiskit", 1), "protocols.timing.steps_for.qiskit", ""),
    "every step is sampled": (at("protocols.timing.sampled_steps", 399), "protocols.timing.sampled_steps", ""),
    "folder for weights that are trained here": (at("workloads.digits.weights_folder", "/data"), "workloads.digits.weights_folder", ""),
    "steps of weights that are not trained here": (every(at("workloads.digits.weights", "imagenet"), at("workloads.digits.pretrain_steps", 8)), "workloads.digits.pretrain_steps", ""),
    "a seed of a split that is given": (at("workloads.mine", {"kind": "arrays", "file": "mine.npz", "split": "given", "split_seed": 1}), "workloads.mine.split_seed", ""),
    "dropout of a model without": (every(sentences(), at("protocols.quality.dropout", 0.1)), "studies.accuracy", "dropout"),
    "runs of another task": (eeg(runs=[4, 6]), "workloads.eegmmidb.runs", ""),
    "executed and imagined movements": (eeg(runs=[3, 4]), "workloads.eegmmidb.runs", ""),
    "a window backwards": (eeg(window=[4.1, 1.0]), "workloads.eegmmidb.window", ""),
    "a band-stop": (eeg(band=[30, 8]), "workloads.eegmmidb.band", ""),
    "a band that resampling removes": (eeg(band=[25, 35], rate=40), "workloads.eegmmidb.band", ""),
    "generated trials of one sample": (at("workloads.eeg-synthetic.window_s", 0.01), "workloads.eeg-synthetic.window_s", ""),
    "generated trials beyond memory": (at("workloads.eeg-synthetic.rate", 1e12), "workloads.eeg-synthetic.trials", ""),
    "control of a kind that is none": (at("models", {"other": {"kind": ["vqc"], "control": "linear"}}), "models.other.kind", ""),
    "control of a model named as its kind": (at("models", {"vqc": {"control": "linear"}}), "models.vqc.control", ""),
    "control of a model of the package": (at("models", {"other": {"kind": "vqc", "control": "linear"}}), "models.other.control", ""),
    "sizes of another family": (at("studies.strong.axes.segments", 4), "studies.strong.axes.segments", ""),
    "no such metric": (at("protocols.quality.early_stopping.monitor", "acuracy"), "studies.accuracy", "monitor"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_settings_that_do_not_go_together_are_refused(name: str, default: Config) -> None:
    change, path, other = BAD[name]
    config = copy.deepcopy(default)
    change(config)
    with pytest.raises(UserError, match=rf"^{re.escape(path)}\b.*\b{other}"):
        analysis.of(config)


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
    "020", "-020", "+020", "00", "08", "-09", "0_1", "1:30", "-1:30", "190:20:30", "1:30.5", "2026-01-01",
    "2026-01-01T10:00:00Z", "!!int '020'", "!!int 020", "!!float '1:30'", "[1, 020]", "{a: 1:30}", "{020: a}",
    "&a 020", "!!int x", "!!int ''", "!!bool x", "!!timestamp x", "=", "<<", "!!python/tuple [1]",
)  # fmt: skip


def test_a_plain_value_is_what_snakemake_reads(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for text in (*(f"key: {value}\n" for value in PLAIN), *JSON):
        path.write_text(text)
        assert settings.load(path) == load_configfile(path), text


def test_a_value_that_others_read_otherwise_is_refused_with_its_line(tmp_path: Path) -> None:
    """A person, like YAML 1.2, takes 020 for twenty, and 1:30 and a date for text; Snakemake alone takes the others."""
    path = tmp_path / "config.yaml"
    for value in AMBIGUOUS:
        for text in (f"title: a\nkey: {value}\n", f"a: [1,\n {value}]\n"):
            path.write_text(text)
            with pytest.raises(UserError, match=f"^{re.escape(str(path))}, line 2: "):
                settings.load(path)
    for text in ('{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 020}', "__use_yte__: true\na: ?1+1\n"):
        path.write_text(text)
        with pytest.raises(UserError, match=re.escape(str(path))):
            settings.load(path)


def test_more_runs_than_anybody_trains_are_refused_before_they_are_expanded(
    default: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are counted over all points and studies, whatever their values are."""
    monkeypatch.setattr(grid.study, "_combinations", pytest.fail)
    given = copy.deepcopy(default)
    study = given["studies"]["accuracy"]
    study["axes"] |= {"seed": list(range(2000)), "batch": list(range(1, 2001))}
    with pytest.raises(UserError, match=r"^studies\.accuracy: its lists multiply to 8,000,000 runs"):
        analysis.of(given)
    single = {axis: value[0] if isinstance(value, list) else value for axis, value in study["axes"].items()}
    half = {**study, "axes": {**single, "batch": [1, 2], "seed": list(range(25_001))}, "points": [{}]}
    given["studies"] = {"one": half, "other": half}
    with pytest.raises(UserError, match=r"^studies\.one: its lists multiply to 50,002 runs \(100,004 with"):
        analysis.of(given)


def with_mnist(default: Config, **settings: Any) -> settings.Config:
    given = copy.deepcopy(default)
    given["workloads"]["mnist"] = {
        key: value for key, value in {**MNIST, **settings}.items() if value is not None
    }
    return analysis.of(given)


def test_missing_data_files_are_refused_by_the_setting_that_names_them(
    default: Config, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"workloads\.mnist\.folder: split: test-images needs the folder"):
        settings.sources(with_mnist(default, folder=None), "mnist")
    config = with_mnist(default, folder=str(tmp_path))
    with pytest.raises(UserError, match=r"workloads\.mnist\.folder: .* has no t10k-images-idx3-ubyte\.gz"):
        settings.sources(config, "mnist")
    (tmp_path / "t10k-images-idx3-ubyte").touch()
    (tmp_path / "t10k-labels-idx1-ubyte.gz").touch()
    names = [path.name for path in settings.sources(config, "mnist")]
    assert names == ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte.gz"]


def test_data_without_a_folder_are_those_that_the_workflow_fetches(default: Config) -> None:
    config = with_mnist(default, folder=None, split="original")
    assert config.workloads["mnist"][1].fetched
    assert settings.sources(config, "mnist") == []
    assert not config.workloads["digits"][1].fetched


def test_a_study_says_nothing_of_where_data_are_and_is_a_config_itself(default: Config) -> None:
    given = {**copy.deepcopy(default), "partial": True}
    given["workloads"]["mnist"] = MNIST
    study = json.loads(analysis.of(given).text)
    assert "partial" not in study
    assert "folder" not in study["workloads"]["mnist"]
    assert given["workloads"]["mnist"] == MNIST
    analysis.of(study, placed=False)


@pytest.mark.parametrize("written", ["out", "out/", "./out", "in/..//out"])
def test_the_results_folder_is_named_as_snakemake_names_it(default: Config, written: str) -> None:
    config = analysis.of({**default, "results": written})
    assert config.results == "out"
    assert analysis.of(json.loads(config.text), placed=False).results == "out"


def test_two_blocks_of_one_kind_are_two_workloads(default: Config) -> None:
    given = copy.deepcopy(default)
    given["workloads"]["small"] = {**given["workloads"]["digits"], "kind": "digits", "image_size": 16}
    given["models"] = {"wide": {"kind": "mlp", "width": 8}}
    given["studies"]["accuracy"]["axes"]["workload"] = ["digits", "small"]
    given["studies"]["accuracy"]["points"].append(
        {"model": "wide", "qubits": 0, "layers": 0, "simulator": "none"}
    )
    config = analysis.of(given)
    runs = {
        (run.workload, run.model): config.settings(run) for run in config.runs if run.protocol == "quality"
    }
    assert runs["small", "wide"].content["workload"]["image_size"] == 16
    assert runs["small", "wide"].content["model"] == {"kind": "mlp", "width": 8}
    assert runs["digits", "mlp"].content["model"] == {"kind": "mlp", "width": 4}


def test_the_published_schema_is_made_from_the_types_and_takes_every_config() -> None:
    schema = json.loads(json.dumps(published_schema(FAMILIES)))
    assert json.loads((ROOT / "docs" / "config.schema.json").read_text()) == schema
    validator = jsonschema.Draft202012Validator(schema)
    for path in (ROOT / "config.yaml", *ALL):
        # As it is written, which is what an editor sees.
        whole = yaml.safe_load(path.read_text())
        assert list(validator.iter_errors(whole)) == []
        for name in whole.keys() - {"over"}:
            # What must be there must be there, unless it is laid over another.
            part = {key: value for key, value in whole.items() if key != name}
            assert validator.is_valid({"over": "a.yaml", **part}), (path, name)
            if name in ("title", "protocols", "studies") and "over" not in whole:
                assert not validator.is_valid(part), (path, name)
    for wrong in ({"titel": 1}, {"over": "a.yaml", "title": 3}):
        assert not validator.is_valid(wrong)


class Other(Simulator, frozen=True, kw_only=True):
    devices = ("fused",)


class OtherModel(Model, frozen=True, kw_only=True):
    pass


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"workloads": {}, "models": {"superposition_transformer": OtherModel}},
        {"workloads": {}, "models": {}, "simulators": (Other,)},
        *(
            {"sizes": (SizeAxis(letter, name, name),)}
            for letter, name in (("b", "bits"), ("r", "ranks"), ("k", "qubits"))
        ),
        {"sizes": ()},
        {"prepare": None},
    ],
)
def test_two_families_cannot_share_a_name_that_configs_use_alone(change: dict[str, Any]) -> None:
    first = FAMILIES["sentences"]
    with pytest.raises(ValueError, match=r"^(other|sentences): "):
        distinct([first, dataclasses.replace(first, name="other", **change)])
    assert distinct(FAMILIES.values()) == FAMILIES
