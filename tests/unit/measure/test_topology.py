"""Threads of one core are not taken for two cores, and a run is quiet or not on its own cores."""

import os
import time

import pytest

from ketscale.measure import host, quiet, topology
from ketscale.measure.quiet import Watch, quietness
from ketscale.measure.topology import Processors, choose, shared_cores

# Two sockets of two cores with two threads each, numbered as Linux does: 0-3 are first threads, 4-7 second ones.
SMT = Processors(2, 4, 2, {cpu: cpu % 4 for cpu in range(8)})


def write_sys(folder, core_of, packages=None):
    for cpu, core in core_of.items():
        of_cpu = folder / f"cpu{cpu}" / "topology"
        of_cpu.mkdir(parents=True)
        siblings = ",".join(str(other) for other, its in core_of.items() if its == core)
        (of_cpu / "thread_siblings_list").write_text(f"{siblings}\n")
        (of_cpu / "physical_package_id").write_text(f"{(packages or {}).get(cpu, 0)}\n")
    (folder / "cpuidle").mkdir(parents=True)
    return folder


def test_the_topology_is_read_from_sys(tmp_path):
    result = topology.read(write_sys(tmp_path, SMT.core_of, {cpu: cpu % 4 // 2 for cpu in range(8)}))
    assert result == SMT


def test_siblings_may_be_given_as_a_range(tmp_path):
    write_sys(tmp_path, {0: 0, 1: 0, 2: 2, 3: 2})
    for cpu in range(4):
        (tmp_path / f"cpu{cpu}/topology/thread_siblings_list").write_text("0-1\n" if cpu < 2 else "2-3\n")
    assert topology.read(tmp_path).core_of == {0: 0, 1: 0, 2: 2, 3: 2}


@pytest.mark.parametrize("broken", ["nothing", "no folder", "no siblings", "empty"])
def test_what_sys_does_not_tell_is_unknown(tmp_path, broken):
    folder = tmp_path / "cpu"
    if broken != "no folder":
        write_sys(folder, {} if broken == "nothing" else {0: 0, 1: 1})
    if broken == "no siblings":
        (folder / "cpu1/topology/thread_siblings_list").unlink()
    if broken == "empty":
        (folder / "cpu1/topology/thread_siblings_list").write_text("\n")
    assert topology.read(folder) is None


@pytest.mark.parametrize(
    "result, cpus, threads, chosen",
    [
        (SMT, range(8), 4, [0, 1, 2, 3]),
        (SMT, {0, 4, 1, 5}, 2, [0, 1]),
        (SMT, {4, 1, 5}, 2, [4, 1]),
        # Six threads on four cores: no core stays empty, and neighbours in the list share.
        (SMT, range(8), 6, [0, 4, 1, 5, 2, 3]),
        (None, {9, 0, 4}, 2, [0, 4]),
    ],
)
def test_threads_get_cores_of_their_own_where_there_are_enough(result, cpus, threads, chosen):
    assert choose(result, cpus, threads) == chosen


@pytest.mark.parametrize(
    "result, ranks, threads, shared",
    [
        (SMT, [[0, 1], [2, 3]], 2, False),
        (SMT, [[0, 4]], 2, True),
        (SMT, [[0, 1], [0, 1]], 2, True),
        (SMT, [range(8), range(8)], 2, False),
        (None, [[0]], 1, None),
    ],
)
def test_it_is_known_whether_threads_share_cores(result, ranks, threads, shared):
    assert shared_cores(result, ranks, threads) is shared


@pytest.fixture
def smt(monkeypatch):
    """A process that may use all CPUs of the host `SMT`; what it is bound to."""
    bound = set(range(8))

    def bind_to(cpus):
        bound.clear()
        bound.update(cpus)

    monkeypatch.setattr(topology, "read", lambda: SMT)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(bound))
    monkeypatch.setattr(host, "bind_to", bind_to)
    return bound


@pytest.mark.parametrize(
    "local_ranks, threads, bound",
    [(1, 1, [{0}]), (2, 2, [{0, 1}, {2, 3}]), (4, 1, [{0}, {1}, {2}, {3}]), (2, 3, [{0, 4, 1}, {5, 2, 3}])],
)
def test_ranks_are_bound_to_cores_and_not_to_threads_of_a_core(smt, local_ranks, threads, bound):
    for rank, cpus in enumerate(bound):
        smt.update(range(8))
        assert host.bind(rank, local_ranks, threads) == sorted(cpus)
        assert smt == cpus


@pytest.mark.parametrize("local_ranks, threads", [(3, 3), (1, 8)])
def test_nothing_is_bound_where_cpus_do_not_suffice_or_fit_exactly(smt, local_ranks, threads):
    assert host.bind(0, local_ranks, threads) == list(range(8)) and smt == set(range(8))


def test_every_thread_of_the_process_is_bound():
    import threading

    before, result = os.sched_getaffinity(0), threading.Event()
    other = threading.Thread(target=result.wait)
    other.start()
    try:
        host.bind_to({min(before)})
        assert os.sched_getaffinity(other.native_id) == os.sched_getaffinity(0) == {min(before)}
    finally:
        host.bind_to(before)
        result.set()
        other.join()


def test_the_description_names_the_core_of_each_cpu(smt):
    smt.difference_update({2, 3, 6, 7})
    assert host.describe()["cores"] == 4
    assert host.describe()["topology"] == {
        "sockets": 2, "physical_cores": 4, "threads_per_core": 2, "core_of": {"0": 0, "1": 1, "4": 0, "5": 1}
    }  # fmt: skip


class Kernel:
    """A /proc/stat of 8 CPUs, and the clock beside it."""

    def __init__(self, path, monkeypatch):
        self.path, self.now_s, self.busy_s, self.steal_s = path, 100.0, [10.0] * 8, [0.0] * 8
        monkeypatch.setattr(quiet, "_STAT", path)
        monkeypatch.setattr(quiet, "throttled_s", lambda: None)
        monkeypatch.setattr(topology, "read", lambda: SMT)
        monkeypatch.setattr(time, "perf_counter", lambda: self.now_s)
        monkeypatch.setattr(os, "cpu_count", lambda: 8)
        self.write()

    def write(self):
        hertz = os.sysconf("SC_CLK_TCK")
        rows = [(f"cpu{i}", b, s) for i, (b, s) in enumerate(zip(self.busy_s, self.steal_s, strict=True))]
        rows = [("cpu", sum(self.busy_s), sum(self.steal_s)), *rows]
        lines = [f"{name} {int(b * hertz)} 0 0 7 7 0 0 {int(s * hertz)} 0 0" for name, b, s in rows]
        self.path.write_text("\n".join([*lines, "intr 1 2 3"]))


def report(watch, own_s):
    """What the record says of a run of one rank that used so many processor seconds."""
    return quietness([{"host": "a", "seen": {**watch.usage(), "own_s": own_s}}])


def test_quiet_is_judged_by_the_runs_own_cores(tmp_path, monkeypatch):
    kernel = Kernel(tmp_path / "stat", monkeypatch)
    watch = Watch([0])
    # Ten seconds: the run works on CPU 0, others on cores that are not the run's.
    kernel.now_s += 10
    kernel.busy_s = [20.0, 20.0, 20.0, 20.0, 10.0, 20.0, 20.0, 20.0]
    kernel.write()
    single = report(watch, 10.0)
    assert single["quiet"] and single["cpus"] == [0, 4]
    assert single["others_share"] == single["steal_share"] == 0.0
    # Two seconds of work on the core's other thread: 2.5 % of the host, but 10 % of the run's core.
    kernel.busy_s[4] += 2
    kernel.steal_s[0] += 1
    kernel.write()
    result = report(watch, 10.0)
    assert not result["quiet"] and result["others_share"] == pytest.approx(0.1, abs=2e-3)
    assert result["steal_share"] == pytest.approx(0.05)


@pytest.mark.parametrize("threads, alone", [(1, True), (2, True), (3, False)])
def test_more_threads_than_cpus_disturb_each_other(tmp_path, monkeypatch, threads, alone):
    kernel = Kernel(tmp_path / "stat", monkeypatch)
    watch = Watch([0, 1], threads)
    kernel.now_s += 10
    kernel.write()
    result = report(watch, 0.0)
    assert (result["quiet"], result["oversubscribed"]) == (alone, not alone)
