"""A run that a quota, the hypervisor or anybody else held up was not timed alone, on whichever of its hosts."""

import json
import os
import time
import uuid
from pathlib import Path

import pytest

from ketscale.jobs import outcome, results
from ketscale.measure import quiet
from ketscale.measure.quiet import Watch, quietness
from tests.toys import Rows, classification, trainer


def stat(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.stat").write_text(text)


def v2(seconds):
    return f"usage_usec 17\nnr_periods 10\nnr_throttled 7\nthrottled_usec {seconds * 1e6:.0f}\n"


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A function that puts this process into groups, as /proc has them; the mount point of control groups of one's own."""
    monkeypatch.setattr(quiet, "_OWN", tmp_path / "cgroup")
    monkeypatch.setattr(quiet, "_ROOT", tmp_path / "fs")
    return tmp_path / "fs", lambda *lines: (tmp_path / "cgroup").write_text("\n".join(lines))


def throttled(before, after):
    """What the longest-stopped group was stopped between two states of its counters."""
    before()
    result = quiet.throttled_s()
    after()
    return quiet.longest_s(result, quiet.throttled_s())


@pytest.mark.parametrize("limited", ["job/step", "job", "."])
def test_the_quota_may_be_that_of_any_group_around_the_process(kernel, limited):
    top, enter = kernel
    enter("0::/job/step")
    for group in ("job/step", "job", "."):
        stat(top / group, v2(3.0))
    stat(top / "job/step/other", v2(1.0))

    def after():
        stat(top / limited, v2(5.5))
        stat(top / "job/step/other", v2(99.0))  # not around it

    assert throttled(lambda: None, after) == pytest.approx(2.5)


def test_version_1_counts_nanoseconds_and_only_its_hierarchy_of_the_cpu_counts(kernel):
    top, enter = kernel
    enter("4:memory:/x", "2:cpu,cpuacct:/x", "0::/x")
    stat(top / "memory/x", "throttled_time 99000000000\n")
    stat(top / "cpu/x", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")
    changed = lambda: stat(top / "cpu/x", "nr_periods 9\nnr_throttled 9\nthrottled_time 1500000000\n")  # noqa: E731
    assert throttled(lambda: None, changed) == pytest.approx(1.5)


def test_in_a_container_the_visible_part_of_the_hierarchy_is_looked_at(kernel):
    top, enter = kernel
    enter("0::/docker/abc/inner")
    assert throttled(lambda: stat(top, v2(1.0)), lambda: stat(top, v2(2.0))) == pytest.approx(1.0)


def test_without_visible_groups_it_is_unknown_and_the_run_may_be_quiet(kernel):
    top, enter = kernel
    assert quiet.throttled_s() is None
    stat(top, v2(1.0))
    for own in ("", "0::/../host"):
        enter(*filter(None, [own]))
        assert quiet.throttled_s() is None
    assert quiet.longest_s(None, None) is None
    result = quietness([rank(throttled_share=None)])
    assert result["quiet"] and result["throttled_share"] is None


def test_a_group_without_a_quota_has_not_been_stopped(kernel):
    top, enter = kernel
    enter("0::/")
    stat(top, "usage_usec 17\nuser_usec 10\n")
    assert quiet.throttled_s() == {str(top): 0.0}


def rank(host="a", **seen):
    """What a rank has seen in ten seconds on a CPU of its own."""
    defaults = {
        "own_s": 10.0, "busy_s": 10.0, "steal_s": 0.0, "capacity_s": 10.0, "cpus": [0], "throttled_share": 0.0, "oversubscribed": False,
    }  # fmt: skip
    return {"host": host, "seen": {**defaults, **seen}}


@pytest.mark.parametrize(
    "changes, why",
    [
        ({}, ""),
        ({"steal_s": 0.6}, "the hypervisor gave 6% of its cores to other guests"),
        ({"throttled_share": 0.04}, ""),
        ({"throttled_share": 0.7}, "a CPU quota stopped it for 70% of its time"),
        ({"own_s": 8.0}, "other processes used 20% of its cores"),
        ({"oversubscribed": True}, "its threads are more than its CPUs"),
    ],
    ids=str,
)
def test_a_run_is_quiet_only_if_every_host_and_rank_was(changes, why):
    for ranks in ([rank(**changes)], [rank(), rank("b", **changes)], [rank("b", **changes), rank()]):
        result = quietness(ranks)
        assert (result["quiet"], result["why"]) == (not why, why)


def test_ranks_of_one_host_are_no_others_to_each_other():
    """Both have seen what both did on the two CPUs of the host."""
    both = {"busy_s": 20.0, "capacity_s": 20.0, "cpus": [0, 1]}
    assert quietness([rank(**both), rank(**both)])["others_share"] == 0.0
    assert quietness([rank(**both), rank("b")])["others_share"] == pytest.approx(0.5, abs=2e-3)


def test_what_a_loop_does_beside_its_steps_is_accounted_for():
    """Validation, reports and checkpoints, however long they take."""

    class SlowRows(Rows):
        def append(self, row):
            time.sleep(0.05)
            super().append(row)

    protocol = {"epochs": 3, "checkpoint_steps": 1}
    loop = trainer(classification(), protocol, save=lambda state: time.sleep(0.05), history=SlowRows())
    result = outcome.run(loop)
    timing = results.timing(loop, result)
    assert timing["aside_s"] > 3 * 0.05
    assert timing["steps_s"] + timing["aside_s"] <= timing["train_s"]


@pytest.fixture
def quota():
    """The file that takes processes into a control group with a tenth of a CPU; skips where there cannot be one."""
    for top in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/cpu")):
        result = top / f"ketscale-{uuid.uuid4().hex}"
        if not (top / "quiet.procs").exists():
            continue
        try:
            result.mkdir()
            v2 = (result / "cpu.max").exists()
            (result / ("cpu.max" if v2 else "cpu.cfs_quota_us")).write_text("10000 100000" if v2 else "10000")
        except OSError:
            if result.exists():
                result.rmdir()
            continue
        yield result / "quiet.procs"
        result.rmdir()
        return
    pytest.skip("no control group with a quota of the CPU can be made here")


def test_a_process_under_a_quota_is_not_quiet_and_says_why(quota):
    actual, expected = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            quota.write_text(str(os.getpid()))
            watch, end = Watch([0]), time.perf_counter() + 1
            while time.perf_counter() < end:
                pass
            usage = {"host": "a", "seen": watch.usage()}
            os.write(expected, json.dumps(quietness([usage])).encode())
        finally:
            os._exit(0)
    os.close(expected)
    content = json.loads(os.read(actual, 1 << 16))
    os.waitpid(child, 0)
    # On a busy machine others may take so much that the quota hardly binds: never all of it.
    assert content["throttled_share"] > 0.05
    assert not content["quiet"] and "a CPU quota stopped it for" in content["why"]
