"""Invariant: a timed run has its host to itself, and one that had not is flagged."""

import json
import os
import subprocess
import time

from tests.integration import study


def test_a_timed_run_waits_for_the_host(tmp_path, digits_features):
    """Another timed run holds the host: this one starts when it is let go, and an untimed one too."""
    import fcntl
    import socket
    import tempfile

    with open(os.path.join(tempfile.gettempdir(), f"ketscale-host-{socket.gethostname()}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = study.run(protocol="timed")
        with study.launch(tmp_path, run, digits_features) as process:
            time.sleep(8)
            assert process.poll() is None and not (tmp_path / study.record(run)).exists()
            fcntl.flock(lock, fcntl.LOCK_UN)
            out, error = process.communicate(timeout=60)
    assert process.returncode == 0, out + error
    record = json.loads((tmp_path / study.record(run)).read_text())
    rank = record["machine"]["ranks"][0]
    assert len(rank["affinity"]) == 1 and not rank["shared_cores"]
    assert set(rank["affinity"]) <= set(record["quiet"]["cpus"])


def test_other_processes_at_work_are_noticed():
    from ketscale.measure.host import Quiet

    quiet = Quiet(os.sched_getaffinity(0))
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as burner:
        time.sleep(1.5)
        share = quiet.report(quiet.own_s())
        burner.kill()
    assert share["others_share"] > 0.6 / (os.cpu_count() or 1)
    assert not share["quiet"] or share["others_share"] <= 0.05
