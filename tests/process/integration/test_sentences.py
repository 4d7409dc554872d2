"""Sentences from the command line: prepared, trained by several ranks started by hand, and by L-BFGS."""

import csv
import json
import subprocess

import pytest

from tests.process.integration import study
from tests.process.parallel.worlds import environment

AXES = {
    "workload": "sentences",
    "model": "superposition_transformer",
    "size": "q4-l1",
    "simulator": "closed-form-shift",
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """features.json of the built-in sentences, by the command line."""
    path = tmp_path_factory.mktemp("sentences") / "features.json"
    settings = json.dumps({"kind": "sentences", **study.CONFIG["workloads"]["sentences"]})
    command = ["ketscale", "prepare", "sentences", "--settings", settings, "--out", str(path)]
    subprocess.run(command, check=True, env=study.forked(), timeout=600)
    return path


def test_ranks_started_by_hand_train_the_same(tmp_path, prepared):
    single = study.train(tmp_path, study.run(**AXES, batch=4, protocol="descent"), prepared)
    run = study.run("mpi-n1r2t1", **AXES, batch=4, protocol="descent")
    # No variable for threads is set: they are those of the run.
    command = ["mpirun", "-n", "2", "ketscale", "train", study.record(run), "--features", str(prepared)]
    env = {name: value for name, value in environment().items() if not name.endswith("NUM_THREADS")}
    env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # as containers are
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / study.record(run)).read_text())
    assert record["losses"] == pytest.approx(single["losses"], abs=1e-12)
    assert [rank["samples"] for rank in record["machine"]["ranks"]] == [24, 24]
    assert record["parameters"] == 48 and record["split"]["by"] == "sentences"


def test_lbfgs_finds_a_minimum_and_evaluates_held_out_sentences(tmp_path, prepared):
    run = study.run(**AXES, batch=4, protocol="l-bfgs")
    record = study.train(tmp_path, run, prepared)
    assert record["losses"][-1] < 0.5 * record["losses"][0]
    with (study.results(tmp_path, run) / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    losses = [float(row["train_loss"]) for row in rows]
    assert losses == sorted(losses, reverse=True), "an iteration never goes up"
    test = record["quality"]["test"]
    # The most frequent next word of training is right for a whole number of words.
    assert test["count"] == 8 and test["chance"] * 8 in range(8)
    assert {"own_gradient_norm", "gradient_norm"} <= rows[0].keys()
