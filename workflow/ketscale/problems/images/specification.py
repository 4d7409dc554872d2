"""The family `images`: features of images, or images themselves, for a classifier with a circuit in its middle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from ketscale.config import Data, Family, Metric, Model, Seed, Settings, SizeAxis, Split, Workload
from ketscale.engines.circuits.settings import CircuitSimulator
from ketscale.errors import UserError

if TYPE_CHECKING:
    import torch

    from ketscale.problems.images.images import Images
    from ketscale.problems.problem import Problem

# The converted ImageNet weights among what is fetched.
IMAGENET_FILE = "resnet18-imagenet.safetensors"
_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")


class ImageWorkload(Workload, frozen=True, kw_only=True):
    """Labelled images, embedded once by a frozen ResNet-18."""

    machine: ClassVar[frozenset[str]] = frozenset({"weights_folder"})
    inline: ClassVar[bool] = True

    split_seed: Annotated[Seed, Meta(description="Seed of the train/validation/test split")]
    weights: Annotated[
        Literal["selfsupervised", "imagenet"],
        Meta(description="selfsupervised: trained here without labels; imagenet: microsoft/resnet-18"),
    ]
    weights_folder: (
        Annotated[str, Meta(description="Local folder with microsoft/resnet-18 (for weights: imagenet)")]
        | None
    ) = None
    image_size: Annotated[
        int, Meta(ge=8, le=512, description="Side in pixels to which images are scaled before ResNet-18")
    ]

    def faults(self) -> Any:
        """Weights in a folder are ImageNet's."""
        if self.weights_folder is not None and self.weights != "imagenet":
            yield "weights_folder: only weights: imagenet are read from a folder; leave it out"

    @property
    def fetched(self) -> bool:
        """ImageNet's weights are."""
        return self.weights == "imagenet"

    def fetch(self, folder: Path) -> list[Path]:
        """Fetch ImageNet's weights where they are asked for."""
        if self.weights != "imagenet":
            return []
        from ketscale.problems.images import resnet

        resnet.fetch_imagenet(
            folder / IMAGENET_FILE, Path(self.weights_folder).expanduser() if self.weights_folder else None
        )
        return [folder / IMAGENET_FILE]

    def load(self, fetched: Path | None) -> Images:
        """The images with their split; `fetched` is the folder of what was fetched.

        Raises:
            UserError: the data are missing, damaged or not the data set's.
        """
        raise NotImplementedError


class Digits(ImageWorkload, frozen=True, kw_only=True):
    """scikit-learn's 1,797 real 8x8 scans of handwritten digits."""

    def load(self, fetched: Path | None) -> Images:
        """They come with scikit-learn."""
        from ketscale.problems.images import digits

        return digits.load(self.split_seed)


class Mnist(ImageWorkload, frozen=True, kw_only=True):
    """The original MNIST idx files."""

    machine: ClassVar[frozenset[str]] = frozenset({"folder", "weights_folder"})

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

    @property
    def fetched(self) -> bool:
        """The idx files are, where no folder has them."""
        return super().fetched or self.folder is None

    def fetch(self, folder: Path) -> list[Path]:
        """Fetch the four files, checked by their sums, and ImageNet's weights where they are asked for."""
        from ketscale.problems.images import mnist

        files = mnist.fetch(folder) if self.folder is None else []
        return [*files, *super().fetch(folder)]

    def sources(self) -> list[Path]:
        """The idx files in the folder; test images alone are nothing to be fetched."""
        if self.folder is None:
            if self.split == "test-images":
                raise UserError(
                    "folder: split: test-images needs it, where its t10k files are; split: original fetches all files"
                )
            return []
        folder, found = Path(self.folder).expanduser(), []
        for name in _TEST if self.split == "test-images" else _TRAIN + _TEST:
            path = next((p for p in (folder / f"{name}.gz", folder / name) if p.is_file()), None)
            if path is None:
                raise UserError(
                    f"folder: {folder} has no {name}.gz, which split: {self.split} needs; "
                    "name another folder, ask for less, or leave folder out to fetch the files"
                )
            found.append(path)
        return found

    def load(self, fetched: Path | None) -> Images:
        """From the folder, or from what was fetched."""
        from ketscale.problems.images import mnist

        folder = Path(self.folder).expanduser() if self.folder is not None else fetched
        if folder is None:
            raise UserError("workloads: mnist needs its idx files: run the rule fetch, or set folder")
        return mnist.load(folder, self.split, self.split_seed)


class VQCSettings(Model, frozen=True, kw_only=True):
    """A dense head on the features, a variational circuit, and a small classifier."""

    implementation: ClassVar[str] = "ketscale.problems.images.vqc:VQC"
    control: ClassVar[str | None] = "mlp"


class MLPSettings(Model, frozen=True, kw_only=True):
    """The classical control of `vqc`, of the same shape and size, without the circuit."""

    implementation: ClassVar[str] = "ketscale.problems.images.mlp:MLP"
    classical: ClassVar[bool] = True

    width: Annotated[int, Meta(ge=1, description="Of the layer in the circuit's place")] = 4


def prepare(workload: Workload, manifest: Path, fetched: Path | None) -> None:
    """Embed every image once; see `features.prepare`."""
    from ketscale.problems.images import features

    assert isinstance(workload, ImageWorkload)
    features.prepare(workload, manifest, fetched)


def read(settings: Settings, manifest: Path) -> Data:
    """Open and verify the features."""
    from ketscale.problems.images.features import Features

    features = Features.open(manifest)
    return Data(features, Split("labels"), features.data_hash, features.hash)


def build(settings: Settings, data: Data, device: torch.device) -> Problem:
    """The classification of the run."""
    from ketscale.problems.images import build

    return build.problem(settings, data.content, device)


FAMILY = Family(
    name="images",
    title="images",
    sample="image",
    samples="images",
    sizes=(SizeAxis("q", "qubits", "qubits"), SizeAxis("l", "layers", "circuit layers")),
    sampler="shuffled",
    workloads={"digits": Digits, "mnist": Mnist},
    models={"vqc": VQCSettings, "mlp": MLPSettings},
    simulators=(CircuitSimulator,),
    metrics=(
        Metric("accuracy", "accuracy", "share correct", "up"),
        Metric("auc", "AUC", "", "up"),
        Metric("f1", "F1", "", "up"),
    ),
    tiny={
        "workloads": {"digits": {"split_seed": 0, "weights": "selfsupervised", "image_size": 8}},
        "models": {},
        "axes": {"workload": "digits", "model": "vqc", "qubits": 2, "layers": 1, "batch": 16},
        "control": {"model": "mlp", "qubits": 0, "layers": 0, "simulator": "none"},
        "simulators": {
            "fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast"},
            "default.qubit": {"device": "default.qubit", "gradient": "backprop", "batching": "broadcast"},
        },
    },
    build=build,
    prepare=prepare,
    read=read,
)
