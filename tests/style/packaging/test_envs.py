"""The pinned environments agree with each other, and the Makefile and the conda file install what the locks say."""

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
