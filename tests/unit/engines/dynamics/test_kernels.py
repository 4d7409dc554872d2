"""The kernels that evolve systems give the same bits whatever the lanes, and in parts."""

from __future__ import annotations

import pytest
import torch

from ketscale.dynamics import transmon
from ketscale.engines.dynamics import cpu
from ketscale.engines.dynamics.generators import EXACT, Division, Evolution, Generators

Results = tuple[torch.Tensor, ...]


def evolved(generators: Generators, dtype: torch.dtype, division: Division, strength: float) -> Results:
    """The final coordinates of 19 random tasks, and their gradients."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    fixed, controls = normal(19, len(generators.fixed)).abs() / 5, normal(19, 3, len(generators.controlled))
    given = [fixed.requires_grad_(), (strength * controls).requires_grad_(), normal(19, generators.size)]
    final = cpu.evolve(given[0], given[1], given[2].requires_grad_(), Evolution(generators, 0.2, division))
    return final.detach(), *torch.autograd.grad(final, given, normal(*final.shape))


@pytest.mark.parametrize("strength", [1.0, 40.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("exact", [True, False])
def test_the_number_of_lanes_changes_no_bit(
    exact: bool, dtype: torch.dtype, strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    division = EXACT[dtype] if exact else Division((4,), steps=40)
    generators = transmon().generators
    found = [evolved(generators, dtype, division, strength)]
    for lanes in (1, 8):
        monkeypatch.setattr(cpu, "_lanes", lambda *_, lanes=lanes: lanes)
        found.append(evolved(generators, dtype, division, strength))
    for others in found[1:]:
        assert all(torch.equal(*pair) for pair in zip(found[0], others, strict=True))


def test_long_pulses_keep_parts_of_their_states_and_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = (transmon().generators, torch.float64, EXACT[torch.float64], 1.0)
    whole = evolved(*given)
    kept = []
    monkeypatch.setattr(cpu, "KEPT_BYTES", 2 * 19 * 9 * 8)
    saved = cpu.Code.saved

    def counted(self: cpu.Code, groups: int, segments: int, dtype: torch.dtype) -> torch.Tensor:
        kept.append(segments)
        return saved(self, groups, segments, dtype)

    monkeypatch.setattr(cpu.Code, "saved", counted)
    parts = evolved(*given)
    assert kept == [1, 2]  # the last part first
    for number, (one, other) in enumerate(zip(whole, parts, strict=True)):
        # What is fixed has a gradient by each part, which are added up.
        assert torch.equal(one, other) if number != 1 else torch.allclose(one, other, rtol=1e-12)
