"""Random views of images, suited to handwriting: small rotations, shears, shifts, scalings and changes of ink."""

from __future__ import annotations

import math

import torch

TURN = math.radians(20)
SCALE = 0.15
SHEAR = 0.2
SHIFT = 0.12  # of the image's side
INK = 0.3


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
    moved = torch.nn.functional.grid_sample(images, grid, mode="bilinear", align_corners=False)
    return moved * (1 + uniform(INK))[:, None, None, None]
