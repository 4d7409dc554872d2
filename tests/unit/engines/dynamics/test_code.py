"""Which machine code evolves a system: both kinds give the same bits, and own code comes when it should."""

from __future__ import annotations

import pytest
import torch

from ketscale.dynamics import coupled_qubits, transmon
from ketscale.engines import specialised
from ketscale.engines.compiled import background
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
def test_code_of_any_system_and_a_systems_own_give_the_same_bits(
    exact: bool, dtype: torch.dtype, strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    division = EXACT[dtype] if exact else Division((4,), steps=40)
    generators = transmon().generators
    found = [evolved(generators, dtype, division, strength)]
    for lanes in (1, 8):
        monkeypatch.setattr(cpu, "_lanes", lambda *_, lanes=lanes: lanes)
        found.append(evolved(generators, dtype, division, strength))
    with specialised.specialised_at_once():
        found.append(evolved(generators, dtype, division, strength))
    for others in found[1:]:
        assert all(torch.equal(*pair) for pair in zip(found[0], others, strict=True))


def test_a_system_that_is_evolved_again_gets_code_of_its_own() -> None:
    generators, division = coupled_qubits(0.3, -0.2).generators, Division((3,), steps=2)
    choice = cpu._choice(cpu._Needed(generators, *division[:2], torch.float64))

    def evolve() -> None:
        evolved(generators, torch.float64, division, 1.0)

    specialised.specialise("again")
    evolve()
    background.wait()
    first = choice.own
    evolve()
    background.wait()
    assert choice.own is not None
    # It is there from the first call on if the cache folder has it.
    assert first in (None, choice.own)
    specialised.specialise("never")
    assert choice.own is None
    evolve()
    assert choice.own is None
    specialised.specialise("again")
    evolve()
    assert choice.own is not None


def test_a_system_with_many_entries_is_read_from_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    generators = transmon(levels=4).generators
    monkeypatch.setattr(
        cpu,
        "MOST_WRITTEN",
        generators.entry_count - 1,
    )
    with specialised.specialised_at_once():
        evolved(generators, torch.float64, Division((4,), steps=2), 1.0)
    assert cpu._choice(cpu._Needed(generators, (4,), (), torch.float64)).own is None


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
