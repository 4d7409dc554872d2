"""The workloads arrays, image-folder and idx: a user's own images or features."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ketscale.errors import UserError, damaged, short
from ketscale.files import opened
from ketscale.optional import needed_for
from ketscale.problems import arrays, own_samples, splits
from ketscale.problems.images import idx
from ketscale.problems.images.images import Images, first_equal
from ketscale.problems.labels import check_apart, classes_of, named
from ketscale.problems.vectors.vectors import Vectors

if TYPE_CHECKING:
    from PIL import Image

    from ketscale.problems.images.workloads import Arrays, Idx, ImageFolder

# Pillow's names of the formats with these suffixes. Pillow must not guess others, such as PostScript.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
# Pillow's modes with 8 bits or fewer a channel, grey and in colour.
_GREY = {"1", "L"}
_COLOUR = {"P", "RGB", "RGBA", "LA", "CMYK", "YCbCr"}


WANTED = {"samples": ("images", "features", "x"), "labels": ("labels", "y")}


def from_arrays(workload: Arrays, fetched: Path | None = None) -> Images | Vectors:
    """The samples of an .npz file, or of a pair of .npy files: images for a network, or else features.

    Raises:
        UserError: an array is missing or damaged, or has another shape or type; or a class has too few samples.
    """
    there = own_samples.read(workload, WANTED)
    network = workload.weights is not None
    values, peak = _checked(*there["samples"], network)
    equal = first_equal if network else splits.first_equal_features
    found = own_samples.divided(workload, there, len(values), "sample", lambda: equal(values))
    known: Any = {"splits": found.parts, "marks": found.marks}
    if network:
        return Images(pixels=values, peak=peak, labels=found.targets, classes=found.names, **known)
    return Vectors(values=values, targets=found.targets, names=found.names, **known)


def from_idx(workload: Idx, fetched: Path | None = None) -> Images:
    """The images of idx files: images and labels, and maybe test images and test labels, which are then the test set.

    Raises:
        UserError: a file is damaged, files do not fit together, or a class has too few samples.
    """
    files, shares = workload.sources(), workload.shares
    if len(files) == 4:
        del shares["test"]
    read = [idx.read(path) for path in files]
    for pixels, labels, path in zip(read[::2], read[1::2], files[1::2], strict=True):
        named(labels, str(path), len(pixels), "image")
    first = len(read[0])
    if len({(*pixels.shape[1:], pixels.dtype) for pixels in read[::2]}) > 1:
        raise UserError(f"{files[2]}: its images have another size or type than those of {files[0]}")
    pixels, peak = _pixels(np.concatenate(read[::2]), str(files[0]))
    labels, classes = classes_of(np.concatenate(read[1::2]), str(files[1]), len(pixels), "image")
    parts = splits.by_shares(
        labels[:first], classes, shares, workload.split_seed or 0, first_equal(pixels[:first])
    )
    if len(files) == 4:
        if not len(read[2]):
            raise UserError(f"{files[2]}: has no images; leave test_images and test_labels out")
        parts["test"] = np.arange(first, len(pixels))
    return Images(pixels=pixels, labels=labels, splits=parts, peak=peak, classes=classes)


def from_folder(workload: ImageFolder, fetched: Path | None = None) -> Images:
    """The images of each class's files, resized to squares of `image_size` pixels (bilinear, whatever their proportions).

    The images are grey if all files are, else all are in colour.

    Raises:
        UserError: a file is damaged, transparent or animated, or has more than 8 bits a channel; or a class has too
            few files.
    """
    files, size = workload.files(), workload.image_size
    assert size is not None
    classes = tuple(files)
    check_apart({str(paths[0].parent): name for name, paths in files.items()}, "names of folders")
    counts = [len(paths) for paths in files.values()]
    labels = np.repeat(np.arange(len(classes)), counts)
    paths = [path for of_class in files.values() for path in of_class]
    # Every file is checked, although the first one in colour decides the mode.
    mode = "L" if {_mode(path) for path in paths} <= _GREY else "RGB"
    pixels = np.stack([_resized(path, mode, size) for path in paths])
    parts = splits.by_shares(labels, classes, workload.shares, workload.split_seed or 0, first_equal(pixels))
    return Images(pixels=pixels, labels=labels, splits=parts, peak=255, classes=classes)


def _checked(values: NDArray[Any], where: str, network: bool) -> tuple[NDArray[Any], int]:
    """The values and their peak, as of images with `network`; without it as of features, which have no peak: 0."""
    if network and values.ndim == 2:
        raise UserError(
            f"{where}: shape {values.shape} is that of features, not images; leave weights and image_size out"
        )
    if not network and values.ndim in (3, 4):
        raise UserError(
            f"{where}: shape {values.shape} is that of images, not features; set weights and image_size"
        )
    if values.ndim == 0 or (not network and (values.ndim != 2 or not values.size)):
        raise UserError(f"{where}: shape {values.shape} is not that of features, (samples, features)")
    if not network:
        return arrays.real(values, where).astype(np.float64), 0
    return _pixels(values, where)


def _pixels(values: NDArray[Any], where: str) -> tuple[NDArray[Any], int]:
    """Pixels in the form of `Images`, and their peak: bytes unchanged, floats from 0 to 1 as float32."""
    shape = values.shape
    if len(shape) not in (3, 4) or not values.size:
        raise UserError(
            f"{where}: shape {shape} is not that of images, (images, height, width) or (images, height, width, 3)"
        )
    if len(shape) == 4 and shape[3] not in (1, 3):
        raise UserError(
            f"{where}: shape {shape} has {shape[3]} channels in its last dimension, not 1 (grey) or 3 (red, green, blue)"
        )
    if len(shape) == 4 and shape[3] == 1:
        values = values[..., 0]
    if values.dtype == np.uint8:
        return values, 255
    if values.dtype.kind != "f":
        raise UserError(
            f"{where}: holds {short(values.dtype)}; save pixels as uint8 (0 to 255) or as floats from 0 to 1"
        )
    low, high = float(arrays.real(values, where).min()), float(values.max())
    if low < 0 or high > 1:
        raise UserError(
            f"{where}: pixels range from {low:g} to {high:g}; scale them to floats from 0 to 1, or save them as uint8"
        )
    return values.astype(np.float32), 1


def _mode(path: Path) -> str:
    """An image file's mode, by Pillow's name.

    Raises:
        UserError: the file cannot be read, has several frames, or has a mode other than the 8-bit ones above.
    """
    with _opened(path) as image:
        mode, frames = image.mode, getattr(image, "n_frames", 1)
    if mode not in _GREY | _COLOUR:
        raise UserError(f"{path}: its mode is {mode}; save it with 8 bits a channel, grey or in colour")
    if frames > 1:
        raise UserError(f"{path}: has {frames} frames; save those that you want as separate images")
    return mode


def _resized(path: Path, mode: str, size: int) -> NDArray[np.uint8]:
    """Pixels (size, size) or (size, size, 3) of a file, turned upright as its EXIF data say.

    Raises:
        UserError: the file is damaged, or transparent in places.
    """
    with needed_for("a folder of images", "images"):
        from PIL import Image, ImageOps

    with _opened(path) as image:
        upright = ImageOps.exif_transpose(image)
        if upright.has_transparency_data and np.asarray(upright.convert("RGBA"))[..., 3].min() < 255:
            raise UserError(f"{path}: is transparent in places; save it on a background")
        resized = upright.convert(mode).resize((size, size), Image.Resampling.BILINEAR)
        return np.asarray(resized, np.uint8)


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
        try:
            with opened(path) as file, Image.open(file, formats=FORMATS) as image:
                yield image
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            raise UserError(
                f"{path}: has more than {Image.MAX_IMAGE_PIXELS:,} pixels; save it smaller"
            ) from None
