"""Large systems and long pulses of `ketscale.dynamics`: many qubits, and single precision."""

from __future__ import annotations

import pytest
import torch
from scipy.sparse import csr_array

from ketscale import dynamics as kd
from ketscale.dynamics.evolution import Kind


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_ten_qubits_without_couplings_are_each_by_itself() -> None:
    sites = [kd.transmon(0.1 * number, levels=2) for number in range(10)]
    system, controls = kd.chain(sites), 0.2 * normal(3, 20)
    assert system.dimension == 1024 and isinstance(system.drift["detuning_1"], csr_array)
    gap = torch.ones(1, dtype=torch.complex128)
    names = list(system.controls)
    for number, site in enumerate(sites, start=1):
        own = [names.index(f"{name}_{number}") for name in site.controls]
        gap = torch.kron(gap, kd.evolve(site, controls[:, own], 3.0))
    torch.testing.assert_close(kd.evolve(system, controls, 3.0), gap)


@pytest.mark.parametrize("kind", ["ket", "unitary", "density"])
def test_two_thousand_segments_in_single_precision(kind: Kind) -> None:
    system, arguments = kd.transmon(), 0.2 * normal(2000, 2)
    values = []
    for dtype in (torch.float64, torch.float32):
        controls = arguments.to(dtype).requires_grad_()
        final = kd.evolve(system, controls, 400.0, kind=kind)
        gradient = torch.autograd.grad((final.abs() ** 4).sum(), controls)[0]
        values.append((final.detach().to(torch.complex128), gradient.double()))
    (final, gradient), (single, single_gradient) = values
    assert (single - final).abs().max() < 2e-5
    assert (single_gradient - gradient).norm() < 2e-4 * gradient.norm()
