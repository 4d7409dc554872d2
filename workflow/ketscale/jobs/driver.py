"""The Snakemake that works in a folder: how the last one was called there, and whether it still runs.

Snakemake's locks name no process, so every call leaves a note beside them. Imports next to nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from ketscale import process
from ketscale.files import read_bytes, write_atomic
from ketscale.jobs.ownership import signs
from ketscale.jobs.ownership.signs import Process
from ketscale.jobs.slurm import queue
from ketscale.jobs.snakemake_internals import FOLDER
from ketscale.words import counted, say

NOTE = FOLDER / "ketscale.json"
# The end of a call waits no longer for a command of the user's.
_NOTIFY_S = 60
# The Snakefile of the checkout that this package is in, if it is in one.
_OWN = Path(__file__).resolve().parents[3] / "Snakefile"


class Call(msgspec.Struct, frozen=True):
    """A call of Snakemake.

    snakefile: its absolute path. config: its path from this folder. profile: as it was typed; None without one. since: when
    it began. process: None once it has ended in order.
    """

    snakefile: str
    config: str | None
    profile: str | None
    since: str
    process: Process | None

    @property
    def over(self) -> bool | None:
        """Whether its process has ended; None if that cannot be told from here."""
        if self.process is None:
            return True
        known = (self.process.boot, process.boot_and_namespace()[0])
        if self.process.host == process.node_name() and None not in known and len(set(known)) == 2:
            return True  # this host has been started anew
        alive = signs.is_alive(asdict(self.process))
        return None if alive is None else not alive


def last(folder: Path = Path()) -> Call | None:
    """The last call in a folder; None if it left no note, or one that cannot be read."""
    try:
        return msgspec.json.decode(read_bytes(folder / NOTE), type=Call)
    except (OSError, ValueError):  # msgspec's errors are ValueErrors
        return None


def given(*options: str) -> list[list[str]]:
    """What this call of Snakemake names after an option, each time that it has it; Snakemake itself tells the last at most."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(*options, dest="named", nargs="*", action="append", default=[])
    found: list[list[str]] = parser.parse_known_args(sys.argv[1:])[0].named
    return found


def begin(workflow: Any) -> None:
    """Note this call, which has just locked the folder."""
    named = [name for names in given("--profile") for name in names[:1]]
    profile = named[-1] if named else os.environ.get("SNAKEMAKE_PROFILE")
    config = next((os.path.relpath(path) for path in reversed(workflow.configfiles)), None)
    me = msgspec.convert(process.identity(), Process)
    _write(Call(workflow.main_snakefile, config, profile, signs.utc(), me))


def end() -> None:
    """Note that the last call is over."""
    if (call := last()) is not None:
        _write(replace(call, process=None))


def notify(command: str, where: str, succeeded: bool, done: int, runs: int) -> None:
    """Run a shell command of the user's at the end of this call; if it fails, that is a line, and nothing else.

    What happened is in variables, so that no text of ours is part of the command.

    Args:
        where: the command is set there.
        done, runs: how many runs have ended with a result, and how many the call had.
    """
    status = "success" if succeeded else "failure"
    said = f"{status}: {done} of {counted(runs, 'run')} ended with a result in {os.getcwd()}"
    told = {"STATUS": status, "DONE": str(done), "RUNS": str(runs), "MESSAGE": said}
    variables = {**os.environ, **{f"KETSCALE_{name}": value for name, value in told.items()}}
    with tempfile.TemporaryFile("w+", errors="replace") as spoken:
        started, why = None, ""
        try:
            started = subprocess.Popen(
                command,
                shell=True,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=spoken,
                stderr=spoken,
                start_new_session=True,
            )
            if code := started.wait(_NOTIFY_S):
                why = f"exit status {code}"
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
            if started is not None:
                # Whatever it has started ends with it.
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()
        if why:
            spoken.seek(0)
            last = "".join(f": {line.strip()}" for line in spoken.readlines()[-1:])
            say(f"notify in {where} failed ({why}{last})")


def _write(call: Call) -> None:
    write_atomic(NOTE, msgspec.json.format(msgspec.json.encode(call)) + b"\n")


def command(configfile: Path) -> str:
    """The call of Snakemake that trains what is left of a config, as it is typed in this folder.

    Paths of records may be appended: --configfile, which takes all names after it, does not stand last.
    """
    call, words, here = last(), ["snakemake"], Path("Snakefile")
    noted = [Path(call.snakefile)] if call else []
    snakefile = next(filter(Path.is_file, [*noted, here, _OWN]), None)
    profile = (call and call.profile) or ("slurm" if queue.available() else "profiles/local")
    if snakefile is not None:
        if not here.exists() or not here.samefile(snakefile):
            words += ["-s", str(snakefile)]
        if not Path(profile).exists() and (beside := snakefile.parent / profile).exists():
            profile = str(beside)
    if configfile != Path("config.yaml"):
        words += ["--configfile", str(configfile)]
    return shlex.join([*words, "--profile", profile])


def running(folder: Path) -> int | None:
    """The id of a Snakemake process on this host that works on `folder` and did not start this process."""
    mine = {os.getpid(), *process.ancestors()}
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        with contextlib.suppress(OSError):  # it has just ended, or is another user's
            drives = pid not in mine and _drives(process.command_of(pid))
            if drives and os.path.samefile(f"/proc/{pid}/cwd", folder):
                return pid
    return None


def _drives(command: Sequence[str]) -> bool:
    """Whether a command line is Snakemake itself, not a job that it has started."""
    # In both `python /path/of/snakemake` and `python -m snakemake` it is the first word that is not an option.
    words = [word for word in command[1:] if not word.startswith("-")]
    python = bool(command) and Path(command[0]).name.startswith("python")
    program = [*command[:1], *words[:1]] if python else command[:1]
    if not any(Path(word).name == "snakemake" for word in program):
        return False
    mode = command[command.index("--mode") + 1 :][:1] if "--mode" in command else []
    return mode not in (["remote"], ["subprocess"])
