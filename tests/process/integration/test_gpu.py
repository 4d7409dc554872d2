"""On a machine with a GPU: the same losses as on the CPU, for a run on it and for a circuit moved off it."""

import copy

import pytest
import torch

from tests.process.integration import study

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here"),
]


@pytest.mark.parametrize("where", ["gpu-n1r1t1", "ddp-n1r1t1"])
def test_gpu_trains_as_the_cpu_does(tmp_path, digits_features, where):
    on_cpu = study.train(tmp_path, study.run(simulator="default.qubit"), digits_features)
    on_gpu = study.train(tmp_path, study.run(where, simulator="default.qubit"), digits_features)
    assert on_gpu["losses"] == pytest.approx(on_cpu["losses"], rel=1e-3)
    assert on_gpu["machine"]["ranks"][0]["gpu_uuid"]
    assert on_gpu["machine"]["ranks"][0]["peak_device_bytes"] > 0
    assert on_gpu["timing"]["step"]["count"] == on_cpu["timing"]["step"]["count"]


def test_a_circuit_placed_on_the_cpu_counts_its_transfer(tmp_path, digits_features, monkeypatch):
    config = copy.deepcopy(study.CONFIG)
    config["simulators"]["on-cpu"] = {**config["simulators"]["default.qubit"], "placement": "cpu"}
    monkeypatch.setattr(study, "CONFIG", config)
    record = study.train(tmp_path, study.run("gpu-n1r1t1", simulator="on-cpu"), digits_features)
    assert record["timing"]["spans"]["transfer"]["median_s"] > 0
