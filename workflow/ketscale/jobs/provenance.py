"""The code that trains: the package's own, its git checkout, and the packages around it. Imports nothing heavy.

All of it is read together, once in a process and before the code that trains is imported: a commit or an upgrade while
a run trains is none of what trained it.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ketscale import __version__

SOURCES = Path(__file__).resolve().parents[1]
# Characters of a module in `Code.imported`: of its name, and of its source. A multiple of four bits of Base64.
NAME, SOURCE = 4, 4
# Code that reads, draws or times runs from outside changes none of their numbers.
_NOT_TRAINING = (
    "analysis",
    "cli.py",
    "commands/data.py",
    "commands/results.py",
    "commands/study.py",
    "dag.py",
    "jobs/slurm",
    "jobs/status",
    "jobs/doctor.py",
    "jobs/driver.py",
    "jobs/snakemake_internals.py",
    "jobs/records.py",
    "measure/parity.py",
)
PACKAGES = (
    "torch", "numpy", "scipy", "llvmlite", "triton", "pennylane", "pennylane-lightning", "qiskit", "mpi4py", "scikit-learn",
    "snakemake",
)  # fmt: skip


@functools.cache
def snapshot() -> dict[str, Any]:
    """The parts `code` and `packages` of each record that this process writes, as they are at the first call.

    `code` has no `imported` yet.
    """
    return {
        "code": {"version": __version__, "hash": code_hash(), **git_state(SOURCES)},
        "packages": versions(PACKAGES),
    }


def of_record() -> dict[str, Any]:
    """The parts `code` and `packages` of a record that is written now."""
    start = snapshot()
    return {**start, "code": {**start["code"], "imported": imported()}}


@functools.cache
def code_hash() -> str:
    """SHA-256 of the package's code that affects a run's numbers and timing, as it is at the first call."""
    return _hash(_first())


def sources_hash() -> str:
    """SHA-256 of this code as it is now."""
    return _hash(_read())


def imported() -> str:
    """`Code.imported`: the code of the modules that this process has imported, as it was at the first call.

    Modules that were not imported, such as another family's models, are no part of it.
    """
    modules = []
    for name, source in _first().items():
        module = ".".join((SOURCES.name, *name.removesuffix(".py").split("/"))).removesuffix(".__init__")
        if module in sys.modules:
            modules.append(short(name) + _short(source, SOURCE))
    return "".join(sorted(modules))


@functools.cache
def _first() -> dict[str, bytes]:
    """This code by the names of its files, as it is at the first call."""
    return _read()


def _read() -> dict[str, bytes]:
    sources = ((path.relative_to(SOURCES).as_posix(), path) for path in sorted(SOURCES.rglob("*.py")))
    return {name: path.read_bytes() for name, path in sources if not name.startswith(_NOT_TRAINING)}


def _hash(sources: dict[str, bytes]) -> str:
    return hashlib.sha256(b"".join(f"{name}\0".encode() + sources[name] for name in sources)).hexdigest()


def short(name: str) -> str:
    """A source file's name, such as 'training/loop.py', as `imported` has it."""
    return _short(name.encode(), NAME)


def _short(content: bytes, characters: int) -> str:
    return base64.b64encode(hashlib.sha256(content).digest())[:characters].decode()


def git_state(folder: Path) -> dict[str, Any]:
    """Commit and dirty flag of the git checkout that tracks the files in `folder`; None if git does not track them.

    A package that is installed in an environment does not belong to the repository around that environment.
    """

    def git(*arguments: str) -> str | None:
        # Without optional locks: a run that starts must not disturb what somebody does in the checkout.
        command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return result.stdout.strip() if result.returncode == 0 else None

    if git("ls-files", "--error-unmatch", ".") is None:
        return {"commit": None, "dirty": None}
    status = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those of some packages that are installed."""
    versions_of = {}
    for name in packages:
        try:
            versions_of[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions_of
