"""Gloo's own threads on ranks of one core."""

from tests.process.parallel import worlds

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

REFUSED = """
import os, warnings
from ketscale.parallel.world import open_world
from tests.toys import run_at
def refuse(*arguments):
    raise PermissionError(1, "Operation not permitted")
os.sched_setscheduler = refuse
with warnings.catch_warnings(record=True) as said:
    world = open_world(run_at("ddp-cpu-n1r2t1"))
assert ["Gloo's messages may take milliseconds" in str(each.message) for each in said] == [True], said
world.close()
"""


def started(tmp_path, script):
    file = tmp_path / "script.py"
    file.write_text(script)
    return worlds.start("ddp-cpu-n1r2t1", f"{worlds.sys.executable} {file}")


def test_where_that_is_forbidden_a_warning_says_so(tmp_path):
    done = started(tmp_path, REFUSED)
    assert done.returncode == 0, done.stderr


def test_the_thread_for_messages_does_not_interrupt_those_that_compute(tmp_path):
    done = started(tmp_path, SCRIPT)
    assert done.returncode == 0, done.stderr
