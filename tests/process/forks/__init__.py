"""`ketscale`, `snakemake` and other scripts for tests whose processes would spend most of their time on imports.

They are forked from a server that has imported torch, Snakemake or what draws figures, and has run nothing of them; that
it has one thread is checked. They have the arguments, folder, variables, streams and cores of whoever calls them, but
another parent, session and limits, and earlier imports.

So they are for tests of what commands compute and write, and of runs that a signal ends in a step. Other tests of kills,
and those of the environment, memory, launchers and starts call the real ones. So do, untold, ranks of mpirun and torchrun,
and commands with several threads. A copy of the package has a server of its own.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from ketscale.process import THREAD_VARIABLES
from tests import ROOT

_BIN = Path(sys.executable).parent
_CLIENT = (Path(__file__).parent / "client.py").read_text()
_TO_SET = '"", "", "", {}'
_PACKAGE = ROOT / "workflow"


def _fixed(package: Path) -> dict[str, str]:
    """What a command must not have otherwise, since the server reads it when it imports."""
    return {"PYTHONPATH": str(package), **dict.fromkeys(THREAD_VARIABLES, "1")}


@functools.cache
def programs(package: Path = _PACKAGE, ketscale: Path = _BIN / "ketscale") -> Path:
    """A folder to be the first of PATH, with `ketscale` (of this script) and `snakemake` of the package in a folder."""
    folder = Path(tempfile.mkdtemp(prefix="ketscale-forks-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # `ketscale launch` puts the folder of its Python first in the PATH of what it starts.
    python = folder / "python"
    _write(python, f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for script in (ketscale, _BIN / "snakemake"):
        forked(script, folder / ("ketscale" if script is ketscale else script.name), python, package)
    return folder


def forked(script: Path, path: Path, python: Path = Path(sys.executable), package: Path = _PACKAGE) -> None:
    """Write a program that runs a script of Python, whose own name is `python`, in a process forked from the server."""
    inputs = _CLIENT.replace(_TO_SET, repr((_server(package), str(script), str(python), _fixed(package))), 1)
    _write(path, f"#!{sys.executable} -IS\n{inputs}")


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@functools.cache
def _server(package: Path) -> str:
    """The address of the server of a package, which is started now and ends with this process."""
    # No path, whose length would be limited and which would be left behind.
    address = f"\0ketscale-forks-{os.getpid()}-{uuid.uuid4().hex}"
    # Nothing is written: it is closed when this process ends, however it ends.
    lives, alive = os.pipe()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.process.forks.server", str(listener.fileno()), str(lives)],
            cwd=ROOT,
            env={**os.environ, **_fixed(package), "PYTHONPATH": f"{ROOT}:{package}", "MPLBACKEND": "agg"},
            pass_fds=(listener.fileno(), lives),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    os.close(lives)
    atexit.register(server.wait)
    atexit.register(os.close, alive)
    return address
