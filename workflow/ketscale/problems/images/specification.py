"""The family `images`: labelled images, and classifiers of their features, with or without a circuit."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from ketscale.config import METRICS, Family, FileModel, WithTargets, lazily
from ketscale.config.circuits import CIRCUIT_SIZES, CircuitSimulator
from ketscale.errors import UserError
from ketscale.problems.datasets import build
from ketscale.problems.own_data import File, OwnArrays, OwnSamples, Share, SplitSeed, ValidationShare
from ketscale.problems.vectors.settings import MODELS

# The name of the converted ImageNet weights among the fetched files.
IMAGENET_FILE = "resnet18-imagenet.safetensors"
PRETRAIN_STEPS = 64
# The usual image formats that Pillow reads.
IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")


class ImageWorkload(WithTargets, frozen=True, kw_only=True):
    """Labelled images, embedded once by a frozen ResNet-18."""

    machine: ClassVar[frozenset[str]] = frozenset({"weights_folder"})

    # fmt: off
    split_seed: SplitSeed | None = None
    weights: Annotated[Literal["selfsupervised", "imagenet"], Meta(description="selfsupervised: trained here without "
        "labels; imagenet: those of microsoft/resnet-18")]
    weights_folder: Annotated[str, Meta(description="Local folder with a download of microsoft/resnet-18 (for "
        "weights: imagenet)")] | None = None
    image_size: Annotated[int, Meta(ge=8, le=512, description="Side in pixels to which images are scaled before "
        "ResNet-18")]
    pretrain_steps: Annotated[int, Meta(ge=1, description="Training steps of the self-supervised weights; "
        f"{PRETRAIN_STEPS} if left out")] | None = None
    # fmt: on

    def faults(self) -> Iterator[str]:
        """Only ImageNet's weights come from a folder, and only the self-supervised ones are trained."""
        if self.weights_folder is not None and self.weights != "imagenet":
            yield "weights_folder: only weights: imagenet is read from a folder; leave it out"
        if self.pretrain_steps is not None and self.weights != "selfsupervised":
            yield "pretrain_steps: only weights: selfsupervised is trained here; leave it out"

    @property
    def inline(self) -> bool:
        """The network can run in every step."""
        return True

    @property
    def split_by(self) -> str:
        """See `OwnSamples.split_by`."""
        return "labels"

    @property
    def fetched(self) -> bool:
        """Whether files are fetched: only for ImageNet's weights."""
        return self.weights == "imagenet"

    def fetch(self, folder: Path) -> list[Path]:
        """Fetch ImageNet's weights if they are asked for."""
        if self.weights != "imagenet":
            return []
        fetch = pkgutil.resolve_name("ketscale.problems.images.resnet:fetch_imagenet")
        fetch(folder / IMAGENET_FILE, Path(self.weights_folder).expanduser() if self.weights_folder else None)
        return [folder / IMAGENET_FILE]


class Digits(ImageWorkload, frozen=True, kw_only=True):
    """scikit-learn's 1,797 real 8x8 scans of handwritten digits."""

    loader: ClassVar[str] = "ketscale.problems.images.mnist:digits"

    split_seed: SplitSeed


