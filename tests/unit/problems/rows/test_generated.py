"""Generated rows are what the benchmark's paper defines, and the same wherever they are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ketscale.config import Config
from ketscale.problems.samples import Samples
from tests.own_files import config, loaded


def data_of(kind: str, **settings: Any) -> Samples:
    result: Samples = loaded({"kind": kind, "split_seed": 0, **settings})
    return result


def sides(data: Samples) -> tuple[np.ndarray, np.ndarray]:
    return data.values[data.targets == 0], data.values[data.targets == 1]


@pytest.mark.parametrize("features", [1, 20])
def test_separable_rows_lie_in_a_cube_outside_the_margin_on_the_side_of_their_class(features: int) -> None:
    data = data_of("linearly-separable", features=features)
    assert data.values.shape == (300, features) and np.abs(data.values).max() <= 1
    sums = data.values.sum(1)
    assert np.abs(sums).min() > 0.02 * features and np.array_equal(data.targets, sums > 0)
    # The variance of a uniform number in [-1, 1] is 1/3, but what is near the plane is left out.
    assert data.values.var(0) == pytest.approx(1 / 3, abs=0.1)


def test_a_hidden_manifold_has_its_dimension_and_equal_classes() -> None:
    data = data_of("hidden-manifold", features=10, manifold=3)
    assert [len(side) for side in sides(data)] == [150, 150]
    places = np.arctanh(data.values)
    assert np.linalg.matrix_rank(places - places.mean(0), tol=1e-8) == 3
    # Places are normal, and so is the embedding but for its scale: a variance of 1 in the mean over features.
    many = data_of("hidden-manifold", features=200, manifold=30, samples=400)
    assert np.arctanh(many.values).var(0).mean() == pytest.approx(1, abs=0.1)
    # On a line through the origin every class is a half: tanh is odd, so one network has one sign a side.
    low, high = sorted(sides(data_of("hidden-manifold", features=1, manifold=1)), key=np.median)
    assert low.max() < high.min()


def test_two_curves_are_one_fourier_series_and_its_shifted_copy() -> None:
    data = data_of("two-curves", features=40)
    first, second = sides(data)
    both = np.concatenate([first, second - 0.1])
    # The cosines and sines of 5 frequencies, and a constant; the rest is noise.
    singular = np.linalg.svd(both, compute_uv=False)
    assert np.sqrt(np.square(singular[11:]).sum() / (300 * 29)) == pytest.approx(0.01, rel=0.1)
    # Squares of all coefficients add up to 1, and so do those of the curve's coordinates, up to cosines and sines.
    assert 0.2 < np.square(first).sum(1).mean() < 3


def test_bars_are_vertical_and_stripes_horizontal() -> None:
    bars, stripes = (side.reshape(-1, 5, 5) for side in sides(data_of("bars-and-stripes", width=5)))
    for pictures, along in ((bars, 1), (stripes, 2)):
        lines = pictures.mean(along, keepdims=True)
        assert np.abs(lines).mean() == pytest.approx(1, abs=0.05) and lines.mean() == pytest.approx(
            0, abs=0.1
        )
        assert (pictures - lines).std() == pytest.approx(0.5 * np.sqrt(4 / 5), rel=0.05)
    noisy = data_of("bars-and-stripes", width=2, samples=2000).values
    assert np.square(noisy).mean() == pytest.approx(1.25, rel=0.05)


@pytest.mark.parametrize(
    ("block", "features"),
    [
        ({"kind": "linearly-separable", "features": 4}, 4),
        ({"kind": "hidden-manifold", "features": 4}, 4),
        ({"kind": "two-curves", "features": 4}, 4),
        ({"kind": "bars-and-stripes", "width": 3}, 9),
    ],
)
def test_the_seed_makes_the_rows_and_the_split_seed_the_parts(block: dict[str, Any], features: int) -> None:
    one, repeat, other, split = (
        loaded({**block, "samples": 40, "seed": seed, "split_seed": parts})
        for seed, parts in ((0, 0), (0, 0), (1, 0), (0, 1))
    )
    assert one.values.shape == (40, features) and one.digest() == repeat.digest()
    assert not np.array_equal(one.values, other.values)
    assert np.array_equal(one.values, split.values) and one.digest() != split.digest()
    described: Config = config({**block, "split_seed": 0})
    workload = described.workloads["mine"][1]
    assert workload.features == features and type(workload).generated
