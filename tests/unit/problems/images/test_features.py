"""Cached features depend on content alone, equal the inline network's, and are refused when damaged."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ketscale.errors import UserError
from ketscale.problems import store as stored
from ketscale.problems.datasets import Dataset
from ketscale.problems.images import features as features_of_images
from ketscale.problems.images import resnet
from ketscale.problems.images.features import FEATURES_VERSION, NETWORK_FILES, compute, dataset, prepare
from ketscale.problems.images.pretrain import clusters, origin_of, pretrain, train, views
from ketscale.problems.images.specification import IMAGENET_FILE, Digits
from ketscale.problems.samples import Samples
from ketscale.problems.vectors.prepared import FILES

SETTINGS = {"split_seed": 0, "weights": "selfsupervised", "image_size": 8}
DIGITS = Digits(**SETTINGS)
STEPS = 2


def embed(weights: Path, manifest: Path, workload: Digits = DIGITS) -> None:
    """Compute the features of digits."""
    compute(workload, workload.load(None), weights, manifest)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights after a few steps only."""
    path = tmp_path_factory.mktemp("weights") / "weights-selfsupervised.safetensors"
    pretrain(DIGITS.load(None), 8, path, STEPS)
    return path


@pytest.fixture(scope="module")
def computed(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of features computed once."""
    manifest = tmp_path_factory.mktemp("store") / "digits" / "features.json"
    embed(weights, manifest)
    return manifest


@pytest.fixture
def store(computed: Path, tmp_path: Path) -> Path:
    """A copy of the store that a test may damage: its manifest."""
    shutil.copytree(computed.parent, tmp_path / "digits")
    return tmp_path / "digits" / computed.name


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the form of microsoft/resnet-18, its values random."""
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("imagenet")
    torch.manual_seed(0)
    state = {f"resnet.{name}": tensor for name, tensor in resnet.resnet18(3).state_dict().items()}
    state["classifier.1.weight"] = torch.zeros(1000, 512)
    save_file(state, folder / "model.safetensors")
    return folder


def opened(manifest: Path, inline: bool = False) -> Dataset:
    """The embeddings, or pixels with the network."""
    return dataset(stored.opened(manifest, FEATURES_VERSION), inline=inline)


def agreement(manifest: Path, rows: slice, dtype: torch.dtype = torch.float32) -> float:
    """How far the network's embeddings of some pixels are from the kept ones."""
    inline = opened(manifest, inline=True)
    assert inline.backbone is not None
    result = inline.backbone().to(dtype)(torch.from_numpy(np.array(inline.inputs[rows])))
    assert result.dtype == dtype
    return float(np.abs(result.numpy() - opened(manifest).inputs[rows]).max())


def folder_of(manifest: Path) -> Path:
    return manifest.parent / json.loads(manifest.read_text())["folder"]


def test_resnet18_has_the_published_size() -> None:
    assert sum(weight.numel() for weight in resnet.resnet18(1).parameters()) == 11_170_240
    assert sum(weight.numel() for weight in resnet.resnet18(3).parameters()) == 11_176_512


def test_pretraining_repeats_bit_by_bit_whatever_the_callers_threads_and_generator(
    weights: Path, tmp_path: Path
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(99)
    try:
        pretrain(DIGITS.load(None), 8, tmp_path / "again.safetensors", steps=STEPS)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert torch.initial_seed() == 99
    assert (tmp_path / "again.safetensors").read_bytes() == weights.read_bytes()


def test_pretraining_sees_neither_labels_nor_held_out_images() -> None:
    images, blind = DIGITS.load(None), DIGITS.load(None)
    blind.targets[:] = 0
    for split in ("validation", "test"):
        blind.values[blind.splits[split]] = 16

    def trained(data: Samples) -> dict[str, torch.Tensor]:
        with resnet.fixed_threads():
            torch.manual_seed(0)
            return train(data, 8, 1)

    first, second = trained(images), trained(blind)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_views_differ_and_clusters_find_separate_groups_and_allow_duplicates() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(6, 1, 16, 16, generator=generator)
    first, second = views(images, generator), views(images, generator)
    assert first.shape == images.shape and not torch.allclose(first, second)
    assert first.min() >= 0 and first.max() <= 1.31
    points = torch.tensor([[0.0, 0.0], [0.1, 0.0], [9.0, 9.0], [9.0, 9.1], [-9.0, 9.0], [-9.0, 9.0]])
    result = clusters(points, 3, generator).tolist()
    assert result[::2] == result[1::2]
    assert len(set(result)) == 3
    assert clusters(torch.zeros(5, 2), 3, generator).unique().numel() == 1


def test_cached_features_are_standardised_on_the_training_split_and_beside_the_workloads_data(
    computed: Path,
) -> None:
    features, images = opened(computed), DIGITS.load(None)
    assert np.array_equal(opened(computed, inline=True).inputs, images.values)
    assert np.array_equal(features.targets, images.targets)
    assert all(np.array_equal(features.splits[name], rows) for name, rows in images.splits.items())
    train_rows = features.inputs[features.splits["train"]]
    assert features.inputs.shape == (1797, 512)
    assert features.inputs.dtype == np.float32
    assert np.abs(train_rows.mean(0)).max() < 1e-3
    assert train_rows.std(0).max() < 1.001
    assert np.isfinite(features.inputs).all()


def test_the_inline_backbone_gives_the_cached_embeddings(computed: Path) -> None:
    result = opened(computed, inline=True).backbone
    assert result is not None
    backbone = result().train()
    assert not any(module.training for module in backbone.modules())
    assert not any(weight.requires_grad for weight in backbone.parameters())
    assert agreement(computed, slice(100, 164)) < 1e-5
    assert agreement(computed, slice(100, 164), torch.float64) < 1e-4


def test_a_valid_folder_is_used_again(store: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = store.read_bytes()
    store.unlink()
    monkeypatch.setattr(resnet, "embed", lambda *_: pytest.fail("embedded again"))
    embed(weights, store)
    assert store.read_bytes() == content


def test_a_damaged_folder_is_built_again_and_is_the_same_everywhere_with_any_number_of_threads(
    store: Path, computed: Path, weights: Path
) -> None:
    (folder_of(store) / "labels.npy").write_bytes(b"")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        embed(weights, store)
    finally:
        torch.set_num_threads(before)
    opened(store, inline=True)
    assert store.read_bytes() == computed.read_bytes()
    assert sorted(path.name for path in store.parent.iterdir()) == sorted([store.name, folder_of(store).name])


def test_a_run_on_cached_features_checks_all_files_and_needs_no_network(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in FILES + NETWORK_FILES:
        path = folder_of(store) / name
        content = path.read_bytes()
        path.write_bytes(content + b"x")
        with pytest.raises(UserError, match=rf"{name}: is damaged"):
            opened(store)
        path.write_bytes(content)
    for heavy in ("transformers", "sklearn"):
        monkeypatch.setitem(sys.modules, heavy, None)
    assert opened(store).backbone is None


def changed(**entries: Any) -> Callable[[Path], Any]:
    """Other entries of the manifest."""
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (changed(data_hash="0" * 64), "is damaged"),
        (changed(files={}), "is damaged"),
        (
            lambda path: path.write_text(path.read_text().replace('"code_version": ', '"code_version": 9')),
            "version",
        ),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    store: Path, damage: Callable[[Path], Any], message: str
) -> None:
    damage(store)
    with pytest.raises(UserError, match=message):
        opened(store, inline=True)


def test_weights_are_trained_again_for_other_images_and_kept_for_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, state = [], resnet.resnet18(1).state_dict()

    def counted(images: Samples, size: int, out: Path, steps: int) -> None:
        trained.append((size, steps))
        resnet.write_weights(out, state, origin_of(images, size, steps))

    monkeypatch.setattr(features_of_images, "pretrain", counted)
    computed: list[str] = []
    monkeypatch.setattr(
        features_of_images, "compute", lambda _, images, *__: computed.append(images.digest())
    )
    manifest = tmp_path / "features.json"
    short = SETTINGS | {"pretrain_steps": 1}
    for workload, times in (
        (Digits(**short), 1),
        (Digits(**short), 1),
        (Digits(**short | {"split_seed": 1}), 2),
        (Digits(**short | {"image_size": 16}), 3),
        (Digits(**short | {"image_size": 16, "pretrain_steps": 2}), 4),
    ):
        prepare(workload, manifest, None)
        assert len(trained) == times and computed[-1] == workload.load(None).digest()


def test_a_crash_while_embedding_leaves_nothing_behind(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(resnet, "embed", crash)
    with pytest.raises(MemoryError):
        embed(weights, tmp_path / "store" / "features.json")
    assert list((tmp_path / "store").iterdir()) == []


def test_imagenet_weights_from_a_folder_make_three_channel_features(imagenet: Path, tmp_path: Path) -> None:
    workload = Digits(**SETTINGS | {"weights": "imagenet", "weights_folder": str(imagenet)})
    with pytest.raises(UserError, match="run the rule fetch"):
        prepare(workload, tmp_path / "features.json", None)
    assert workload.fetch(tmp_path) == [tmp_path / IMAGENET_FILE]
    prepare(workload, tmp_path / "features.json", tmp_path)
    assert agreement(tmp_path / "features.json", slice(32)) < 1e-5


def test_weights_of_another_network_or_of_none_are_refused(imagenet: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    with pytest.raises(UserError, match=r"model\.safetensors: is missing"):
        resnet.fetch_imagenet(tmp_path / "out", tmp_path)
    deeper = load_file(imagenet / "model.safetensors") | {"resnet.encoder.stages.4.x": torch.zeros(1)}
    save_file(deeper, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="does not hold the weights of ResNet-18"):
        resnet.fetch_imagenet(tmp_path / "out", tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("damage, message", [(b"other bytes", "damaged"), (None, "missing")])
def test_a_fetched_file_that_is_not_as_it_was_fetched_is_refused(
    tmp_path: Path, damage: bytes | None, message: str
) -> None:
    from ketscale.problems import store

    data, manifest = tmp_path / "data.bin", tmp_path / "fetched.json"
    data.write_bytes(b"fetched bytes")
    manifest.write_text(json.dumps({"files": {data.name: hashlib.sha256(b"fetched bytes").hexdigest()}}))
    assert store.fetched(manifest) == tmp_path
    data.unlink() if damage is None else data.write_bytes(damage)
    with pytest.raises(
        UserError, match=rf"data\.bin: is {message}; delete it and .*fetched\.json, and run the rule fetch"
    ):
        store.fetched(manifest)
