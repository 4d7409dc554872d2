"""What the package declares, needs and imports: an empty environment with `pip install .` must be enough."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import ketscale
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.jobs import doctor
from ketscale.jobs.provenance import git_state
from ketscale.optional import EXTRAS, distributions
from ketscale.problems.registry import FAMILIES
from ketscale.process import THREAD_VARIABLES
from ketscale.simulators.factory import named_simulator
from tests import ROOT
from tests.process.integration import study

PACKAGE = Path(ketscale.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Modules whose distribution has another name.
DISTRIBUTIONS = {"yaml": "pyyaml", "sklearn": "scikit-learn", "PIL": "pillow"}
FUSED = {"device": "fused", "gradient": "adjoint", "batching": "broadcast", "placement": "model"}


def requirements(lines: list[str]) -> list[Requirement]:
    return [Requirement(line) for line in lines]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def for_more_than_types(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    children = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        children = iter(node.orelse)
    for child in children:
        yield from for_more_than_types(child)


def imported() -> set[str]:
    """The modules that the package's files import, wherever in a file, but the standard library's and its own.

    Modules that are imported for types alone need not be there.
    """
    result = set()
    for path in PACKAGE.rglob("*.py"):
        for node in for_more_than_types(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                result |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                result.add(node.module.partition(".")[0])
    # The benchmarks are asked for only where there is a checkout.
    return result - set(sys.stdlib_module_names) - {"ketscale", "benchmarks"}


def test_every_module_that_is_imported_is_declared() -> None:
    base = {canonical(r.name) for r in requirements(PROJECT["dependencies"])}
    optional = {module for extra in EXTRAS for module in distributions(extra)}
    assert {DISTRIBUTIONS.get(name, canonical(name)) for name in imported() - optional} <= base


@pytest.mark.parametrize("name", EXTRAS)
def test_an_extra_installs_what_its_errors_say(name: str) -> None:
    declared = {canonical(r.name) for r in requirements(PROJECT["optional-dependencies"][name])}
    assert {canonical(distribution) for distribution in distributions(name).values()} <= declared
    assert f"\n{EXTRAS[name].target}:" in (ROOT / "Makefile").read_text()


def test_the_pins_are_within_the_ranges() -> None:
    pins = {}
    for lock in ("cpu.lock", "bench.lock", "triton.lock", "trackers.lock"):
        lines = (ROOT / "envs" / lock).read_text().splitlines()
        pins |= {canonical(line.split("==")[0]): line.split("==")[1] for line in lines if "==" in line}
    expected = requirements(
        PROJECT["dependencies"] + [r for lines in PROJECT["optional-dependencies"].values() for r in lines]
    )
    for requirement in expected:
        if requirement.name != "ketscale":
            assert requirement.specifier.contains(pins[canonical(requirement.name)]), requirement


def test_all_has_every_extra_but_that_of_the_tests() -> None:
    (everything,) = requirements(PROJECT["optional-dependencies"]["all"])
    assert everything.extras == set(EXTRAS)
    assert everything.extras == set(PROJECT["optional-dependencies"]) - {"all", "test"}


def test_citation_and_changelog_name_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    deposit = json.loads((ROOT / ".zenodo.json").read_text())
    assert citation["version"] == deposit["version"] == ketscale.__version__
    assert str(citation["date-released"]) == deposit["publication_date"]
    assert (citation["title"], citation["license"]) == (deposit["title"], deposit["license"])
    heads = re.findall(r"^## \[(.+?)\]", (ROOT / "docs" / "changelog.md").read_text(), re.MULTILINE)
    assert heads[0] == ketscale.__version__


def run_python(script: str, **variables: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, **variables}
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


def test_the_command_line_and_a_config_are_read_without_anything_heavy() -> None:
    heavy = {
        "torch",
        "numpy",
        "scipy",
        "sklearn",
        "transformers",
        "pandas",
        "matplotlib",
        "seaborn",
        "jinja2",
    }
    heavy |= {module for extra in EXTRAS for module in distributions(extra)}
    script = (
        "import sys, contextlib, ketscale.cli\nwith contextlib.suppress(SystemExit): ketscale.cli.main(['--help'])\n"
        "from ketscale import analysis\nfrom ketscale.analysis import figures\n"
        f"figures.figures_of(analysis.read({str(ROOT / 'config.yaml')!r}))\n"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    assert run_python(script) == "[]"


def test_training_with_fused_needs_no_extra(tmp_path: Path, digits_features: Path) -> None:
    simulators = {**study.CONFIG["simulators"], "fused": FUSED}
    config = Config.of({**study.CONFIG, "simulators": simulators}, FAMILIES)
    run = study.run(simulator="fused", protocol="epochs")
    arguments = ["train", str(tmp_path / study.record(run)), "--features", str(digits_features)]
    arguments += ["--settings", config.settings(run).text]
    # torch looks for jinja2 and triton by itself; scikit-learn, which computes the final metrics, for pandas.
    optional = {module for extra in EXTRAS for module in distributions(extra)}
    optional -= {"jinja2", "triton", "pandas"}
    script = (
        "import sys\nfrom ketscale import process\nfrom ketscale.cli import main\nprocess.end = lambda status: None\n"
        f"assert main({arguments!r}) == 0\n"
        f"print(sorted({optional} & set(sys.modules)))"
    )
    assert run_python(script, **dict.fromkeys(THREAD_VARIABLES, "1")) == "[]"
    assert json.loads((tmp_path / study.record(run)).read_text())["status"] == "completed"


@pytest.mark.parametrize("device, package", [("default.qubit", "pennylane"), ("qiskit", "qiskit")])
def test_a_simulator_that_is_not_installed_is_one_line_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, device: str, package: str
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError) as caught:
        named_simulator(device)
    assert str(caught.value) == (
        f"simulator {device} needs {package}: pip install 'ketscale[simulators]' (in a checkout: make setup)"
    )


def test_doctor_says_which_extra_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = doctor.versions
    monkeypatch.setattr(doctor, "versions", lambda names: versions(set(names) - {"mne"}))
    findings = {finding.name: finding for finding in doctor._environment()}
    assert findings["extra simulators"].present
    assert not findings["extra eeg"].present
    assert findings["extra eeg"].detail.startswith("no mne; pip install 'ketscale[eeg]'")
    assert findings["extra eeg"].enables == "the workload eegmmidb, and the model csp"


def test_an_installed_package_is_not_of_the_repository_around_its_environment(tmp_path: Path) -> None:
    package = tmp_path / "environment" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (tmp_path / ".gitignore").write_text("environment\n")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    assert git_state(package) == {"commit": None, "dirty": None}
    state = git_state(tmp_path)
    assert len(state["commit"]) == 40 and state["dirty"] is False
