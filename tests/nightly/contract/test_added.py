"""The examples of docs/adding.md, each added to a copy of the package as the page says, and trained.

The toy family is a proof: its samples are columns of a unitary, its Hamiltonian is complex, its headline metric is better
when it is smaller, it has sizes of its own and no data. One folder and one line bring it to the report.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.tiny_study import ROOT, TINY, Project, with_family

PAGE = (ROOT / "docs" / "adding.md").read_text()
EXAMPLES = ROOT / "docs" / "examples"
# The files to which the page leads, at their places in the package.
FILES = {
    f"workflow/{linked}": (EXAMPLES / linked).read_text()
    for linked in re.findall(r"\]\(examples/(\S+\.py)\)", PAGE)
}


# The parts of the toy's tiny study.
GATES = {
    "workloads": {"shift": {"effort": 0.001}},
    "simulators": {
        "matrix-exponential": {"device": "matrix-exponential"},
        "eigenbasis": {"device": "eigenbasis"},
    },
    "axes": {"workload": "shift", "model": "pulses", "levels": 4, "segments": 6, "batch": 4},
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Project:
    files = {path: text for path, text in FILES.items() if "/gates/" in path}
    assert len(files) == 2
    checkout = with_family(tmp_path_factory.mktemp("toy") / "checkout", files, "gates")
    project = Project(checkout.parent / "project", GATES, checkout)
    project.snakemake()
    return project


def test_no_other_file_changes(toy: Project) -> None:
    def sums(root: Path) -> dict[str, str]:
        return {
            str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in (*(root / "workflow").rglob("*"), root / "Snakefile")
            if path.is_file() and "__pycache__" not in path.parts
        }

    actual, expected = sums(ROOT), sums(toy.checkout)
    changed = {path for path in expected if actual.get(path) != expected[path]}
    folder = "workflow/ketscale/problems/gates"
    registry = "workflow/ketscale/problems/registry.py"
    assert changed == {f"{folder}/specification.py", f"{folder}/problem.py", registry}
    lines = set((toy.checkout / registry).read_text().splitlines()) - set(
        (ROOT / registry).read_text().splitlines()
    )
    assert lines == {'    "gates",'}


def test_it_is_trained_tabulated_drawn_and_reported(toy: Project) -> None:
    records = toy.records()
    assert {record["status"] for record in records} == {"completed"}
    assert all(record["features_hash"] is None and record["data_hash"] is None for record in records)
    assert all(record["sizes"] == {"levels": 4, "segments": 6} for record in records)
    assert not (toy.results / "features").exists()
    (row,) = toy.table("quality")
    assert row["metric"] == "infidelity"
    assert 0 <= float(row["value"]) <= 1
    assert {"levels", "segments"} <= set(row)
    page = (toy.results / "report.html").read_text()
    assert "infidelity" in page
    for figure in ("accuracy", "simulators"):
        assert (toy.results / "figures" / f"{figure}.svg").exists()


def test_its_numbers_are_the_same_on_1_2_and_3_ranks_and_under_both_propagators(toy: Project) -> None:
    rows = [row for row in toy.table("speed") if row["kind"] == "parity"]
    assert len(rows) >= 3
    assert all(row["verdict"] == "same" for row in rows), rows


def block_with(words: str) -> str:
    """The block of code of the page that has these words."""
    blocks = re.findall(r"```(?:python|yaml|text)\n(.*?)```", PAGE, re.DOTALL)
    (block,) = [block for block in blocks if words in block]
    return block


def with_files(checkout: Path, *names: str) -> Path:
    """A copy of the checkout with these files of the page, and no new family."""
    files = {path: text for path, text in FILES.items() if Path(path).name in names}
    assert len(files) == len(names)
    with_family(checkout, files, "none")
    registry = "workflow/ketscale/problems/registry.py"
    (checkout / registry).write_text((ROOT / registry).read_text())
    return checkout


def inserted(checkout: Path, file: str, before: str, text: str) -> None:
    """Put the text into a file of the package, before what is there once."""
    path = checkout / "workflow" / "ketscale" / file
    content = path.read_text()
    assert content.count(before) == 1, f"{file}: {before}"
    path.write_text(content.replace(before, text + before))


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory, digits_features: Path) -> Project:
    """A copy with the page's model, simulator, backend and kind of study, and studies that ask for all of them."""
    folder = tmp_path_factory.mktemp("extended")
    checkout = with_files(folder / "checkout", "reupload.py", "dense.py", "gathered.py", "threads.py")

    def insert(file: str, before: str, text: str) -> None:
        inserted(checkout, file, before, text)

    insert(
        "problems/vectors/settings.py", "class VQCSettings(", block_with("class ReuploadSettings") + "\n\n"
    )
    insert("problems/vectors/settings.py", '"mlp": MLPSettings', '"reupload": ReuploadSettings, ')
    insert(
        "engines/circuits/registry.py", '        CircuitMethod("qiskit"', block_with('CircuitMethod("dense"')
    )
    insert("grid/backend.py", '        Backend("mpi"', block_with('Backend("gathered"'))
    insert(
        "analysis/kinds/__init__.py",
        "from ketscale.config import",
        "from ketscale.analysis.kinds.threads import THREADS\n",
    )
    insert("analysis/kinds/__init__.py", '    _speed("strong"', "    THREADS,\n")
    tiny = TINY["images"]
    axes = {**tiny["axes"], "model": "reupload"}
    models = yaml.safe_load(block_with("reupload-wide"))["models"]
    simulators = {**tiny["simulators"], **yaml.safe_load(block_with("device: dense"))["simulators"]}
    tiny = {**tiny, "axes": axes, "models": models, "simulators": simulators}
    project = Project(folder / "project", tiny, checkout)
    project.take(digits_features)
    study = project.config["studies"]
    study["accuracy"] |= {"axes": {**study["accuracy"]["axes"], "seed": 0}, "points": [{}]}
    study["parity"]["points"] = [
        {"backend": ["cpu-n1r1t1", "gathered-n1r2t1"]},
        {"model": "reupload-wide"},
        {"simulator": "dense"},
    ]
    timed = {
        **study.pop("simulators")["axes"],
        "simulator": "fused",
        "backend": ["cpu-n1r1t1", "cpu-n1r1t2"],
    }
    study["threads"] = {"kind": "threads", "question": "Do threads help?", "axes": timed}
    (project.folder / "config.yaml").write_text(yaml.safe_dump(project.config))
    project.snakemake()
    return project


