"""Virtual Z: the largest fidelity over Z rotations of each qubit after a pulse, and its derivative."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.polynomial import Chebyshev
from scipy.optimize import minimize

from ketscale.engines.pulses import best_angles
from ketscale.engines.pulses.virtual_z import largest_form, largest_overlap

# torch says so when forward mode or a nested transformation is first used.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


def random_rows(qubits: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(2**qubits, dtype=torch.complex128, generator=torch.Generator().manual_seed(seed))


def rotated_rows(rows: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """The rows after diag(1, exp(i angle)) on each qubit."""
    bits = torch.arange(len(rows))[:, None] >> torch.arange(len(angles)).flip(0) & 1
    return rows * torch.exp(1j * (bits * angles).sum(-1))


@pytest.mark.parametrize("seed", range(2))
def test_one_qubit_has_a_closed_form(seed: int) -> None:
    rows = random_rows(1, seed)
    assert largest_overlap(rows).item() == pytest.approx(rows.abs().sum().item() ** 2, rel=1e-14)
    assert best_angles(rows).item() == pytest.approx(rows[0].mul(rows[1].conj()).angle().item(), abs=1e-9)


# The last two have local maxima where the starts that are not random end.
@pytest.mark.parametrize("qubits, seed", [(2, 0), (3, 23), (4, 20)])
def test_no_other_angles_are_better(qubits: int, seed: int) -> None:
    rows = random_rows(qubits, seed)
    starts = np.random.default_rng(seed).uniform(-np.pi, np.pi, (12, qubits))

    def lost(angles: np.ndarray) -> float:  # type: ignore[type-arg]
        return -rotated_rows(rows, torch.from_numpy(angles)).sum().abs().square().item()

    best = -min(minimize(lost, start, method="BFGS", options={"gtol": 1e-9}).fun for start in starts)
    assert largest_overlap(rows).item() == pytest.approx(best, rel=1e-12)


def test_a_ridge_is_followed_to_its_end() -> None:
    rows = torch.tensor([0.2851 - 0.1149j, 0, -0.0001 - 0.0001j, 0.365 - 0.8254j], dtype=torch.complex128)
    terms = rotated_rows(rows, best_angles(rows))
    slopes = [(terms.sum().conj() * terms[one].sum()).imag / terms.sum().abs() for one in ([2, 3], [1, 3])]
    assert max(map(abs, slopes)) <= 1e-11 * rows.abs().sum()


@pytest.mark.parametrize("qubits", [1, 2, 5, 8])
def test_rotations_of_a_perfect_gate_are_undone(qubits: int) -> None:
    away = torch.linspace(-3, 2.5, qubits, dtype=torch.float64)
    rows = rotated_rows(torch.ones(2**qubits, dtype=torch.complex128), away)
    assert largest_overlap(rows).item() == pytest.approx(4**qubits, rel=1e-13)
    torch.testing.assert_close(best_angles(rows), -away, rtol=0, atol=1e-9)


@pytest.mark.parametrize("qubits", [0, 1, 2, 4])
def test_a_batch_has_the_angles_of_each_alone(qubits: int) -> None:
    rows = torch.stack([random_rows(qubits, seed) for seed in range(6)]).reshape(2, 3, -1)
    rows[0, 1] = torch.nan
    angles, overlaps = best_angles(rows), largest_overlap(rows)
    assert angles.shape == (2, 3, qubits) and overlaps.shape == (2, 3)
    for place in np.ndindex(2, 3):
        assert torch.equal(best_angles(rows[place]).nan_to_num(), angles[place].nan_to_num())
        torch.testing.assert_close(largest_overlap(rows[place]), overlaps[place], equal_nan=True)
    assert largest_overlap(rows[:0]).shape == (0, 3)


@pytest.mark.parametrize("qubits", [1, 3])
def test_derivatives_are_those_of_finite_differences(qubits: int) -> None:
    """A batch has them by each entry, or in a random direction."""
    rows = torch.stack([random_rows(qubits, seed) for seed in range(2)]).requires_grad_()
    assert torch.autograd.gradcheck(largest_overlap, rows, check_forward_ad=True, fast_mode=qubits > 1)
    assert torch.autograd.gradgradcheck(largest_overlap, rows, fast_mode=qubits > 1)


def random_kraus(qubits: int, seed: int) -> torch.Tensor:
    """Columns r_k, (2**n, 3)."""
    return torch.stack([random_rows(qubits, 10 * seed + number) for number in range(3)], 1)


@pytest.mark.parametrize("qubits", [1, 3])
def test_no_other_angles_are_better_for_several_sums(qubits: int) -> None:
    kraus = random_kraus(qubits, 1)
    starts = np.random.default_rng(1).uniform(-np.pi, np.pi, (12, qubits))

    def lost(angles: np.ndarray) -> float:  # type: ignore[type-arg]
        sums = [rotated_rows(rows, torch.from_numpy(angles)).sum() for rows in kraus.T]
        return -torch.stack(sums).abs().square().sum().item()

    best = -min(minimize(lost, start, method="BFGS", options={"gtol": 1e-9}).fun for start in starts)
    assert largest_form(kraus @ kraus.mH).item() == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("qubits", [1, 2])
def test_derivatives_of_several_sums_are_those_of_finite_differences(qubits: int) -> None:
    def largest(kraus: torch.Tensor) -> torch.Tensor:
        return largest_form(kraus @ kraus.mH)

    kraus = torch.stack([random_kraus(qubits, seed) for seed in range(2)]).requires_grad_()
    assert torch.autograd.gradcheck(largest, kraus, check_forward_ad=True, fast_mode=qubits > 1)
    assert torch.autograd.gradgradcheck(largest, kraus, fast_mode=qubits > 1)


@pytest.mark.parametrize("several", [False, True])
def test_fourth_derivatives_by_torch_func_are_those_of_a_series(several: bool) -> None:
    rows, direction = random_rows(2, 0), random_rows(2, 1)

    def largest(point: torch.Tensor) -> torch.Tensor:
        trial = rows + point * direction
        return largest_form(trial[:, None] * trial.conj()) if several else largest_overlap(trial)

    values, fourth = torch.func.vmap(largest), largest
    series = Chebyshev.interpolate(lambda points: values(torch.from_numpy(points)).numpy(), 14, [-0.3, 0.3])
    for _ in range(4):
        fourth = torch.func.grad(fourth)
    points = np.array([0.0, 0.1])
    result = torch.func.vmap(fourth)(torch.from_numpy(points))
    np.testing.assert_allclose(result, series.deriv(4)(points), rtol=1e-5)
