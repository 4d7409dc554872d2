"""A `sbatch` that stands before SLURM's own in the PATH of a call of Snakemake: it waits while SLURM takes no jobs.

Snakemake's executor takes a refusal for a failure of the runs, and would use up their attempts within a second. So what
passes (an inactive partition, a limit on submitted jobs, a controller that does not answer) is waited for, and what does
not (an unknown account, more memory than any node has) is an error at once. sbatch's own words are kept for `ketscale
status` and the driver. The comment of a job says which runs it trains.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ketscale import process, strict_json
from ketscale.errors import UserError, short
from ketscale.files import read_bytes, write_atomic
from ketscale.jobs.slurm import queue
from ketscale.words import counted

# The folder of the stand-in, of what each job group trains, and of a note for each job that SLURM refuses.
FOLDER = queue.OF_CALL
_REFUSED = "refused"
# The driver, and whether it is ending; what it starts inherits both.
_DRIVER, _ENDING = "KETSCALE_DRIVER", "KETSCALE_ENDING"
# The exit status of a submission that is to be tried again (EX_TEMPFAIL of sysexits.h). What waits is a shell, of a
# megabyte, since one partition may refuse dozens of jobs. A signal waits for an answer of SLURM's, so that none is lost.
_LATER = 75
_LOOK_S = 2.0
_SCRIPT = f"""#!/bin/sh
ending=
trap 'ending=1; kill $! 2>&-' TERM
pause=5
while :; do
    {{python}} -P -m {__name__} "$@"
    status=$?
    [ $status = {_LATER} ] || exit $status
    left=$pause
    while [ $left -gt 0 ]; do
        sleep $((left < 15 ? left : 15)) >&- 2>&- &
        wait $!
        [ -z "$ending" ] && kill -0 "${_DRIVER}" || exit 1
        left=$((left - 15))
    done
    pause=$((pause < 150 ? pause * 2 : 300))
done
"""
# The controller's answers (slurm_errno.c) that no wait changes. Its other answers may pass. What sbatch says without
# having asked it, such as of a wrong option, does not pass, unless it could not ask.
_ANSWER = "Batch job submission failed: "
_FOR_GOOD = re.compile(
    r"invalid (account|partition|qos|feature|generic|trackable|license|node name)|more processors requested than permitted"
    r"|requested node configuration is not available|time limit is invalid|count specification invalid"
    r"|group not permitted|permission denied|pathname of a file",
    re.IGNORECASE,
)
_NOT_ASKED = re.compile(r"contact|connect|timed out|temporarily|configuration source", re.IGNORECASE)
# This answer stands for all limits of an account or QoS, of which that on submitted jobs passes. Newer versions name the
# limit in a line before; a job that is too large for another is never taken.
_POLICY = "violates accounting/QOS policy"
_LIMIT = re.compile(r"\b(?:Assoc|QOS)[A-Z]\w+")


def begin(trains: Mapping[str, str]) -> None:
    """Let what this process submits from now on go through the stand-in.

    trains: what each job group trains, in words.
    """
    shutil.rmtree(FOLDER / _REFUSED, ignore_errors=True)
    write_atomic(queue.TRAINS, json.dumps(trains).encode())
    script = FOLDER / "sbatch"
    write_atomic(script, _SCRIPT.format(python=shlex.quote(sys.executable)).encode())
    script.chmod(0o755)
    os.environ["PATH"] = f"{FOLDER.resolve()}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    os.environ[_DRIVER] = str(os.getpid())
    for signum in (signal.SIGINT, signal.SIGTERM):
        _end_first(signum)


def _end_first(signum: signal.Signals) -> None:
    """Have a signal end all submissions before it does what it did: Snakemake would wait for them, and begin others."""
    before = signal.getsignal(signum)
    if before == signal.SIG_IGN:  # as for a call in the background of a script, which Ctrl-C is not meant for
        return

    def end(number: int, frame: Any) -> None:
        os.environ[_ENDING] = "1"
        for pid in process.descendants(os.getpid()):
            with contextlib.suppress(OSError):  # it has just ended
                words = process.command_of(pid)
                if str((FOLDER / "sbatch").resolve()) in words or __name__ in words:
                    os.kill(pid, signal.SIGTERM)
        if callable(before):
            before(number, frame)

    signal.signal(signum, end)


def follow(say: Callable[[str], None], let_wait: Callable[[int], None]) -> None:
    """Watch, for as long as this process runs, what SLURM refuses.

    Args:
        say: is told when that begins, and when it is over.
        let_wait: is told how many submissions wait, so that others need not.
    """

    def watch() -> None:
        before = 0
        while True:
            waiting = sum(not note["final"] for note in _notes(Path()))
            if waiting != before:
                let_wait(waiting)
            if bool(waiting) != bool(before):
                say("\n".join(in_words()) or "sbatch takes jobs again")
            before = waiting
            time.sleep(_LOOK_S)

    threading.Thread(target=watch, daemon=True).start()


def in_words(folder: Path = Path()) -> list[str]:
    """What sbatch says of the jobs of a folder that it refuses, in a line for each answer."""
    since: dict[str, list[str]] = {}
    for note in _notes(folder):
        if not note["final"]:
            since.setdefault(note["said"], []).append(note["since"])
    return [
        f"sbatch refuses {counted(len(times), 'job')} since {min(times)[11:16]} UTC and is asked again, which "
        f"counts as no attempt: {said}"
        for said, times in since.items()
    ]


def ending() -> bool:
    """Whether this process was told to end, so that nothing is submitted any more."""
    return _ENDING in os.environ


def trained_by(pack: str) -> str:
    """What a job group of this call trains, in words; its name if that is not known."""
    return str(strict_json.of_note(queue.TRAINS).get(pack, pack))


def why_refused(pack: str) -> str | None:
    """sbatch's words for refusing a job group of this folder for good; None if it did not."""
    said = (note["said"] for note in _notes(Path()) if note["final"] and queue.pack_of(note["job"]) == pack)
    return next((f"sbatch refuses it: {words}" for words in said), None)


