"""Commands that are forked from the server of the tests behave as those that are started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.process import forks

TELLS = """
import os, sys, tempfile, threading
print(os.sched_getaffinity(0), tempfile.gettempdir())
print(sys.argv[1:], os.getcwd(), os.environ.get("TOLD"), sys.stdin.read(), flush=True)
print("an error", file=sys.stderr)
threading.Thread(target=lambda: print("another thread")).start()
sys.exit(int(os.environ.get("STATUS", "0")))
"""
# Says which process it is, and then which signal has ended it.
HEEDS = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit("stopped"))
print(os.getpid(), flush=True)
signal.pause()
"""


@pytest.fixture
def program(tmp_path: Path) -> Any:
    """A program of these lines, forked or started."""

    def made(text: str, forked: bool = True) -> list[str]:
        script = tmp_path / "script.py"
        script.write_text(text)
        if not forked:
            return [sys.executable, str(script)]
        forks.forked(script, tmp_path / "script")
        return [str(tmp_path / "script")]

    return made


@pytest.mark.parametrize("status", [0, 7])
def test_a_forked_script_does_what_a_started_one_does(program: Any, tmp_path: Path, status: int) -> None:
    told = {
        "input": "words", "cwd": tmp_path,
        "env": os.environ | {"TOLD": "ä", "STATUS": str(status), "TMPDIR": str(tmp_path)},
        "capture_output": True, "text": True,
    }  # fmt: skip
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(cores)})
        forked, started = (
            subprocess.run([*program(TELLS, fork), "a b", ""], **told) for fork in (True, False)
        )
    finally:
        os.sched_setaffinity(0, cores)
    assert started.stdout.startswith(f"{{{max(cores)}}} {tmp_path}\n")
    assert (forked.returncode, forked.stdout, forked.stderr) == (status, started.stdout, started.stderr)


def test_an_exception_is_shown_and_fails(program: Any) -> None:
    done = subprocess.run(program("raise ValueError('wrong')"), capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.endswith("ValueError: wrong\n")


def test_the_commands_are_those_of_this_environment() -> None:
    forked = {**os.environ, "PATH": f"{forks.programs()}:{os.environ['PATH']}"}
    for command in (("ketscale", "--version"), ("snakemake", "--version"), ("python", "--version")):
        said = [
            subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
            for environment in (forked, None)
        ]
        assert said[0] == said[1]


ITSELF = "import sys; print('tests.process.forks.server' in ' '.join(sys.orig_argv))"


@pytest.mark.parametrize(
    ("variables", "forked"),
    [
        ({}, True),
        ({"OMP_NUM_THREADS": "1"}, True),
        ({"OMP_NUM_THREADS": "2"}, False),
        ({"OMPI_COMM_WORLD_RANK": "0"}, False),
        ({"LOCAL_RANK": "0"}, False),
        ({"PYTHONPATH": "/elsewhere"}, False),
    ],
)
def test_ranks_several_threads_and_other_checkouts_are_started(
    program: Any, variables: dict[str, str], forked: bool
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(program(ITSELF), env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{forked}\n"


def test_a_signal_is_passed_on(program: Any) -> None:
    with subprocess.Popen(
        program(HEEDS), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as caller:
        assert caller.stdout and int(caller.stdout.readline()) != caller.pid
        caller.send_signal(signal.SIGTERM)
        assert caller.communicate() == ("", "stopped\n")
    assert caller.returncode == 1


def test_a_command_whose_caller_is_killed_ends(program: Any) -> None:
    with subprocess.Popen(program(HEEDS), stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout
        ended = os.pidfd_open(int(caller.stdout.readline()))
        caller.kill()
        # Nobody is left who holds the other end.
        assert caller.stdout.read() == ""
    os.close(ended)


def test_a_caller_that_is_gone_before_it_has_asked_costs_nobody_else(program: Any) -> None:
    command = program("print('here')")
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(forks._server(ROOT / "workflow"))
        caller.send(b"12")
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "here\n"


def test_a_command_that_a_signal_has_ended_says_so(program: Any) -> None:
    done = subprocess.run(program("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    assert done.returncode == -signal.SIGKILL
