"""`ketscale doctor` tries the launchers out, and tells a world of two from two worlds of one."""

import subprocess

import psutil

from ketscale.jobs import doctor
from tests.process.integration import study
from tests.process.parallel.worlds import environment


def test_doctor_tries_everything_and_says_what_is_missing():
    result = subprocess.run(
        ["ketscale", "doctor"], capture_output=True, text=True, env=environment(), timeout=600
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "ok       two ranks of mpi: one world of two ranks" in result.stdout
    assert "ok       two ranks of ddp-cpu: one world of two ranks" in result.stdout
    lines = result.stdout.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        assert not line.startswith("missing") or "it would enable" in following


def test_two_worlds_of_one_are_not_a_world_of_two(tmp_path, monkeypatch):
    launcher = tmp_path / "launcher.sh"
    launcher.write_text('for i in 1 2; do "$@"; done\n')
    monkeypatch.setattr(doctor, "prefix_here", lambda run: f"sh {launcher}")
    present, detail = doctor._two_ranks(study.run("mpi-n1r2t1"), "print('world', 1)")
    assert not present
    assert "each see a world of one rank" in detail


def test_ranks_that_hang_are_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "prefix_here", lambda run: "")
    monkeypatch.setattr(doctor, "_PATIENCE_S", 1.0)
    result = doctor._two_ranks(study.run("mpi-n1r2t1"), f"import time; time.sleep(1000) # {tmp_path}")
    assert result == (False, "no answer in 1 s")
    assert not any(
        str(tmp_path) in " ".join(result.info["cmdline"] or []) for result in psutil.process_iter(["cmdline"])
    )
