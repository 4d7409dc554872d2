"""Sets the precision of a whole module, complex tensors included."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from ketscale.private_torch import mapped

M = TypeVar("M", bound=nn.Module)


def convert(module: M, device: torch.device, dtype: torch.dtype) -> M:
    """Move all parameters and buffers to `device` in the precision of `dtype` (float32 or float64), in place.

    Complex tensors become complex64 or complex128, where `to(dtype=...)` would drop their imaginary parts; integers
    keep their type.
    """
    pair = dtype.to_complex()

    def converted(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_complex():
            return tensor.to(device, pair)
        return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)

    return mapped(module, converted)
