"""Keeps the trained model beside its record: weights as safetensors, test predictions as arrays, curves as CSV."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np

from ketscale.config import Settings
from ketscale.files import csv_of, write_atomic
from ketscale.grid import CURVES, PREDICTIONS
from ketscale.jobs.outcome import Outcome
from ketscale.problems import models
from ketscale.problems.problem import Problem


def keep(settings: Settings, problem: Problem | None, ended: Outcome, folder: Path) -> dict[str, str]:
    """Write the model of a completed run, unless its protocol sets keep_model: false. Returns SHA-256 by file name.

    Files of an earlier training of the run are deleted.
    """
    for name in (models.WEIGHTS, PREDICTIONS, CURVES):
        (folder / name).unlink(missing_ok=True)
    if problem is None or ended.status != "completed" or not settings.protocol.keep_model:
        return {}
    files = {models.WEIGHTS: models.saved(settings, problem)}
    if ended.outputs is not None:
        buffer = io.BytesIO()
        arrays = problem.predictions("test", ended.outputs)
        np.savez(buffer, allow_pickle=False, **{name: rows.cpu().numpy() for name, rows in arrays.items()})
        files[PREDICTIONS] = buffer.getvalue()
        curves = {name: column.tolist() for name, column in problem.curves().items()}
        if curves:
            rows = (dict(zip(curves, row, strict=True)) for row in zip(*curves.values(), strict=True))
            files[CURVES] = csv_of(rows, list(curves))
    for name, content in files.items():
        write_atomic(folder / name, content)
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
