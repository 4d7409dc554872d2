"""The weights at the start are distributed as published, over 30 seeds."""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from scipy.stats import kstest
from torch import nn

from ketscale.problems.eeg.hydra import Hydra, HydraHybrid
from ketscale.problems.eeg.mamba import Mamba, MambaHybrid, MambaHybridLite, MambaLite
from ketscale.problems.eeg.state_space import ClassicalHydra, ClassicalMamba

SEEDS = 30
QUANTUM = (Hydra, HydraHybrid, Mamba, MambaHybrid, MambaLite, MambaHybridLite)
REAL, IMAGINARY = ((..., 0), (..., 1))
# Models, parameters and columns of them that are uniform from 0 to an end.
UNIFORM: list[tuple[tuple[Any, ...], tuple[str, ...], tuple[Any, ...], float]] = [
    ((Hydra, HydraHybrid), ("core.skip_angles", "core.angles.offsets"), (...,), 1),
    ((Hydra,), ("core.coefficients.pairs",), (REAL, IMAGINARY), 1),
    ((Hydra, MambaLite), ("over_time.weights.pairs",), (REAL, IMAGINARY), 1),
    ((Mamba, MambaLite), ("core.coefficients",), (REAL,), 1),
    (
        (Mamba, MambaLite, MambaHybrid, MambaHybridLite),
        ("core.b", "core.c", "core.gate_angles", "core.skip_angles"),
        (...,),
        2 * math.pi,
    ),
]


@cache
def starts(kind: Any) -> list[dict[str, torch.Tensor]]:
    """The weights of one model at each seed."""
    sizes = {"qubits": 6, "layers": 1} if kind in QUANTUM else {}
    starts = []
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        starts.append(
            {name: value.double() for name, value in kind(**sizes, inputs=(3, 10)).state_dict().items()}
        )
    return starts


def assert_uniform(values: torch.Tensor, low: float, high: float) -> None:
    assert len(values) >= 3 * SEEDS
    assert low - 1e-6 <= values.min() and values.max() <= high + 1e-6
    assert kstest(values.numpy(), "uniform", (low, high - low)).pvalue > 1e-3


@pytest.mark.parametrize("kinds, names, parts, end", UNIFORM)
def test_starts_are_uniform_as_published(kinds: Any, names: Any, parts: Any, end: float) -> None:
    for kind, name, part in product(kinds, names, parts):
        assert_uniform(torch.cat([weights[name][part] for weights in starts(kind)]), 0, end)


@pytest.mark.parametrize("kind", [ClassicalMamba, ClassicalHydra])
def test_the_steps_that_biases_alone_give_are_uniform_in_their_logarithm(kind: Any) -> None:
    for block in (0, 1):
        biases = torch.cat([weights[f"blocks.{block}.ssm.dt.bias"] for weights in starts(kind)])
        assert_uniform(nn.functional.softplus(biases).log10(), -3, -1)


def test_coefficients_of_the_mambas_start_real_and_mixtures_with_equal_weights() -> None:
    for kind in (Mamba, MambaLite):
        assert all((weights["core.coefficients"][IMAGINARY] == 0).all() for weights in starts(kind))
    for kind in (HydraHybrid, MambaHybrid, MambaHybridLite):
        assert all((weights["core.mixture.weights"] == 1).all() for weights in starts(kind))
