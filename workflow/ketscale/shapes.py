"""Shapes of tensors as types, such as Float[torch.Tensor, "batch words"].

Only the tests check them, with jaxtyping and beartype (`tests/shapes.py`). At run time such a type is the tensor's alone,
and neither package is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Complex, Complex128, Float, Float64, Shaped
else:

    class _OfAnyShape:
        def __class_getitem__(cls, of: tuple[Any, str]) -> Any:
            return of[0]

    Complex = Complex128 = Float = Float64 = Shaped = _OfAnyShape

__all__ = ["Complex", "Complex128", "Float", "Float64", "Shaped"]
