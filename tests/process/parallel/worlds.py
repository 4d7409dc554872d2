"""Starts test worlds with the launchers that runs use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ketscale.jobs.launch import prefix
from tests import ROOT
from tests.toys import run_at


def environment(**extra: str) -> dict[str, str]:
    """This Python's launchers first on the PATH; more ranks than cores are allowed in tests."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'workflow'}",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PMIX_MCA_gds": "hash",
        **extra,
    }


def start(where: str, command: str, timeout: float = 600, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command in the world of a place."""
    return subprocess.run(
        ["sh", "-c", f"exec {prefix(run_at(where))} {command}"],
        cwd=ROOT,
        env=environment(**extra),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def printed(where: str, module: str) -> Any:
    """What rank 0 of a module in the world of a place has printed as its result."""
    result = start(where, f"{sys.executable} -m {module}")
    lines = [line for line in result.stdout.splitlines() if "RESULT" in line]
    assert result.returncode == 0 and len(lines) == 1, result.stdout[-2000:] + result.stderr[-4000:]
    return json.loads(lines[0].split("RESULT", 1)[1])


def train(where: str, cases: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """What the worker's rank 0 printed for each case."""
    return printed(where, f"tests.process.parallel.worker {where} '{json.dumps(cases)}'")
