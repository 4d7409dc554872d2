"""ResNet-18, which turns images into 512 features, its weight files, and ImageNet's weights.

The network is Hugging Face transformers' (imported only when a network is built: a run on cached features
needs neither the library nor its import time). Source: He et al., "Deep residual learning" (arXiv:1512.03385).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale import strict_json
from ketscale.errors import UserError, damaged, short
from ketscale.files import write_atomic
from ketscale.optional import needed_for
from ketscale.problems.images.pixels import brightness
from ketscale.problems.samples import Samples

FEATURES = 512
IMAGENET = "microsoft/resnet-18"
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
THREADS = 2  # sums depend on the number of threads in their last bits, and training amplifies that
INFO = "ketscale"  # the metadata key of our weight files


@contextmanager
def fixed_threads() -> Iterator[None]:
    """Run with `THREADS` torch threads whatever the caller's setting, so that results are bitwise reproducible."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def resnet18(channels: int) -> torch.nn.Module:
    """ResNet-18 without its classifier, freshly initialised; 11,170,240 parameters with one input channel."""
    with needed_for("the network of images, ResNet-18,", "images"):
        from transformers import ResNetModel

    network: torch.nn.Module = ResNetModel(_config(channels))
    return network


def _config(channels: int) -> Any:
    from transformers import ResNetConfig

    return ResNetConfig(
        num_channels=channels,
        embedding_size=64,
        hidden_sizes=[64, 128, 256, FEATURES],
        depths=[2, 2, 2, 2],
        layer_type="basic",
    )


@dataclass(frozen=True)
class PixelScaling:
    """How stored pixels become the network's input: divided by `peak`, resized to `size`, normalised.

    `mean` and `std` have one entry per channel of the network; a grey image is repeated to all of them.
    """

    size: int
    peak: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, pixels: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Stored pixels (batch, height, width) or (batch, height, width, 3) -> (batch, channels, size, size)."""
        return self.normalise(self.resize(pixels, dtype))

    def resize(self, pixels: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Stored pixels -> images in 0..1, (batch, 1 or 3, size, size)."""
        return torch.nn.functional.interpolate(
            planes(pixels).to(dtype) / self.peak,
            size=(self.size, self.size),
            mode="bilinear",
            align_corners=False,
        )

    def normalise(self, images: torch.Tensor) -> torch.Tensor:
        """Images in 0..1, (batch, 1 or 3, height, width) -> (batch, channels, height, width)."""
        mean, std = (images.new_tensor(values)[None, :, None, None] for values in (self.mean, self.std))
        return (images - mean) / std


def planes(pixels: torch.Tensor) -> torch.Tensor:
    """(n, height, width) -> (n, 1, height, width); (n, height, width, 3) -> (n, 3, height, width)."""
    return pixels[:, None] if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2).contiguous()


def scaling_for(weights: str, size: int, images: Samples) -> PixelScaling:
    """The scaling that goes with the weights: ImageNet's constants, or the training split's brightness."""
    assert images.peak is not None
    mean, std = (IMAGENET_MEAN, IMAGENET_STD) if weights == "imagenet" else brightness(images)
    return PixelScaling(size, images.peak, mean, std)


def embed(
    network: torch.nn.Module, pixels: NDArray[Any], scaling: PixelScaling, batch: int = 256
) -> NDArray[np.float32]:
    """Pooled features of stored pixels, (n, height, width) or (n, height, width, 3), in eval mode: float32 (n, 512)."""
    network.eval()
    features = np.empty((len(pixels), FEATURES), np.float32)
    with torch.no_grad():
        for start in range(0, len(pixels), batch):
            images = torch.from_numpy(np.array(pixels[start : start + batch]))
            features[start : start + batch] = network(scaling(images)).pooler_output.flatten(1).numpy()
    return features


class Backbone(torch.nn.Module):
    """The frozen network, its scaling and the standardisation: what `features: inline` computes.

    forward: stored pixels (batch, height, width) or (batch, height, width, 3) -> (batch, 512), the cached embeddings
    up to rounding. It stays in eval mode (batch norm must not drift) and follows `.to(dtype)` and `.to(device)`.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(
        self, network: torch.nn.Module, scaling: PixelScaling, mean: NDArray[Any], std: NDArray[Any]
    ) -> None:
        super().__init__()
        self.network = network
        self.scaling = scaling
        self.register_buffer("mean", torch.tensor(np.asarray(mean)))
        self.register_buffer("std", torch.tensor(np.asarray(std)))
        self.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> Backbone:
        """Stay in eval mode, whatever mode is asked for."""
        return super().train(False)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Standardised embeddings (batch, 512) of stored pixels."""
        features: torch.Tensor = self.network(self.scaling(pixels, self.mean.dtype)).pooler_output.flatten(1)
        return (features - self.mean) / self.std


def write_weights(path: Path, state: Mapping[str, torch.Tensor], origin: Mapping[str, Any]) -> None:
    """Write a network's state atomically as safetensors, with its origin and its own checksum inside."""
    from safetensors.torch import save

    state = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(state.items())}
    info = json.dumps({**origin, "sha256": _digest(state)}, sort_keys=True)
    write_atomic(path, save(state, {INFO: info}))


def read_weights(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A network's state and its origin, as `write_weights` wrote them.

    Raises:
        UserError: the file is missing or damaged.
    """
    from safetensors import safe_open

    with damaged(f"{path}: is not a weight file", "make it again"), safe_open(path, framework="pt") as file:
        info = dict(strict_json.loads((file.metadata() or {}).get(INFO, "{}")))
        state = {name: file.get_tensor(name) for name in sorted(file.keys())}
    info.pop("sha256", None)
    return state, info


def _digest(state: Mapping[str, torch.Tensor]) -> str:
    total = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        total.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        total.update(tensor.numpy().tobytes())
    return total.hexdigest()


def network_from(path: Path, channels: int) -> torch.nn.Module:
    """ResNet-18 with the weights at `path`, in eval mode.

    Raises:
        UserError: as for `read_weights`, or the weights are those of another network.
    """
    state, _ = read_weights(path)
    network = resnet18(channels)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise UserError(f"{path}: does not hold the weights of this ResNet-18 ({short(error)})") from None
    return network.eval()


def fetch_imagenet(out: Path, folder: Path | None = None) -> None:
    """Write ImageNet's ResNet-18 (`microsoft/resnet-18`) to `out`, without its classifier.

    They come from `folder` if given (a download of that repository, with its model.safetensors), else from
    the Hugging Face cache or hub. With HF_HUB_OFFLINE=1 only the cache is used.

    Raises:
        UserError: the weights cannot be fetched or read, or are those of another network; nothing is written.
    """
    with needed_for("weights: imagenet", "images"):
        from transformers import ResNetModel

    source = str(folder or IMAGENET)
    if folder is not None and not (folder / "model.safetensors").is_file():
        raise UserError(f"weights: imagenet: {folder / 'model.safetensors'}: is missing; download it there")
    try:
        result: Any = ResNetModel.from_pretrained(
            source, config=_config(len(IMAGENET_MEAN)), use_safetensors=True, output_loading_info=True
        )
    except Exception as error:  # the library's errors have no common base but Exception
        raise UserError(
            f"weights: imagenet: {source} cannot be read ({short(error)}); set weights_folder"
        ) from None
    network, loaded = result
    others = [key for key in loaded["unexpected_keys"] if not key.startswith("classifier.")]
    if loaded["missing_keys"] or others:
        raise UserError(f"weights: imagenet: {source} does not hold the weights of ResNet-18")
    write_weights(out, network.state_dict(), {"kind": "imagenet", "source": IMAGENET})
