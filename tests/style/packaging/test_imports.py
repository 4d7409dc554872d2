"""What a run and a layer import is within a budget: of names and numbers of modules, not of time.

Nearly all of a start is imports, and its time depends on the machine; which modules are imported does not.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ketscale.config import Settings
from ketscale.grid import PREPARED, Run
from ketscale.problems.registry import FAMILIES, read_config
from tests.tiny_study import TINY, Project

# What no start imports: other simulators, statistics and drawing, torch's compiler and what it brings, what reads configs.
NEVER = (
    "IPython", "benchmarks", "jax", "jsonschema", "ketscale.analysis", "ketscale.interop",
    "matplotlib", "mne", "mpi4py", "numba", "pandas", "pennylane", "qiskit", "scipy", "seaborn", "sklearn", "snakemake", "sympy",
    "torch._dynamo", "torch._inductor", "transformers", "triton", "yaml", "huggingface_hub", "PIL", "psutil",
)  # fmt: skip
# What the process that starts the ranks does not import either, since they wait for it.
LAUNCH_NEVER = (
    *NEVER,
    "ketscale.config",
    "ketscale.problems",
    "llvmlite",
    "msgspec",
    "numpy",
    "scipy",
    "torch",
)
LAUNCH_MODULES = 151
# The modules of a rank, besides the package's own and those of `import torch`.
RANK_MODULES = 80

SAY = "print('MODULES', *sys.modules); sys.stdout.flush(); os._exit(0)"
LAUNCH = f"""
import os, subprocess, sys
from ketscale.cli import main
def start(*arguments, **options):
    {SAY}
subprocess.Popen = start
main(sys.argv[1:])
"""
RANK = f"""
import os, sys
from ketscale import process
from ketscale.cli import main
plain = process.permanent
def hooked():
    # Here the clock is imported; its first call ends the process.
    class Imports:
        def __enter__(self):
            self.plain = plain()
            self.plain.__enter__()
        def __exit__(self, *error):
            self.plain.__exit__(*error)
            from ketscale.measure.clock import Clock
            def stop_step(clock, preparing=False):
                {SAY}
            Clock.stop_step = stop_step
    return Imports()
process.permanent = hooked
main(sys.argv[1:])
"""


def imported(script: str, *arguments: str, folder: Path) -> set[str]:
    """The modules that a script has imported when it says so."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        env={**os.environ, **threads},
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = [line for line in result.stdout.splitlines() if line.startswith("MODULES ")]
    assert len(lines) == 1, result.stdout[-2000:] + result.stderr[-2000:]
    return set(lines[0].split()[1:])


@functools.cache
def of_torch() -> frozenset[str]:
    """The modules that `import torch` imports."""
    return frozenset(imported("import os, sys, torch; " + SAY, folder=Path()))


def unwanted(modules: set[str], never: tuple[str, ...]) -> list[str]:
    """The modules that are forbidden, or are parts of one that is."""
    return sorted(name for name in modules if any(f"{name}.".startswith(f"{one}.") for one in never))


def test_a_layer_imports_circuits_and_the_settings_of_their_simulators_alone() -> None:
    result = imported("import os, sys\nfrom ketscale import Layer\n" + SAY, folder=Path()) - of_torch()
    # Which modules of the standard library torch has imported already depends on the packages beside it.
    packages = {name.partition(".")[0] for name in result} - set(sys.stdlib_module_names)
    assert packages == {"ketscale", "msgspec", "numpy"}
    actual = [name.split(".")[1:] for name in result if name.startswith("ketscale.")]
    assert {name[0] for name in actual} <= {
        "autograd_function",
        "config",
        "engines",
        "errors",
        "files",
        "grid",
        "interop",
        "lazy",
        "optional",
        "private_torch",
        "process",
        "shapes",
        "simulators",
        "words",
    }
    assert {name[1] for name in actual if name[0] == "interop" and name[1:]} == {"expressions", "layer"}
    assert not {name[1] for name in actual if name[0] == "engines" and name[1:]} & {"dynamics", "pulses"}


def arguments(settings: Settings) -> list[str]:
    """What Snakemake gives to a run."""
    arguments = ["--settings", settings.text]
    if settings.family.prepared:
        arguments += ["--features", f"out/tiny/{PREPARED.format(workload=settings.run.workload)}"]
    return [f"out/tiny/{settings.run.path}", *arguments]


def settings_of(project: Project, layout: str = "cpu-n1r1t1") -> Settings:
    """The settings of a tiny study's first run that trains at once, with another layout."""
    config = read_config(project.folder / "config.yaml")
    first = next(run for run in config.runs if run.protocol == "parity" and run.backend == "cpu")
    return config.settings(Run.parse(first.path.replace("cpu-n1r1t1", layout)))


@pytest.mark.parametrize("layout", ["cpu-n1r1t1", "mpi-n1r2t1", "ddp-cpu-n1r2t1"])
def test_what_starts_the_ranks_imports_next_to_nothing(layout: str, tmp_path: Path) -> None:
    settings = settings_of(Project(tmp_path, TINY["images"]), layout)
    modules = imported(LAUNCH, "launch", *arguments(settings), folder=tmp_path)
    assert "ketscale.jobs.supervise" in modules
    assert not unwanted(modules, LAUNCH_NEVER)
    # Debian's Python has a module that every start imports.
    assert len(modules - {"sitecustomize"}) <= LAUNCH_MODULES, sorted(modules)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rank_imports_only_what_its_run_needs(family: str, tmp_path: Path, digits_features: Path) -> None:
    project = Project(tmp_path, TINY[family])
    settings = settings_of(project)
    if family == "images":
        project.take(digits_features)
    elif settings.family.prepared:
        project.run("ketscale", "prepare", settings.run.workload)
    given = arguments(settings)
    for _ in range(2):  # the first one compiles, where that is not done yet
        modules = imported(RANK, "train", *given, folder=tmp_path)
        others = {name for name in modules - of_torch() if not name.startswith("ketscale")}
        if not unwanted(modules, NEVER) and len(others) <= RANK_MODULES:
            break
    assert "ketscale.training.loop" in modules
    assert not unwanted(modules, NEVER)
    assert len(others) <= RANK_MODULES, sorted(others)
