"""The site file: its checks, what a run asks for, and which runs share an allocation."""

from pathlib import Path

import pytest

from ketscale.config import Config, load, parse
from ketscale.errors import UserError
from ketscale.grid import Run, decode
from ketscale.jobs.slurm import site
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
    return site.load_site(config, path)


def timed(run: Run) -> bool:
    return run.protocol.startswith("timing")


# ---------------------------------------------------------------- the file


def test_the_projects_own_file_gives_every_run_of_every_study_its_limits():
    paths = [ROOT / "config.yaml", *(ROOT / "workflow" / "studies").glob("*.yaml")]
    complete = [path for path in paths if "protocols" in load(path)]
    assert len(complete) > 4
    for path in complete:
        study = read_config(path)
        actual = read(SHIPPED, study)
        for run in study.runs:
            assert actual.minutes(run) >= 1
            assert actual.memory_mb(run) > site.OVERHEAD_MB


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("simulator: [default.qubit-loop", "simulater: [default.qubit-loop", "limits.1.simulater: unknown setting; did you mean simulator?"),
        ("minutes: 3, memory_mb: 1500", "minutes: 0, memory_mb: 1500", "limits.0.minutes: 0: Expected"),
        ("minutes: 3, memory_mb: 1500", "minutes: 1h, memory_mb: 1500", "limits.0.minutes: '1h': Expected"),
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
    actual = of(
        limits=[
            {"minutes": 5, "memory_mb": 1000},
            {"model": ["vqc", "mlp"], "minutes": 7},
            {"model": "vqc", "qubits": [8, 10], "memory_mb": 3000},
        ]
    )
    small, large = run_at("mpi-n2r4t1", size="q4-l2"), run_at("cpu-n1r1t1", size="q8-l2")
    assert (actual.minutes(small), actual.minutes(large)) == (7, 7)
    assert actual.minutes(run_at("cpu-n1r1t1", model="hydra")) == 5
    # Memory is that of a node: two ranks there, and what starts them.
    assert actual.memory_mb(small) == 2 * 1000 + site.OVERHEAD_MB
    assert actual.memory_mb(large) == 3000 + site.OVERHEAD_MB


def test_a_run_without_limits_is_refused():
    with pytest.raises(UserError, match="limits has no minutes for runs/digits"):
        of(limits=[{"model": "hydra", "minutes": 5, "memory_mb": 100}]).minutes(run_at("cpu-n1r1t1"))


# ---------------------------------------------------------------- packs


def packed(runs, actual):
    names = site.packs(runs, timed, actual, CONFIG.is_trial)
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
            names = site.packs(runs, timed, of(pack={"minutes": 1, "runs": 30}), CONFIG.is_trial)
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
    names = site.packs(
        runs, timed, of(pack={"minutes": 1000, "runs": 30}), lambda run: run.protocol != "tuned"
    )
    assert names[runs[0]] == names[runs[1]] != names[runs[2]]
