"""`ketscale export`: the runs of a results folder, written for TensorBoard or MLflow by their own libraries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from ketscale.analysis.columns import Trained
from ketscale.analysis.compare import read
from ketscale.analysis.heavy import pd
from ketscale.errors import UserError
from ketscale.files import read_csv
from ketscale.grid import AXES, HISTORY
from ketscale.optional import needed_for


def run(results: Path, form: str, out: Path) -> str:
    """Write all valid records for 'tensorboard' or 'mlflow' into a new folder; how many, and how to see them, in words."""
    if os.path.lexists(out):
        raise UserError(f"{out}: is there already; delete it, or name another folder")
    os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", MLFLOW_LOGGING_LEVEL="WARNING")
    with needed_for(f"export --to {form}"):
        library = import_module("mlflow" if form == "mlflow" else "torch.utils.tensorboard")
    records = read(results).values()
    runs = [Trained(result.record, settings) for result, settings in records if result.record and settings]
    out.mkdir()
    command = (_mlflow if form == "mlflow" else _tensorboard)(runs, results, out.absolute(), library)
    return f"{len(runs)} of {len(records)} records in {out}: {command.format(out)}"


def _scalars(one: Trained, results: Path) -> Iterator[tuple[str, float, float, int]]:
    """Name, value, time in seconds since 1970, and step of all numbers of a run."""
    at, step, quality = one.record.started.timestamp(), 0, one.record.quality
    for epoch in read_csv(results / one.settings.run.folder / HISTORY):
        values = {name: float(value) for name, value in epoch.items() if value}
        at, step = at + values.get("epoch_s", 0.0), int(values.pop("step"))
        yield from ((f"history/{name}", value, at, step) for name, value in values.items())
    splits = {"validation": quality.validation, "test": quality.test} if quality else {}
    scores = {f"{split}_{name}": value for split, of in splits.items() for name, value in of.items()}
    for name, value in {**one.row, **scores}.items():
        if type(value) in (int, float) and name not in AXES:
            yield name, float(value), one.record.stopped.timestamp(), step


def _settings(one: Trained) -> dict[str, Any]:
    """The settings by dotted names, and how the run ended."""
    rows = pd.json_normalize({**one.record.config, "status": one.record.status}).to_dict("records")[0]
    return {str(name): of if isinstance(of, int | float) else str(of) for name, of in rows.items()}


def _tensorboard(runs: list[Trained], results: Path, folder: Path, board: Any) -> str:
    for one in runs:
        scalars = [*_scalars(one, results)]
        with board.SummaryWriter(str(folder / one.settings.run.name)) as writer:
            for summary in board.summary.hparams(_settings(one), {name: 0.0 for name, *_ in scalars}):
                writer.file_writer.add_summary(summary)
            for name, value, at, step in scalars:
                writer.add_scalar(name, value, step, at)
    return "tensorboard --logdir {}"


def _mlflow(runs: list[Trained], results: Path, folder: Path, mlflow: Any) -> str:
    client, entities = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db"), mlflow.entities
    experiment = client.create_experiment(results.resolve().name)
    for one in runs:
        began, stop = (round(1000 * at.timestamp()) for at in (one.record.started, one.record.stopped))
        run_id = client.create_run(experiment, began, run_name=one.settings.run.name).info.run_id
        scalars = [entities.Metric(n, v, round(1000 * at), step) for n, v, at, step in _scalars(one, results)]
        params = [entities.Param(name, str(value)) for name, value in _settings(one).items()]
        for at in range(0, max(len(scalars), len(params)), 100):  # the library takes 100 parameters at a time
            client.log_batch(run_id, metrics=scalars[at : at + 100], params=params[at : at + 100])
        client.set_terminated(run_id, "FINISHED" if one.record.status == "completed" else "FAILED", stop)
    return "mlflow ui --backend-store-uri sqlite:///{}/mlflow.db"
