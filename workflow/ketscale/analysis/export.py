"""`ketscale export`: the histories and metrics of a results folder, written for TensorBoard or for MLflow.

Each is written by its own library, on this machine alone, into a folder that appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ketscale.analysis import compare
from ketscale.analysis.columns import Trained
from ketscale.errors import UserError
from ketscale.files import read_csv
from ketscale.grid import AXES, HISTORY, RUNS, Run
from ketscale.optional import needed_for
from ketscale.words import counted

# The library's limits of one call, in metrics and in parameters or tags.
_METRICS, _ENTRIES = 1000, 100


@dataclass(frozen=True)
class _Exported:
    """A run.

    settings: its resolved settings by dotted names. metrics: what was measured once; tags: what of it is text. epochs: the
    step at which each epoch ended, the seconds since 1970, and the row of its history.
    """

    run: Run
    trained: Trained
    settings: Mapping[str, Any]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    epochs: tuple[tuple[int, float, Mapping[str, float]], ...]


def run(results: Path, form: str, out: Path) -> str:
    """Write every run of a results folder that has a valid record; what was written and how to see it, in words.

    Args:
        form: a name of `FORMS`.
        out: the folder to make.

    Raises:
        UserError: there are no records, the library is missing, or `out` is there already.
    """
    if os.path.lexists(out):
        raise UserError(f"{out}: is there already; delete it, or name another folder")
    found = compare.read(results)
    runs = [
        _exported(one, Trained(checked.record, settings), results)
        for one, (checked, settings) in found.items()
        if checked.record is not None and settings is not None
    ]
    if not runs:
        one, (checked, _) = next(iter(found.items()))
        raise UserError(f"{results}: no record can be used; {one.path}: {checked.why}")
    made = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    made.mkdir(parents=True)
    try:
        seen = FORMS[form](runs, made, out)
        os.rename(made, out)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    left = f"; {counted(len(found) - len(runs), 'record')} refused or stale" if len(found) > len(runs) else ""
    return f"{counted(len(runs), 'run')} in {out}{left}: {seen}"


def _exported(one: Run, trained: Trained, results: Path) -> _Exported:
    row = {name: value for name, value in trained.row.items() if name not in AXES and value is not None}
    quality = trained.record.quality
    scores = {
        f"{split}_{name}": value
        for split in ("validation", "test")
        for name, value in (getattr(quality, split) if quality else {}).items()
    }
    epochs, at = [], trained.record.started.timestamp()
    for text in read_csv(results / one.folder / HISTORY):
        values = {name: float(value) for name, value in text.items() if value}
        at += values.get("epoch_s", 0.0)
        epochs.append((int(values.pop("step")), at, values))
    return _Exported(
        one,
        trained,
        dict(_flat(trained.record.config)),
        {name: float(value) for name, value in {**row, **scores}.items() if _is_number(value)},
        {name: str(value) for name, value in row.items() if not _is_number(value) and value != ""},
        tuple(epochs),
    )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", json.dumps(value) if isinstance(value, list) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _tensorboard(runs: list[_Exported], made: Path, out: Path) -> str:
    """A folder for each run, with its settings and metrics for the page HPARAMS."""
    with needed_for("export --to tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams
    for one in runs:
        with SummaryWriter(str(made / one.run.folder.removeprefix(f"{RUNS}/"))) as writer:
            for step, at, values in one.epochs:
                for name, value in values.items():
                    writer.add_scalar(f"history/{name}", value, step, at)
            for summary in hparams({**one.settings}, {**one.metrics}):
                writer.file_writer.add_summary(summary)
            last, at = one.epochs[-1][0] if one.epochs else 0, one.trained.record.stopped.timestamp()
            for name, value in one.metrics.items():
                writer.add_scalar(name, value, last, at)
            for name, text in one.tags.items():
                writer.add_text(name, text, last, at)
    return f"tensorboard --logdir {shlex.quote(str(out))}"


def _mlflow(runs: list[_Exported], made: Path, out: Path) -> str:
    """A database with an experiment for each workload."""
    os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", MLFLOW_LOGGING_LEVEL="WARNING")
    with needed_for("export --to mlflow"):
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param, RunTag
    client = MlflowClient(f"sqlite:///{made.absolute()}/mlflow.db")
    experiments: dict[str, str] = {}
    for one in runs:
        name, record = one.run.workload, one.trained.record
        if name not in experiments:
            place = (out.absolute() / "artifacts" / name).as_uri()
            experiments[name] = client.create_experiment(name, artifact_location=place)
        began, ended = (round(1000 * when.timestamp()) for when in (record.started, record.stopped))
        run_id = client.create_run(experiments[name], began, run_name=one.run.name).info.run_id
        metrics = (
            Metric(f"history/{name}", value, round(1000 * at), step)
            for step, at, values in one.epochs
            for name, value in values.items()
        )
        while some := [*islice(metrics, _METRICS)]:
            client.log_batch(run_id, metrics=some)
        last = one.epochs[-1][0] if one.epochs else 0
        client.log_batch(
            run_id, metrics=[Metric(name, value, ended, last) for name, value in one.metrics.items()]
        )
        params = (Param(name, str(value)) for name, value in one.settings.items())
        while several := [*islice(params, _ENTRIES)]:
            client.log_batch(run_id, params=several)
        client.log_batch(run_id, tags=[RunTag(name, text) for name, text in one.tags.items()])
        client.set_terminated(run_id, "FINISHED" if record.status == "completed" else "FAILED", ended)
    return f"mlflow ui --backend-store-uri {shlex.quote(f'sqlite:///{out}/mlflow.db')}"


FORMS = {"tensorboard": _tensorboard, "mlflow": _mlflow}
