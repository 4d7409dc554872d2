"""The commands of the pages run as printed, in a folder with a small study whose runs have the names that the pages show.

What a page shows of `ketscale`, `snakemake` and `python` runs here, unless a line below says where else it runs, or why nowhere.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.process import forks
from tests.style.docs.pages import COMMANDS

# A part of a command, and the tests that run its like or read its config, or what it needs.
ELSEWHERE = {
    "moons": "tests/nightly/docs/test_tutorial.py",
    "ketscale init": "tests/unit/problems/test_draft.py",
    "ketscale recommend": "tests/unit/analysis/test_recommend.py",
    "ketscale export": "tests/unit/analysis/test_export.py",
    "ketscale doctor": "tests/process/integration/test_doctor.py",
    "ketscale bench": "tests/nightly/benchmarks",
    "ketscale schema": "tests/style/docs/test_site.py",
    "--profile slurm": "tests/nightly/slurm",
    "workflow/studies/": "tests/unit/config",
    "-m pytest": "tests/nightly/contract/test_added.py",
    "-m docs._generate": "tests/style/docs/test_site.py",
    "status --follow": "needs a terminal",
    "-m benchmarks.download_race": "needs recordings of eegmmidb",
    "-m benchmarks.first": "tests/nightly/benchmarks/test_first.py",
    "-m benchmarks.second": "tests/nightly/benchmarks/test_second.py",
    "-m build": "tests/style/packaging/check.sh",
    "-m twine": "needs twine, and an account",
}
# What takes minutes as printed, and a short call of it.
SHORT = {
    "python -m tests.unit.analysis.coverage": "python -m tests.unit.analysis.coverage 1",
    "python -m tests.unit.analysis.simulated_times 6000": "python -m tests.unit.analysis.simulated_times 5",
}
# A reader's own names, and what they are here.
THEIRS = {"WORKLOAD": "digits", "A": "results", "B": "results-new", "FILE": "out.csv", "FOLDER": "results"}
# Planned, and trained again as a target.
RECORD = "results/runs/digits/vqc/q8-l3-b64/fused/cpu-n1r1t1/quality/seed1/metrics.json"
# What all others need comes first.
FIRST = ("snakemake --profile profiles/local -n", "snakemake --profile profiles/local")


def own() -> list[str]:
    """The commands that run here, in their order."""
    commands = [text for text in COMMANDS if text.split()[0] in ("ketscale", "snakemake", "python")]
    here = [text for text in commands if text not in FIRST and not any(part in text for part in ELSEWHERE)]
    # What needs two folders of results comes after what makes the second.
    return [*FIRST, *sorted(here, key=lambda text: " A B" in text)]


def test_what_is_said_to_run_elsewhere_is_shown_and_has_tests() -> None:
    for part, where in ELSEWHERE.items():
        assert any(part in text for text in COMMANDS), part
        assert (ROOT / where).exists() or where.startswith("needs "), where
    assert {*FIRST, *SHORT} <= set(COMMANDS) and len(own()) > 15


def study() -> dict[str, Any]:
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
                    {"model": "mlp", "qubits": 0, "layers": 0, "simulator": "none"},
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
        "PYTHONPATH": f"{ROOT / 'workflow'}:{ROOT}",
        "XDG_CACHE_HOME": str(tmp_path / ".cache"),
    }
    for command in own():
        for name in {"results-control", "results-costs"} & set(shlex.split(command)):
            shutil.copytree(tmp_path / "results", tmp_path / name)
        words = [
            THEIRS.get(word, word) for word in shlex.split(SHORT.get(command, command).removesuffix(" ..."))
        ]
        missing = tmp_path / RECORD if words[1] == "plan" or words[-1] == RECORD else None
        if missing:
            shutil.move(missing, tmp_path / "kept.json")
        done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        if words[1] == "plan":
            shutil.move(tmp_path / "kept.json", tmp_path / RECORD)
        assert missing is None or missing.exists()
    assert len(list((tmp_path / "results-new").glob("runs/**/metrics.json"))) == 6
    assert (tmp_path / "results" / "report.html").exists()
