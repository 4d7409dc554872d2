"""Whole runs from the command line, and the record that each of them leaves."""

import csv
import json
import shlex
import sys

import numpy as np
import pytest
import torch

import ketscale
from ketscale import grid
from ketscale.analysis.comparability import modules
from ketscale.jobs import provenance
from ketscale.measure.record import check
from tests.process.integration import study
from tests.process.parallel import worlds
from tests.record_maker import typed


def test_record_says_what_ran_and_how_long(tmp_path, digits_features):
    run = study.run()
    # Not forked, since a fork has all that its server has imported.
    with study.launch(tmp_path, run, digits_features) as process:
        _, error = process.communicate(timeout=600)
    assert process.returncode == 0, error
    record = json.loads((tmp_path / study.record(run)).read_text())
    settings, features = study.settings(run), json.loads(digits_features.read_text())["hash"]
    assert check(tmp_path / study.record(run), settings, features).record == typed(record)
    assert grid.Run.of(record["run"]) == run and record["sizes"] == {"qubits": 2, "layers": 1}
    assert record["config"] == settings.content and record["features_hash"] == features
    assert record["status"] == "completed" and record["resumed"] == 0 and record["quality"] is None
    assert len(record["losses"]) == 12
    timing = record["timing"]
    assert timing["steps"] == 12 and timing["steps_per_epoch"] == 90
    assert (
        timing["step"]["count"] + (timing["preempted"] or 0) == 12 - 2 - 2
        and timing["sampled_step"]["count"] == 2
    )
    assert timing["epoch_s"] == pytest.approx(90 * timing["step"]["mean_s"])
    assert {"circuit.forward", "circuit.backward", "optimiser"} <= set(timing["spans"])
    (rank,) = record["machine"]["ranks"]
    assert (
        rank["threads"]["torch"] == rank["threads"]["compiled"] == 1
        and rank["threads"]["OMP_NUM_THREADS"] == "1"
    )
    assert rank["samples"] == 12 * 16 and rank["peak_rss_bytes"] > 1e8
    assert record["gradient_bytes"] == 4 * record["parameters"]
    assert record["machine"]["node_type"] is None
    imported = {name for name, _ in modules(record["code"]["imported"])}
    own, others = (
        ("training/loop.py", "problems/vectors/vqc.py"),
        ("problems/eeg/hydra.py", "analysis/analysed.py"),
    )
    assert {provenance.short(name) for name in own} <= imported
    assert not {provenance.short(name) for name in others} & imported
    with (study.results(tmp_path, run) / "history.csv").open() as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["12"]


def test_training_by_epochs_reports_quality(tmp_path, digits_features):
    run = study.run(model="mlp", size="q0-l0", simulator="none", protocol="epochs", batch=64)
    record = study.train(tmp_path, run, digits_features)
    quality = record["quality"]
    assert quality["epochs"] == 2
    assert {"loss", "accuracy", "auc", "f1", "confusion", "chance"} <= set(quality["test"])
    confusion = quality["test"]["confusion"]
    right = sum(confusion[i][i] for i in range(10))
    assert right / sum(map(sum, confusion)) == pytest.approx(quality["test"]["accuracy"])
    assert record["timing"]["epoch"]["count"] == 1, "the first has steps that warm up"


def test_a_fitted_model_has_one_timed_phase_and_no_steps(tmp_path, digits_features):
    run = study.run(model="kernel", size="q3-l1", protocol="fit", batch=1)
    record = study.train(tmp_path, run, digits_features)
    settings, features = study.settings(run), json.loads(digits_features.read_text())["hash"]
    assert check(tmp_path / study.record(run), settings, features).record == typed(record)
    timing, quality = record["timing"], record["quality"]
    assert 0 < timing["fit_s"] <= timing["train_s"]
    assert timing["steps"] == timing["steps_per_epoch"] == timing["step"]["count"] == 0
    assert record["losses"] == record["cohort"] == [] and record["gradient_bytes"] is None
    assert quality["epochs"] is quality["best_epoch"] is quality["test"]["loss"] is None
    assert set(quality["chosen"]) == {"cost", "bandwidth"}
    assert quality["test"]["accuracy"] > 1.5 * quality["test"]["chance"] and quality["right"] is not None
    assert record["parameters"] > 45
    folder = study.results(tmp_path, run)
    saved = np.load(folder / grid.PREDICTIONS)
    features = np.load(next(digits_features.parent.glob("*/embeddings.npy")))[saved["samples"]]
    for simulator in (None, "default.qubit"):
        outputs = ketscale.load(folder, simulator)(torch.tensor(features, dtype=torch.float64))
        np.testing.assert_allclose(outputs.detach(), saved["outputs"], rtol=0, atol=1e-9)


