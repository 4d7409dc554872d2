"""Which runs are trained together."""

import msgspec
import pytest

from ketscale.jobs import cohorts
from ketscale.problems.registry import FAMILIES
from ketscale.problems.sentences.specification import LikelihoodSimulator
from tests.process.integration import study


def runs(protocol, seeds=3, model="mlp"):
    """Runs of one shape."""
    axes = {"mlp": {"size": "q0-l0", "simulator": "none"}, "vqc": {"size": "q2-l1", "simulator": "fused"}}
    return [study.run(model=model, seed=seed, protocol=protocol, **axes[model]) for seed in range(seeds)]


def settings(run, **protocol):
    """The settings of a run, with some of its protocol's replaced."""
    result = study.settings(run)
    changed = msgspec.structs.replace(result.protocol, **protocol)
    return type(result)(**{**vars(result), "protocol": changed}) if protocol else result


def seeds(of):
    """The seeds of cohorts."""
    return [[each.run.seed for each in cohort] for cohort in of]


def test_runs_of_one_shape_are_one_cohort_and_the_others_train_alone():
    expected = [settings(run) for run in (*runs("epochs"), *runs("epochs", model="vqc"), *runs("timed"))]
    assert seeds(cohorts.plan(expected, cores=1)) == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize(
    "change, together",
    [
        ({"learning_rate": 0.1}, True),
        ({"weight_decay": 0.1}, True),
        ({"epochs": 7}, True),
        ({"dropout": 0.3}, False),
        ({"precision": "fp64"}, False),
        ({"checkpoint_steps": 7}, False),
        ({"steps": 7, "epochs": None}, False),
    ],
    ids=str,
)
def test_what_changes_no_shape_may_differ(change, together):
    one, other = (settings(run) for run in runs("epochs", seeds=2))
    changed = settings(other.run, **change)
    assert (cohorts.plan([one, changed], cores=1) == [[one, changed]]) == together


@pytest.mark.parametrize(
    "change",
    [
        {"timed": True},
        {"mistake": "unsharded"},
        {"precision": "amp"},
        {"optimiser": "l-bfgs"},
    ],
    ids=str,
)
def test_what_must_train_alone_does(change):
    assert cohorts.shape(settings(runs("epochs")[0], **change)) is None


def test_several_ranks_and_simulators_that_take_one_set_of_weights_train_alone():
    assert cohorts.shape(settings(study.run("mpi-n1r2t1", simulator="fused", protocol="epochs"))) is None
    assert cohorts.shape(settings(study.run(simulator="default.qubit", protocol="epochs"))) is None
    assert cohorts.shape(settings(study.run("gpu-n1r1t1", simulator="fused", protocol="epochs"))) is None
    assert cohorts.shape(settings(study.run(simulator="fused", protocol="epochs"))) is not None
    sentences = {"workload": "sentences", "model": "superposition_transformer", "size": "q4-l1"}
    for simulator, joint in (("closed-form-shift", False), ("default.qubit", False), ("fused", True)):
        result = cohorts.shape(settings(study.run(**sentences, simulator=simulator, protocol="descent")))
        assert (result is not None) == joint
    closed = {"device": "closed-form", "batching": "broadcast"}
    for gradient, joint in (("backprop", True), ("parameter-shift", False)):
        assert LikelihoodSimulator(**closed, gradient=gradient).stacks == joint


def test_runs_are_dealt_so_that_every_place_has_one():
    expected = [settings(run) for run in runs("epochs", seeds=6)]
    assert seeds(cohorts.plan(expected, cores=2)) == [[0, 2, 4], [1, 3, 5]]
    assert seeds(cohorts.plan(expected, cores=6)) == []
    assert seeds(cohorts.plan([*expected, *(settings(run) for run in runs("timed", seeds=1))], cores=2)) == [
        [0, 1, 2, 3, 4, 5]
    ]
    many = [settings(run) for run in runs("epochs", seeds=cohorts.MOST + 1)]
    assert [len(cohort) for cohort in cohorts.plan(many, cores=1)] == [17, 16]


@pytest.mark.parametrize("number, cores", [(65, 2), (128, 64), (3, 8)])
def test_the_first_jobs_are_of_different_cohorts_of_about_one_size(number, cores):
    """Or they would wait for each other."""
    many = [settings(run) for run in runs("epochs", seeds=number)]
    result = seeds(cohorts.plan(many, cores))
    sizes = [len(one) for one in result]
    assert sum(sizes) == (number if number > cores else 0)
    assert not sizes or (max(sizes) <= cohorts.MOST and max(sizes) - min(sizes) <= 1)
    assert [one[0] for one in result] == list(range(len(result)))


def test_what_an_interruption_leaves_stays_together():
    expected = [settings(run) for run in runs("epochs", seeds=6)]
    left = {one.run for one in expected[1:]}
    assert seeds(cohorts.plan(expected, cores=2, missing=left)) == [[2, 4], [1, 3, 5]]


def test_runs_of_other_allocations_are_other_cohorts():
    expected = [settings(run) for run in runs("epochs", seeds=4)]
    assert seeds(cohorts.plan(expected, 1, lambda run: str(run.seed // 2))) == [[0, 1], [2, 3]]


def test_a_job_finds_its_cohort_and_only_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("KETSCALE_CALL", "a-call")
    monkeypatch.setenv(cohorts.VARIABLE, "")
    expected = [settings(run) for run in runs("epochs", seeds=5)]
    other = settings(runs("epochs", seeds=6)[5])
    cohorts.write(tmp_path, [expected[0::2], expected[1::2]])
    file = cohorts.file_of(expected[3].run)
    assert file is not None and cohorts.read(file, FAMILIES) == expected[1::2]
    assert cohorts.file_of(other.run) is None
    cohorts.forget()
    assert cohorts.file_of(expected[3].run) is None and not file.exists()
