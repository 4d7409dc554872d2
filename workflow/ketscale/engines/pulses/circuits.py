"""Superconducting circuits: the lowest levels of fluxoniums and transmons, and their charge and phase between them.

Energies are given as frequencies in GHz, as is usual for circuits. What comes out is in rad/ns: 2 pi times as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
import torch

from ketscale.engines.pulses.eigenstates import Eigensystem, eigenstates, eigensystem
from ketscale.errors import UserError

# Points of grids of a fluxonium's phase, [-5 pi, 5 pi) without its end; the last is the published one. States that fit a
# smaller one, as usual ones do, are on both the same to rounding, and cost little there.
GRIDS = (128, 400)
LARGEST_PHASE = 5 * math.pi
# States need no more waves if at most so much of their norm squared is in the shortest tenth. If more than the second is
# there on the last grid, or in the outermost tenth of phases, no grid holds them.
FITTING, POSSIBLE = 1e-26, 1e-12
# Charge states of a transmon: -30 to 30 Cooper pairs.
LARGEST_CHARGE = 30
# Matrix elements of the charge that fix the phases of states must be larger.
SMALLEST_ELEMENT = 1e-8

TWO_PI = 2 * math.pi


class Levels(NamedTuple):
    """The lowest d levels of each circuit.

    energies: above the lowest level, rad/ns, real (sites, d).
    charge: <i|n|j>, in Cooper pairs, complex (sites, d, d).
    phase: <i|phi|j> of the phase across the inductor, in rad, complex (sites, d, d). None for circuits without one.

    The phases of the states are such that <i|n|i+1> > 0, as published.
    """

    energies: torch.Tensor
    charge: torch.Tensor
    phase: torch.Tensor | None


@dataclass(frozen=True, eq=False)
class Fluxoniums:
    """H = 4 E_C n^2 - E_J cos(phi - flux) + E_L phi^2 / 2 (Manucharyan et al., Science 326, 113, 2009, arXiv:0906.0831).

    phi is the phase across the inductor. It has a grid (`GRIDS`), on which n^2 and n are exact for all waves that the
    grid can hold.

    charging, josephson, inductive: E_C, E_J and E_L in GHz, positive, fp64 (sites,).
    flux: the external flux times 2 pi / flux quantum, in rad, fp64 (sites,).

    Raises:
        UserError: a parameter has another shape or type, or an energy is not positive.
    """

    energies: ClassVar[tuple[str, ...]] = ("charging", "josephson", "inductive")

    charging: torch.Tensor
    josephson: torch.Tensor
    inductive: torch.Tensor
    flux: torch.Tensor

    def __post_init__(self) -> None:
        _check(self)

    def levels(self, count: int) -> Levels:
        """The lowest `count` levels of each, differentiable in all parameters.

        Raises:
            UserError: a state's phase cannot be fixed, levels are degenerate and derivatives are needed, or states reach
                beyond the phases or the waves of the published grid.
        """
        for points in GRIDS:
            grid, squared, slope = (part.to(self.charging.device) for part in _phase_grid(points))
            potential = (
                self.inductive[:, None] * grid**2 / 2
                - self.josephson[:, None] * (grid - self.flux[:, None]).cos()
            )
            matrices = 4 * self.charging[:, None, None] * squared + potential.diag_embed()
            solution = eigensystem(matrices)
            phases = solution.states[..., :count].square()
            waves = torch.fft.fftshift(torch.fft.fft(solution.states[..., :count], dim=-2, norm="ortho"), -2)
            beyond = _outermost(waves.abs().square())
            if beyond <= FITTING:
                break
        if max(beyond, _outermost(phases)) > POSSIBLE:
            raise UserError(
                "a fluxonium's states do not fit a phase from -5 pi to 5 pi on 400 points: use fewer levels, or energies "
                "E_C, E_J and E_L that differ less"
            )
        energies, states = _lowest(matrices, solution, count)
        # n = -i d/dphi between real states is imaginary: the phases are powers of i.
        charge = -1j * (states.mT @ slope @ states)
        return _fixed(energies, charge, states.mT @ (grid[:, None] * states))


@dataclass(frozen=True, eq=False)
class Transmons:
    """H = 4 E_C (n - n_g)^2 - E_J cos(phi) (Koch et al., Phys. Rev. A 76, 042319, 2007, arXiv:cond-mat/0703002).

    Their states are computed in the basis of n; their charge is n - n_g.

    charging, josephson: E_C and E_J in GHz, positive, fp64 (sites,). offset: n_g in Cooper pairs, fp64 (sites,).

    Raises:
        UserError: a parameter has another shape or type, or an energy is not positive.
    """

    energies: ClassVar[tuple[str, ...]] = ("charging", "josephson")

    charging: torch.Tensor
    josephson: torch.Tensor
    offset: torch.Tensor

    def __post_init__(self) -> None:
        _check(self)

    def levels(self, count: int) -> Levels:
        """The lowest `count` levels of each, differentiable in all parameters.

        Raises:
            UserError: a state's phase cannot be fixed, levels are degenerate and derivatives are needed, or states reach
                beyond 30 Cooper pairs.
        """
        pairs = torch.arange(
            -LARGEST_CHARGE, LARGEST_CHARGE + 1, dtype=torch.float64, device=self.offset.device
        )
        charge = pairs - self.offset[:, None]
        hopping = torch.ones_like(pairs[1:]).diag(1)
        hopping = hopping + hopping.T
        kinetic = (4 * self.charging[:, None] * charge**2).diag_embed()
        matrices = kinetic - self.josephson[:, None, None] * hopping / 2
        solution = eigensystem(matrices)
        if _outermost(solution.states[..., :count].square()) > POSSIBLE:
            raise UserError(
                f"a transmon's states do not fit charges from -{LARGEST_CHARGE} to {LARGEST_CHARGE} Cooper pairs: use fewer levels, "
                "a smaller ratio of E_J to E_C, or an offset nearer to 0"
            )
        energies, states = _lowest(matrices, solution, count)
        return _fixed(energies, states.mT @ (charge[:, :, None] * states), None)


Circuits = Fluxoniums | Transmons
Kind = TypeVar("Kind", Fluxoniums, Transmons)


def spread(circuits: Kind, width: float, seed: int) -> Kind:
    """These circuits with each energy multiplied by 1 + width x, where x is drawn from a normal distribution.

    A circuit's numbers depend only on the seed, its site and which energy it is. So a longer chain begins as a
    shorter one does.
    """
    count = len(circuits.charging)
    normal = [
        np.random.Generator(np.random.Philox(key=[seed, site])).standard_normal(len(circuits.energies))
        for site in range(count)
    ]
    factors = 1 + width * torch.from_numpy(np.array(normal))
    energies = {
        name: getattr(circuits, name) * factor.to(circuits.charging.device)
        for name, factor in zip(circuits.energies, factors.T, strict=True)
    }
    return replace(circuits, **energies)


def _check(circuits: Circuits) -> None:
    shape = tuple(circuits.charging.shape)
    for name in (field.name for field in fields(circuits)):
        value = getattr(circuits, name)
        if value.dtype != torch.float64 or tuple(value.shape) != shape or len(shape) != 1:
            raise UserError(
                f"{name}: must be fp64 with one number a site, not {value.dtype} {tuple(value.shape)}"
            )
        if name in circuits.energies and not (value > 0).all():
            raise UserError(f"{name}: an energy must be positive")


def _outermost(shares: torch.Tensor) -> float:
    """The largest part in the outermost tenth of a grid's points, of shares (..., points, k)."""
    edge = shares.shape[-2] // 20
    return float((shares[..., :edge, :].sum(-2) + shares[..., -edge:, :].sum(-2)).max())


