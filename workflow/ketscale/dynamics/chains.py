"""Systems of several sites: from systems of one site and their couplings, or from the circuits of a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ketscale.engines.dynamics.basis import Matrix, hermitian_basis
from ketscale.engines.dynamics.system import Mixture, System
from ketscale.engines.operators import embedded
from ketscale.errors import UserError

if TYPE_CHECKING:
    from ketscale.engines.pulses import Device

Pair = tuple[int, int]


def chain(
    sites: Sequence[System],
    couplings: Mapping[Pair, Any] | None = None,
    driven: Mapping[Pair, Any] | Sequence[Pair] = (),
) -> System:
    """Sites side by side, with couplings between pairs of them; the first site is the slowest index.

    Terms, controls and jumps of site i (from 1) are called as in its system, with _i behind: detuning_1, x_1, relaxation_2.
    A site without usual rates has none if another one has.

    couplings: for each pair of sites (from 0) the angular frequency g of an exchange g (a^+ b + a b^+), where a lowers a
        site's level, a sqrt(n)|n - 1><n|; or a Hermitian matrix of the pair's states. Its parameter is called coupling_i_j
        and is g, or 1.
    driven: couplings that are controls, called coupling_i_j too: pairs with that exchange, or matrices by pair.

    Raises:
        UserError: there are no sites, or a coupling does not fit its pair, or has the name of another term; see `System`.

    Example:
        >>> from ketscale import dynamics as kd
        >>> system = chain([kd.transmon(levels=3), kd.transmon(0.5, levels=3)], {(0, 1): 0.02})
        >>> list(system.parameters)
        ['detuning_1', 'anharmonicity_1', 'detuning_2', 'anharmonicity_2', 'coupling_1_2']
    """
    if not sites or not isinstance(sites, Sequence) or not all(isinstance(site, System) for site in sites):
        raise UserError(
            "sites: must be a list of one or more systems, such as [kd.transmon(), kd.transmon()]"
        )
    if not isinstance(couplings or {}, Mapping):
        raise UserError("couplings: must be strengths by pair, such as {(0, 1): 0.02}")
    levels = tuple(level for site in sites for level in site.levels)
    starts = np.cumsum([0, *(len(site.levels) for site in sites)]).tolist()
    pieces: dict[str, dict[str, Any]] = {kind: {} for kind in ("drift", "controls", "jumps")}
    parameters: dict[str, float] = {}
    rates: dict[str, float] = {}
    for number, (site, (first, end)) in enumerate(zip(sites, pairwise(starts), strict=True), start=1):
        if site.mixture is not None:
            raise UserError(f"sites: the operators of site {number} have gradients; detach its device")
        for kind, made in pieces.items():
            for name, operator in getattr(site, kind).items():
                made[f"{name}_{number}"] = embedded(operator, range(first, end), levels)
        parameters |= {f"{name}_{number}": value for name, value in site.parameters.items()}
        rates |= {f"{name}_{number}": site.rates.get(name, 0.0) for name in site.jumps}
    for pair, strength in (couplings or {}).items():
        if getattr(strength, "requires_grad", False):
            raise UserError(f"couplings: that of {pair} has a gradient; give its parameter to evolve")
        name, exchanges = _coupling(pair), np.ndim(strength) == 0
        if exchanges and (isinstance(strength, str) or np.iscomplexobj(strength)):
            raise UserError(f"couplings: {strength} of {pair} is not real; give the pair's Hermitian matrix")
        operator = _exchange(pair, levels) if exchanges else strength
        _check_new(name, pieces["drift"])
        pieces["drift"][name] = embedded(operator, pair, levels)
        parameters[name] = strength if exchanges else 1.0
    for pair in driven:
        name = _coupling(pair)
        operator = driven[pair] if isinstance(driven, Mapping) else _exchange(pair, levels)
        _check_new(name, pieces["controls"])
        pieces["controls"][name] = embedded(operator, pair, levels)
    usual = rates if any(site.rates for site in sites) else {}
    drift, controls, jumps = pieces.values()
    return System(drift, parameters, controls, jumps, rates=usual, levels=levels)


def from_device(device: Device, levels: int, drive_sites: Sequence[int] | None = None) -> System:
    """The lowest levels of a device's circuits, in the laboratory frame; angular frequencies in rad/ns, times in ns.

    Each site's energies are the term energies_i, and each coupling is coupling_i_j, with parameters 1. A control drive_i
    acts on the phase of a fluxonium, and on the charge of a transmon, of site i (from 1).

    Parameters of the circuits that are tensors with gradients keep them: `evolve` and `dressed_frame` follow them once.

    levels: of each site, from 2. drive_sites: those that are driven (from 0); None: all.

    Raises:
        UserError: see `Device.lattice`; or a site is named twice.

    Example:
        >>> from ketscale import dynamics as kd
        >>> from_device(kd.fluxonium_chain(2), levels=3).dimension
        9
    """
    if drive_sites is not None and len(set(drive_sites)) != len(drive_sites):
        raise UserError(f"drive_sites: {list(drive_sites)} has a site twice; leave it out once")
    lattice = device.lattice(levels, drive_sites)
    every, pairs = (levels,) * lattice.sites, list(map(_coupling, lattice.pairs))
    drift = [*torch.diag_embed(lattice.energies).to(lattice.couplings.dtype), *lattice.couplings]
    driven = [f"drive_{site + 1}" for site in lattice.drive_sites]
    places: list[Sequence[int]] = [*([site] for site in range(lattice.sites)), *lattice.pairs]
    names = [*(f"energies_{site + 1}" for site in range(lattice.sites)), *pairs]

    def constant(
        names: Sequence[str], operators: Sequence[torch.Tensor], sites: Sequence[Sequence[int]]
    ) -> dict[str, Any]:
        each = zip(names, operators, sites, strict=True)
        return {name: embedded(one.detach().cpu().numpy(), at, every) for name, one, at in each}

    terms = constant(names, drift, places)
    controls = constant(driven, list(lattice.drives), [[site] for site in lattice.drive_sites])
    made = System(terms, dict.fromkeys(terms, 1.0), controls, levels=every)
    if not any(each.requires_grad for each in lattice.tensors):
        return made
    bases = [_levels(levels)] * lattice.sites + [hermitian_basis(levels**2)] * len(lattice.pairs)
    mixture = Mixture(
        _elements(levels, lattice.sites, lattice.pairs, lattice.drive_sites),
        _coefficients(drift, bases),
        _coefficients(list(lattice.drives), [hermitian_basis(levels)] * len(driven)),
        lattice.hamiltonian(),
        made,
    )
    return replace(made, mixture=mixture)


def _coefficients(operators: Sequence[torch.Tensor], bases: Sequence[Matrix]) -> torch.Tensor:
    """Coefficients of operators in orthonormal bases of Hermitian matrices, real (operators, elements of all bases).

    Each operator has its own columns.
    """
    found = []
    for operator, basis in zip(operators, bases, strict=True):
        elements = torch.from_numpy(basis).to(operator)
        found.append(torch.einsum("kab,ba->k", elements, operator).real[None])
    return torch.block_diag(*found) if found else torch.zeros(0, 0, dtype=torch.float64)


def _levels(count: int) -> Matrix:
    """The projectors on each level, (count, count, count)."""
    made: Matrix = np.array([np.diag(row) for row in np.eye(count)], dtype=complex)
    return made


@lru_cache(maxsize=16)
def _elements(levels: int, sites: int, pairs: tuple[Pair, ...], driven: tuple[int, ...]) -> System:
    """The operators of which those of all devices of a shape are made."""
    every = (levels,) * sites
    one, two = hermitian_basis(levels), hermitian_basis(levels**2)

    def named(bases: Sequence[tuple[Sequence[int], Matrix]]) -> dict[str, Any]:
        return {
            f"{place}_{number}": embedded(element, at, every)
            for place, (at, basis) in enumerate(bases)
            for number, element in enumerate(basis)
        }

    drift = named([*(([site], _levels(levels)) for site in range(sites)), *((pair, two) for pair in pairs)])
    return System(drift, dict.fromkeys(drift, 1.0), named([([site], one) for site in driven]), levels=every)


def _coupling(pair: Pair) -> str:
    is_pair = isinstance(pair, Sequence) and len(pair) == 2
    if not (is_pair and all(isinstance(site, (int, np.integer)) for site in pair)):
        raise UserError(f"couplings: {pair} is no pair of sites; give pairs, as in driven=[(0, 1)]")
    return f"coupling_{pair[0] + 1}_{pair[1] + 1}"


def _check_new(name: str, terms: Mapping[str, Any]) -> None:
    if name in terms:
        raise UserError(
            f"couplings: there are two terms {name}; name the pair once, or rename the site's own term"
        )


def _exchange(pair: Pair, levels: Sequence[int]) -> Matrix:
    """a^+ b + a b^+ on a pair of sites."""
    if not set(pair) <= set(range(len(levels))):
        raise UserError(f"couplings: {pair} are not two sites from 0 to {len(levels) - 1}")
    first, second = (np.diag(np.sqrt(np.arange(1, levels[site])), 1) for site in pair)
    made: Matrix = (np.kron(first.T, second) + np.kron(first, second.T)).astype(complex)
    return made
