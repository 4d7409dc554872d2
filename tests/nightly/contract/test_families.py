"""The contract of a family, for every family of the registry: whoever adds one gets these tests for nothing.

Each trains the family's `tiny` study with one call of Snakemake, from another directory than the Snakefile's.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ketscale import analysis
from ketscale.jobs import cohorts, records
from ketscale.problems.registry import FAMILIES
from tests.tiny_study import TINY, Project

pytestmark = pytest.mark.slow

# What a record says of how a run was laid out.
LAYOUT = ("backend", "nodes", "ranks", "threads")


@pytest.fixture(scope="module", params=list(FAMILIES))
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The family's tiny study, finished."""
    project = Project(tmp_path_factory.mktemp(request.param) / "project", TINY[request.param])
    project.snakemake()
    return project


def test_every_run_is_finished_and_the_report_is_made(project: Project) -> None:
    assert all(record["status"] == "completed" for record in project.records())
    runs = {run.path for run in analysis.of(project.config).runs}
    assert runs <= {str(path.relative_to(project.results)) for path in project.results.rglob("metrics.json")}
    assert {row["status"] for row in project.table("runs")} == {"completed"}
    page = (project.results / "report.html").read_text()
    assert 10_000 < len(page) < 5e6
    assert not [line for line in page.splitlines() if 'src="http' in line or '<link rel="stylesheet"' in line]
    assert not (project.folder / "results").exists(), "something was written outside the results folder"
    for figure in ("accuracy", "simulators"):
        assert (project.results / "figures" / f"{figure}.svg").stat().st_size > 1000


def test_each_model_takes_a_first_step_with_each_simulator(project: Project) -> None:
    result = project.run("ketscale", "try")
    runs = [line.partition(": ")[0].split("/") for line in result.stdout.splitlines()]
    assert {(workload, model, simulator) for workload, model, _, simulator, *_ in runs} == {
        (run["workload"], run["model"], run["simulator"])
        for run in (record["run"] for record in project.records())
    }


def test_numbers_are_the_same_on_all_ranks_and_under_all_simulators(project: Project) -> None:
    compared = records.read(analysis.of(project.config), project.results).comparisons
    simulators, ranks = set(), set()
    for each in compared:
        assert each.agrees, each
        if each.precision == "fp64":
            assert each.limit <= 1e-9
            simulators |= {each.run.simulator, each.reference.simulator}
            ranks.add(each.run.ranks)
    assert {2, 3} <= ranks
    assert simulators == set(project.simulators)


def test_all_ranks_together_see_as_many_samples_as_one_rank(project: Project) -> None:
    counts: dict[str, dict[int, int]] = {}
    for record in project.records():
        point = {name: value for name, value in record["run"].items() if name not in LAYOUT}
        samples = sum(rank["samples"] for rank in record["machine"]["ranks"])
        counts.setdefault(json.dumps(point, sort_keys=True), {})[record["run"]["ranks"]] = samples
    several = [result for result in counts.values() if len(result) > 1]
    assert several
    for result in several:
        assert len(set(result.values())) == 1 and result[1] > 0, result


def test_quality_has_the_familys_metrics_and_its_headline_is_tabulated(project: Project) -> None:
    records = [record for record in project.records() if record["quality"]]
    family = FAMILIES[records[0]["family"]]
    for record in records:
        for split in ("validation", "test"):
            assert {"loss", *(metric.name for metric in family.metrics)} <= set(record["quality"][split])
            assert family.headline.chance != "data" or 0 <= record["quality"][split]["chance"] <= 1
        assert (record["quality"]["right"] is not None) == family.headline.is_share
    rows = project.table("quality")
    assert {row["metric"] for row in rows} == {family.headline.name}
    assert all(row["value"] for row in rows)


def test_a_resumed_run_ends_bitwise_as_an_uninterrupted_one(project: Project) -> None:
    record = project.record_path(protocol="long", seed=7)
    resumed = project.interrupted_and_resumed(record)
    assert resumed["resumed"] >= 1
    undisturbed = retrained(project, record)
    assert undisturbed["resumed"] == 0
    assert resumed["weights_hash"] == undisturbed["weights_hash"]
    assert resumed["losses"] == undisturbed["losses"]
    assert resumed["quality"] == undisturbed["quality"]


def test_the_trained_model_is_kept_and_loads(project: Project) -> None:
    import torch

    from ketscale.problems import library

    for record in project.records():
        folder = project.folder / project.record_path(**record["run"] | {"backend": _layout(record["run"])})
        model = library.load(folder.parent)
        assert sum(p.numel() for p in model.parameters()) > 0
        assert all(torch.isfinite(p).all() for p in model.parameters())
        assert set(record["files"]) >= {"history.csv", "model.safetensors"}
        assert ("predictions.npz" in record["files"]) == (record["quality"] is not None)


def test_seeds_are_trained_together_where_models_and_simulators_can_and_only_there(project: Project) -> None:
    for record in project.records():
        run = record["run"]
        settings = project.settings(project.record_path(**run | {"backend": _layout(run)}))
        simulated = settings.simulator is None or settings.simulator.stacks
        several = run["protocol"] == "quality" and settings.model.stacks and simulated
        assert record["cohort"] == ([f"quality/seed{1 - run['seed']}"] if several else [])
        if several:
            assert record["timing"]["step"]["count"] == 0
    assert {row["cohort"] for row in project.table("runs")} == {
        str(1 + len(r["cohort"])) for r in project.records()
    }
    assert not (project.results / "cohorts").exists()


