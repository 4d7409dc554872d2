"""Forks scripts from a process that has imported what they import, and has run nothing of it."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn

# What commands import before they do anything, imported when one first asks for it. Not ketscale.jobs.slurm, which reads
# a variable when it is imported.
_PLANS = (
    "ketscale.analysis.figures",
    "ketscale.jobs.cohorts",
    "ketscale.config.yaml",
)
_SNAKEMAKE = (*_PLANS, "snakemake.cli", "snakemake.storage", "smart_open", "jsonschema", "packaging.version")
_TRAINS = ("ketscale.jobs.session", "ketscale.jobs.cohort_session", "safetensors.torch")
_DRAWS = (
    "ketscale.analysis.report",
    "seaborn",
    *(f"matplotlib.backends.backend_{name}" for name in ("agg", "svg")),
)
_IMPORTS = {"train": _TRAINS, "prepare": _TRAINS, "report": _DRAWS}


def main(listening: int, lives: int) -> None:
    """Serve until the other end of the pipe `lives` is closed."""
    sys.path.remove(str(Path(__file__).parents[3]))  # from where this file was imported
    os.fsync = lambda descriptor: None  # as in the processes of the tests themselves
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    listener = socket.socket(fileno=listening)
    while lives not in select.select([listener, lives], [], [])[0]:
        connection, _ = listener.accept()
        try:
            request, streams = _received(connection)
        except (ValueError, ConnectionError):  # whoever called is gone already
            connection.close()
            continue
        _import(request)
        if os.fork() == 0:
            listener.close()
            _keep(connection, request, streams, lives)
        connection.close()
        for stream in streams:
            os.close(stream)


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What a client asks for, and its streams."""
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as file:
        return json.loads(file.read(int.from_bytes(size, "big"))), streams


def _import(request: dict[str, Any]) -> None:
    """Import what the command imports."""
    script, command = Path(request["script"]).name, next(iter(request["arguments"]), "")
    for name in _SNAKEMAKE if script == "snakemake" else _IMPORTS.get(command, _PLANS):
        importlib.import_module(name)
    if script == "snakemake":
        sys.modules["snakemake.cli"].get_argument_parser()  # looks for plugins, once
    if _IMPORTS.get(command) is _TRAINS:
        problems = importlib.import_module("ketscale.problems")
        for result in pkgutil.walk_packages(problems.__path__, "ketscale.problems."):
            importlib.import_module(result.name)
        # Files of users' often have QNodes.
        if any(word in argument for argument in request["arguments"] for word in ('"default.qubit"', '.py"')):
            importlib.import_module("pennylane")
    gc.collect()
    gc.freeze()
    # A second thread would be lost in a fork, perhaps while it holds a lock.
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"imports have started {len(threads) - 1} threads"


def _keep(connection: socket.socket, request: dict[str, Any], streams: list[int], lives: int) -> NoReturn:
    """Fork the command and tell the client how it ends. If the client or the tests are gone before, kill it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ready, begin = os.pipe()
    pid = os.fork()
    if pid == 0:
        connection.close()
        os.close(lives)
        os.close(begin)
        if os.read(ready, 1):
            os.close(ready)
            _become(request, streams)
        os._exit(1)
    for stream in streams:
        os.close(stream)
    process = os.pidfd_open(pid)
    with contextlib.suppress(ConnectionError):
        connection.sendall(f"{pid}\n".encode())
        # The client passes signals on from now on.
        os.write(begin, connection.recv(1))
    os.close(begin)
    if process not in select.select([process, connection, lives], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(ConnectionError):
        connection.sendall(f"{status}\n".encode())
    os._exit(0)


def _become(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Run the script as Python runs one."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # As Python opens them for these files; those of the server are of another kind.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(request["folder"])
    os.sched_setaffinity(0, request["cores"])
    os.environ.clear()
    os.environ.update(request["variables"])
    tempfile.tempdir = None  # found anew from the variables
    sys.argv = [request["script"], *request["arguments"]]
    sys.executable = request["python"]
    status = 0
    try:
        runpy.run_path(request["script"], run_name="__main__")
    except SystemExit as left:
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