def test_a_model_of_one_file_trains_in_two_variants(extended: Project) -> None:
    losses = {
        record["run"]["model"]: record["losses"]
        for record in extended.records()
        if record["run"]["protocol"] == "parity"
    }
    assert set(losses) == {"reupload", "reupload-wide"}
    assert losses["reupload"] != losses["reupload-wide"]


@pytest.mark.parametrize("part", ["dense on", "Gloo, added by each rank"])
def test_a_simulator_and_a_backend_of_one_file_compute_the_same_numbers(extended: Project, part: str) -> None:
    rows = [row for row in extended.table("speed") if part in row["point"] + row["reference"]]
    rows = [row for row in rows if row["kind"] == "parity"]
    assert rows
    assert all(row["verdict"] == "same" and float(row["effect"]) <= 1e-10 for row in rows)


def test_a_simulator_of_one_file_is_compared_with_the_others_and_evaluates_layers(extended: Project) -> None:
    code = (
        "import torch; from ketscale import Circuit, Layer\n"
        "inputs = torch.rand(3, 2)\n"
        "circuit = Circuit(2).rx(0, 'x0').ry(1, 'x1').cnot(0, 1)\n"
        "dense, fused = (Layer(circuit, simulator=name)(inputs) for name in ('dense', 'fused'))\n"
        "torch.testing.assert_close(dense, fused)"
    )
    extended.run(sys.executable, "-c", code)
    tests = ROOT / "tests/unit/engines/circuits/test_simulators.py"
    extended.run(
        sys.executable, "-m", "pytest", "-q", f"--rootdir={ROOT}", str(tests), "-k", "dense and same_values"
    )


def test_a_kind_of_study_of_one_file_is_tabulated_and_drawn(extended: Project) -> None:
    rows = [row for row in extended.table("speed") if row["kind"] == "threads"]
    assert {row["point"]: row["reference"] for row in rows} == {"one core": "", "two threads": "one core"}
    assert (extended.results / "figures" / "threads.svg").stat().st_size > 1000
    assert "Threads" in (extended.results / "report.html").read_text()


