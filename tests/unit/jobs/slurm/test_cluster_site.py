"""The site file: its checks, what a run asks for, which runs share an allocation, and what the cluster says to it."""

from pathlib import Path

import pytest

from ketscale.config import Config, load, parse
from ketscale.errors import UserError
from ketscale.grid import Run, decode
from ketscale.jobs.slurm import check, packs, site
from ketscale.problems.registry import FAMILIES, read_config
from tests import ROOT
from tests.toys import run_at

CONFIG = read_config(ROOT / "config.yaml")
SHIPPED = ROOT / "profiles/slurm/site.yaml"


def sizes(run: Run) -> dict[str, int]:
    return decode(FAMILIES["images"].sizes, run.size)


def of(**settings) -> site.Site:
    given = {"account": "a", "partition": "cpu", "limits": [{"minutes": 10, "memory_mb": 1000}], **settings}
    return site.Site(
        parse(site.SiteFile, {key: value for key, value in given.items() if value is not None}, ""), sizes
    )


def read(path: Path, config: Config = CONFIG) -> site.Site:
    return site.load_site(config.sizes, config.size_names, path)


def timed(run: Run) -> bool:
    return run.protocol.startswith("timing")


# ---------------------------------------------------------------- the file


def test_the_projects_own_file_gives_every_run_of_every_study_its_limits():
    paths = [ROOT / "config.yaml", *(ROOT / "workflow" / "studies").glob("*.yaml")]
    whole = [path for path in paths if "protocols" in load(path)]
    assert len(whole) > 4
    for path in whole:
        study = read_config(path)
        ours = read(SHIPPED, study)
        for run in study.runs:
            assert ours.minutes(run) >= 1
            assert ours.memory_mb(run) > site.OVERHEAD_MB


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("simulator: [default.qubit-loop", "simulater: [default.qubit-loop", "limits.1.simulater: unknown setting; did you mean simulator?"),
        ("minutes: 3, memory_mb: 1500", "minutes: 0, memory_mb: 1500", "minutes: 0 is too small"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_is_said_in_a_line(tmp_path, old, new, message):
    text = SHIPPED.read_text()
    assert text.count(old) >= 1
    path = tmp_path / "site.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError) as raised:
        read(path)
    assert message in str(raised.value)
    assert str(raised.value).startswith(str(path))


def test_the_last_line_that_fits_a_run_counts_key_by_key():
    ours = of(
        limits=[
            {"minutes": 5, "memory_mb": 1000},
            {"model": ["vqc", "mlp"], "minutes": 7},
            {"model": "vqc", "qubits": [8, 10], "memory_mb": 3000},
        ]
    )
    small, large = run_at("mpi-n2r4t1", size="q4-l2"), run_at("cpu-n1r1t1", size="q8-l2")
    assert (ours.minutes(small), ours.minutes(large)) == (7, 7)
    assert ours.minutes(run_at("cpu-n1r1t1", model="hydra")) == 5
    # Memory is that of a node: two ranks there, and what starts them.
    assert ours.memory_mb(small) == 2 * 1000 + site.OVERHEAD_MB
    assert ours.memory_mb(large) == 3000 + site.OVERHEAD_MB


def test_time_and_memory_grow_with_the_attempt():
    ours, run = of(), run_at("cpu-n1r1t1")
    assert [ours.minutes(run, attempt) for attempt in (1, 2, 3)] == [10, 20, 30]
    assert [ours.memory_mb(run, n) for n in (1, 2, 3)] == [n * (1000 + site.OVERHEAD_MB) for n in (1, 2, 4)]


def test_a_run_without_limits_is_refused():
    with pytest.raises(UserError, match="limits has no minutes for runs/digits"):
        of(limits=[{"model": "hydra", "minutes": 5, "memory_mb": 100}]).minutes(run_at("cpu-n1r1t1"))


# ---------------------------------------------------------------- packs


def packed(runs, ours):
    names = packs.packs(runs, timed, ours, CONFIG.is_trial)
    assert set(names) == set(runs)
    members = {}
    for run, name in names.items():
        members.setdefault(name, []).append(run)
    return members


def test_the_points_of_a_ratio_share_a_pack_however_small_packs_are():
    runs = CONFIG.runs
    members = packed(runs, of(pack={"minutes": 1, "runs": 1}))
    for study in CONFIG.studies:
        if study.kind not in ("strong", "weak"):
            continue
        for alike in {(run.workload, run.model, run.size, run.seed) for run in study.runs}:
            points = [
                run
                for run in study.runs
                if (run.workload, run.model, run.size, run.seed) == alike and run.nodes == 1
            ]
            assert len(points) > 1
            names = packs.packs(runs, timed, of(pack={"minutes": 1, "runs": 30}), CONFIG.is_trial)
            assert len({names[run] for run in points}) == 1
    # Untimed runs alone fill packs of one.
    assert all(len(of_pack) == 1 for of_pack in members.values() if not timed(of_pack[0]))


def test_packs_hold_what_the_site_allows_and_one_shape():
    runs = [run_at("cpu-n1r1t1", seed=s) for s in range(50)] + [
        run_at("mpi-n2r4t1", seed=s) for s in range(7)
    ]
    members = packed(runs, of(pack={"minutes": 60, "runs": 100}))
    assert sorted(len(of_pack) for of_pack in members.values()) == [1, 2, *[6] * 9]
    assert all(len({run.layout for run in of_pack}) == 1 for of_pack in members.values())
    members = packed(runs, of(pack={"minutes": 10_000, "runs": 20}))
    assert sorted(len(of_pack) for of_pack in members.values()) == [7, 10, 20, 20]


def test_timed_and_untimed_runs_and_gpus_never_mix():
    runs = [
        run_at(where, protocol=protocol)
        for where in ("cpu-n1r1t1", "mpi-n1r2t1", "gpu-n1r1t1", "ddp-n1r2t1", "ddp-n2r4t1", "mpi-n2r4t1")
        for protocol in ("timing", "test")
    ]
    for of_pack in packed(runs, of(pack={"minutes": 1000, "runs": 30})).values():
        assert len({timed(run) for run in of_pack}) == 1
        assert len({(run.nodes, site.gpus_per_node(run)) for run in of_pack}) == 1


def test_trials_and_the_runs_that_wait_for_them_never_mix():
    runs = [run_at("cpu-n1r1t1", protocol=protocol) for protocol in ("tuned-t00", "tuned-t01", "tuned")]
    names = packs.packs(
        runs, timed, of(pack={"minutes": 1000, "runs": 30}), lambda run: run.protocol != "tuned"
    )
    assert names[runs[0]] == names[runs[1]] != names[runs[2]]


# ---------------------------------------------------------------- the cluster's answer

SINFO = """cpu*|4|4|4096|gpu:h200:2|1:00:00
gpu|2|64|512000|gpu:a100:4(S:0-3),nvme:1|2-00:00:00
gpu|1|32|256000|(null)|2-00:00:00
"""
ASSOCIATIONS = "ci|normal\nci|high\nother|\n"


@pytest.fixture
def cluster(monkeypatch):
    """A cluster that answers as the real one of tests/nightly/slurm does."""
    answers = {"sinfo": SINFO, "sacctmgr": ASSOCIATIONS, "scontrol": "MinJobAge               = 300 sec\n"}
    monkeypatch.setattr(check, "ask", lambda command, *rest: answers[command])
    monkeypatch.setattr(check.shutil, "which", lambda name: f"/usr/bin/{name}")
    return answers


def refused(ours: site.Site, *runs: Run) -> str:
    with pytest.raises(UserError) as raised:
        check.check(ours, dict.fromkeys(runs, "pack"), True, "squeue")
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_what_fits_is_let_through(cluster):
    ours = of(account="ci", qos="high", gpu_partition="gpu", features={"minutes": 30, "memory_mb": 4000})
    runs = [run_at(where) for where in ("cpu-n1r1t4", "mpi-n4r8t1", "ddp-n2r8t4")]
    room = check.check(ours, {run: run.layout for run in runs}, True, "squeue")
    # A partition of an hour, one of two days, and runs of the site's minutes.
    assert [room[run].factor for run in runs] == [60 / ours.minutes(runs[0])] * 2 + [
        2880 / ours.minutes(runs[2])
    ]
    assert [room[run].memory_mb for run in runs] == [4096, 4096, 512000]


def test_a_pack_grows_as_far_as_its_partition_has_time(cluster):
    ours = of(account="ci", limits=[{"minutes": 25, "memory_mb": 500}])
    runs = [run_at(where) for where in ("cpu-n1r1t1", "cpu-n1r1t2")]
    room = check.check(ours, dict.fromkeys(runs, "pack"), False, "squeue")
    second = [ours.minutes(run, min(2, room[run].factor)) for run in runs]
    assert second == [30, 30]
    assert room[None] == check.Room(60 / ours.file.features.minutes, 4096)


def test_a_cluster_that_forgets_its_jobs_too_soon_is_refused(cluster):
    cluster["scontrol"] = "MinJobAge               = 60 sec\n"
    assert "forgets jobs 60 s after their end" in refused(of(account="ci"), run_at("cpu-n1r1t1"))
    check.check(of(account="ci"), {run_at("cpu-n1r1t1"): "pack"}, False, "sacct")


@pytest.mark.parametrize(
    "settings, where, message",
    [
        ({"account": "nobody"}, "cpu-n1r1t1", "account nobody is not one of yours: ci, other"),
        ({"partition": "fast"}, "cpu-n1r1t1", "partition fast does not exist; the cluster has: cpu, gpu"),
        (
            {},
            "mpi-n1r8t1",
            "puts 8 rank(s) of 1 thread(s) on a node, but the nodes of partition cpu have 4 cores",
        ),
        ({}, "mpi-n8r8t1", "needs 8 nodes, but partition cpu has 4"),
        ({"limits": [{"minutes": 1, "memory_mb": 5000}]}, "cpu-n1r1t1", "needs 5700 MB per node"),
        ({"limits": [{"minutes": 90, "memory_mb": 500}]}, "cpu-n1r1t1", "needs 90 min by the limits of"),
    ],
)
def test_what_the_cluster_would_refuse_is_said_in_a_line(cluster, settings, where, message):
    assert message in refused(
        of(**{"account": "ci", "features": {"minutes": 30, "memory_mb": 4000}, **settings}), run_at(where)
    )
