"""The pinned environments agree with each other, and the Makefile and the conda file install what the locks say."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tests import ROOT


def pins(name: str) -> list[str]:
    lines = (ROOT / "envs" / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize(
    "name",
    [
        "cpu.lock",
        "cuda.lock",
        "bench.lock",
        "triton.lock",
        "trackers.lock",
        "docs.lock",
        "gpu-kit.lock",
        "dynamics-bench.lock",
    ],
)
def test_a_lock_pins_every_package_once_and_names_no_machine(name: str) -> None:
    lines = pins(name)
    assert all(line.count("==") == 1 for line in lines)
    assert not any(sign in line for line in lines for sign in ("+", "@", "/", " "))
    names = [line.split("==")[0].lower().replace("_", "-") for line in lines]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["cpu.lock", "cuda.lock", "dynamics-bench.lock"])
def test_torch_stands_first_since_it_is_installed_first_by_itself(name: str) -> None:
    assert pins(name)[0].startswith("torch==")


def test_the_cuda_lock_is_the_cpu_lock_and_what_gpus_need() -> None:
    cpu, cuda = set(pins("cpu.lock")), set(pins("cuda.lock"))
    assert cpu <= cuda
    added = {line.split("==")[0] for line in cuda - cpu}
    assert "pennylane-lightning-gpu" in added
    assert all(
        name.startswith(("nvidia-", "cuda-", "custatevec", "pennylane-lightning-gpu", "triton"))
        for name in added
    )


@pytest.mark.parametrize("name", ["bench.lock", "triton.lock", "trackers.lock", "docs.lock"])
def test_an_extra_changes_nothing_that_the_environment_has(name: str) -> None:
    names = {line.split("==")[0].lower().replace("_", "-") for line in pins("cpu.lock")}
    assert not names & {line.split("==")[0].lower().replace("_", "-") for line in pins(name)}


def test_the_dynamics_benchmark_differs_from_the_environment_by_its_older_qiskit_only() -> None:
    cpu, bench = (
        dict(line.split("==") for line in pins(f"{name}.lock")) for name in ("cpu", "dynamics-bench")
    )
    assert {name for name in cpu.keys() & bench.keys() if cpu[name] != bench[name]} == {"qiskit"}


def test_the_kit_for_gpus_has_the_pins_of_the_cpu_lock() -> None:
    assert set(pins("gpu-kit.lock")) <= set(pins("cpu.lock"))


def test_the_conda_file_holds_the_pins_of_the_cpu_lock() -> None:
    environment = yaml.safe_load((ROOT / "envs" / "ketscale.yaml").read_text())
    pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    assert [line for line in pip if "==" in line] == pins("cpu.lock")
    assert "python=3.11" in environment["dependencies"]


def test_what_the_tests_run_on_is_what_the_lock_says() -> None:
    from importlib.metadata import version

    for line in pins("cpu.lock"):
        name, pinned = line.split("==")
        assert version(name).split("+")[0] == pinned


def test_the_recipe_for_apptainer_installs_the_pins_of_the_cpu_lock_and_the_package(tmp_path: Path) -> None:
    text = (ROOT / "envs" / "ketscale.def").read_text()
    assert "NOT BUILT HERE" in text
    head, *sections = re.split(r"^%(\w+)\n", text, flags=re.MULTILINE)
    found = dict(zip(sections[::2], sections[1::2], strict=True))
    assert re.search(r"^From: python:3\.11", head, re.MULTILINE)
    copied = dict(line.split() for line in found["files"].splitlines() if line.strip())
    assert all(target == f"/opt/ketscale/{source}" for source, target in copied.items())
    for source in copied:
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / source).symlink_to((ROOT / source).resolve(strict=True))
    # What it asks of pip, in a folder with no more than these files.
    script = 'python() { printf "%s\\n" "$*"; }\n' + found["post"].replace("/opt/ketscale", str(tmp_path))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    first, rest, package, check = (line.removeprefix("-m pip ") for line in done.stdout.splitlines())
    assert first.split()[-1] == pins("cpu.lock")[0]
    assert rest.endswith("--no-deps --requirement envs/cpu.lock")
    assert package.endswith("--no-deps --no-build-isolation .")
    assert check == "check"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {project["readme"], *project["license-files"]} <= set(copied)
