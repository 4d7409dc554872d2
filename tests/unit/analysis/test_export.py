"""`ketscale export`: what TensorBoard and MLflow read back is what the records and histories have."""

from __future__ import annotations

import hashlib
import math
import sys
from datetime import datetime
from pathlib import Path

import pytest

from ketscale import cli
from ketscale.grid import HISTORY
from tests import record_maker as maker

QUALITY = {
    "epochs": 2, "best_epoch": 1, "chosen": {}, "right": None,
    "validation": {"loss": 0.5, "accuracy": 0.75}, "test": {"loss": 0.7, "confusion": [[1, 0], [0, 1]]},
}  # fmt: skip
EPOCHS = "epoch,step,train_loss,epoch_s\n0,10,0.9,2\n1,20,nan,\n"
BEGAN = datetime.fromisoformat(maker.TIME).timestamp()
STOPPED = "2026-01-01T01:00:00+00:00"


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """Two runs with two epochs, of which one ran out of memory, and one with a damaged record."""
    monkeypatch.chdir(tmp_path)
    config = maker.config(one=maker.study(protocol="quality", seed=[0, 1, 2]))
    files = {HISTORY: hashlib.sha256(EPOCHS.encode()).hexdigest()}
    changes = {"quality": QUALITY}, {"status": "out_of_memory"}, {}
    for run, change in zip(config.runs, changes, strict=True):
        path = maker.write(Path("results"), config.settings(run), files=files, stopped=STOPPED, **change)
        path.with_name(HISTORY).write_text(EPOCHS)
    path.write_text("{")
    return config.runs


def export(capsys, form, status=0):
    assert cli.main(["export", "results", "--to", form, "--out", "out"]) == status
    message = capsys.readouterr()
    return message.err if status else message.out


def test_tensorboard_shows_every_run_with_its_history_its_metrics_and_its_settings(capsys, runs):
    pytest.importorskip("tensorboard", reason="make trackers-extra adds it")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    assert export(capsys, "tensorboard") == "2 of 3 records in out: tensorboard --logdir out\n"
    result = {run: EventAccumulator(str(Path("out", run.name))).Reload() for run in runs[:2]}
    first, second = result.values()
    losses = first.Scalars("history/train_loss")
    assert [(one.step, one.wall_time) for one in losses] == [(10, BEGAN + 2), (20, BEGAN + 2)]
    assert losses[0].value == pytest.approx(0.9) and math.isnan(losses[1].value)
    assert [one.step for one in first.Scalars("history/epoch_s")] == [10]
    assert first.Scalars("test_loss")[0].value == pytest.approx(0.7)
    assert "test_confusion" not in first.Tags()["scalars"] and "test_loss" not in second.Tags()["scalars"]
    begin = first.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    settings = metadata.parse_session_start_info_plugin_data(begin).hparams
    assert settings["run.seed"].number_value == 0 and settings["run.model"].string_value == "vqc"
    assert settings["protocol.learning_rate"].number_value == 0.001


@pytest.mark.nightly
def test_mlflow_finds_every_run_with_its_history_its_metrics_and_its_settings(capsys, runs):
    pytest.importorskip("mlflow", reason="make trackers-extra adds it")
    from mlflow import MlflowClient

    assert export(capsys, "mlflow").startswith("2 of 3 records in out: mlflow ui ")
    client = MlflowClient("sqlite:///out/mlflow.db")
    experiment = client.get_experiment_by_name("results")
    result = {one.info.run_name: one for one in client.search_runs([experiment.experiment_id])}
    assert set(result) == {run.name for run in runs[:2]}
    first, second = (result[run.name] for run in runs[:2])
    assert [one.info.status for one in (first, second)] == ["FINISHED", "FAILED"]
    assert first.info.end_time - first.info.start_time == 3_600_000
    history = client.get_metric_history(first.info.run_id, "history/train_loss")
    losses, at = sorted(history, key=lambda one: one.step), 1000 * (BEGAN + 2)
    assert [(one.step, one.timestamp) for one in losses] == [(10, at), (20, at)]
    assert losses[0].value == 0.9 and math.isnan(losses[1].value)
    assert first.data.metrics["test_loss"] == 0.7 and "test_loss" not in second.data.metrics
    assert first.data.params["protocol.learning_rate"] == "0.001" and first.data.params["run.model"] == "vqc"
    assert second.data.params["status"] == "out_of_memory"


@pytest.mark.parametrize("form, package", [("tensorboard", "tensorboard"), ("mlflow", "mlflow-skinny")])
def test_a_library_that_is_missing_is_named_and_nothing_is_left(capsys, monkeypatch, runs, form, package):
    monkeypatch.setitem(sys.modules, form, None)
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    assert package in export(capsys, form, status=2)
    assert [path.name for path in Path().iterdir()] == ["results"]


def test_what_is_there_already_is_kept(capsys, runs):
    Path("out").mkdir()
    assert "out: " in export(capsys, "mlflow", status=2) and not any(Path("out").iterdir())
