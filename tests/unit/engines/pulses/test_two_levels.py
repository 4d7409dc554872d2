"""Evolutions of sites of two levels by machine code: torch finds the same, with the same derivatives."""

from __future__ import annotations

import pytest
import torch

from ketscale.engines.pulses import Lattice, schemes
from ketscale.engines.pulses.splitting import evolutions
from ketscale.engines.pulses.two_level_cpu import evolutions as compiled
from tests.pairs import pairs

SCHEMES = {
    "trotter2": schemes.midpoint(),
    "interaction4": schemes.interaction(*schemes.BLANES_MOAN, substeps=4),
}
# None, one for each site in their order, and several on a site with none on another.
DRIVES = {"none": (), "each": (0, 1, 2), "uneven": (2, 0, 2)}


def lattice(sites: tuple[int, ...]) -> Lattice:
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    drives = torch.complex(normal(len(sites), 2, 2), normal(len(sites), 2, 2))
    couplings = torch.zeros(0, 4, 4, dtype=torch.complex128)
    return Lattice(2, 3, normal(3, 2), (), couplings, sites, drives + drives.mH)


def samples(scheme: schemes.Scheme, steps: int, drives: int) -> torch.Tensor:
    shape = (steps, len(scheme.nodes), drives)
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


# Angles of 0, within the power series, beyond it, and on both sides of where it ends; one vector of steps, and blocks.
STEPS = {0.0: 3, 0.05: 1, 0.5: 7, 2.0: 530, 30.0: 16}


@pytest.mark.parametrize(("name", "driven", "step"), pairs(SCHEMES, DRIVES, STEPS))
def test_torch_finds_the_same_with_its_derivatives(name: str, driven: str, step: float) -> None:
    scheme, sites, steps, found = SCHEMES[name], DRIVES[driven], STEPS[step], []
    for function in (compiled, evolutions):
        given = lattice(sites)
        amplitudes = samples(scheme, steps, len(sites))
        length = torch.tensor(step, dtype=torch.float64)
        leaves = [each.requires_grad_() for each in (amplitudes, length, given.energies, given.drives)]
        made = function(scheme, given, amplitudes, length)
        weights = torch.randn(made.shape, generator=torch.Generator().manual_seed(3), dtype=torch.complex128)
        found.append(
            (made, *torch.autograd.grad((weights.conj() * made).real.sum(), leaves, allow_unused=True))
        )
    for one, other in zip(*found, strict=True):
        if one is not None and other is not None:
            scale = max(1.0, float(other.detach().abs().max()) if other.numel() else 1.0)
            torch.testing.assert_close(one, other, rtol=0, atol=2e-13 * scale * max(1, step))