def test_inline_features_give_the_losses_of_cached_ones(tmp_path, digits_features):
    cached = study.train(tmp_path, study.run(), digits_features)
    inline = study.train(tmp_path, study.run(protocol="inline"), digits_features)
    assert inline["losses"] == pytest.approx(cached["losses"], rel=1e-3)


def test_a_diverged_run_leaves_a_record_that_says_so(tmp_path, digits_features):
    record = study.train(tmp_path, study.run(protocol="wild"), digits_features)
    assert record["status"] == "diverged" and "step" in record["reason"]
    assert record["quality"] is None and record["weights_hash"] is None


def test_a_run_whose_time_is_over_leaves_a_record_that_says_so(tmp_path, digits_features):
    run = study.run(protocol="limited")
    record = study.train(tmp_path, run, digits_features)
    assert record["status"] == "timed_out"
    assert record["reason"] == "its time of 0.001 s (limit_s) was over after step 1 of 400"
    assert record["timing"]["steps"] == len(record["losses"]) == 1
    assert record["weights_hash"] is None
    features = json.loads(digits_features.read_text())["hash"]
    assert check(tmp_path / study.record(run), study.settings(run), features).state == "timed_out"
    assert sorted(path.suffix for path in study.results(tmp_path, run).glob("*.*")) == [
        ".csv",
        ".json",
        ".json",
        ".lock",
    ]


FULL = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried")


@pytest.mark.parametrize(
    ("where", "error"),
    [("read", MemoryError()), ("build", FULL), ("wrap", MemoryError()), ("forward", FULL)],
)
def test_a_run_that_does_not_fit_leaves_a_record_that_says_so(
    tmp_path, digits_features, monkeypatch, one_thread, where, error
):
    from ketscale.jobs import session, started
    from ketscale.parallel.single import Single
    from ketscale.problems.vectors.vqc import VQC

    def full(*_):
        raise error

    # A class whose `forward` is another than that of its `vjp` is differentiated by autograd.
    place = {"wrap": Single, "forward": VQC}.get(where, started)
    monkeypatch.setattr(place, where, full)
    run = study.run()
    status = session.train(study.settings(run), study.results(tmp_path, run), digits_features)
    features = json.loads(digits_features.read_text())["hash"]
    result = check(tmp_path / study.record(run), study.settings(run), features)
    assert status == result.state == "out_of_memory" and (str(error) or "no memory left") in result.why
    assert (result.record.parameters is None) == (where in ("read", "build", "wrap"))


def test_memory_that_runs_out_on_one_rank_ends_all_with_a_record(tmp_path, digits_features):
    run = study.run("mpi-n1r2t1")
    path, config = tmp_path / study.record(run), study.write_config(tmp_path)
    module = [sys.executable, "-m", "tests.process.parallel.one_rank_unfit"]
    command = [*module, "train", path, "--config", config, "--features", digits_features]
    result = worlds.start(run.layout, shlex.join(map(str, command)))
    assert result.returncode == 0, result.stderr
    record = json.loads(path.read_text())
    assert record["status"] == "out_of_memory" and "allocate memory" in record["reason"]
    assert len(record["machine"]["ranks"]) == 2


def test_an_error_that_is_not_of_memory_is_none(tmp_path, digits_features, monkeypatch, one_thread):
    from ketscale.jobs import session, started

    def build(*_):
        raise RuntimeError("another")

    monkeypatch.setattr(started, "build", build)
    run = study.run()
    with pytest.raises(RuntimeError, match="another"):
        session.train(study.settings(run), study.results(tmp_path, run), digits_features)
    assert not (tmp_path / study.record(run)).exists()


def test_memory_that_ran_out_before_hides_no_other_error():
    from ketscale.jobs import outcome

    memory = outcome.Memory()
    with memory:
        raise MemoryError
    with pytest.raises(KeyError), memory:
        raise KeyError("another")
    assert memory.ran_out == "there is no memory left"
