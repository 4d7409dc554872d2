"""Self-supervised pre-training of ResNet-18 on the training split's images, without labels.

The images are clustered by their pixels (k-means), and the network learns to name the cluster of an image
from a random view of it. This is one round of Caron et al., "Deep clustering" (arXiv:1807.05520). In about a
minute of training it teaches more than predicting rotations or contrasting views.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from ketscale.problems.images import resnet
from ketscale.problems.images.pixels import channels_of
from ketscale.problems.samples import Samples

PRETRAIN_VERSION = 1  # increase it whenever the arithmetic below changes
SEED = 0
BATCH = 128
CLUSTERS = 100  # ten times the number of digits: pure enough, and not tuned to them
LLOYD = 15  # rounds of k-means
SIDE = 32  # of the images that k-means sees, in pixels; larger ones would need gigabytes and help no more
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 1e-4
WARMUP = 5
# Limits of the views, suited to handwriting: rotations, scalings, shears, shifts and changes of ink.
TURN = math.radians(20)
SCALE = 0.15
SHEAR = 0.2
SHIFT = 0.12  # of the image's side
INK = 0.3


def pretrain(images: Samples, size: int, out: Path, steps: int) -> None:
    """Train on the training images, scaled to `size` pixels, and write the weights to `out` atomically.

    The same images, size and steps give the same bytes on one kind of CPU, whatever the caller's torch threads and
    random generator.
    """
    with resnet.fixed_threads(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        state = train(images, size, steps)
    resnet.write_weights(out, state, origin_of(images, size, steps))


def origin_of(images: Samples, size: int, steps: int) -> dict[str, Any]:
    """All that determines the weights; their file keeps it as their origin."""
    return {
        "kind": "selfsupervised",
        "data_hash": images.digest(),
        "image_size": size,
        "steps": steps,
        "seed": SEED,
        "version": PRETRAIN_VERSION,
    }


def train(images: Samples, size: int, steps: int) -> dict[str, torch.Tensor]:
    """The network's state after `steps` steps; it reads only the pixels of the training split."""
    generator = torch.Generator().manual_seed(SEED)
    scaling = resnet.scaling_for("selfsupervised", size, images)
    rows = images.splits["train"]
    # A large data set has more images than the steps can show; the others are ignored.
    rows = rows[torch.randperm(len(rows), generator=generator)[: steps * BATCH].numpy()]
    pixels = torch.from_numpy(images.values[rows])
    targets = clusters(_points(pixels, scaling.peak), min(CLUSTERS, len(pixels)), generator)

    network = resnet.resnet18(channels_of(images.values)).train()
    head = torch.nn.Linear(resnet.FEATURES, CLUSTERS)
    optimiser = torch.optim.AdamW(
        [*network.parameters(), *head.parameters()], LEARNING_RATE, weight_decay=WEIGHT_DECAY
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1, (step + 1) / WARMUP) * (1 + math.cos(math.pi * step / steps)) / 2
    )
    order = torch.empty(0, dtype=torch.int64)
    for _ in (bar := tqdm(range(steps), unit="step", mininterval=2)):
        if len(order) < BATCH:
            order = torch.randperm(len(pixels), generator=generator)
        batch, order = order[:BATCH], order[BATCH:]
        augmented = scaling.normalise(views(scaling.resize(pixels[batch]), generator))
        scores = head(network(augmented).pooler_output.flatten(1))
        loss = torch.nn.functional.cross_entropy(scores, targets[batch])
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        schedule.step()
        bar.set_postfix(loss=f"{loss.item():.4g}", refresh=False)
    return dict(network.state_dict())


def _points(pixels: torch.Tensor, peak: int) -> torch.Tensor:
    """The points (n, dimension) to cluster: pixels in 0..1, averaged to SIDE x SIDE areas if there are more."""
    images = resnet.planes(pixels).float() / peak
    if max(images.shape[2:]) > SIDE:
        images = torch.nn.functional.adaptive_avg_pool2d(images, SIDE)
    return images.flatten(1)


def clusters(points: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
    """The k-means cluster, 0..count-1, of each of the (n, dimension) points; centres start as k-means++.

    Source: Arthur and Vassilvitskii, SODA 2007. Not scikit-learn's, whose parallel sums may differ in the last bits
    from run to run.
    """
    centres = points[torch.randint(len(points), (1,), generator=generator)]
    nearest = torch.full((len(points),), torch.inf, dtype=points.dtype)
    for _ in range(count - 1):
        nearest = torch.minimum(nearest, (points - centres[-1]).square().sum(1))
        picks = torch.multinomial(nearest + 1e-12, 1, generator=generator)
        centres = torch.cat([centres, points[picks]])
    for _ in range(LLOYD):
        members = torch.nn.functional.one_hot(torch.cdist(points, centres).argmin(1), count).T.to(points)
        sizes = members.sum(1, keepdim=True)
        centres = torch.where(sizes > 0, members @ points / sizes.clamp(min=1), centres)
    return torch.cdist(points, centres).argmin(1)


def views(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One random view of each image, (batch, channels, side, side) with background 0; digits must not be mirrored."""
    count = len(images)

    def uniform(limit: float) -> torch.Tensor:
        return limit * (2 * torch.rand(count, generator=generator) - 1)

    turn, scale, shear = uniform(TURN), 1 + uniform(SCALE), uniform(SHEAR)
    cosine, sine = torch.cos(turn) / scale, torch.sin(turn) / scale
    # affine_grid measures in half sides, so a shift of the image by SHIFT sides is 2 * SHIFT there
    across = torch.stack([cosine, shear * cosine - sine, uniform(2 * SHIFT)], 1)
    down = torch.stack([sine, cosine + shear * sine, uniform(2 * SHIFT)], 1)
    grid = torch.nn.functional.affine_grid(
        torch.stack([across, down], 1), list(images.shape), align_corners=False
    )
    warped = torch.nn.functional.grid_sample(images, grid, mode="bilinear", align_corners=False)
    return warped * (1 + uniform(INK))[:, None, None, None]
