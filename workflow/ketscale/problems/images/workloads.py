"""The settings of the workloads of labelled images, with the network that embeds them, or features."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Meta

from ketscale.config import Workload
from ketscale.errors import UserError
from ketscale.files import expanded
from ketscale.problems.own_data import SplitSeed

if TYPE_CHECKING:
    from ketscale.problems.images.images import Images
    from ketscale.problems.vectors.vectors import Vectors

# The name of the converted ImageNet weights among the fetched files.
IMAGENET_FILE = "resnet18-imagenet.safetensors"
PRETRAIN_STEPS = 64
_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")

Weights = Annotated[
    Literal["selfsupervised", "imagenet"],
    Meta(description="selfsupervised: trained here without labels; imagenet: those of microsoft/resnet-18"),
]
Side = Annotated[
    int, Meta(ge=8, le=512, description="Side in pixels to which images are scaled before ResNet-18")
]


class ImageWorkload(Workload, frozen=True, kw_only=True):
    """Labelled images, embedded once by a frozen ResNet-18; or features, which need no network."""

    # What reads the samples, as 'package.module:function', from the workload and the folder of fetched files; a kind that
    # has none defines `load`.
    loader: ClassVar[str] = ""
    machine: ClassVar[frozenset[str]] = frozenset({"weights_folder"})

    split_seed: SplitSeed | None = None
    weights: Weights | None = None
    weights_folder: (
        Annotated[
            str,
            Meta(description="Local folder with a download of microsoft/resnet-18 (for weights: imagenet)"),
        ]
        | None
    ) = None
    image_size: Side | None = None
    pretrain_steps: (
        Annotated[
            int,
            Meta(
                ge=1,
                description=f"Training steps of the self-supervised weights; {PRETRAIN_STEPS} if left out",
            ),
        ]
        | None
    ) = None

    def faults(self) -> Iterator[str]:
        """Only ImageNet's weights come from a folder, and only the self-supervised ones are trained."""
        if self.weights_folder is not None and self.weights != "imagenet":
            yield "weights_folder: only weights: imagenet is read from a folder; leave it out"
        if self.pretrain_steps is not None and self.weights != "selfsupervised":
            yield "pretrain_steps: only weights: selfsupervised is trained here; leave it out"

    @property
    def inline(self) -> bool:
        """Whether the network can run in every step: only if there is one."""
        return self.weights is not None

    @property
    def split_by(self) -> str:
        """How samples are split, for records: `labels` (a share of each label is drawn) or `given` (by the file)."""
        return "labels"

    @property
    def fetched(self) -> bool:
        """Whether files are fetched: only for ImageNet's weights."""
        return self.weights == "imagenet"

    def fetch(self, folder: Path) -> list[Path]:
        """Fetch ImageNet's weights if they are asked for."""
        if self.weights != "imagenet":
            return []
        from ketscale.problems.images import resnet

        resnet.fetch_imagenet(
            folder / IMAGENET_FILE, expanded(self.weights_folder) if self.weights_folder else None
        )
        return [folder / IMAGENET_FILE]

    def load(self, fetched: Path | None) -> Images | Vectors:
        """The samples with their split; `fetched` is the folder of the fetched files, if there are any.

        Raises:
            UserError: the data are missing, damaged or do not fit.
        """
        found: Images | Vectors = pkgutil.resolve_name(self.loader)(self, fetched)
        return found


class Digits(ImageWorkload, frozen=True, kw_only=True):
    """scikit-learn's 1,797 real 8x8 scans of handwritten digits."""

    split_seed: SplitSeed
    weights: Weights
    image_size: Side

    def load(self, fetched: Path | None) -> Images:
        """Load the scans, which come with scikit-learn."""
        from ketscale.problems.images import digits

        return digits.load(self.split_seed)


class Mnist(ImageWorkload, frozen=True, kw_only=True):
    """The original MNIST idx files."""

    machine: ClassVar[frozenset[str]] = frozenset({"folder", "weights_folder"})

    split_seed: SplitSeed
    weights: Weights
    image_size: Side
    folder: (
        Annotated[
            str, Meta(description="Folder with the idx files (gzipped or not); without it they are fetched")
        ]
        | None
    ) = None
    split: Annotated[
        Literal["original", "test-images"],
        Meta(
            description="original: 54,000/6,000/10,000; test-images: the 10,000 test images alone, 8,000/1,000/1,000"
        ),
    ]

    def misplaced(self) -> Iterator[str]:
        """The test images alone are never fetched."""
        yield from super().misplaced()
        if self.split == "test-images" and self.folder is None:
            yield (
                "folder: split: test-images needs the folder of the t10k files; only split: original fetches files"
            )

    @property
    def fetched(self) -> bool:
        """Whether files are fetched: ImageNet's weights, and the idx files if no folder is given."""
        return super().fetched or self.folder is None

    def fetch(self, folder: Path) -> list[Path]:
        """Fetch the four files, verifying their checksums, and ImageNet's weights if they are asked for."""
        from ketscale.problems.images import mnist

        files = mnist.fetch(folder) if self.folder is None else []
        return [*files, *super().fetch(folder)]

    def sources(self) -> list[Path]:
        """The idx files in the folder."""
        return [] if self.folder is None else self._files(expanded(self.folder))

    def _files(self, folder: Path) -> list[Path]:
        """The files in a folder, each as it is or, if it is not there, gzipped."""
        files = []
        for name in _TEST if self.split == "test-images" else _TRAIN + _TEST:
            path = next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)
            if path is None:
                raise UserError(
                    f"folder: {folder} has no {name}.gz, which split: {self.split} needs; "
                    "name another folder, choose another split, or leave folder out to fetch the files"
                )
            files.append(path)
        return files

    def load(self, fetched: Path | None) -> Images:
        """Read the images from the folder, or from the fetched files."""
        from ketscale.problems.images import mnist

        folder = expanded(self.folder) if self.folder is not None else fetched
        if folder is None:
            raise UserError("workloads: mnist needs its idx files; run the rule fetch, or set folder")
        return mnist.load(self._files(folder), self.split_seed)
