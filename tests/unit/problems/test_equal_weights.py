"""From equal weights, on all samples at once and without dropout, losses are those of every version so far.

Only weights at the start, orders of samples and dropout masks have changed (docs/changelog.md), never the arithmetic.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from ketscale.problems.eeg.hydra import Hydra, HydraHybrid
from ketscale.problems.eeg.mamba import Mamba, MambaHybrid, MambaHybridLite, MambaLite
from ketscale.problems.eeg.state_space import ClassicalHydra, ClassicalMamba
from ketscale.problems.supervised import Classification
from ketscale.problems.vectors.mlp import MLP
from ketscale.problems.vectors.vqc import VQC
from tests.toys import trainer

MODELS: dict[str, Any] = {
    "vqc": VQC,
    "mlp": MLP,
    "hydra": Hydra,
    "hydra_hybrid": HydraHybrid,
    "mamba": Mamba,
    "mamba_hybrid": MambaHybrid,
    "mamba_lite": MambaLite,
    "mamba_hybrid_lite": MambaHybridLite,
    "classical_mamba": ClassicalMamba,
    "classical_hydra": ClassicalHydra,
}
SAMPLES, STEPS = 12, 6
# Losses of the last step by commit 6479741, the last before starts and random streams were corrected; the order of samples does not show in them.
LOSSES = {
    "vqc": 1.1804454766826928,
    "mlp": 1.165723971923116,
    "hydra": 1.1193329232053895,
    "hydra_hybrid": 1.131087211871549,
    "mamba": 1.1340207927225927,
    "mamba_hybrid": 1.105524252937482,
    "mamba_lite": 1.1094468054788822,
    "mamba_hybrid_lite": 1.1376218079497042,
    "classical_mamba": 1.0994733626673117,
    "classical_hydra": 1.1311146184353158,
}


def filled(shape: torch.Size | tuple[int, ...], number: int) -> torch.Tensor:
    """Numbers in (-1, 1) that no generator decides."""
    count = math.prod(shape)
    return torch.sin(1.7 * torch.arange(1, count + 1, dtype=torch.float64) + 0.6 * number).reshape(shape)


def problem(name: str) -> Classification:
    """Twelve samples of three classes and a model whose weights are written over."""
    inputs: Any = 6 if name in ("vqc", "mlp") else (5, 7)
    sizes = {} if name in ("mlp", "classical_mamba", "classical_hydra") else {"qubits": 3, "layers": 2}
    model: nn.Module = MODELS[name](**sizes, inputs=inputs, outputs=3, dropout=0.0).double()
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(0.3 * filled(parameter.shape, number))
    shape = (SAMPLES, inputs) if isinstance(inputs, int) else (SAMPLES, *inputs)
    rows = torch.arange(SAMPLES)
    return Classification(model, filled(shape, 0), rows % 3, {"train": rows, "validation": rows}, seed=0)


@pytest.mark.parametrize("name", MODELS)
def test_losses_from_equal_weights_are_what_they_were(name: str) -> None:
    loop = trainer(problem(name), {"steps": STEPS, "learning_rate": 1e-3}, batch=SAMPLES)
    loop.run()
    assert len(set(loop.losses)) == STEPS
    assert loop.losses[-1] == pytest.approx(LOSSES[name], rel=1e-12, abs=0)
