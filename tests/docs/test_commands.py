"""The commands of the pages run as printed, in a folder with a small study whose runs have the names that the pages show.

What needs a cluster, a GPU, another machine or hours is parsed by test_site.py, and has a reason here.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests import ROOT, forks
from tests.docs.pages import COMMANDS

RECORD = "results/runs/digits/vqc/q8-l3-b64/fused/cpu-n1r1t1/quality/seed0/metrics.json"
# In their order. Before a command, a folder that it needs is copied from `results`.
RUN = [
    "snakemake --profile profiles/local -n",
    "ketscale try --config config.yaml",
    "snakemake --profile profiles/local",
    "rm results/runs/digits/vqc/q8-l3-b64/fused/cpu-n1r1t1/quality/seed1/metrics.json",
    "snakemake report --config partial=true",
    "ketscale plan",
    "ketscale plan --json",
    "ketscale plan --limits",
    "ketscale plan --node-hours 2",
    "ketscale plan --node-hours 20 --wall 3h",
    "ketscale plan --records results-costs",
    RECORD.replace("seed0", "seed1").join(("snakemake --profile profiles/local ", "")),
    "snakemake report",
    "ketscale status",
    "ketscale status --failed",
    "ketscale report --zip",
    "ketscale report --style paper",
    "snakemake --profile profiles/local --config cohorts=false",
    "snakemake --report report.zip",
    "snakemake --profile profiles/local --config results=results-old",
    "ketscale compare results-old results-new",
    "ketscale compare results-old results",
    "ketscale merge results-here results-there",
    "ketscale export results --to tensorboard --out board",
    "ketscale export results --to mlflow --out tracked",
    "ketscale launch results/runs/.../metrics.json",
    "ketscale baseline digits",
    "ketscale recover",
    "ketscale schema",
    "ketscale schema site",
]
# By how a command begins: what runs it, or why it is not run.
ELSEWHERE = {
    "ketscale init moons.csv": "tests/workflow/test_tutorial.py",
    "ketscale try --config moons.yaml": "tests/workflow/test_tutorial.py",
    "ketscale plan --config moons.yaml": "tests/workflow/test_tutorial.py",
    "snakemake --profile profiles/local --configfile moons.yaml": "tests/workflow/test_tutorial.py",
    "ketscale init data.csv": "tests/problems/test_draft.py",
    "ketscale recommend": "tests/analysis/test_recommend.py",
    "ketscale doctor": "tests/integration/test_doctor.py",
    "ketscale bench": "tests/benchmarks",
    "ketscale schema > docs/config.schema.json": "tests/config",
    "python -m docs._generate": "tests/docs/test_site.py",
    "python -m benchmarks": "tests/benchmarks",
    "python -m pytest": "the tests themselves",
    "python -m tests": "long: simulations and measurements of the tests",
    "python -m build": "build is not installed: make wheel-check builds",
    "python -m twine": "needs an index",
    "snakemake --profile slurm": "a cluster: tests/slurm",
    "snakemake report --profile slurm": "a cluster: tests/slurm",
    "snakemake --profile profiles/mpi": "many cores: tests/workflow",
    "ketscale baseline mnist": "a download",
    "snakemake --software-deployment-method conda": "needs conda",
    "ketscale prepare eeg-synthetic --config workflow/studies/one-gpu.yaml": "a GPU: tests/gpu",
    "ketscale report --config workflow/studies/one-gpu.yaml": "a GPU: tests/gpu",
}
# Studies that take minutes to hours: their configs are read by tests/config.
LONG = re.compile(r"(--configfile|--config) workflow/studies/[\w-]+\.yaml|results-control")
# Signs for a name of the reader's own.
OF_THEIRS = re.compile(r" [A-Z]+\b|results/runs/\.\.\./seed3")


def unnamed(command: str) -> bool:
    """Whether nothing runs the command, and no reason is given."""
    return not (
        command in RUN
        or LONG.search(command)
        or OF_THEIRS.search(command)
        or any(command.startswith(begin) for begin in ELSEWHERE)
        or command == "snakemake --profile profiles/local --config results=results-new"  # as with results-old
    )


def test_every_command_is_run_or_has_a_reason() -> None:
    shown = [text for text in COMMANDS if text.split()[0] in ("ketscale", "snakemake", "python")]
    assert [command for command in shown if unnamed(command)] == []
    for where in ELSEWHERE.values():
        assert " " in where or (ROOT / where).exists(), where


def test_what_is_run_here_stands_in_a_page() -> None:
    own = {"ketscale try --config config.yaml"}
    assert set(RUN) - own <= set(COMMANDS)


def study() -> dict[str, object]:
    """A study of seconds, with the names of the default one."""
    axes = {
        "workload": "digits",
        "batch": 64,
        "backend": "cpu-n1r1t1",
        "protocol": "quality",
        "seed": [0, 1, 2],
    }
    return {
        "title": "Small",
        "workloads": {"digits": {"kind": "sample-table", "table": "iris", "split_seed": 0}},
        "simulators": {"fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast"}},
        "protocols": {"quality": {"precision": "fp64", "timed": False, "epochs": 2, "learning_rate": 0.003}},
        "studies": {
            "accuracy": {
                "kind": "accuracy",
                "question": "Is the circuit better?",
                "axes": axes,
                "points": [
                    {"model": "vqc", "qubits": 8, "layers": 3, "simulator": "fused"},
                    {"model": "mlp", "qubits": 8, "layers": 3, "simulator": "none"},
                ],
            }
        },
    }


@pytest.mark.slow
def test_the_commands_run_as_printed(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Snakefile", tmp_path / "Snakefile")
    for name in ("profiles", "workflow/rules", "workflow/report", "envs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(study()))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SNAKEMAKE", "SLURM", "KETSCALE"))}
    variables = {
        **kept,
        "PATH": f"{forks.programs()}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "workflow"),
        "XDG_CACHE_HOME": str(tmp_path / ".cache"),
    }
    for command in RUN:
        words = [RECORD if "..." in word else word for word in shlex.split(command)]
        for word in words[1:]:
            if re.fullmatch(r"results-(new|here|there|costs)", word):
                shutil.copytree(tmp_path / "results", tmp_path / word)
        done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert (tmp_path / "results" / "report.zip").exists() and (tmp_path / "merged.html").exists()
    assert len(list((tmp_path / "results-old").glob("runs/**/metrics.json"))) == 6
