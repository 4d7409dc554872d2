"""The script itself, on a machine without a GPU: parts, limits and what is written."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from tests import ROOT

CHECK = ROOT / "tests" / "nightly" / "gpu" / "check"


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script of this folder as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(CHECK.with_name(name)))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    loader.exec_module(module)
    return module


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("check", monkeypatch)


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The script as a command."""
    return subprocess.run(
        [sys.executable, str(CHECK), *arguments], capture_output=True, text=True, timeout=120
    )


def test_what_parts_need_is_in_the_kit_or_on_the_machine(check: ModuleType) -> None:
    """A part whose packages are missing is skipped, and nobody would notice."""
    lock = (ROOT / "envs" / "gpu-kit.lock").read_text().lower()
    packed = set(re.findall(r"^([a-z0-9_-]+)==", lock, re.MULTILINE))
    named = {{"yaml": "pyyaml"}.get(name, name) for part in check.PARTS for name in part.needs}
    assert named - packed == {"torch", "numpy", "triton", "jax"}


def test_what_the_kit_runs_imports_nothing_else() -> None:
    from tests.nightly.gpu.parts.imports import OURS

    absent = {
        "threadpoolctl",
        "pandas",
        "seaborn",
        "matplotlib",
        "scipy",
        "sklearn",
        "pennylane",
        "qiskit",
        "jax",
        "mne",
    }
    code = f"""
import importlib, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
for name in {OURS}:
    importlib.import_module(name)
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-800:]


def test_a_part_writes_what_it_finds(tmp_path: Path) -> None:
    outcome = ran("machine", "--out", str(tmp_path / "gpu.json"))
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    result = json.loads((tmp_path / "gpu.json").read_text())
    (value,) = result["parts"]["machine"]["results"]
    assert value["cores"] > 0 and value["packages"]["torch"]
    assert list(result["parts"]) == ["machine"]
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.json"]


def test_what_is_absent_is_skipped_by_name(check: ModuleType, tmp_path: Path) -> None:
    part = check.Part("x", 5, needs=("json", "no_such_package"))
    assert check.missing(part, tmp_path) == ["no_such_package"]
    (tmp_path / "no_such_package").mkdir()
    assert check.missing(part, tmp_path) == []


def run_tests(check: ModuleType, folder: Path, text: str, limit: float) -> Any:
    """A part that is a file of tests with this text."""
    (folder / "test_it.py").write_text(text)
    env = check.environment(folder)
    return check.run(check.Part("x", limit, str(folder / "test_it.py")), limit, env, folder)


def run_shares(check: ModuleType, folder: Path, tests: int, shares: int, *only: str) -> Any:
    """A part of so many tests that several processes share, by the rule of tests/nightly/gpu/conftest.py."""
    (folder / "conftest.py").write_text((ROOT / "tests" / "nightly" / "gpu" / "conftest.py").read_text())
    (folder / "test_it.py").write_text(
        f"import pytest\n@pytest.mark.parametrize('i', range({tests}))\ndef test(i): pass\n"
    )
    part = check.Part("x", 60, str(folder / "test_it.py"), shares=shares)
    return check.run(part, 60, check.environment(folder), folder, *only)


def test_a_limit_ends_a_part_with_its_children_and_keeps_what_was_found(
    check: ModuleType, tmp_path: Path
) -> None:
    text = (
        "import subprocess\n"
        "def test_quick(): pass\n"
        "def test_slow(): subprocess.run(['sleep', '987.5'])\n"
    )  # fmt: skip
    start = time.monotonic()
    result = run_tests(check, tmp_path, text, 12)
    assert (result.status, result.reason) == ("timed out", "its limit is 12 s")
    assert time.monotonic() - start < 30
    assert [row["test"] for row in result.results] == ["test_quick"]
    # A process that was killed may still be seen for a moment.
    left = [p for p in psutil.process_iter(["cmdline"]) if "987.5" in (p.info["cmdline"] or [])]
    assert not psutil.wait_procs(left, timeout=30)[1]


def test_a_failure_is_kept_with_its_reason(check: ModuleType, tmp_path: Path) -> None:
    text = "def test_wrong(record_property):\n    record_property('step_s', 0.5)\n    assert 1 == 2\n"
    result = run_tests(check, tmp_path, text, 60)
    assert result.status == "failed"
    (row,) = result.results
    assert row["outcome"] == "failed" and row["step_s"] == 0.5 and "assert 1 == 2" in row["why"]


def test_processes_that_share_tests_run_each_once(
    check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check.os, "sched_getaffinity", lambda pid: set(range(8)))
    result = run_shares(check, tmp_path, 5, 3)
    assert result.status == "passed", result.log
    assert sorted(row["test"] for row in result.results) == [f"test[{i}]" for i in range(5)]
    assert result.log.count(" passed in ") == 3


@pytest.mark.parametrize(("only", "status"), [("0", "passed"), ("misspelt", "failed")])
def test_a_selection_may_leave_a_share_without_tests_but_not_all(
    check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: str, status: str
) -> None:
    monkeypatch.setattr(check.os, "sched_getaffinity", lambda pid: set(range(8)))
    result = run_shares(check, tmp_path, 2, 2, only)
    assert result.status == status, result.log


def test_every_part_can_be_found(check: ModuleType) -> None:
    for part in check.PARTS:
        if part.tests:
            assert (ROOT / "tests" / "nightly" / "gpu" / part.tests).exists()
        else:
            assert importlib.util.find_spec(f"tests.nightly.gpu.parts.{part.name}") is not None
    # The last two are cut where all others take their time.
    assert sum(part.seconds for part in check.PARTS[:-2]) <= 60 * check.MINUTES


def test_data_that_do_not_fit_are_left_out_of_the_kit_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kit = script("kit", monkeypatch)
    monkeypatch.setattr(kit, "ROOT", tmp_path)
    monkeypatch.setattr(kit, "KIT", tmp_path / "kit")
    monkeypatch.setattr(kit, "LIMIT_MIB", 3)
    monkeypatch.setattr(kit, "git", lambda *_: "")
    for name, mib in (("large/pixels.npy", 3), ("small/a/pixels.npy", 1), ("small/a/weights.safetensors", 9)):
        path = tmp_path / "results-one-gpu" / "features" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(mib * 2**20))
    kit.add_features()
    files = [path.relative_to(tmp_path / "kit/features") for path in (tmp_path / "kit").rglob("*.*")]
    assert files == [Path("small/a/pixels.npy")]
    assert capsys.readouterr().out.startswith("large does not fit")
