"""Small real tables that come with scikit-learn, and generated rows of two classes: a benchmark of quantum classifiers.

Bowles, Ahmed & Schuld, "Better than classical? The subtle art of benchmarking quantum machine learning models",
arXiv:2403.07059 (2024), section IV. The hidden manifold is that of Goldt et al., Phys. Rev. X 10, 041044 (2020); the two curves
are those of Buchanan et al., arXiv:2008.11245.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ketscale.optional import needed_for
from ketscale.problems.arrays import Source
from ketscale.problems.own_samples import divided
from ketscale.problems.samples import Samples

if TYPE_CHECKING:
    from ketscale.problems.rows import specification as kinds

Real = NDArray[np.float64]

# The benchmark's. Rows are separated by so much for each feature; two curves have this degree, distance and noise.
MARGIN = 0.02
DEGREE, OFFSET, NOISE = 5, 0.1, 0.01
PIXEL_NOISE = 0.5


def linearly_separable(workload: kinds.LinearlySeparable, fetched: Path | None = None) -> Samples:
    """Points drawn uniformly from [-1, 1]^features, without those whose sum is within the margin; its sign is the class."""
    rng, count = _random(workload), workload.samples
    points = np.empty((0, workload.features))
    while len(points) < count:
        batch = rng.uniform(-1, 1, (2 * count, workload.features))
        points = np.concatenate([points, batch[np.abs(batch.sum(1)) > MARGIN * workload.features]])
    return _split(workload, points[:count], points[:count].sum(1) > 0)


def hidden_manifold(workload: kinds.HiddenManifold, fetched: Path | None = None) -> Samples:
    """tanh(c F / sqrt(m) - b) of normal places c (m,) on the manifold, and sign(v . tanh(W c) - its median) as classes.

    F, W and v are normal, b uniform in [-1, 1].
    """
    rng, size = _random(workload), workload.manifold
    places = rng.standard_normal((workload.samples, size))
    embedding = rng.standard_normal((size, workload.features)) / np.sqrt(size)
    shift = rng.uniform(-1, 1, workload.features)
    inner, outer = rng.standard_normal((size, size)), rng.standard_normal(size)
    heights = np.tanh(places @ inner.T) @ outer
    return _split(workload, np.tanh(places @ embedding - shift), heights > np.median(heights))


def two_curves(workload: kinds.TwoCurves, fetched: Path | None = None) -> Samples:
    """Points f(t) of a Fourier series at uniform t in [0, 1], and f(t) + offset, half of each, with noise.

    Coordinate i of the curve is the sum over k from 0 to the degree of a_ik cos(k pi t) + b_ik sin(k pi t), but b_i0 stands
    alone. The coefficients are uniform in [0, 1], then divided by the norm of all.
    """
    rng, count = _random(workload), workload.samples
    frequencies = np.arange(DEGREE + 1)
    coefficients = rng.uniform(size=(2, DEGREE + 1, workload.features))
    cosines, sines = coefficients / np.linalg.norm(coefficients)
    phases = np.pi * rng.uniform(size=count)[:, None] * frequencies
    points = np.cos(phases) @ cosines + np.sin(phases) @ sines + sines[0]
    second = np.arange(count) >= count // 2
    points += NOISE * rng.standard_normal(points.shape) + OFFSET * second[:, None]
    return _split(workload, points, second)


def bars_and_stripes(workload: kinds.BarsAndStripes, fetched: Path | None = None) -> Samples:
    """Pictures of -1 in which each row (a stripe, class 1), or each column (a bar), is 1 with probability one half.

    With probability 2 / 2^width all lines of a picture are alike, so that only its label gives its class.
    """
    rng, width = _random(workload), workload.width
    stripes = rng.random(workload.samples) > 0.5
    lines = np.where(rng.random((workload.samples, width, 1)) > 0.5, 1.0, -1.0).repeat(width, axis=2)
    pictures = np.where(stripes[:, None, None], lines, lines.swapaxes(1, 2))
    pictures = pictures + PIXEL_NOISE * rng.standard_normal(pictures.shape)
    return _split(workload, pictures.reshape(len(pictures), -1), stripes)


def sample_table(workload: kinds.SampleTable, fetched: Path | None = None) -> Samples:
    """The table's rows, with a split that is drawn."""
    with needed_for("workload sample-table", "estimators"):
        from sklearn import datasets

    table = getattr(datasets, f"load_{workload.table.replace('-', '_')}")()
    values = np.asarray(table.data, np.float64)
    names = getattr(table, "target_names", None)
    targets = table.target if names is None else np.asarray(names)[table.target]
    return divided(workload, {"labels": Source(targets, workload.table)}, values, "row")


def _random(workload: Any) -> np.random.Generator:
    """Random numbers of the workload's own, so that data of other dimensions are not parts of each other."""
    return np.random.default_rng((workload.seed, workload.features))


def _split(workload: kinds.GeneratedRows, values: Real, second: NDArray[np.bool_]) -> Samples:
    there = {"labels": Source(second.astype(np.int64), "the generated classes")}
    return divided(workload, there, values, "row")
