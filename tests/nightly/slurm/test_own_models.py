"""A model in a user's own file on the cluster: every rank of every node imports the file that the run was started with."""

import numpy as np

from ketscale import grid
from ketscale.config import OwnCode
from tests import own_files, own_models

LAYOUTS = ["cpu-n1r1t1", "mpi-n2r2t1", "ddp-cpu-n2r2t1"]


def test_ranks_on_two_nodes_train_the_same_model_in_a_file(project, monkeypatch):
    monkeypatch.chdir(project.folder)
    own_models.write(project.folder, own_models.FILES)
    own_files.npz(project.folder, x=own_files.VECTORS, y=own_files.ANIMALS)
    settings = own_models.study_of(project.folder, backend=LAYOUTS)
    settings["protocols"]["p"] = {"precision": "fp64", "steps": 6, "timed": False, "learning_rate": 0.003}
    study = settings["studies"]["s"]
    del study["points"][1:]
    runs = project.study(**{**settings, "studies": {"s": {**study, "kind": "parity"}}})
    project.snakemake("runs")
    records = [project.record(run) for run in runs]
    assert [record["status"] for record in records] == ["completed"] * len(LAYOUTS)
    assert sorted(len({rank["host"] for rank in record["machine"]["ranks"]}) for record in records) == [
        1,
        2,
        2,
    ]
    for record in records[1:]:
        np.testing.assert_allclose(record["losses"], records[0]["losses"], rtol=1e-10)
    codes = [OwnCode.unpacked(project.results(run) / grid.CODE, "models/ring.py") for run in runs]
    assert {code.hash for code in codes} == {record["config"]["model"]["code"] for record in records}
    own_models.write(project.folder, {"models/parts.py": own_models.PARTS + "x = 1\n"})
    message = project.ketscale("status", "--failed").stdout.splitlines()
    assert {why.split()[0] for why in message[1::3]} == {"stale:"} and len(message) == 3 * len(runs)
