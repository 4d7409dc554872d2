"""Commands that are forked from the server of the tests behave as those that are started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process import forks

TELLS = """
import os, sys, tempfile, threading
print(os.sched_getaffinity(0), tempfile.gettempdir())
print(sys.argv[1:], os.getcwd(), os.environ.get("TOLD"), sys.stdin.read(), flush=True)
print("an error", file=sys.stderr)
threading.Thread(target=lambda: print("another thread")).start()
sys.exit(int(os.environ.get("STATUS", "0")))
"""
# Says which process it is, and then which signal has ended it. It waits for a signal that is blocked: one that came just
# before a `pause` would be lost.
HEEDS = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print(os.getpid(), flush=True)
signal.sigwait({signal.SIGTERM})
sys.exit("stopped")
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A program of these lines, forked or started. It has the server's variables, or it would always be started."""
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def made(text: str, forked: bool = True) -> list[str]:
        script = tmp_path / "script.py"
        script.write_text(text)
        if not forked:
            return [sys.executable, str(script)]
        forks.forked(script, tmp_path / "script")
        return [str(tmp_path / "script")]

    return made


def test_a_forked_script_does_what_a_started_one_does(program: Any, tmp_path: Path) -> None:
    messages = {
        "input": "words", "cwd": tmp_path,
        "env": os.environ | {"TOLD": "ä", "STATUS": "7", "TMPDIR": str(tmp_path)},
        "capture_output": True, "text": True,
    }  # fmt: skip
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(cores)})
        forked, started = (
            subprocess.run([*program(TELLS, fork), "a b", ""], **messages) for fork in (True, False)
        )
    finally:
        os.sched_setaffinity(0, cores)
    assert started.stdout.startswith(f"{{{max(cores)}}} {tmp_path}\n")
    assert (forked.returncode, forked.stdout, forked.stderr) == (7, started.stdout, started.stderr)


ITSELF = "import sys; print('tests.process.forks.server' in ' '.join(sys.orig_argv))"


@pytest.mark.parametrize(
    ("variables", "forked"),
    [
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
    result = subprocess.run(program(ITSELF), env=environment, capture_output=True, text=True, check=True)
    assert result.stdout == f"{forked}\n"


def test_a_signal_is_passed_on(program: Any) -> None:
    with subprocess.Popen(
        program(HEEDS), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as caller:
        assert caller.stdout and int(caller.stdout.readline()) != caller.pid
        caller.send_signal(signal.SIGTERM)
        assert caller.communicate() == ("", "stopped\n")
    assert caller.returncode == 1
    assert subprocess.run(program("import os; os.kill(os.getpid(), 9)")).returncode == -signal.SIGKILL


def test_a_command_whose_caller_is_killed_ends(program: Any) -> None:
    with subprocess.Popen(program(HEEDS), stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout
        process = os.pidfd_open(int(caller.stdout.readline()))
        caller.kill()
        # Nobody is left who holds the other end.
        assert caller.stdout.read() == ""
    os.close(process)
