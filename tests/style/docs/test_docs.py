"""The examples of docs/python.md, docs/studies.md and docs/problems.md work as printed; test_site.py has the other pages."""

import re

import pandas
import pytest
import torch
import yaml
from sklearn.datasets import load_digits

from ketscale import analysis
from ketscale.analysis.kinds import kinds
from ketscale.grid import Run
from ketscale.jobs.started import build
from ketscale.problems import models
from ketscale.problems.fitted import Samples
from ketscale.problems.registry import FAMILIES, read_config
from tests.process.parallel.worlds import ROOT
from tests.tiny_study import config as tiny_config


def blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


def test_the_readme_makes_a_qnode_fast_and_prints_the_same_value_twice(capsys):
    (code,) = blocks("README.md")
    namespace = {}
    exec(compile(code, "README.md", "exec"), namespace)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    text = (ROOT / "README.md").read_text()
    (output,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    # All but the times are as README shows them.
    assert [words[:-2] for words in printed] == [line.split()[:-2] for line in output.splitlines()]
    assert printed[0][0] == printed[1][0]
    fast, inputs, weights = namespace["f"], namespace["x"], namespace["w"]
    (gradient,) = torch.autograd.grad(fast(inputs, weights).sum(), weights)
    (expected,) = torch.autograd.grad(namespace["circuit"](inputs, weights).sum(), weights)
    torch.testing.assert_close(gradient, expected, check_dtype=False, rtol=1e-4, atol=1e-5)


def test_a_model_is_trained_in_three_lines():
    code = blocks("docs/python.md")[0]
    assert len(re.findall(r"^.+$", code, re.MULTILINE)) == 3
    namespace = {}
    exec(compile(code, "docs/python.md", "exec"), namespace)
    assert namespace["logits"].shape == (8, 10)


def test_a_trained_model_is_loaded_and_predicts_in_three_lines(digits_features, tmp_path, monkeypatch):
    code = blocks("docs/python.md")[1]
    assert len(re.findall(r"^.+$", code, re.MULTILINE)) == 3
    (folder,) = re.findall(r'"(results/runs/.*?)"', code)
    settings = read_config(ROOT / "config.yaml").settings(Run.parse(folder))
    data = settings.family.read(settings, digits_features)
    problem = build(settings, data, torch.device("cpu"))
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / models.WEIGHTS).write_bytes(models.saved(settings, problem))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results/features").mkdir()
    (tmp_path / "results/features/digits").symlink_to(digits_features.parent)
    namespace = {"images": load_digits().images[:5]}
    exec(compile(code, "docs/python.md", "exec"), namespace)
    logits = problem.eval().model(problem.get_buffer("inputs")[:5])
    assert namespace["digits"].tolist() == logits.argmax(1).tolist()


def test_a_trained_policy_makes_a_pulse(tmp_path, monkeypatch):
    code = blocks("docs/python.md")[2]
    (folder,) = re.findall(r'"(results-control/runs/.*?)"', code)
    settings = read_config(ROOT / "workflow/studies/control.yaml").settings(Run.parse(folder))
    problem = build(settings, None, torch.device("cpu"))
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / models.WEIGHTS).write_bytes(models.saved(settings, problem))
    monkeypatch.chdir(tmp_path)
    namespace = {}
    exec(compile(code, "docs/python.md", "exec"), namespace)
    assert namespace["pulses"].shape == (1, 20, 2)
    torch.testing.assert_close(problem.model(namespace["tasks"]), namespace["pulses"])
    exec(compile(blocks("docs/python.md")[3], "docs/python.md", "exec"), namespace)
    assert namespace["found"].infidelity < 1e-6


def test_the_block_of_pulses_is_accepted():
    text = (ROOT / "docs" / "problems.md").read_text().split("## Pulses")[1]
    arguments = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    axes = {"workload": "fluxonium-chain", "model": "piecewise_pulse", "qubits": 2, "levels": 2, "batch": 4}
    result = tiny_config({**arguments, "axes": axes, "precision": "fp64"})
    assert analysis.of({**result, "studies": {"accuracy": result["studies"]["accuracy"]}}).runs


