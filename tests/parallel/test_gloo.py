"""Gloo's own threads on ranks of one core."""

from tests.parallel import worlds

SCRIPT = """
import os
from pathlib import Path
from ketscale.parallel.world import open_world
from tests.toys import run_at
world = open_world(run_at("ddp-cpu-n1r2t1"))
names = {t: Path("/proc/self/task", t, "comm").read_text().strip() for t in os.listdir("/proc/self/task")}
found = sorted((name, os.sched_getscheduler(int(t))) for t, name in names.items() if name.startswith("gloo"))
assert found == [("gloo_tcp_loop", os.SCHED_BATCH)] and os.sched_getscheduler(0) == os.SCHED_OTHER, found
world.close()
"""


def test_the_thread_for_messages_does_not_interrupt_those_that_compute(tmp_path):
    script = tmp_path / "threads.py"
    script.write_text(SCRIPT)
    done = worlds.start("ddp-cpu-n1r2t1", f"{worlds.sys.executable} {script}")
    assert done.returncode == 0, done.stderr
