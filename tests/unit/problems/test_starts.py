"""The weights at the start are distributed as published, over 30 seeds."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import kstest
from torch import nn

from ketscale.problems.eeg.hydra import Hydra, HydraHybrid
from ketscale.problems.eeg.mamba import Mamba, MambaHybrid, MambaHybridLite, MambaLite
from ketscale.problems.eeg.state_space import ClassicalHydra, ClassicalMamba

SEEDS = 30
TURN = 2 * math.pi
Array = NDArray[np.float64]


def as_drawn(values: torch.Tensor) -> torch.Tensor:
    return values


def real(values: torch.Tensor) -> torch.Tensor:
    return values[:, 0]


def imaginary(values: torch.Tensor) -> torch.Tensor:
    return values[:, 1]


def log_dt(bias: torch.Tensor) -> torch.Tensor:
    """log10 of the step that the bias alone gives."""
    return nn.functional.softplus(bias).log10()


QUANTUM = (Hydra, HydraHybrid, Mamba, MambaHybrid, MambaLite, MambaHybridLite)
# Model, parameter, what of it is uniform, from where to where.
UNIFORM: list[tuple[Any, str, Callable[[torch.Tensor], torch.Tensor], float, float]] = [
    *((kind, "core.skip_angles", as_drawn, 0, 1) for kind in (Hydra, HydraHybrid)),
    *((kind, "core.angles.offsets", as_drawn, 0, 1) for kind in (Hydra, HydraHybrid)),
    (Hydra, "core.coefficients.pairs", real, 0, 1),
    (Hydra, "core.coefficients.pairs", imaginary, 0, 1),
    *(
        (kind, "over_time.weights.pairs", part, 0, 1)
        for kind in (Hydra, MambaLite)
        for part in (real, imaginary)
    ),
    *((kind, "core.coefficients", real, 0, 1) for kind in (Mamba, MambaLite)),
    *(
        (kind, f"core.{angles}", as_drawn, 0, TURN)
        for kind in (Mamba, MambaLite, MambaHybrid, MambaHybridLite)
        for angles in ("b", "c", "gate_angles", "skip_angles")
    ),
    *(
        (kind, f"blocks.{block}.ssm.dt.bias", log_dt, -3, -1)
        for kind in (ClassicalMamba, ClassicalHydra)
        for block in (0, 1)
    ),
]


@cache
def starts(kind: Any) -> list[dict[str, torch.Tensor]]:
    """The weights of one model at each seed."""
    sizes = {"qubits": 6, "layers": 1} if kind in QUANTUM else {}
    drawn = []
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        drawn.append(
            {name: value.double() for name, value in kind(**sizes, inputs=(3, 10)).state_dict().items()}
        )
    return drawn


@pytest.mark.parametrize(
    "kind, name, part, low, high", UNIFORM, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_starts_are_uniform_as_published(
    kind: Any, name: str, part: Callable[[torch.Tensor], torch.Tensor], low: float, high: float
) -> None:
    values: Array = torch.cat([part(weights[name]) for weights in starts(kind)]).numpy()
    count, width = len(values), high - low
    assert count >= 3 * SEEDS
    assert low - 1e-6 <= values.min() and values.max() <= high + 1e-6
    assert kstest(values, "uniform", (low, width)).pvalue > 1e-3
    # Mean and variance of a uniform distribution, to four standard errors.
    assert abs(values.mean() - (low + high) / 2) < 4 * width / math.sqrt(12 * count)
    assert abs(values.var() - width**2 / 12) < 4 * width**2 / math.sqrt(180 * count)


@pytest.mark.parametrize("kind", [Mamba, MambaLite])
def test_coefficients_of_the_mambas_start_real(kind: Any) -> None:
    assert all((imaginary(weights["core.coefficients"]) == 0).all() for weights in starts(kind))


@pytest.mark.parametrize("kind", [HydraHybrid, MambaHybrid, MambaHybridLite])
def test_mixtures_start_with_equal_weights(kind: Any) -> None:
    assert all((weights["core.mixture.weights"] == 1).all() for weights in starts(kind))
