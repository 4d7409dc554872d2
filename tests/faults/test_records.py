"""Flipped bits: what a run has written is taken whole, or refused in words. Never other numbers, never a traceback."""

import random
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import torch

from ketscale import analysis, grid
from ketscale.errors import UserError
from ketscale.measure import record
from ketscale.measure.right import packed
from ketscale.problems import arrays, library, models
from ketscale.problems.registry import FAMILIES
from ketscale.training import checkpoint
from tests import record_maker as maker
from tests.contract import tiny_study
from tests.faults import SEED, count

COUNT = count(200)
KEY = "a" * 64
# The shape of a sample, where it is not a number of features.
INPUTS = {"eeg": (4, 8)}


def flips(path):
    """The file's content with one bit of it flipped, COUNT times; the file is as it was in the end."""
    whole, bits = path.read_bytes(), random.Random(f"{SEED} {path.name}")
    for _ in range(COUNT):
        bit = bits.randrange(8 * len(whole))
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        yield f"bit {bit} of {path.name}"
    path.write_bytes(whole)


def taken(read, path):
    """What `read` makes of a damaged file; None if it refuses the file by name."""
    try:
        return read()
    except UserError as error:
        said = str(error)
    assert str(path) in said
    return None


@pytest.fixture(params=FAMILIES)
def written(request, tmp_path):
    """The settings of a run with epochs of a family's tiny study, and its record with figures in every part."""
    config = analysis.of(tiny_study.config(FAMILIES[request.param].tiny))
    settings = config.settings(next(run for run in config.runs if run.protocol == "quality"))
    step = {"median_s": 0.005, "q25_s": 0.001 + 0.002, "q75_s": 0.006, "mean_s": 0.005, "count": 2}
    figures = {"loss": 1 / 3, "count": 180} | {metric.name: 2 / 3 for metric in settings.family.metrics}
    made = maker.of(settings)
    cases = msgspec.to_builtins(packed([[1]] * 120 + [[0]] * 60))
    right = cases if settings.family.headline.is_share else None
    path = maker.write(
        tmp_path,
        settings,
        quality={
            "epochs": 3,
            "best_epoch": 1,
            "chosen": {},
            "validation": figures,
            "test": figures,
            "right": right,
        },
        losses=[2.5, 1e-5],
        timing=made["timing"]
        | {"steps": 2, "step": step, "steps_per_epoch": 3, "epoch_s": 0.005 * 3, "samples_per_s": 200.0},
        packages={"torch": "2.9.0", "wörter": "\n"},
    )
    return settings, path


def test_a_record(written):
    settings, path = written
    whole = record.check(path, settings, maker.FEATURES).record
    assert whole
    for where in flips(path):
        found = record.check(path, settings, maker.FEATURES)
        # 1E-5 is 1e-5: a flip that changes no value does no harm.
        assert found.record in (None, whole), where
        assert found.record or found.why, where


def test_its_history(written):
    settings, path = written
    for where in flips(path.parent / grid.HISTORY):
        found = record.check(path, settings, maker.FEATURES)
        assert found.record is None and "history.csv" in found.why, where
    assert record.check(path, settings, maker.FEATURES).record


def test_a_trained_model(written, tmp_path):
    settings, _ = written
    trained = models.of_settings(settings, None, **arguments(settings))
    path = tmp_path / models.WEIGHTS
    problem = SimpleNamespace(model=trained, arguments=arguments(settings), scale=None)
    path.write_bytes(models.saved(settings, problem))
    weights = library.load(path).state_dict()
    for where in flips(path):
        found = taken(lambda: library.load(path).state_dict(), path)
        assert found is None or all(torch.equal(found[name], weights[name]) for name in weights), where


def arguments(settings):
    """What the data would decide."""
    given = {"inputs": INPUTS.get(settings.family.name, 6), "outputs": 3}
    return {name: value for name, value in given.items() if models.takes(settings, name)}


def test_its_predictions(tmp_path):
    path = tmp_path / "predictions.npz"
    rows = np.random.default_rng(0).normal(size=(20, 3))
    np.savez(path, allow_pickle=False, outputs=rows)
    for where in flips(path):
        found = taken(lambda: arrays.read_npz(path, {"outputs": ("outputs",)})["outputs"].values, path)
        assert found is None or np.array_equal(found, rows), where


def test_a_checkpoint(tmp_path):
    checkpoint.save(tmp_path, KEY, {"step": 3, "weights": torch.randn(50)})
    path = checkpoint.path_of(tmp_path, KEY)
    for where in flips(path):
        assert taken(lambda: checkpoint.load(tmp_path, KEY), path) is None, where
    assert checkpoint.load(tmp_path, KEY)["step"] == 3
