"""Processors of superconducting circuits: which circuits are coupled, and how strongly.

The published ones (SuperGrad, arXiv:2406.18155) are `fluxonium_chain` and `fluxonium_lattice`. They have the published
parameters, and a spread whose width is the published one but whose random numbers are ours. To compute with another
program's numbers, make a `Device` of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ketscale.engines.pulses.circuits import TWO_PI, Circuits, Fluxoniums, Levels, Transmons, spread
from ketscale.engines.pulses.lattice import Lattice
from ketscale.errors import UserError

SPREAD = 0.01
SEED = 42

# E_L in GHz: along a chain, and along the first row of the lattice. Each further row is shifted by three columns.
CHAIN = (0.9, 1.0, 1.1)
ROW = (1.1, 1.2, 1.0, 0.8, 0.9)
WIDTH = len(ROW)

# (E_C, E_J) in GHz along a chain of transmons.
TRANSMONS = ((0.105, 33.063), (0.120, 22.234), (0.185, 30.694))


@dataclass(frozen=True, eq=False)
class Device:
    """Circuits with couplings J_C n_i n_j + J_L phi_i phi_j between pairs of sites, undriven.

    pairs: sites (i, j). capacitive, inductive: J_C and J_L in GHz, fp64 (pairs,). Transmons have no phase to couple by:
        inductive is None.

    Raises:
        UserError: transmons have an inductive coupling, or fluxoniums none.
    """

    circuits: Circuits
    pairs: tuple[tuple[int, int], ...]
    capacitive: torch.Tensor
    inductive: torch.Tensor | None

    def __post_init__(self) -> None:
        if isinstance(self.circuits, Transmons) != (self.inductive is None):
            raise UserError("inductive: give couplings for fluxoniums, and None for transmons")

    @property
    def sites(self) -> int:
        """Number of circuits."""
        return len(self.circuits.charging)

    def terms(self, levels: Levels) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """What couples: strengths in rad/ns, (pairs,), and the operators of each site, (sites, d, d), that they multiply."""
        made = [(TWO_PI * self.capacitive, levels.charge)]
        if self.inductive is not None and levels.phase is not None:
            made.append((TWO_PI * self.inductive, levels.phase))
        return made

    def lattice(self, levels: int, drive_sites: Sequence[int] | None = None) -> Lattice:
        """The lowest levels of each circuit, differentiable in all parameters of the device once.

        A drive acts on the phase of a fluxonium, and on the charge of a transmon.

        levels: d, from 2. drive_sites: the sites that are driven; None: each site.

        Raises:
            UserError: there are fewer than 2 levels, a site does not exist, or the levels have no derivatives.
        """
        if levels < 2:
            raise UserError(f"levels: {levels} is too few for a qubit; use 2 or more")
        driven = tuple(range(self.sites) if drive_sites is None else drive_sites)
        if not set(driven) <= set(range(self.sites)):
            raise UserError(f"drive_sites: {list(driven)} are not sites from 0 to {self.sites - 1}")
        found = self.circuits.levels(levels)
        couplings = torch.stack(
            [
                strength[:, None, None] * _products(operators, self.pairs)
                for strength, operators in self.terms(found)
            ]
        ).sum(0)
        drives = found.charge if found.phase is None else found.phase
        return Lattice(
            levels, self.sites, found.energies, self.pairs, couplings, driven, drives[list(driven)]
        )


def fluxonium_chain(sites: int, width: float = SPREAD, seed: int = SEED) -> Device:
    """The published open chain: E_C = 1, E_J = 4, E_L cycling 0.9, 1.0, 1.1 GHz, at half a flux quantum.

    Neighbours are coupled by J_C = 20 MHz and J_L = -2 MHz. The three energies of each site have a relative spread of
    `width`.

    Raises:
        UserError: there is no site.
    """
    _check_sites(sites)
    inductive = [CHAIN[site % len(CHAIN)] for site in range(sites)]
    return _coupled(_fluxoniums(inductive, width, seed), _chain(sites), 0.020, -0.002)


def fluxonium_lattice(
    rows: int, columns: int, first_column: int = 2, width: float = SPREAD, seed: int = 1
) -> Device:
    """A block of the published 5 x 5 lattice, which is periodic: E_C = 1, E_J = 4, E_L from 0.8 to 1.2 GHz.

    Sites are in the order of their rows. The block begins in row 0 and `first_column`; of the whole lattice's couplings
    (J_C = 11.5 MHz, J_L = -2 MHz between neighbours) it has those inside it. The published examples of six qubits use 3 rows
    and 2 columns, from column 2.

    Raises:
        UserError: the block does not fit the lattice.
    """
    if not (1 <= rows <= WIDTH and 1 <= columns <= WIDTH and 0 <= first_column < WIDTH):
        raise UserError(f"rows, columns: must be from 1 to {WIDTH}; first_column from 0 to {WIDTH - 1}")
    block = [(row, (first_column + column) % WIDTH) for row in range(rows) for column in range(columns)]
    inductive = [ROW[(column - 3 * row) % WIDTH] for row, column in block]
    pairs = tuple(
        (i, j)
        for i in range(len(block))
        for j in range(i + 1, len(block))
        if _distance(block[i], block[j]) == 1
    )
    return _coupled(_fluxoniums(inductive, width, seed), pairs, 0.0115, -0.002)


def transmon_chain(sites: int, width: float = SPREAD, seed: int = SEED) -> Device:
    """An open chain of transmons of 5.16, 4.50 and 6.54 GHz in turn, with neighbours coupled by J_C = 12 MHz.

    The circuits and the coupling are those of the published loop of transmons, in which the third kind is a coupler.

    Raises:
        UserError: there is no site.
    """
    _check_sites(sites)
    charging, josephson = zip(*(TRANSMONS[site % len(TRANSMONS)] for site in range(sites)), strict=True)
    alike = Transmons(_numbers(charging), _numbers(josephson), _numbers([0.0] * sites))
    pairs = _chain(sites)
    return Device(spread(alike, width, seed), pairs, _numbers([0.012] * len(pairs)), None)


def _fluxoniums(inductive: Sequence[float], width: float, seed: int) -> Fluxoniums:
    like = torch.ones(len(inductive), dtype=torch.float64)
    return spread(Fluxoniums(like, 4 * like, _numbers(inductive), math.pi * like), width, seed)


def _coupled(
    circuits: Fluxoniums, pairs: tuple[tuple[int, int], ...], capacitive: float, inductive: float
) -> Device:
    like = torch.ones(len(pairs), dtype=torch.float64)
    return Device(circuits, pairs, capacitive * like, inductive * like)


def _chain(sites: int) -> tuple[tuple[int, int], ...]:
    return tuple((site, site + 1) for site in range(sites - 1))


def _distance(first: tuple[int, int], second: tuple[int, int]) -> int:
    """On the torus, in steps to a neighbour."""
    apart = [abs(a - b) for a, b in zip(first, second, strict=True)]
    return sum(min(steps, WIDTH - steps) for steps in apart)


def _products(operators: torch.Tensor, pairs: tuple[tuple[int, int], ...]) -> torch.Tensor:
    """The Kronecker products of each pair's operators, (pairs, d*d, d*d)."""
    d = operators.shape[-1]
    first, second = (operators[[pair[which] for pair in pairs]] for which in (0, 1))
    return torch.einsum("pab,pcd->pacbd", first, second).reshape(len(pairs), d * d, d * d)


def _check_sites(sites: int) -> None:
    if sites < 1:
        raise UserError(f"sites: {sites} is no chain; use 1 or more")


def _numbers(values: Sequence[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)