def test_a_trained_pulse_is_exported(tmp_path, monkeypatch):
    code = blocks("docs/python.md")[4]
    (folder,) = re.findall(r'"(results-pulses/runs/.*?)"', code)
    config = read_config(ROOT / "workflow" / "studies" / "pulses.yaml")
    settings = config.settings(Run.parse(folder))
    problem = build(settings, None, torch.device("cpu"))
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / models.WEIGHTS).write_bytes(models.saved(settings, problem))
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/python.md", "exec"), {})
    table = pandas.read_csv("pulses.csv")
    assert list(table) == ["time_ns", "0", "1"]
    pulses = problem.model()
    times = torch.tensor(table["time_ns"].to_numpy())
    assert times[0] == 0 and times[-1] == pulses.duration and len(times) == 501
    signals = torch.tensor(table[["0", "1"]].to_numpy())
    torch.testing.assert_close(signals, pulses.sample(times).detach())


def test_a_gate_is_improved():
    namespace = {}
    exec(compile(blocks("docs/python.md")[5], "docs/python.md", "exec"), namespace)
    assert 0 < namespace["after"] < 0.95 * namespace["before"] < 1e-3


def sections(*titles):
    """The blocks of sections of docs/library.md, one after the other."""
    text = (ROOT / "docs/library.md").read_text()
    return [
        code
        for title in titles
        for code in re.findall(
            r"```python\n(.*?)```", text.split(f"\n## {title}\n")[1].split("\n## ")[0], re.DOTALL
        )
    ]


def test_the_library_page_shows_the_device_and_from_qnode():
    namespace = {}
    for code in sections("A QNode, converted once", "A PennyLane device"):
        exec(compile(code, "library.md", "exec"), namespace)
    assert namespace["values"].shape == (64, 4) and namespace["weights"].grad.abs().sum() > 0
    torch.testing.assert_close(namespace["again"].float(), namespace["values"], atol=1e-5, rtol=0)


def test_the_library_page_shows_qiskit():
    namespace = {}
    for code in sections("Qiskit"):
        exec(compile(code, "library.md", "exec"), namespace)
    assert namespace["values"].shape == (64, 2) and namespace["layer"].weight.grad.abs().sum() > 0
    assert namespace["scores"].shape == (64, 1) and namespace["trained"].num_parameters == 2


# torch's own: its forward mode starts with a part that it deprecates.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_the_library_page_shows_layers_and_estimators():
    torch.manual_seed(0)
    namespace = {}
    code = "\n".join(sections("A circuit as a layer of torch", "Estimators of scikit-learn"))
    exec(compile(code, "library.md", "exec"), namespace)
    assert namespace["logits"].shape == (16, 3)
    assert namespace["layer"].weight.grad.abs().min() > 0
    assert namespace["ensemble"].shape == (3, 16, 2) and namespace["slopes"].shape == (16, 2)
    values, members, angles = (namespace[name] for name in ("values", "members", "angles"))
    torch.testing.assert_close(namespace["ensemble"][1], values(members[1], angles))
    assert namespace["oscillator"].weight.grad.abs().sum() > 0
    assert len(namespace["scores"]) == 5 and namespace["scores"].mean() > 0.9
    assert namespace["accuracy"] > 0.8


def test_the_model_that_is_fitted_and_its_study_work_as_printed():
    """The means of two clusters; and the kernel beside its control on a table of the page before."""
    before, _, page = (ROOT / "docs/own-models.md").read_text().partition("## A model that is fitted")
    (code,) = re.findall(r"```python\n# file: models/nearest.py\n(.*?)```", page, re.DOTALL)
    namespace = {}
    exec(compile(code, "docs/own-models.md", "exec"), namespace)
    x, classes = torch.tensor([[0.0], [1.0], [10.0], [11.0]]), torch.tensor([0, 0, 1, 1])
    model = namespace["Nearest"](1, 2)
    model.fit(Samples(x, classes), None)
    assert model(x).argmax(1).tolist() == classes.tolist() and model.means.tolist() == [[0.5], [10.5]]
    given = yaml.safe_load(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    given["workloads"] = {"flowers": {"kind": "sample-table", "table": "iris", "split_seed": 0}}
    given["simulators"] = {"fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast"}}
    assert len(analysis.of({"title": "Flowers", **given}).runs) == 6
    used = re.findall(r"`([a-z_]+\.py)`", before)
    assert sorted(used) == sorted(path.name for path in (ROOT / "workflow" / "models").glob("*.py"))


def test_all_kinds_of_studies_are_listed_below_a_config_of_nine_runs():
    config, page = (ROOT / "docs" / "studies.md").read_text().split("| kind | compares |")
    assert len(analysis.of(yaml.safe_load(re.search(r"```yaml\n(.*?)```", config, re.DOTALL)[1])).runs) == 9
    table = page.split("\n\n")[0]
    listed = [
        name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])
    ]
    assert sorted(listed) == sorted(kinds(FAMILIES))
