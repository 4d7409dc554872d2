"""The sbatch that waits while SLURM takes no jobs, before a stand-in that answers as SLURM does."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from ketscale.jobs.slurm import submission

NAME = "0f8fad5b-d9cb-469f-a165-70867728950e"
COMMENT = "rule_shared-n1c1-0_train"
TRAINS = {"shared-n1c1-0": "results/runs/a/seed0 and 29 more"}
CALL = ("--parsable", "--job-name", NAME, "--export=ALL", "--comment", COMMENT, "-p", "cpu", '--wrap="true"')
FAILED = "sbatch: error: Batch job submission failed: "
INACTIVE = f"{FAILED}Required partition not available (inactive or drain)"
TOO_LATE = f"{FAILED}Socket timed out on send/recv operation"
POLICY = f"{FAILED}Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
NO_ACCOUNT = f"{FAILED}Invalid account or account/partition combination specified"


@pytest.mark.parametrize(
    "said, for_good",
    [
        (INACTIVE, False),
        (TOO_LATE, False),
        (f"{FAILED}Unable to contact slurm controller (connect failure)", False),
        ("sbatch: fatal: Could not establish a configuration source", False),
        (f"{FAILED}what no version has said before", False),
        (POLICY, False),
        (f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}", False),
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{POLICY}", True),
        (NO_ACCOUNT, True),
        (f"sbatch: error: invalid partition specified: x\n{FAILED}Invalid partition name specified", True),
        (f"{FAILED}Requested time limit is invalid (missing or exceeds some limit)", True),
        (f"{FAILED}User's group not permitted to use this partition", True),
        ("sbatch: unrecognized option '--memory'\nTry \"sbatch --help\" for more information", True),
    ],
)  # fmt: skip
def test_what_no_wait_changes_is_told_from_what_passes(said: str, for_good: bool) -> None:
    words, found = submission.told(said)
    assert found == for_good
    assert "sbatch: " not in words and "\n" not in words


class Cluster:
    """Stand-ins of SLURM's commands and of sleep, and the folder of a call."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.answers = folder / "bin", folder / "answers"
        self.bin.mkdir()
        self.answers.mkdir()
        self.asked, self.pauses = folder / "asked", folder / "pauses"
        self._command("sleep", f"echo $1 >> {self.pauses}")
        self._command("squeue", f"cat {folder}/queue")
        self.queue("")
        # Each answer is given once; if none is left, the job is taken.
        self._command(
            "sbatch",
            f'printf "%s|" "$@" "$KETSCALE_DRIVER" >> {self.asked}; echo >> {self.asked}\n'
            f"next=$(ls {self.answers} | head -n 1)\n"
            f'[ -n "$next" ] || {{ echo 7; exit 0; }}\n'
            f"cat {self.answers}/$next >&2; [ -e {folder}/always ] || rm {self.answers}/$next; exit 1",
        )

    def _command(self, name: str, does: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{does}\n")
        (self.bin / name).chmod(0o755)

    def answer(self, *said: str, always: bool = False) -> None:
        for number, words in enumerate(said):
            (self.answers / str(number)).write_text(words)
        if always:
            (self.bin.parent / "always").touch()
            (self.bin / "sleep").unlink()  # it may sleep as long as it is not told to end

    def queue(self, line: str) -> None:
        (self.bin.parent / "queue").write_text(line)

    def calls(self) -> list[list[str]]:
        return [line.split("|") for line in self.asked.read_text().splitlines()]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder in which a call of Snakemake, which is this process, submits."""
    made = Cluster(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KETSCALE_DRIVER", "")
    monkeypatch.delenv("KETSCALE_ENDING", raising=False)
    monkeypatch.chdir(tmp_path)
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    submission.begin(TRAINS)
    yield made
    for signum, handler in handlers.items():
        signal.signal(signum, handler)


def submit(*call: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sbatch", *(call or CALL)], capture_output=True, text=True)


def test_a_job_is_submitted_with_what_it_trains_in_its_comment_and_inherits_no_driver(
    cluster: Cluster,
) -> None:
    done = submit()
    assert (done.returncode, done.stdout) == (0, "7\n")
    (asked,) = cluster.calls()
    changed = [f"{COMMENT} {TRAINS['shared-n1c1-0']}" if word == COMMENT else word for word in CALL]
    assert asked == [*changed, "", ""]


def test_a_refusal_that_passes_is_waited_for_with_growing_pauses_and_shown(cluster: Cluster) -> None:
    cluster.answer(INACTIVE, INACTIVE, INACTIVE)
    # The third answer is shown while the fourth is awaited.
    shown = cluster.bin.parent / "shown"
    cluster._command("sleep", f"echo $1 >> {cluster.pauses}; cp .snakemake/ketscale/refused/*.json {shown}")
    done = submit()
    # The executor takes what is said of an earlier answer for an error.
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")
    assert len(cluster.calls()) == 4
    assert cluster.pauses.read_text().split() == ["5", "10", "15", "5"]
    note = json.loads(shown.read_text())
    assert note["said"] == "Required partition not available (inactive or drain)" and not note["final"]
    assert submission.in_words() == []


def test_a_refusal_for_good_is_an_error_at_once_in_sbatchs_words(cluster: Cluster) -> None:
    cluster.answer(NO_ACCOUNT)
    done = submit()
    assert done.returncode == 1 and done.stderr == NO_ACCOUNT
    assert len(cluster.calls()) == 1 and not cluster.pauses.exists()
    said = "sbatch refuses it: Invalid account or account/partition combination specified"
    assert submission.why_refused("shared-n1c1-0") == said
    assert submission.why_refused("shared-n1c1-1") is None
    # What is tried again and taken is refused no longer.
    assert submit().returncode == 0
    assert submission.why_refused("shared-n1c1-0") is None


def test_a_job_that_slurm_took_although_its_answer_came_too_late_is_not_submitted_twice(
    cluster: Cluster,
) -> None:
    cluster.answer(TOO_LATE, TOO_LATE)
    cluster.queue(f"41|{COMMENT} of another\n42|{COMMENT} {TRAINS['shared-n1c1-0']}\n")
    done = submit()
    assert (done.returncode, done.stdout) == (0, "42\n")
    assert len(cluster.calls()) == 1


def test_nothing_is_submitted_again_while_slurm_does_not_say_what_it_has(cluster: Cluster) -> None:
    cluster.answer(TOO_LATE)
    silent = cluster.bin.parent / "silent"
    silent.touch()
    cluster._command("squeue", f"[ ! -e {silent} ] || {{ rm {silent}; exit 1; }}")
    assert submit().stdout == "7\n"
    assert len(cluster.calls()) == 2
    assert cluster.pauses.read_text().split() == ["5", "10"]


def test_without_a_driver_it_is_slurms_own(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KETSCALE_DRIVER")
    cluster.answer(INACTIVE)
    assert submit().returncode == 1
    assert cluster.calls() == [[*CALL, "", ""]]


DRIVER = """
    import subprocess, sys
    from ketscale.jobs.slurm import submission
    submission.begin({})
    waiting = subprocess.Popen(["/bin/sh", "-c", "sbatch --comment rule_a_train"], stdout=subprocess.PIPE)
    try:
        waiting.communicate()
    except KeyboardInterrupt:
        waiting.communicate()
        again = subprocess.run(["sbatch", "--comment", "rule_b_train"])
        print("ended", waiting.returncode != 0, again.returncode)
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_driver_is_the_end_of_what_it_submits(cluster: Cluster, signum: int) -> None:
    """After Ctrl-C submissions end, and none begins; after a kill they end by themselves."""
    cluster.answer(INACTIVE, always=True)
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(DRIVER)],
        stdout=subprocess.PIPE,
        text=True,
        # The tests may be in the background of a script, which ignores it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    note = submission.FOLDER / "refused" / "rule_a_train.json"
    until(note.exists)
    waiting = psutil.Process(driver.pid).children(recursive=True)
    driver.send_signal(signum)
    out, _ = driver.communicate(timeout=60)
    assert out == ("ended True 1\n" if signum == signal.SIGINT else "")
    until(lambda: not any(alive(process) for process in waiting))
    if signum == signal.SIGINT:
        assert len(cluster.calls()) == 1


def alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def until(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_job_that_slurm_took_while_the_call_ended_is_cancelled(cluster: Cluster) -> None:
    """The signal comes while sbatch waits for its answer."""
    cancelled = cluster.bin.parent / "cancelled"
    cluster._command("scancel", f"echo $@ >> {cancelled}")
    cluster._command("sbatch", "kill -TERM $PPID; echo '7;cluster'")
    assert submit().returncode == 1
    assert cancelled.read_text() == "7\n"
