"""The pixels of arrays and of image files that a user brings."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError, damaged
from ketscale.optional import needed_for

if TYPE_CHECKING:
    from PIL import Image

    from ketscale.problems.samples import Samples

# Pillow's names of the formats with these suffixes. Pillow must not guess others, such as PostScript.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
# Pillow's modes with 8 bits or fewer a channel, grey and in colour.
GREY = {"1", "L"}
_COLOUR = {"P", "RGB", "RGBA", "LA", "CMYK", "YCbCr"}


def channels_of(pixels: NDArray[Any]) -> int:
    """The number of channels, 1 or 3."""
    return 1 if pixels.ndim == 3 else pixels.shape[3]


def brightness(images: Samples) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel's pixels in the training split, with full ink as 1.

    The deviation of a constant channel is given as 1, since pixels are divided by it.
    """
    pixels, peak = images.values[images.splits["train"]], images.peak
    mean, std = [], []
    for channel in [pixels] if channels_of(pixels) == 1 else np.moveaxis(pixels, 3, 0):
        values = channel / np.float64(peak)
        mean.append(float(values.mean()))
        std.append(float(values.std()) or 1.0)
    return tuple(mean), tuple(std)


def pixels_of(values: NDArray[Any], where: str) -> NDArray[np.uint8]:
    """Pixels in the form of `Samples`."""
    shape = values.shape
    if len(shape) not in (3, 4) or not values.size or (len(shape) == 4 and shape[3] not in (1, 3)):
        raise UserError(
            f"{where}: shape {shape} is not (images, height, width) or (images, height, width, 3)"
        )
    if values.dtype != np.uint8:
        raise UserError(f"{where}: {values.dtype} are no pixels; save whole numbers from 0 to 255 as uint8")
    return values[..., 0] if len(shape) == 4 and shape[3] == 1 else values


def as_stored(values: NDArray[Any], peak: int) -> NDArray[np.uint8]:
    """Pixels in the form of `Samples` with this peak.

    Raises:
        UserError: the array is not of such pixels.
    """
    if peak == 255:
        return pixels_of(values, "x")
    # Scans of fewer levels may be numbers of any type.
    if not np.isin(values, np.arange(peak + 1)).all():
        raise UserError(f"x: the model was trained on whole numbers from 0 to {peak}; give such pixels")
    return pixels_of(values.astype(np.uint8), "x")


def mode_of(path: Path) -> str:
    """An image file's mode, by Pillow's name.

    Raises:
        UserError: the file cannot be read, has several frames, or has a mode other than the 8-bit ones above.
    """
    with _opened(path) as image:
        mode, frames = image.mode, getattr(image, "n_frames", 1)
    if mode not in GREY | _COLOUR:
        raise UserError(f"{path}: its mode is {mode}; save it with 8 bits a channel, grey or in colour")
    if frames > 1:
        raise UserError(f"{path}: has {frames} frames; save those that you want as separate images")
    return mode


def resized(file: Image.Image | Path | str, mode: str, size: int) -> NDArray[np.uint8]:
    """Pixels (size, size) or (size, size, 3) of an image or a file, turned upright as its EXIF data say.

    Raises:
        UserError: the file is damaged, or transparent in places.
    """
    with needed_for("a folder of images", "images"):
        from PIL import Image, ImageOps

    with _opened(Path(file)) if isinstance(file, str | Path) else nullcontext(file) as image:
        upright = ImageOps.exif_transpose(image)
        if upright.has_transparency_data and np.asarray(upright.convert("RGBA"))[..., 3].min() < 255:
            raise UserError(f"{file}: is transparent in places; save it on a background")
        return np.asarray(upright.convert(mode).resize((size, size), Image.Resampling.BILINEAR), np.uint8)


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """An image file of a usual format.

    Raises:
        UserError: the file is damaged or too large.
    """
    with needed_for("a folder of images", "images"):
        from PIL import Image

    # Pillow's decoders raise errors of any type on a damaged file.
    with damaged(f"{path}: is not a readable image", "save or copy it again"), warnings.catch_warnings():
        # A small file can hold more pixels than there is memory.
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path, formats=FORMATS) as image:
            yield image
