"""Processors of superconducting circuits: which circuits are coupled, and how strongly.

The published ones (SuperGrad, arXiv:2406.18155) are `fluxonium_chain` and `fluxonium_lattice`. They have the published
parameters, and a spread whose width is the published one but whose random numbers are ours. To compute with another
program's numbers, make a `Device` of them. Numbers may be tensors, whose gradients it keeps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from ketscale.engines.dynamics.system import System
from ketscale.engines.operators import Term, check_pairs
from ketscale.engines.pulses.circuits import TWO_PI, Circuits, Fluxoniums, Levels, Transmons, spread
from ketscale.engines.pulses.published import (
    CHAIN,
    CHAIN_COUPLINGS,
    CHARGING,
    FLUXONIUM,
    JOSEPHSON,
    LATTICE_COUPLINGS,
    LATTICE_SEED,
    ROW,
    SEED,
    SPREAD,
    TRANSMON_COUPLING,
)
from ketscale.errors import UserError

WIDTH = len(ROW)

# What devices are made of; tensors in fp64 keep their gradients.
Number = float | torch.Tensor
Numbers = Sequence[float] | torch.Tensor


@dataclass(frozen=True, eq=False)
class Device:
    """Circuits with couplings J_C n_i n_j + J_L phi_i phi_j between pairs of sites, undriven.

    pairs: sites (i, j). capacitive, inductive: J_C and J_L in GHz, fp64 (pairs,). Transmons have no phase to couple by:
        inductive is None.

    Raises:
        UserError: transmons have an inductive coupling, or fluxoniums none; a pair names no two sites, or the couplings are
            not one number for each.
    """

    circuits: Circuits
    pairs: tuple[tuple[int, int], ...]
    capacitive: torch.Tensor
    inductive: torch.Tensor | None

    def __post_init__(self) -> None:
        if isinstance(self.circuits, Transmons) != (self.inductive is None):
            raise UserError("inductive: give couplings for fluxoniums, and None for transmons")
        check_pairs(self.pairs, self.sites)
        for name, strength in (("capacitive", self.capacitive), ("inductive", self.inductive)):
            if strength is not None and tuple(strength.shape) != (len(self.pairs),):
                raise UserError(
                    f"{name}: must be one number a pair, of shape ({len(self.pairs)},), not {tuple(strength.shape)}"
                )

    @property
    def sites(self) -> int:
        """Number of circuits."""
        return len(self.circuits.charging)

    def terms(self, levels: Levels) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """What couples: strengths in rad/ns, (pairs,), and the operators of each site, (sites, d, d), that they multiply."""
        terms = [(TWO_PI * self.capacitive, levels.charge)]
        if self.inductive is not None and levels.phase is not None:
            terms.append((TWO_PI * self.inductive, levels.phase))
        return terms

    def system(self, levels: int, drive_sites: Sequence[int] | None = None) -> System:
        """The lowest levels of each circuit, differentiable in all parameters of the device.

        It is in the laboratory frame; angular frequencies in rad/ns, times in ns. Each site's energies are the term energies_i,
        and each coupling is coupling_i_j, with parameters 1. A control drive_i acts on the phase of a fluxonium, and on the
        charge of a transmon, of site i (from 1); the n-th of several there is drive_i_n.

        levels: d, from 2. drive_sites: the sites that are driven (from 0), in the order of the controls; None: each site.

        Raises:
            UserError: there are fewer than 2 levels, a site does not exist, a pair is coupled twice, or the levels have no
                derivatives.

        Example:
            >>> list(transmon_chain(2).system(levels=3).parameters)
            ['energies_1', 'energies_2', 'coupling_1_2']
        """
        if not (isinstance(levels, int) and levels >= 2):
            raise UserError(f"levels: {levels} makes no qubit; use a whole number from 2")
        driven = range(self.sites) if drive_sites is None else drive_sites
        if not isinstance(driven, Sequence) or not set(driven) <= set(range(self.sites)):
            raise UserError(f"drive_sites: {driven} are not sites from 0 to {self.sites - 1}")
        local = self.circuits.levels(levels)
        first, second = ([pair[which] for pair in self.pairs] for which in (0, 1))
        couplings = torch.stack(
            [
                strength[:, None, None] * torch.vmap(torch.kron)(operators[first], operators[second])
                for strength, operators in self.terms(local)
            ]
        ).sum(0)
        drift = {
            f"energies_{site + 1}": Term((site,), each) for site, each in enumerate(local.energies.unbind())
        }
        for (i, j), coupling in zip(self.pairs, couplings.unbind(), strict=True):
            drift[f"coupling_{i + 1}_{j + 1}"] = Term((i, j), coupling)
        if len(drift) != self.sites + len(self.pairs):
            raise UserError(f"pairs: one of {list(self.pairs)} is there twice; add its couplings")
        controls: dict[str, Term] = {}
        operators = (local.charge if local.phase is None else local.phase).unbind()
        for number, site in enumerate(driven):
            before = driven[:number].count(site)
            controls[f"drive_{site + 1}" + (f"_{before + 1}" if before else "")] = Term(
                (site,), operators[site]
            )
        return System(drift, dict.fromkeys(drift, 1.0), controls, levels=(levels,) * self.sites)


def fluxonium_chain(
    sites: int,
    width: float = SPREAD,
    seed: int = SEED,
    *,
    charging: Number = FLUXONIUM[0],
    josephson: Number = FLUXONIUM[1],
    inductive: Number | Numbers = CHAIN,
    flux: Number = math.pi,
    capacitive_coupling: Number = CHAIN_COUPLINGS[0],
    inductive_coupling: Number = CHAIN_COUPLINGS[1],
) -> Device:
    """An open chain; by default the published one, at half a flux quantum.

    width, seed: they set the relative spread of the three energies of each site; see `circuits.spread`.
    charging, josephson: E_C and E_J, GHz. inductive: E_L, GHz, a number or several that are cycled along the chain. flux: rad.
    capacitive_coupling, inductive_coupling: J_C and J_L of neighbours, GHz.

    Raises:
        UserError: an energy is missing or not positive.

    Example:
        >>> fluxonium_chain(3).pairs
        ((0, 1), (1, 2))
    """
    circuits = Fluxoniums(*(_cycled(each, sites) for each in (charging, josephson, inductive, flux)))
    pairs = tuple(pairwise(range(sites)))
    couplings = (_cycled(each, len(pairs)) for each in (capacitive_coupling, inductive_coupling))
    return Device(spread(circuits, width, seed), pairs, *couplings)


def fluxonium_lattice(
    rows: int,
    columns: int,
    first_column: int = 2,
    width: float = SPREAD,
    seed: int = LATTICE_SEED,
    *,
    charging: Number = FLUXONIUM[0],
    josephson: Number = FLUXONIUM[1],
    inductive: Number | Numbers = ROW,
    flux: Number = math.pi,
    capacitive_coupling: Number = LATTICE_COUPLINGS[0],
    inductive_coupling: Number = LATTICE_COUPLINGS[1],
) -> Device:
    """A block of a periodic 5 x 5 lattice; by default the published one.

    Sites are in the order of their rows. The block begins in row 0 and `first_column`; it has the couplings
    between neighbours of the whole lattice that lie inside it. The published examples of six qubits use 3 rows and 2 columns, from
    column 2.

    inductive: E_L of the first row, GHz, a number or one for each of its five sites; each further row is shifted by three
        columns. Otherwise as for `fluxonium_chain`.

    Raises:
        UserError: the block does not fit the lattice, the row has not five energies, or one is not positive.
    """
    if not (1 <= rows <= WIDTH and 1 <= columns <= WIDTH and 0 <= first_column < WIDTH):
        raise UserError(f"rows, columns: must be from 1 to {WIDTH}; first_column from 0 to {WIDTH - 1}")
    if getattr(inductive, "ndim", 1) and hasattr(inductive, "__len__") and len(inductive) not in (1, WIDTH):
        raise UserError(f"inductive: give one energy, or {WIDTH}, those of the lattice's first row")
    block = [(row, (first_column + column) % WIDTH) for row in range(rows) for column in range(columns)]
    along = _cycled(inductive, WIDTH)[[(column - 3 * row) % WIDTH for row, column in block]]
    pairs = tuple(
        (i, j)
        for i in range(len(block))
        for j in range(i + 1, len(block))
        if _distance(block[i], block[j]) == 1
    )
    charging, josephson, flux = (_cycled(each, len(block)) for each in (charging, josephson, flux))
    circuits = spread(Fluxoniums(charging, josephson, along, flux), width, seed)
    couplings = (_cycled(each, len(pairs)) for each in (capacitive_coupling, inductive_coupling))
    return Device(circuits, pairs, *couplings)


def transmon_chain(
    sites: int,
    width: float = SPREAD,
    seed: int = SEED,
    *,
    charging: Number | Numbers = CHARGING,
    josephson: Number | Numbers = JOSEPHSON,
    offset: Number = 0.0,
    capacitive_coupling: Number = TRANSMON_COUPLING,
) -> Device:
    """An open chain of transmons; by default of 5.16, 4.50 and 6.54 GHz in turn.

    These circuits and the coupling are those of the published loop of transmons, in which the third kind is a coupler.

    charging, josephson: E_C and E_J, GHz, a number or several that are cycled along the chain. offset: n_g in Cooper pairs.
        capacitive_coupling: J_C of neighbours, GHz.

    Raises:
        UserError: an energy is missing or not positive.

    Example:
        >>> transmon_chain(2).pairs
        ((0, 1),)
    """
    alike = Transmons(*(_cycled(each, sites) for each in (charging, josephson, offset)))
    pairs = tuple(pairwise(range(sites)))
    return Device(spread(alike, width, seed), pairs, _cycled(capacitive_coupling, len(pairs)), None)


def _cycled(values: Number | Numbers, count: int) -> torch.Tensor:
    """So many values, fp64 (count,), from the first on again after the last.

    Raises:
        UserError: there are none.
    """
    listed = [values] if isinstance(values, (int, float)) or not getattr(values, "ndim", 1) else values
    if not len(listed):
        raise UserError("energies: there are none; give one or more")
    each = [torch.as_tensor(listed[number % len(listed)], dtype=torch.float64) for number in range(count)]
    return torch.stack(each) if each else torch.zeros(0, dtype=torch.float64)


def _distance(first: tuple[int, int], second: tuple[int, int]) -> int:
    """On the torus, in steps to a neighbour."""
    steps_of = [abs(a - b) for a, b in zip(first, second, strict=True)]
    return sum(min(steps, WIDTH - steps) for steps in steps_of)