@pytest.fixture(scope="module")
def evolved(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy with the page's system, device, propagator and integrator, and a study of parity that asks for all of them."""
    folder = tmp_path_factory.mktemp("evolved")
    checkout = with_files(folder / "checkout", "raman.py", "ring.py", "liouville.py")
    raman, ring = re.findall(r'`("(?:raman|transmon-ring)": \w+,)`', PAGE)
    imported = "\nfrom ketscale.problems.control.raman import Raman"
    and_ring = "from ketscale.problems.pulses.ring import TransmonRing\n"
    for file, before, text in (
        ("problems/control/specification.py", "\n\nif TYPE_CHECKING:", imported),
        ("problems/control/specification.py", '    "qubit-spectrum": Q', f"    {raman}\n"),
        ("problems/pulses/specification.py", "from ketscale.problems.pulses.workloads import", and_ring),
        ("problems/pulses/specification.py", '    "fluxonium-chain": F', f"    {ring}\n"),
        ("engines/dynamics/methods.py", '        DynamicsMethod("rk4"', block_with('Method("liouville"')),
        ("engines/pulses/schemes.py", '    "whole-space": ', block_with('"gauss4": FOURTH')),
    ):
        inserted(checkout, file, before, text)
    control, pulses = TINY["control"], TINY["pulses"]
    added = [
        yaml.safe_load(block_with(words))["simulators"] for words in ("device: liouville", "device: gauss4")
    ]
    project = Project(
        folder / "project",
        {
            "workloads": {"raman": {}, "transmon-ring": {"length": 20.0}} | pulses["workloads"],
            "models": control["models"] | pulses["models"],
            "simulators": control["simulators"] | pulses["simulators"] | added[0] | added[1],
            "axes": control["axes"] | {"workload": "raman"},
        },
        checkout,
    )
    study = project.config["studies"]["parity"]
    study["points"] = [{"simulator": ["exact", "torch", "liouville"]}, {"model": "robust_grape"}]
    axes = {**study["axes"], "segments": None, **pulses["axes"], "simulator": "whole-space"}
    gates = {**study, "axes": axes, "points": [{"simulator": ["whole-space", "gauss4"]}]}
    axes = {**axes, "workload": "transmon-ring", "qubits": 3, "batch": 8}
    rings = {**study, "axes": axes, "points": [{}]}
    for result in (gates, rings):
        del result["axes"]["segments"]
    project.config["studies"] = {"parity": study, "gates": gates, "rings": rings}
    (project.folder / "config.yaml").write_text(yaml.safe_dump(project.config))
    project.snakemake()
    return project


def test_a_system_of_control_and_a_device_of_pulses_of_one_file_are_learned(evolved: Project) -> None:
    records = [
        record for record in evolved.records() if record["run"]["workload"] in ("raman", "transmon-ring")
    ]
    assert {record["run"]["model"] for record in records} == {"policy", "robust_grape", "piecewise_pulse"}
    assert all(record["losses"][-1] < record["losses"][0] for record in records)
    assert {"qubits": 3, "levels": 2} in [record["sizes"] for record in records]


@pytest.mark.parametrize("simulator", ["torch", "liouville", "gauss4"])
def test_a_propagator_and_an_integrator_of_one_line_have_the_losses_of_the_others(
    evolved: Project, simulator: str
) -> None:
    rows = evolved.table("speed")
    # The first by name is the reference where none is exact.
    (row,) = [row for row in rows if simulator in (row["simulator"], row["reference"].split()[0])]
    assert row["verdict"] == "same"
    assert float(row["effect"]) < 1e-5


def test_a_propagator_and_an_integrator_of_one_line_are_found_by_their_names_and_tested_as_the_others_are(
    evolved: Project,
) -> None:
    tests = [
        str(ROOT / "tests/unit/engines" / file)
        for file in ("dynamics/test_propagators.py", "pulses/test_integrators.py")
    ]
    result = evolved.run(
        sys.executable, "-m", "pytest", "-q", "-rA", f"--rootdir={ROOT}", *tests, "-k", "liouville or gauss4"
    )
    kinds = r"^PASSED .*::test_(every|steps|gradients)_.*\b(liouville|gauss4)\b"
    passed = {("every", "liouville"), ("steps", "gauss4"), ("gradients", "gauss4")}
    assert set(re.findall(kinds, result.stdout, re.MULTILINE)) == passed
