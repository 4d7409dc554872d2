"""The code that trains: the package's own, its git checkout, and the packages around it. Imports nothing heavy.

All of it is read together, once in a process and before the code that trains is imported: a commit or an upgrade while
a run trains is none of what trained it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import subprocess
from pathlib import Path
from typing import Any

from ketscale import __version__

SOURCES = Path(__file__).resolve().parents[1]
# Code that reads, draws or times runs from outside changes none of their numbers.
_NOT_TRAINING = (
    "analysis",
    "cli.py",
    "commands/data.py",
    "commands/results.py",
    "commands/study.py",
    "jobs/slurm",
    "jobs/status",
    "jobs/doctor.py",
    "jobs/recover.py",
    "jobs/snakemake_internals.py",
    "jobs/records.py",
    "measure/parity.py",
)
PACKAGES = (
    "torch",
    "numpy",
    "scipy",
    "llvmlite",
    "triton",
    "pennylane",
    "pennylane-lightning",
    "qiskit",
    "mpi4py",
    "scikit-learn",
    "snakemake",
)


@functools.cache
def taken() -> dict[str, Any]:
    """The parts `code` and `packages` of each record that this process writes, as they are at the first call."""
    return {
        "code": {"version": __version__, "hash": code_hash(), **git_state(SOURCES)},
        "packages": _packages(),
    }


@functools.cache
def code_hash() -> str:
    """SHA-256 of the package's sources that affect a run's numbers and timing, as they are at the first call."""
    return sources_hash()


def sources_hash() -> str:
    """SHA-256 of these sources as they are now."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        if not name.startswith(_NOT_TRAINING):
            digest.update(str(name).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def git_state(folder: Path) -> dict[str, Any]:
    """Commit and dirty flag of the git checkout that tracks the files in `folder`; None if git does not track them.

    A package that is installed in an environment does not belong to the repository around that environment.
    """

    def git(*arguments: str) -> str | None:
        # Without optional locks: a run that starts must not disturb what somebody does in the checkout.
        command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", ".") is None:
        return {"commit": None, "dirty": None}
    status = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
