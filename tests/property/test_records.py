"""What a run has written is read as it was, or refused by the name of its file: never other numbers, never a traceback."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from ketscale import analysis, grid
from ketscale.config import Settings
from ketscale.measure import record
from ketscale.measure.right import packed
from ketscale.problems import library, models, store
from ketscale.problems.registry import FAMILIES
from ketscale.training import checkpoint
from tests import record_maker as maker
from tests.property import attempt, examples
from tests.property.configs import TINY

KEY = "a" * 64
# The shape of a sample, where it is not a number of features.
INPUTS = {"eeg": (4, 8)}
QUARTILES = {"median_s": 1, "q25_s": 0.9, "q75_s": 1.1, "mean_s": 1}
SHARES, TIMES = st.floats(0, 1), st.floats(1e-6, 1e3)


def settings_of(family: str) -> Settings:
    """The settings of a run with epochs of a family's tiny study."""
    config = analysis.of(TINY[family])
    return config.settings(next(run for run in config.runs if run.protocol == "quality"))


SETTINGS = {family: settings_of(family) for family in FAMILIES}


def content(
    settings: Settings, median_s: float = 0.005, loss: float = 1 / 3, **changes: Any
) -> dict[str, Any]:
    """A record with figures in every part, without its digest."""
    step = {name: share * median_s for name, share in QUARTILES.items()} | {"count": 2}
    figures = {"loss": loss, "count": 180} | {metric.name: 2 / 3 for metric in settings.family.metrics}
    cases = msgspec.to_builtins(packed([[1]] * 120 + [[0]] * 60))
    quality = {"epochs": 3, "best_epoch": 1, "chosen": {}, "validation": figures, "test": figures}
    timing = {
        **maker.of(settings)["timing"], "steps": 2, "step": step, "steps_per_epoch": 3, "epoch_s": 3 * median_s,
        "samples_per_s": settings.run.batch / median_s, "train_s": 3 * median_s, "steps_s": 3 * median_s,
    }  # fmt: skip
    return maker.of(
        settings,
        quality={**quality, "right": cases if settings.family.headline.is_share else None},
        losses=[2.5, loss],
        timing=timing,
        packages={"torch": "2.9.0", "wörter": "\n"},
        stopped="2026-01-01T02:00:00+00:00",
        **changes,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("written")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The record of each family's run."""
    folder = tmp_path_factory.mktemp("records")
    return {
        family: maker.write(folder / family, settings, **content(settings))
        for family, settings in SETTINGS.items()
    }


def flipped(data: st.DataObject, complete: bytes) -> bytes:
    """A content with one to three bytes replaced, or cut off."""
    damaged = bytearray(complete)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(complete) - 1))] = data.draw(st.integers(0, 255))
    size = data.draw(st.sampled_from([len(complete)] * 9 + [len(complete) // 2]))
    assume(bytes(damaged[:size]) != complete)
    return bytes(damaged[:size])


def assert_damage_is_found(
    data: st.DataObject, path: Path, read: Callable[[], Any], same: Callable[[Any], bool]
) -> None:
    """What is read of the file with some damage is the same as before, or it is refused by the name of the file."""
    complete = path.read_bytes()
    path.write_bytes(flipped(data, complete))
    try:
        result, message = attempt(read)
    finally:
        path.write_bytes(complete)
    assert str(path) in message if result is None else same(result)
    assert same(read())


@given(
    st.sampled_from(list(SETTINGS)),
    TIMES,
    SHARES,
    st.integers(0, 2**62),
    st.text(st.characters(codec="utf-8"), max_size=20),
)
def test_a_record_is_read_as_it_was_written(
    folder: Path, family: str, median_s: float, loss: float, parameters: int, text: str
) -> None:
    settings = SETTINGS[family]
    result = content(settings, median_s, loss, parameters=parameters, lost_s=median_s)
    result["packages"][text] = text
    path = maker.write(folder, settings, **result)
    value = record.check(path, settings, maker.FEATURES)
    assert (value.state, value.why) == ("completed", "")
    assert msgspec.structs.replace(value.record, digest="") == maker.typed(maker.of(settings, **result))


@examples(2)
@given(st.sampled_from(list(SETTINGS)), st.data())
def test_a_damaged_record_is_refused_or_the_same(
    written: dict[str, Path], family: str, data: st.DataObject
) -> None:
    path, settings = written[family], SETTINGS[family]
    complete = record.check(path, settings, maker.FEATURES).record
    text = path.read_bytes()
    path.write_bytes(flipped(data, text))
    result = record.check(path, settings, maker.FEATURES)
    path.write_bytes(text)
    # 1E-5 is 1e-5: damage that changes no value does no harm.
    assert result.record in (None, complete) and (result.record or result.why)
    history = path.parent / grid.HISTORY
    lines = history.read_bytes()
    history.write_bytes(flipped(data, lines))
    result = record.check(path, settings, maker.FEATURES)
    history.write_bytes(lines)
    assert result.record is None and grid.HISTORY in result.why
    assert record.check(path, settings, maker.FEATURES).record == complete


@functools.cache
def model(family: str) -> bytes:
    """The file of a model that its run has trained."""
    settings = SETTINGS[family]
    arguments = {"inputs": INPUTS.get(family, 6), "outputs": 3}
    trained = models.of_settings(settings, None, **arguments)
    return models.saved(settings, SimpleNamespace(model=trained, arguments=arguments, preprocessing=None))


@given(st.sampled_from(list(SETTINGS)), st.data())
def test_a_damaged_model_is_refused(folder: Path, family: str, data: st.DataObject) -> None:
    settings, complete = SETTINGS[family], model(family)
    files = {**maker.of(settings)["files"], models.WEIGHTS: hashlib.sha256(complete).hexdigest()}
    path = maker.write(folder, settings, files=files).with_name(models.WEIGHTS)
    path.write_bytes(complete)
    assert library.load(path).state_dict()
    path.write_bytes(flipped(data, complete))
    result, message = attempt(lambda: library.load(path))
    assert result is None and str(path) in message


@given(st.data())
def test_a_damaged_checkpoint_is_refused(folder: Path, data: st.DataObject) -> None:
    weights = torch.arange(50.0)
    checkpoint.save(folder, KEY, {"step": 3, "weights": weights})
    path = checkpoint.path_of(folder, KEY)
    complete = path.read_bytes()
    path.write_bytes(flipped(data, complete))
    result, message = attempt(lambda: checkpoint.load(folder, KEY))
    assert result is None and str(path) in message


@given(st.data())
def test_a_damaged_manifest_or_what_it_lists_is_refused(folder: Path, data: st.DataObject) -> None:
    manifest, rows = folder / "data" / "features.json", np.arange(12.0)
    identity = {"settings": {}, "data_hash": "b" * 64, "code_version": 1, "shared": 0}
    store.publish(manifest, identity, ["x.npy"], lambda inner: store.write(inner, {"x.npy": rows}) or {})

    def read() -> tuple[dict[str, Any], bytes]:
        result = store.opened(manifest, 1)
        return dict(result.entries), result.array("x.npy").tobytes()

    complete = read()
    path = data.draw(st.sampled_from([manifest, next(manifest.parent.glob("*/x.npy"))]))
    assert_damage_is_found(data, path, read, lambda value: value == complete)