class Mnist(ImageWorkload, frozen=True, kw_only=True):
    """The original MNIST idx files."""

    loader: ClassVar[str] = "ketscale.problems.images.mnist:of_workload"
    machine: ClassVar[frozenset[str]] = frozenset({"folder", "weights_folder"})

    split_seed: SplitSeed
    # fmt: off
    folder: Annotated[str, Meta(description="Folder with the idx files (gzipped or not); without it they are "
        "fetched")] | None = None
    split: Annotated[Literal["original", "test-images"], Meta(description="original: 54,000/6,000/10,000; "
        "test-images: the 10,000 test images alone, 8,000/1,000/1,000")]
    # fmt: on

    def misplaced(self) -> Iterator[str]:
        """The test images alone are never fetched."""
        yield from super().misplaced()
        if self.split == "test-images" and self.folder is None:
            yield "folder: split: test-images needs one; only split: original fetches files"

    @property
    def fetched(self) -> bool:
        """Whether files are fetched: ImageNet's weights, and the idx files if no folder is given."""
        return super().fetched or self.folder is None

    def fetch(self, folder: Path) -> list[Path]:
        """Fetch the four files, verifying their checksums, and ImageNet's weights if they are asked for."""
        fetch = pkgutil.resolve_name("ketscale.problems.images.mnist:fetch")
        return [*(fetch(folder) if self.folder is None else []), *super().fetch(folder)]

    def sources(self) -> list[Path]:
        """The idx files in the folder."""
        return [] if self.folder is None else self.files(Path(self.folder).expanduser())

    def files(self, folder: Path) -> list[Path]:
        """The files in a folder, each as it is or, if it is not there, gzipped."""
        files = []
        for name in _TEST if self.split == "test-images" else _TRAIN + _TEST:
            path = next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)
            if path is None:
                raise UserError(f"folder: {folder} has no {name}.gz; leave folder out to fetch it")
            files.append(path)
        return files


class Arrays(OwnArrays, ImageWorkload, frozen=True, kw_only=True):
    """A user's own images, in an .npz file."""

    loader: ClassVar[str] = "ketscale.problems.images.features:from_arrays"
    machine: ClassVar[frozenset[str]] = frozenset({"file", "weights_folder"})
    former: ClassVar[Mapping[str, Any]] = MappingProxyType({**OwnArrays.former, "feature_count": None})

    # fmt: off
    file: Annotated[File, Meta(description="An .npz file with images or x, and labels or y")] | None = None
    split: Annotated[Literal["samples", "given"], Meta(description="samples: a share of each class is drawn; given: "
        "the array split in the file gives the parts")] = "samples"
    # fmt: on
    validation: ValidationShare | None = None
    test: Share | None = None


class ImageFolder(OwnSamples, ImageWorkload, frozen=True, kw_only=True):
    """A user's own image files, in one folder for each class."""

    loader: ClassVar[str] = "ketscale.problems.images.features:from_folder"
    split: ClassVar[str] = "samples"
    machine: ClassVar[frozenset[str]] = frozenset({"folder", "weights_folder"})

    folder: Annotated[File, Meta(description="Folder with one folder for each class, which has the class's name and "
        "its images")] | None = None  # fmt: skip
    validation: ValidationShare | None = None
    test: Share | None = None

    def misplaced(self) -> Iterator[str]:
        """The folder must be given."""
        yield from super().misplaced()
        if self.folder is None:
            yield "folder is missing (one with a folder for each class, which has the class's name and its images)"

    def sources(self) -> list[Path]:
        """All image files."""
        return [path for paths in self.files().values() for path in paths]

    def files(self) -> dict[str, list[Path]]:
        """The image files of each class; hidden files and files outside the classes' folders are ignored."""
        folder = Path(self.folder or "").expanduser()
        if not folder.is_dir():
            raise UserError(f"folder: there is no folder {folder}; name another")
        classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        if len(classes) < 2:
            raise UserError(f"folder: {folder} has {len(classes)} folders, and needs one for each class")
        files = {
            path.name: sorted(p for p in path.iterdir() if not p.name.startswith(".")) for path in classes
        }
        for path in (path for paths in files.values() for path in paths):
            if path.is_dir() or path.suffix.lower() not in IMAGE_SUFFIXES:
                raise UserError(f"folder: {path} is not an image ({', '.join(IMAGE_SUFFIXES)}); move it away")
        return files


FAMILY = Family(
    name="images",
    title="images",
    samples="images",
    sizes=CIRCUIT_SIZES,
    sampler="shuffled",
    workloads={
        "digits": Digits,
        "mnist": Mnist,
        "arrays": Arrays,
        "image-folder": ImageFolder,
    },
    models=MODELS,
    simulators=(CircuitSimulator,),
    metrics=METRICS["classes"],
    build=build,
    own=FileModel,
    prepare=lazily("ketscale.problems.images.features:prepare"),
    read=lazily("ketscale.problems.images.features:read"),
)
