"""How raw samples, as a user brings them, become a model's inputs: plain data, which a trained model keeps.

It is fitted to the training part alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError
from ketscale.problems.arrays import real, single
from ketscale.problems.columns import Column, of_columns
from ketscale.shapes import Shaped

if TYPE_CHECKING:
    from pathlib import Path

    from ketscale.problems.images.resnet import PixelScaling


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
