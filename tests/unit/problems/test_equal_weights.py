"""From equal weights, on all samples at once and without dropout, losses are those of every version so far.

Only weights at the start, orders of samples and dropout masks have changed (docs/changelog.md), never the arithmetic.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from ketscale.problems.classification import Classification
from ketscale.problems.eeg.hydra import Hydra, HydraHybrid
from ketscale.problems.eeg.mamba import Mamba, MambaHybrid, MambaHybridLite, MambaLite
from ketscale.problems.eeg.state_space import ClassicalHydra, ClassicalMamba
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
# These are of commit 6479741, the last before starts and random streams were corrected; the order of samples does not show in them.
LOSSES = {
    "vqc": [
        1.2080366521793575,
        1.2010319542444667,
        1.1950682786247675,
        1.1895368470062984,
        1.184678936196643,
        1.1804454766826928,
    ],
    "mlp": [
        1.1967547104317646,
        1.1909402667879425,
        1.1847587456072464,
        1.178251573026834,
        1.1715596336920056,
        1.165723971923116,
    ],
    "hydra": [
        1.1224664696979,
        1.1218487874039527,
        1.12121147190753,
        1.1206335518017343,
        1.1199603342056867,
        1.1193329232053895,
    ],
    "hydra_hybrid": [
        1.1392681328698222,
        1.1374277811671636,
        1.1356932056696891,
        1.1340620697836912,
        1.1325294876667644,
        1.131087211871549,
    ],
    "mamba": [
        1.139222859217863,
        1.1381352574736958,
        1.1370710909564383,
        1.1360305583813053,
        1.1350138025961034,
        1.1340207927225927,
    ],
    "mamba_hybrid": [
        1.1125638720327826,
        1.1110349681664071,
        1.1095739559643325,
        1.1081732543559097,
        1.1068241738996487,
        1.105524252937482,
    ],
    "mamba_lite": [
        1.1109992238113058,
        1.1106510397505982,
        1.110298828561658,
        1.1099979763140302,
        1.1097240443902427,
        1.1094468054788822,
    ],
    "mamba_hybrid_lite": [
        1.1483158972838428,
        1.1461697237358957,
        1.1440325544557304,
        1.1418976079773986,
        1.1397610590353826,
        1.1376218079497042,
    ],
    "classical_mamba": [
        1.1173654651925815,
        1.118490369761548,
        1.1092049036021423,
        1.1051344390665874,
        1.1017445791921765,
        1.0994733626673117,
    ],
    "classical_hydra": [
        1.8006346231239034,
        1.3661365811989061,
        1.2066978917674025,
        1.1968425070206226,
        1.1722595228687698,
        1.1311146184353158,
    ],
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
    assert len(loop.losses) == STEPS and len(set(loop.losses)) == STEPS
    assert loop.losses == pytest.approx(LOSSES[name], rel=1e-12, abs=0)
