"""The kernels that evolve systems give the same bits whatever the lanes, and in parts."""

from __future__ import annotations

import pytest
import torch

from ketscale.dynamics import transmon
from ketscale.engines.dynamics import cpu
from ketscale.engines.dynamics.generators import EXACT, Division, Evolution, Generators

Results = tuple[torch.Tensor, ...]


def tensors(generators: Generators, dtype: torch.dtype, strength: float, *states: int) -> list[torch.Tensor]:
    """Fixed coefficients, controls and initial coordinates of 19 random tasks."""
    generator = torch.Generator().manual_seed(0)
    shapes = (len(generators.fixed),), (3, len(generators.controlled)), (*states, generators.size)
    fixed, controls, initial = (torch.randn(19, *each, generator=generator, dtype=dtype) for each in shapes)
    return [each.requires_grad_() for each in (fixed.abs() / 5, strength * controls, initial)]


def gradients(final: torch.Tensor, given: list[torch.Tensor]) -> Results:
    weights = torch.randn(final.shape, generator=torch.Generator().manual_seed(1), dtype=final.dtype)
    return torch.autograd.grad(final, given, weights)


def evolved(
    generators: Generators, dtype: torch.dtype, division: Division, strength: float, trajectory: bool = False
) -> Results:
    """The final coordinates of random tasks, or all, and their gradients."""
    arguments = tensors(generators, dtype, strength)
    final = cpu.evolve(*arguments, Evolution(generators, 0.2, division), trajectory)
    return final.detach(), *gradients(final, arguments)


@pytest.mark.parametrize("strength", [1.0, 40.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("trajectory", [True, False])
def test_the_number_of_lanes_changes_no_bit(
    trajectory: bool, exact: bool, dtype: torch.dtype, strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    division = EXACT[dtype] if exact else Division((4,), steps=40)
    generators = transmon().generators
    values = [evolved(generators, dtype, division, strength, trajectory)]
    for lanes in (1, 8):
        monkeypatch.setattr(cpu, "_lanes", lambda *_, lanes=lanes: lanes)
        values.append(evolved(generators, dtype, division, strength, trajectory))
    for others in values[1:]:
        assert all(torch.equal(*pair) for pair in zip(values[0], others, strict=True))


@pytest.mark.parametrize("states", [(), (2,)])
@pytest.mark.parametrize("strength", [1.0, 40.0])
def test_a_trajectory_is_one_segment_after_the_other(strength: float, states: tuple[int, ...]) -> None:
    generators = transmon().generators
    inputs = tensors(generators, torch.float64, strength, *states)
    evolution = Evolution(generators, 0.2, EXACT[torch.float64])
    complete, ends = cpu.evolve(*inputs, evolution, trajectory=True), [inputs[2]]
    for segment in inputs[1].split(1, 1):
        ends.append(cpu.evolve(inputs[0], segment, ends[-1], evolution))
    assert torch.equal(complete, torch.stack(ends, 1))
    for one, other in zip(gradients(complete, inputs), gradients(torch.stack(ends, 1), inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12 * other.abs().max().item())