@cache
def _phase_grid(points: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The points of the grid, and the matrices of n^2 and of d/dphi on periodic functions of so many waves.

    Sums over waves in closed form (Meyer, J. Chem. Phys. 52, 2053, 1970, for an even number), so that no rounding depends
    on how many threads there are. The shortest wave has no partner of opposite sign, and no slope.
    """
    grid = -LARGEST_PHASE + 2 * LARGEST_PHASE / points * np.arange(points)
    wave = math.pi / LARGEST_PHASE
    offsets = np.arange(points)[:, None] - np.arange(points)
    sign, angle = 1 - 2.0 * (offsets % 2), math.pi * offsets / points
    np.fill_diagonal(angle, math.pi / 2)  # any that is not 0, until the diagonals below
    squared, slope = sign / (2 * np.sin(angle) ** 2), sign / (2 * np.tan(angle))
    np.fill_diagonal(squared, (points**2 + 2) / 12)
    np.fill_diagonal(slope, 0)
    return torch.from_numpy(grid), torch.from_numpy(wave**2 * squared), torch.from_numpy(wave * slope)


def _lowest(matrices: torch.Tensor, solution: Eigensystem, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The energies in rad/ns and the real states of the lowest levels, from matrices in GHz and all their states."""
    energies, states = eigenstates(matrices, solution, torch.arange(count, device=matrices.device))
    return TWO_PI * energies, states


def _fixed(energies: torch.Tensor, charge: torch.Tensor, phase: torch.Tensor | None) -> Levels:
    """With the states multiplied by phases, all of them powers of i, such that <i|n|i+1> > 0."""
    neighbours = charge.detach().diagonal(1, -2, -1).to(torch.complex128)
    if (neighbours.abs() < SMALLEST_ELEMENT).any():
        raise UserError(
            "the charge has no matrix element between two neighbouring levels of a circuit, so that the phases of its "
            "states are not defined: use fewer levels or other parameters"
        )
    steps = torch.view_as_complex(torch.view_as_real(neighbours / neighbours.abs()).round()).conj()
    factors = torch.cat([steps.new_ones(len(steps), 1), steps], -1).cumprod(-1)
    rotation = factors.conj()[:, :, None] * factors[:, None, :]
    return Levels(
        energies - energies[:, :1],
        _hermitian(charge * rotation),
        None if phase is None else _hermitian(phase * rotation),
    )


def _hermitian(operators: torch.Tensor) -> torch.Tensor:
    """Without the rounding that makes them differ from their adjoints."""
    return (operators + operators.mH) / 2
