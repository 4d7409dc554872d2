"""A user's own files become workloads without a change of the package, or one clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ketscale.config import sources
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.problems import store
from ketscale.problems.images import features
from ketscale.problems.images.pixels import channels_of
from ketscale.problems.images.pretrain import pretrain
from ketscale.problems.registry import FAMILIES
from ketscale.problems.samples import Samples
from ketscale.problems.splits import SPLITS
from ketscale.problems.vectors import prepared
from ketscale.problems.vectors.prepared import dataset
from tests.own_files import (
    ANIMALS,
    COLOUR,
    GREY,
    NETWORK,
    SIGNALS,
    VECTORS,
    config,
    loaded,
    npz,
    pictures,
)


def assert_split(data: Any, parts: dict[str, np.ndarray]) -> None:
    """Disjoint parts of everything, with every class in each."""
    union = np.concatenate([parts[name] for name in SPLITS])
    labels = data.targets
    assert sorted(union.tolist()) == list(range(len(labels)))
    for name in SPLITS:
        assert set(labels[parts[name]].tolist()) == set(labels.tolist())


# --- arrays ---


@pytest.mark.parametrize(
    ("stored", "expected", "channels"),
    [
        (GREY[..., None], GREY, 1),
        (COLOUR, COLOUR, 3),
    ],
)
def test_images_are_kept_as_they_are(stored: Any, expected: Any, channels: int, tmp_path: Path) -> None:
    data = loaded({"kind": "arrays", "file": npz(tmp_path, images=stored, labels=ANIMALS), **NETWORK})
    assert isinstance(data, Samples)
    assert (data.values.dtype, data.peak, channels_of(data.values)) == (expected.dtype, 255, channels)
    assert np.array_equal(data.values, expected)
    assert data.names == ("cat", "dog", "eel")
    assert [data.names[label] for label in data.targets] == ANIMALS.tolist()
    assert_split(data, data.splits)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [(np.tile([7, -3], 20), ("-3", "7")), (np.tile([b"up", b"down"], 20), ("down", "up"))],
)
def test_labels_of_any_kind_are_counted_from_0_and_keep_their_names(
    labels: Any, classes: tuple[str, ...], tmp_path: Path
) -> None:
    data = loaded({"kind": "rows", "file": npz(tmp_path, x=VECTORS, y=labels)})
    assert data.names == classes
    assert data.targets.tolist() == [1, 0] * 20


def test_shares_and_the_seed_say_the_split(tmp_path: Path) -> None:
    block = {"kind": "rows", "file": npz(tmp_path, x=VECTORS, y=ANIMALS)}
    # From 10, 20 and 10 samples: 2, 3 and 2.
    assert [len(loaded(block).splits[name]) for name in SPLITS] == [26, 7, 7]
    shared = loaded({**block, "validation": 0.1, "test": 0.3})
    assert [len(shared.splits[name]) for name in SPLITS] == [24, 4, 12]
    assert_split(shared, shared.splits)
    assert loaded(block).digest() == loaded({**block, "split_seed": 0}).digest()
    assert loaded(block).digest() != loaded({**block, "split_seed": 1}).digest()


def test_a_split_may_be_given(tmp_path: Path) -> None:
    split = np.array(["train"] * 20 + ["validation"] * 12 + ["test"] * 8)
    block = {"kind": "rows", "split": "given", "file": npz(tmp_path, x=VECTORS, y=ANIMALS, split=split)}
    data = loaded(block)
    assert [data.splits[name].tolist() for name in SPLITS] == [
        list(range(20)), list(range(20, 32)), list(range(32, 40)),
    ]  # fmt: skip
    assert config(block).workloads["mine"][1].split_by == "given"


SPLIT = np.array(["train", "val"] * 20)
IMAGES, GIVEN = {"kind": "arrays", **NETWORK}, {"kind": "rows", "split": "given"}
# What a reader could take for something else, with the array, or the class, that must be named. The rest: tests/property.
MISREAD: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"x": VECTORS, "features": VECTORS, "y": ANIMALS}, {"kind": "rows"}, "features and x"),
    ({"x": VECTORS, "y": ANIMALS}, IMAGES, "x"),
    ({"x": GREY, "y": ANIMALS}, {"kind": "rows"}, "x"),
    ({"x": COLOUR.transpose(0, 3, 1, 2), "y": ANIMALS}, IMAGES, "x"),
    ({"x": GREY.astype(np.int64), "y": ANIMALS}, IMAGES, "x"),
    ({"x": GREY / 16, "y": ANIMALS}, IMAGES, "x"),
    ({"x": np.float32(GREY / 255) - 0.5, "y": ANIMALS}, IMAGES, "x"),
    ({"x": VECTORS, "y": VECTORS[:, 0]}, {"kind": "rows"}, "y"),
    ({"x": VECTORS, "y": np.array([object()] * 40)}, {"kind": "rows"}, "y"),
    ({"x": VECTORS, "y": np.array(["cat"] * 38 + ["dog"] * 2)}, {"kind": "rows"}, "class 'dog'"),
    ({"x": VECTORS, "y": ANIMALS, "split": ANIMALS}, {"kind": "rows"}, "split"),
    ({"x": VECTORS, "y": ANIMALS, "split": ANIMALS}, GIVEN, "split"),
    ({"x": VECTORS, "y": ANIMALS, "split": SPLIT}, GIVEN, "split"),
    ({"x": VECTORS, "y": ANIMALS, "split": ["test", "train", "validation", "train"] * 10}, GIVEN, "class 'cat'"),
]  # fmt: skip


@pytest.mark.parametrize(("arrays", "settings", "named"), MISREAD)
def test_arrays_that_may_be_misread_are_refused(
    arrays: dict[str, Any], settings: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=named):
        loaded({"file": npz(tmp_path, **arrays), **settings})


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"kind": "rows"}, "mine: file"),
        ({"kind": "arrays", "file": "a", "weights": "selfsupervised"}, "mine: image_size"),
        ({"kind": "rows", "file": "a", "split": "given", "test": 0.1}, "mine.test"),
        ({"kind": "rows", "file": "a", "test": 0.9}, "mine.validation"),
        ({**IMAGES, "file": "a", "weights_folder": "b"}, "mine.weights_folder"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(block: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        config(block)


def test_features_of_ones_own_cannot_run_inline() -> None:
    with pytest.raises(UserError, match="mine has no feature network to run inline"):
        config({"kind": "rows", "file": "a"}, features="inline")
    config({"kind": "arrays", "file": "a", **NETWORK}, features="inline")


def test_features_are_standardised_one_by_one_over_the_training_split(tmp_path: Path) -> None:
    scales = 10.0 ** np.arange(-9, 12, 3)
    values = VECTORS * scales + 1e3 * scales
    values[:, 4] = 0.1
    block = {"kind": "rows", "file": npz(tmp_path, features=values, labels=ANIMALS)}
    data = loaded(block)
    manifest = tmp_path / "store" / "features.json"
    prepared.prepare(config(block).workloads["mine"][1], manifest, None)
    restored = dataset(store.opened(manifest, prepared.VERSION))
    assert restored.inputs.dtype == np.float32
    varied = np.delete(restored.inputs, 4, axis=1)[data.splits["train"]]
    assert np.abs(varied.mean(0)).max() < 1e-5
    assert np.abs(varied.std(0) - 1).max() < 1e-5
    assert np.abs(restored.inputs[:, 4]).max() < 1e-6
    assert restored.names == ("cat", "dog", "eel")
    assert all(np.array_equal(restored.splits[name], data.splits[name]) for name in SPLITS)


def test_paths_are_no_part_of_the_content_but_names_of_classes_are(tmp_path: Path) -> None:
    def described(folder: str, labels: Any) -> dict[str, Any]:
        (tmp_path / folder).mkdir()
        block = {"kind": "rows", "file": npz(tmp_path / folder, x=VECTORS, y=labels)}
        workload = config(block).workloads["mine"][1]
        assert "file" not in workload.content()
        assert workload.places() == {"file": block["file"]}
        prepared.prepare(workload, tmp_path / folder / "features.json", None)
        return json.loads((tmp_path / folder / "features.json").read_text())

    first, second = described("a", ANIMALS), described("b", ANIMALS)
    renamed = described("c", np.char.upper(ANIMALS))
    assert first == second
    assert first["hash"] != renamed["hash"]
    assert renamed["classes"] == ["CAT", "DOG", "EEL"]


def test_a_bad_file_leaves_nothing_behind(tmp_path: Path) -> None:
    missing = np.where(VECTORS[3, 2] == VECTORS, np.nan, VECTORS)
    for values, message in ((missing, "NaN"), (1e300 * VECTORS, "too large to be standardised")):
        block = {"kind": "rows", "file": npz(tmp_path, x=values, y=ANIMALS)}
        with pytest.raises(UserError, match=message):
            prepared.prepare(config(block).workloads["mine"][1], tmp_path / "store" / "features.json", None)
        assert not (tmp_path / "store" / "features.json").exists()


def test_colour_images_are_embedded_and_the_backbone_gives_the_same(tmp_path: Path) -> None:
    block = {"kind": "arrays", "file": npz(tmp_path, images=COLOUR, labels=ANIMALS), **NETWORK}
    workload, data = config(block).workloads["mine"][1], loaded(block)
    pretrain(data, 8, tmp_path / "w", steps=1)
    features.compute(workload, data, tmp_path / "w", tmp_path / "features.json")
    folder = store.opened(tmp_path / "features.json", features.FEATURES_VERSION)
    result, inline = features.dataset(folder).inputs, features.dataset(folder, inline=True)
    assert result.shape == (40, 512) and np.isfinite(result).all()
    network = inline.backbone()  # type: ignore[misc]
    assert np.abs(network(torch.from_numpy(np.array(inline.inputs))).numpy() - result).max() < 1e-4
    # Channels are not mixed up: other colours are other embeddings.
    swapped = network(torch.from_numpy(np.array(inline.inputs)[..., ::-1].copy()))
    assert np.abs(swapped.numpy() - result).max() > 1e-3


# --- image-folder ---


@pytest.mark.parametrize(("mode", "shape"), [("L", (10, 8, 8)), ("RGB", (10, 8, 8, 3))])
def test_folders_are_classes(mode: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    block = {"kind": "image-folder", "folder": str(pictures(tmp_path, mode)), **NETWORK}
    data = loaded(block)
    assert sources(config(block), "mine") == sorted(tmp_path.glob("*/*.png"))
    assert data.names == ("day", "night")
    assert data.values.shape == shape
    assert data.targets.tolist() == [0] * 5 + [1] * 5
    assert data.values.reshape(10, -1)[:, 0].tolist() == [200, 201, 202, 203, 204, 20, 21, 22, 23, 24]
    assert_split(data, data.splits)


def test_images_of_several_sizes_are_resized_and_one_in_colour_makes_all_so(tmp_path: Path) -> None:
    pictures(tmp_path, "L")
    wide = np.zeros((30, 60, 4), np.uint8)
    wide[:, :, 3] = 255  # no transparency
    wide[:, 30:, 0] = 255
    Image.fromarray(wide).save(tmp_path / "day" / "wide.png")
    Image.new("L", (3, 3), 77).save(tmp_path / "night" / "small.JPG", quality=100)
    data = loaded({"kind": "image-folder", "folder": str(tmp_path), **NETWORK})
    assert data.values.shape == (12, 8, 8, 3)
    assert data.values[5, 4, 0].tolist() == [0, 0, 0]
    assert data.values[5, 4, 7].tolist() == [255, 0, 0]
    assert abs(int(data.values[-1, 0, 0, 0]) - 77) <= 1


def test_photographs_are_turned_upright(tmp_path: Path) -> None:
    pictures(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:4] = 255
    Image.fromarray(pixels).save(tmp_path / "day" / "a.jpg", exif=exif, quality=100)
    data = loaded({"kind": "image-folder", "folder": str(tmp_path), **NETWORK})
    photo = data.values[5]
    assert photo[:3].max() < 10 and photo[5:].min() > 245


# --- series ---

GROUPS = np.repeat(["anna", "ben", "cleo", "dan", "eve"], 8)


def test_trials_are_split_with_each_classs_share(tmp_path: Path) -> None:
    block = {"kind": "series", "split": "trials", "file": npz(tmp_path, signals=SIGNALS, labels=ANIMALS)}
    series = loaded(block)
    parts = series.splits
    assert series.values.dtype == np.float32
    assert np.array_equal(series.values, SIGNALS.astype(np.float32))
    assert series.names == ("cat", "dog", "eel")
    assert_split(series, parts)


def test_no_group_is_in_two_parts(tmp_path: Path) -> None:
    file = npz(tmp_path, x=SIGNALS, y=ANIMALS, groups=GROUPS)
    parts = loaded({"kind": "series", "split": "groups", "file": file}).splits
    sets = [set(GROUPS[parts[name]].tolist()) for name in SPLITS]
    assert [len(s) for s in sets] == [3, 1, 1]
    assert not sets[0] & sets[1] and not sets[0] & sets[2] and not sets[1] & sets[2]
    block = {"kind": "series", "split": "groups", "file": file}
    splits = [loaded({**block, "split_seed": s}).splits for s in range(5)]
    assert len({tuple(parts["test"].tolist()) for parts in splits}) > 1


def test_a_split_of_trials_may_be_given_and_is_part_of_the_content(tmp_path: Path) -> None:
    hashes = set()
    for first in ("validation", "test"):
        split = np.array([first] + ["train"] * 20 + ["validation"] * 9 + ["test"] * 10)
        block = {"kind": "series", "split": "given", "file": npz(tmp_path, x=SIGNALS, y=ANIMALS, split=split)}
        parts = loaded(block).splits
        assert parts["train"].tolist() == list(range(1, 21))
        workload = config(block).workloads["mine"][1]
        FAMILIES["eeg"].prepare(workload, tmp_path / "features.json", None)
        hashes.add(json.loads((tmp_path / "features.json").read_text())["hash"])
    assert len(hashes) == 2


def test_standardised_trials_have_mean_0_and_deviation_1_and_flat_channels_are_0(tmp_path: Path) -> None:
    signals = 5 + 1e-6 * SIGNALS
    signals[2, 1] = 0.1
    file = npz(tmp_path, x=signals, y=ANIMALS)
    series = loaded({"kind": "series", "split": "trials", "file": file, "standardise": True})
    assert series.values[2, 1].tolist() == [0] * 12
    rest = np.delete(series.values.reshape(120, 12), 7, axis=0)
    assert np.abs(rest.mean(1)).max() < 1e-5
    assert np.abs(rest.std(1) - 1).max() < 1e-5


def test_every_eeg_model_takes_any_channels_steps_and_classes(tmp_path: Path) -> None:
    result = config({"kind": "series", "split": "trials", "file": npz(tmp_path, x=SIGNALS, y=ANIMALS)})
    (run,) = result.runs
    family = FAMILIES["eeg"]
    family.prepare(result.settings(run).workload, tmp_path / "features.json", None)
    for model, kind in family.models.items():
        if kind.fitted:
            continue  # tests/unit/problems/test_baselines.py
        none = {"size": "q0-l0", "simulator": "none"} if kind.classical else {}
        settings = result.settings(Run(**{**run.__dict__, "model": model, **none}))
        problem = family.build(
            settings, family.read(settings, tmp_path / "features.json"), torch.device("cpu")
        )
        assert problem.outputs("test", torch.arange(5)).shape == (5, 3), model