def _notes(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((folder / FOLDER / _REFUSED).glob("*.json")):
        with contextlib.suppress(OSError, ValueError, LookupError):  # it has just been taken, or is damaged
            note = strict_json.loads(read_bytes(path))
            # A driver on another host may be alive.
            if note["host"] != process.node_name() or Path(f"/proc/{note['driver']}").exists():
                yield note


def told(said: str) -> tuple[str, bool]:
    """sbatch's words without its name, in a line, and whether no wait changes them."""
    lines = (re.sub(r"^sbatch: (error: |fatal: )?", "", line.strip()) for line in said.strip().splitlines())
    words = "; ".join(line for line in lines if line) or "it says nothing"
    if _ANSWER not in words:
        return words, not _NOT_ASKED.search(words)
    limits = _LIMIT.findall(words)
    for_good = bool(_FOR_GOOD.search(words))
    if _POLICY in words:
        for_good = bool(limits) and not any("Submit" in limit for limit in limits)
    return words.replace(_ANSWER, ""), for_good


def main(arguments: list[str]) -> int:
    """Submit one job as `sbatch` with these arguments does, or say that it is to be tried again; an exit status."""
    real, environment = _real(), {**os.environ}
    # A job, which inherits the environment, has no driver.
    if not environment.pop(_DRIVER, None):
        os.execv(real, ["sbatch", *arguments])
    # Ctrl-C on a terminal reaches this process too; the driver takes note first, and tells it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, frame: ended.append(signum))
    if ending():
        return 1
    arguments = _with_runs(arguments)
    comment = _value(arguments, "--comment")
    note = FOLDER / _REFUSED / f"{comment.split()[0]}.json"
    try:
        # If SLURM's answer came too late, the job is there.
        job = _there(_value(arguments, "--job-name"), comment) if note.exists() else None
    except UserError as error:
        _note(note, comment, str(error), False)
        return _LATER
    if job is not None:
        status, out, said = 0, f"{job}\n", ""
    else:
        done = subprocess.run(
            ["sbatch", *arguments], executable=real, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", start_new_session=True,
        )  # fmt: skip
        status, out, said = done.returncode, done.stdout, done.stderr
    if status == 0 and ended:
        queue.ask("scancel", out.split(";")[0].strip())
        return 1
    words, for_good = told(said)
    if status and not for_good:
        # The executor, which would find these words, is told only how it ends.
        _note(note, comment, words, for_good)
        return _LATER
    sys.stderr.write(said)
    sys.stdout.write(out)
    if status:
        _note(note, comment, words, for_good)
    else:
        note.unlink(missing_ok=True)
    return status


def _real() -> str:
    places = [place for place in os.get_exec_path() if Path(place).resolve() != FOLDER.resolve()]
    real = shutil.which("sbatch", path=os.pathsep.join(places))
    if real is None:
        raise UserError("there is no sbatch in PATH")
    return real


def _with_runs(arguments: list[str]) -> list[str]:
    """The arguments, with what the job trains in its comment."""
    comment = _value(arguments, "--comment")
    pack = queue.pack_of(comment)
    if pack is None or (trains := trained_by(pack)) == pack:
        return arguments
    return [f"{word} {trains}" if word == comment else word for word in arguments]


def _value(arguments: list[str], option: str) -> str:
    return arguments[arguments.index(option) + 1] if option in arguments else "unnamed"


def _there(name: str, comment: str) -> str | None:
    """The job in the queue with this name and comment.

    Raises:
        UserError: SLURM does not answer.
    """
    lines = queue.ask("squeue", "--me", "-h", "--name", name, "-o", "%i|%k").splitlines()
    return next((job for job, _, found in (line.partition("|") for line in lines) if found == comment), None)


def _note(path: Path, job: str, said: str, for_good: bool) -> None:
    since = strict_json.of_note(path).get("since") or datetime.now(UTC).isoformat(timespec="seconds")
    about = {"job": job, "said": short(said, 300), "since": since, "final": for_good}
    driver = {"driver": int(os.environ[_DRIVER]), "host": process.node_name()}
    write_atomic(path, json.dumps(about | driver).encode())


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        sys.exit(f"ketscale: {error}")
