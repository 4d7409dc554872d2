"""The benchmark of what an evolution costs: every cell is timed, and its values are those of one unitary."""

from __future__ import annotations

import torch

from benchmarks.costs import Costs, CostsCase, call_of
from benchmarks.gates import DURATION_NS, chain_of, controls_of
from ketscale import dynamics as kd


def test_every_cell_is_timed() -> None:
    result = Costs(states=3, segments=(2,), batch=(1, 2), repeats=5, threads=1)
    assert [row["status"] for row in result.run()["rows"]] == ["timed"] * 3 * 2 * 2


def test_the_values_are_those_of_one_unitary() -> None:
    system = chain_of(2, 3)
    final = kd.evolve(system, controls_of(system, 4, 2), DURATION_NS, kind="unitary")
    flipped = final[:, system.computational[-1], 0].abs().square()
    kets, gradient = call_of(CostsCase("ket", 2, 3, 4, 2))()
    torch.testing.assert_close(kets, 1 - flipped)
    assert gradient.shape == (2, 4, 4) and gradient.abs().min() > 0
    noisy, _ = call_of(CostsCase("density", 2, 3, 4, 2))()
    assert 1e-6 < (noisy - kets).abs().max() < 1e-2
    states = torch.from_numpy(system.computational_states.copy())
    overlap = (states.mH @ final @ states).flip(1).diagonal(dim1=1, dim2=2).sum(-1)
    infidelities, _ = call_of(CostsCase("unitary", 2, 3, 4, 2))()
    torch.testing.assert_close(infidelities, 1 - overlap.abs().square() / 16)
