"""How raw samples, as a user brings them, become a model's inputs: plain data, which a trained model keeps.

It is fitted to the training part alone. pandas determines what a number, a text and a gap of a table is.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError, short
from ketscale.problems.arrays import real, single
from ketscale.shapes import Shaped

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from ketscale.problems.images.resnet import PixelScaling
    from ketscale.problems.own_data import Step


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a column of a table becomes one feature, or one for each category.

    name: the column's. date: its values are dates, which become numbers of days since 1970. categories: those of the training
    part, in order; None if its values are numbers. gap: what replaces a missing value; None if none may be missing.
    """

    name: str
    date: bool = False
    categories: tuple[str, ...] | None = None
    gap: float | str | None = None

    @classmethod
    def of(cls, name: str, steps: Collection[Step] = ()) -> Column:
        """A column that is not fitted yet."""
        return cls(name, "date" in steps, () if "one-hot" in steps else None)

    def fit(self, column: pd.Series[Any], steps: Collection[Step] = ()) -> Column:
        """The column as its training samples, of which one at least has a value, say."""
        values = self.values(column.dropna())
        if not len(values):
            raise UserError(f"column {self.name}: no training sample has a value; put it under ignore")
        different, counts = np.unique(values, return_counts=True)
        gap = None
        if "median" in steps:
            gap = float(np.median(values))
        elif "most-frequent" in steps:
            gap = different.tolist()[counts.argmax()]
        categories = None if self.categories is None else tuple(different.tolist())
        return msgspec.structs.replace(self, categories=categories, gap=gap)

    def comparable(self, column: pd.Series[Any]) -> NDArray[np.float64]:
        """Numbers (n, 1), or (n, 2) where values are missing, which are equal for equal values."""
        import pandas as pd

        values, missing = self.values(column), column.isna().to_numpy()
        numbers = pd.factorize(values)[0] if self.categories is not None else np.where(missing, 0, values)
        return np.stack([numbers, missing] if missing.any() else [numbers], 1).astype(np.float64)

    def values(self, column: pd.Series[Any]) -> NDArray[Any]:
        """Its numbers, or texts, (n,): NaN and None where a value is missing.

        Raises:
            UserError: a value is no number or no date; names its row, counted from 1.
        """
        import pandas as pd

        there = column.notna().to_numpy()
        if self.categories is not None:
            return np.array(
                [_text(value) if known else None for value, known in zip(column, there, strict=True)], object
            )
        if self.date:
            times = pd.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
            numbers = (times - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
        else:
            # Text such as 1_000 is no number to pandas.
            numbers = pd.to_numeric(column, errors="coerce")
        result = numbers.to_numpy(np.float64, na_value=np.nan, copy=True)
        if (wrong := there & ~np.isfinite(result)).any():
            row = int(wrong.argmax())
            what = "a date such as 2024-01-31" if self.date else "a finite number"
            raise UserError(
                f"row {row + 1}, column {self.name}: {short(repr(str(column.iloc[row])))} is not {what}; write it so, put the column "
                f"under ignore, or ask for its categories, columns: {{{self.name}: one-hot}}"
            )
        return result

    def __call__(self, column: pd.Series[Any]) -> NDArray[np.float64]:
        """Its features (n, 1), or (n, categories), where a category that training has not is 0 in all.

        Raises:
            UserError: as for `values`, or a value is missing and nothing replaces it.
        """
        values, missing = self.values(column), column.isna().to_numpy()
        if missing.any():
            if self.gap is None:
                fill = "[most-frequent, one-hot]" if self.categories else "median"
                raise UserError(
                    f"row {int(missing.argmax()) + 1}, column {self.name}: is empty; drop the row, or say what replaces "
                    f"it, columns: {{{self.name}: {fill}}}"
                )
            values[missing] = self.gap
        if self.categories is None:
            return values[:, None]
        return (values[:, None] == np.array(self.categories, object)).astype(np.float64)


def _text(value: Any) -> str:
    """A category; whole numbers are alike whether a gap made pandas read them as floats or not."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def of_columns(columns: Collection[Column], table: pd.DataFrame) -> NDArray[np.float64]:
    """The features (n, features) of the columns of a table.

    Raises:
        UserError: a column is missing, or as for `Column`.
    """
    missing = [column.name for column in columns if column.name not in table]
    if missing:
        raise UserError(f"there is no column {missing[0]}; it has {short(', '.join(map(str, table)))}")
    return np.hstack([column(table[column.name]) for column in columns])


class Preprocessing(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="samples"
):
    """The inputs of a model of samples, and the meaning of its outputs.

    names: those of the classes, or of the targets. targets: mean and standard deviation of each target in the training part;
    None of classes.
    """

    names: tuple[str, ...]
    targets: tuple[tuple[float, float], ...] | None = None

    def inputs(self, raw: Any, weights: Path | None = None) -> Shaped[np.ndarray, "samples ..."]:
        """The model's inputs for raw samples.

        Raises:
            UserError: they are not of the kind that the model was trained on.
        """
        raise NotImplementedError

    def predicted(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """What outputs (n, width) mean: names of classes (n,), or targets (n,), (n, targets) of several, in their units.

        Names that are all whole numbers are int64, as such labels are read by pandas.
        """
        if self.targets is None:
            names = np.array(self.names)
            integral = all(re.fullmatch("0|-?[1-9][0-9]{0,17}", name) for name in self.names)
            return (names.astype(np.int64) if integral else names)[outputs.argmax(1)]
        mean, deviation = np.array(self.targets).T
        values: NDArray[Any] = outputs.astype(np.float64) * deviation + mean
        return values[:, 0] if len(self.names) == 1 else values


class Features(Preprocessing, frozen=True, kw_only=True, tag="features"):
    """The preprocessing of rows of numbers, or of the columns of a table.

    columns: None of an array. mean, std: of each feature in the training part.
    """

    columns: tuple[Column, ...] | None = None
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def inputs(self, raw: Any, weights: Path | None = None) -> NDArray[np.float32]:
        """See `Preprocessing`; raw: an array (n, features), or a DataFrame that has the columns."""
        if self.columns is None:
            values = real(np.asarray(raw), "x").astype(np.float64)
        elif hasattr(raw, "columns"):
            values = of_columns(self.columns, raw.rename(columns=lambda name: str(name).strip()))
        else:
            raise UserError("x: the model was trained on a table; give a pandas.DataFrame with its columns")
        if values.ndim != 2 or values.shape[1] != len(self.mean):
            raise UserError(f"x: has shape {values.shape}, not (samples, {len(self.mean)})")
        return scaled(values, np.array(self.mean), np.array(self.std))


def scaled(
    values: NDArray[np.float64], mean: NDArray[np.float64], std: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Features (n, features) standardised."""
    return single((values - mean) / std, "features")


class Series(Preprocessing, frozen=True, kw_only=True, tag="series"):
    """The preprocessing of trials, (channels, steps) each. standardise: whether each channel of a trial gets mean 0 and deviation 1."""

    shape: tuple[int, int]
    standardise: bool = False

    def inputs(self, raw: Any, weights: Path | None = None) -> NDArray[np.float32]:
        """See `Preprocessing`; raw: an array (n, channels, steps)."""
        signals = single(np.asarray(raw), "x")
        if signals.shape[1:] != self.shape:
            raise UserError(f"x: has shape {signals.shape}, not (trials, {self.shape[0]}, {self.shape[1]})")
        return standardised(signals) if self.standardise else signals


def standardised(signals: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Each channel of trials (n, channels, steps) with mean 0 and standard deviation 1; a constant one becomes 0."""
    mean = signals.mean(2, keepdims=True, dtype=np.float64)
    std = signals.std(2, keepdims=True, dtype=np.float64)
    flat = std <= 1e-12 * np.abs(mean)
    return np.where(flat, 0, (signals - mean) / np.where(flat, 1, std)).astype(np.float32)


class Pictures(Preprocessing, frozen=True, kw_only=True, tag="images"):
    """The preprocessing of images, which ResNet-18 embeds.

    size: side in pixels to which they are scaled. peak: the pixel value of full ink. pixel_mean, pixel_std: of each channel.
    mean, std: of each embedding. weights_hash: SHA-256 of the file of the network's weights. files: whether training had
    files, which Pillow scales, and not arrays, which are scaled by the network.
    """

    size: int
    files: bool
    peak: int
    pixel_mean: tuple[float, ...]
    pixel_std: tuple[float, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    weights_hash: str

    @property
    def scaling(self) -> PixelScaling:
        """How pixels become the network's input."""
        from ketscale.problems.images.resnet import PixelScaling

        return PixelScaling(self.size, self.peak, self.pixel_mean, self.pixel_std)

    def inputs(self, raw: Any, weights: Path | None = None) -> NDArray[np.float32]:
        """See `Preprocessing`.

        raw: as in training an array (n, height, width) or (n, height, width, 3) of pixels, or a list of paths of image files
        or of Pillow's images. weights: the file of the network's weights.
        """
        from ketscale.files import sha256
        from ketscale.problems.images import pixels, resnet

        if weights is None or sha256(weights) != self.weights_hash:
            reason = f"{weights} is another file" if weights else "none was found"
            raise UserError(
                f"the images need the weights of ResNet-18 that the model was trained with, a file whose SHA-256 is "
                f"{self.weights_hash} (weights.safetensors in the run's features), and {reason}; name it, "
                "ketscale.load(run, weights=FILE)"
            )
        mode = "L" if len(self.pixel_mean) == 1 else "RGB"
        if self.files and isinstance(raw, np.ndarray):
            raise UserError(
                "x: is an array, and training had files; give a list of paths or of Pillow's images"
            )
        if self.files:
            stored = np.stack([pixels.resized(each, mode, self.size) for each in raw])
        else:
            raw = np.asarray(raw)
            stored = pixels.as_stored(raw, self.peak)
            # The network of ImageNet's weights takes grey images too, but one in colour alone is no grey ones.
            grey = mode == "L" or (self.pixel_mean == resnet.IMAGENET_MEAN and stored.shape[-1] != 3)
            if (stored.ndim == 3) != grey and not (stored.ndim == 4 and mode == "RGB"):
                raise UserError(f"x: has shape {raw.shape}, not (n, height, width{', 3' * (mode == 'RGB')})")
        network = resnet.network_from(weights, len(self.pixel_mean))
        with resnet.fixed_threads():
            embeddings = resnet.embed(network, stored, self.scaling)
        mean, std = (np.array(values, np.float32) for values in (self.mean, self.std))
        return (embeddings - mean) / std


def of_plain(content: Any) -> Preprocessing:
    """From plain values, which `msgspec.to_builtins` has made.

    Raises:
        ValueError: they are not of this version.
    """
    result: Preprocessing = msgspec.convert(content, Features | Series | Pictures)
    return result
