"""`raman`: transfer between two ground states through an excited state that decays; dimensionless."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta

from ketscale.engines import quantities
from ketscale.problems.control.workloads import ControlWorkload

if TYPE_CHECKING:
    import torch

    from ketscale.dynamics import System


class Raman(ControlWorkload, frozen=True, kw_only=True):
    """H = detuning |1><1| + (pump |0><1| + stokes |1><2| + their adjoints) / 2."""

    VARIED: ClassVar[tuple[str, ...]] = ("decay", "detuning")

    duration: ClassVar[float] = 10.0
    amplitude: ClassVar[float] = 1.0
    limit: ClassVar[float] = 5.0
    target: ClassVar[str] = "transfer"

    decay: Annotated[
        tuple[quantities.Strength, quantities.Strength],
        Meta(description="Range of the rate of decay of the excited state"),
    ] = (0.2, 1.0)
    detuning: Annotated[
        tuple[quantities.Detuning, quantities.Detuning],
        Meta(description="Range of the excited state's detuning"),
    ] = (-1.0, 1.0)

    def system(self) -> System:
        import numpy as np

        from ketscale.dynamics import System

        ket = np.eye(3)

        def to(final: int, initial: int) -> np.ndarray:
            return np.outer(ket[final], ket[initial])

        return System(
            drift={"detuning": to(1, 1)},
            parameters={"detuning": 0.0},
            controls={"pump": (to(0, 1) + to(1, 0)) / 2, "stokes": (to(1, 2) + to(2, 1)) / 2},
            jumps={"decay_0": to(0, 1), "decay_2": to(2, 1)},
            targets={"transfer": ket[2]},
        )

    def rates(self, *noise: torch.Tensor) -> torch.Tensor:
        (decay,) = noise
        return (decay / 2)[..., None].expand(-1, 2)