def test_a_seed_that_is_trained_together_is_as_good_as_alone(project: Project) -> None:
    values = [record for record in project.records() if record["cohort"]]
    if not values:
        pytest.skip("its models do not say `stacks`")
    # The last run of each model, whose place in the stack is not the first.
    for together in {record["run"]["model"]: record for record in values}.values():
        record = project.record_path(**together["run"] | {"backend": _layout(together["run"])})
        single = retrained(project, record)
        assert single["cohort"] == []
        assert together["losses"] == pytest.approx(single["losses"], rel=1e-10)
        for name in ("split", "data_hash", "features_hash", "parameters"):
            assert together[name] == single[name], name
        for name in ("epochs", "right"):
            assert together["quality"][name] == single["quality"][name], name
        for part in ("validation", "test"):
            mine, its = (each["quality"][part] for each in (together, single))
            assert mine["loss"] == pytest.approx(its["loss"], rel=1e-8)
            # How many samples there are, and of which classes.
            assert all(mine.get(name) == its.get(name) for name in ("count", "chance"))
        saved, expected = (
            np.load((project.folder / place).parent / "predictions.npz")
            for place in (record, record.replace("out/tiny", "out/again"))
        )
        for name, rows in expected.items():
            if name in ("samples", "labels"):
                assert (saved[name] == rows).all()


def test_the_data_of_two_seeds_are_the_same_unless_the_workload_says_that_it_is_folded(
    project: Project,
) -> None:
    """A record is checked by what the workload says."""
    import torch

    from ketscale.jobs import started

    manifest, problems = project.features(), []
    for seed in (0, 1):
        settings = project.settings(project.record_path(protocol="quality", seed=seed))
        data = started.read(settings, manifest)
        problem = started.build(settings, data, torch.device("cpu"))
        own = {name: each for name, each in problem.named_buffers() if not name.startswith("model.")}
        problems.append((data.split, own))
    (split, buffers), (other_split, others) = problems
    assert (split.folds is not None) == getattr(settings.workload, "folded", False)
    if split.folds is None:
        assert split == other_split and buffers.keys() == others.keys()
        assert all(torch.equal(each, others[name]) for name, each in buffers.items())


def test_a_stopped_cohort_resumes_bitwise_and_has_the_losses_of_its_runs_alone(project: Project) -> None:
    records = [project.record_path(protocol="long", seed=seed) for seed in (8, 9)]
    if cohorts.shape(project.settings(records[0])) is None:
        pytest.skip("its models do not say `stacks`")
    others = [record.replace("out/tiny", "out/once-more") for record in records]
    with project.one_cohort(records):
        project.interrupted_and_resumed(records[0])
        launch(project, records[1])
        for other in others:
            launch(project, other)
    for record, other in zip(records, others, strict=True):
        resumed, undisturbed = (json.loads((project.folder / each).read_text()) for each in (record, other))
        assert (resumed["resumed"], undisturbed["resumed"]) == (1, 0)
        assert len(resumed["cohort"]) == len(undisturbed["cohort"]) == 1
        assert resumed["weights_hash"] == undisturbed["weights_hash"]
        assert resumed["losses"] == undisturbed["losses"]
    assert resumed["losses"] == pytest.approx(retrained(project, record)["losses"], rel=1e-10)


def retrained(project: Project, record: str) -> dict[str, Any]:
    """The record of a run that is trained once more, alone and elsewhere."""
    other = record.replace("out/tiny", "out/again")
    launch(project, other)
    return json.loads((project.folder / other).read_text())


def launch(project: Project, record: str) -> None:
    """Train a run whose features are in the tiny study's folder."""
    features = project.features()
    project.run("ketscale", "launch", record, *(["--features", str(features)] if features else []))


def _layout(run: dict[str, object]) -> str:
    return f"{run['backend']}-n{run['nodes']}r{run['ranks']}t{run['threads']}"


def test_nothing_is_left_to_do_and_one_missing_seed_is_one_run(project: Project) -> None:
    assert "left: nothing" in project.run("ketscale", "status").stdout
    result = project.snakemake("-n")
    assert "Nothing to be done" in result.stdout + result.stderr
    lost = next(path for path in project.results.rglob("metrics.json") if path.parent.name == "seed1")
    content = lost.read_bytes()
    lost.unlink()
    try:
        result = project.snakemake("-n")
        assert _count(result.stdout + result.stderr, "train") == 1
    finally:
        lost.write_bytes(content)


def _count(planned: str, rule: str) -> int:
    lines = [line.split() for line in planned.splitlines()]
    return next(int(words[1]) for words in lines if len(words) == 2 and words[0] == rule)


# One family is enough: what is made anew is Snakemake's affair.
@pytest.mark.parametrize("project", ["images"], indirect=True)
def test_a_deleted_seed_is_trained_again_and_the_tables_refreshed_and_nothing_else(project: Project) -> None:
    paths = sorted(project.results.rglob("metrics.json"))
    lost = next(path for path in paths if path.parent.name == "seed1")
    contents = {path: path.read_bytes() for path in paths if path != lost}
    before, tables = json.loads(lost.read_text()), (project.results / "tables" / "runs.csv").read_bytes()
    lost.unlink()
    message = project.snakemake().stderr
    assert all(study["question"] in message for study in project.config["studies"].values())
    after = json.loads(lost.read_text())
    assert after["started"] != before["started"] and after["cohort"] == []
    assert after["losses"] == pytest.approx(before["losses"], rel=1e-10)
    assert all(path.read_bytes() == content for path, content in contents.items())
    assert (project.results / "tables" / "runs.csv").read_bytes() != tables
    result = project.snakemake("-n")
    assert "Nothing to be done" in result.stdout + result.stderr
