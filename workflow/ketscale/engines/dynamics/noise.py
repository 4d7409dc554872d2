"""Rates of noise: from the spectrum of an environment, or from measured relaxation times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray

from ketscale.engines.dynamics.tasks import as_real
from ketscale.engines.operators import check_hermitian
from ketscale.errors import UserError
from ketscale.shapes import Complex, Float

# The published integral: its points, and the highest angular frequency that counts (the integral goes to twice that).
POINTS = 500
HIGHEST = 20.0


def spectrum(
    omega: torch.Tensor, alpha: torch.Tensor, amplitude: torch.Tensor, cutoff: torch.Tensor
) -> torch.Tensor:
    """S(omega) = amplitude / (|omega|**alpha + cutoff**alpha); with alpha = 2 a Lorentzian."""
    return amplitude / (omega.abs() ** alpha + cutoff**alpha)


def noise_rates(
    alpha: Float[torch.Tensor, "*#tasks"] | NDArray[Any] | float,
    amplitude: Float[torch.Tensor, "*#tasks"] | NDArray[Any] | float,
    cutoff: Float[torch.Tensor, "*#tasks"] | NDArray[Any] | float,
) -> Float[torch.Tensor, "*tasks"]:
    """The rate of each task's environment, 1 / time, of the shape to which the arguments broadcast; differentiable.

    It is Gamma = 1 / (2 w) times the integral over 0..2w of S(omega) 1[omega <= w] by the trapezoid rule, with
    w = `HIGHEST` and `POINTS` points: the published code's, which gives each of its three jumps this rate. The cut-off w
    is arbitrary, and so is the rate, which is no physical one: `transition_rates` are.

    alpha: exponent of the spectrum, at least 0. amplitude: at least 0. cutoff: angular frequency, above 0.

    Raises:
        UserError: an argument is outside its range or not finite.

    Example:
        >>> bool(noise_rates(1.0, 1e-3, 100.0) < 1e-5)
        True
    """
    alpha, amplitude, cutoff = _tensors(alpha=alpha, amplitude=amplitude, cutoff=cutoff)
    for name, values, least in (
        ("alpha", alpha, 0.0),
        ("amplitude", amplitude, 0.0),
        ("cutoff", cutoff, None),
    ):
        inside = values > 0 if least is None else values >= least
        if not bool((inside & values.isfinite()).all()):
            raise UserError(f"{name}: must be {'above 0' if least is None else 'at least 0'} and finite")
    omega = torch.linspace(0, 2 * HIGHEST, POINTS, dtype=amplitude.dtype, device=amplitude.device)
    density = spectrum(omega, alpha[..., None], amplitude[..., None], cutoff[..., None]) * (omega <= HIGHEST)
    return torch.trapezoid(density, omega, dim=-1) / (2 * HIGHEST)


def transition_rates(
    hamiltonian: Complex[torch.Tensor, "*systems d d"],
    coupling: Complex[torch.Tensor, "*#systems d d"],
    density: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[Float[torch.Tensor, "*systems d d"], Complex[torch.Tensor, "*systems d d"]]:
    """The golden-rule rates of a static system that is weakly coupled to a stationary environment, and its eigenstates.

    rates[..., i, j] = |<i|A|j>|^2 S(E_j - E_i) is that of the jump |i><j| from eigenstate j to i (hbar = 1; Schoelkopf et
    al., arXiv:cond-mat/0210247); energies ascend, and states[..., :, i] is eigenstate i. Rates up and down are in
    detailed balance only if S is. The diagonal is 0: pure dephasing is no transition, and of 1/f noise it has no rate.

    hamiltonian: Hermitian, angular frequencies. coupling: A, Hermitian. density: S(omega), two-sided, of angular
        frequencies (..., d, d): positive ones are what the environment takes.

    Raises:
        UserError: a matrix is not Hermitian, the density is negative or not finite, or energies are degenerate.

    Example:
        >>> x, z = (torch.tensor(each, dtype=torch.complex128) for each in ([[0, 1], [1, 0]], [[1, 0], [0, -1]]))
        >>> transition_rates(z, x, lambda omega: 0.1 * (omega > 0))[0]
        tensor([[0.0000, 0.1000],
                [0.0000, 0.0000]], dtype=torch.float64)
    """
    for name, matrix in (("hamiltonian", hamiltonian), ("coupling", coupling)):
        check_hermitian(name, matrix, 1e-10)
    energies, states = torch.linalg.eigh(hamiltonian)
    released = energies[..., None, :] - energies[..., :, None]
    others = ~torch.eye(energies.shape[-1], dtype=torch.bool, device=energies.device)
    if not (released.abs() > 1e-10 * energies.abs().amax(-1)[..., None, None])[..., others].all():
        raise UserError("hamiltonian: has degenerate levels, between which there is no golden rule")
    elements = (states.mH @ coupling @ states).abs().square()
    # No density is asked for at 0, where 1/f noise has none.
    found = torch.where(others, density(released.where(others, 1.0)), 0.0)
    if not ((found >= 0) & found.isfinite()).all():
        raise UserError("density: is negative or not finite at a transition of the system")
    return elements * found, states


def relaxation_rates(
    t1: Float[torch.Tensor, "*#tasks"] | NDArray[Any] | float,
    t2: Float[torch.Tensor, "*#tasks"] | NDArray[Any] | float,
) -> Float[torch.Tensor, "*tasks 2"]:
    """Rates (..., 2) of the jumps `relaxation` and `dephasing` of `systems`: 1 / T1 and 1 / T2 - 1 / (2 T1).

    t1, t2: times of relaxation and of the decay of coherence; infinity switches a process off.

    Raises:
        UserError: a time is not positive, or T2 is above 2 T1.

    Example:
        >>> relaxation_rates(torch.tensor(50.0), torch.tensor(100.0))
        tensor([0.0200, 0.0000])
    """
    t1, t2 = _tensors(t1=t1, t2=t2)
    if not bool(((t1 > 0) & (t2 > 0)).all()):
        raise UserError("t1, t2: times must be positive")
    if not bool((t2 <= 2 * t1).all()):
        raise UserError("t2: is at most twice t1, since relaxation destroys coherence too")
    relaxation = 1 / t1
    return torch.stack(torch.broadcast_tensors(relaxation, 1 / t2 - relaxation / 2), -1)


def _tensors(**given: Any) -> list[torch.Tensor]:
    """Tensors as they are; numbers and arrays in the precision and on the device of the first of them, or in fp64."""
    known = [each for each in given.values() if isinstance(each, torch.Tensor) and each.is_floating_point()]
    like = known[0] if known else torch.empty(0, dtype=torch.float64)
    return [as_real(name, each, like) for name, each in given.items()]
