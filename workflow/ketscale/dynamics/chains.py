"""Systems of several sites: from systems of one site and their couplings, or from the circuits of a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.dynamics.basis import Matrix, nonzero
from ketscale.engines.dynamics.system import System
from ketscale.errors import UserError

if TYPE_CHECKING:
    from ketscale.engines.pulses import Device

Pair = tuple[int, int]

# Operators on more states are sparse.
MOST_DENSE = 512


def embedded(operator: Any, sites: Sequence[int], levels: Sequence[int]) -> Any:
    """An operator on some sites, the first of them its slowest index, as a matrix on all sites, complex (d, d).

    operator: an array or a sparse array. sites: numbers from 0. levels: of each site; d is their product. Above 512 the matrix is a sparse array of SciPy's.

    Raises:
        UserError: a site does not exist or is named twice, or the operator has another size.

    Example:
        >>> embedded([[0, 1], [1, 0]], [1], (2, 2)).real.astype(int)[0]
        array([0, 1, 0, 0])
    """
    given = operator if hasattr(operator, "tocsr") else np.asarray(operator, dtype=complex)
    if len(set(sites)) != len(sites) or not set(sites) <= set(range(len(levels))):
        raise UserError(f"sites: {list(sites)} are not different sites from 0 to {len(levels) - 1}")
    size = prod(levels[site] for site in sites)
    if given.shape != (size, size):
        raise UserError(
            f"operator: on sites {list(sites)} it must be {size} x {size}, not of shape {given.shape}"
        )
    others = [site for site in range(len(levels)) if site not in sites]
    own, rest = _places(sites, levels), _places(others, levels)
    first, second, entries = nonzero(given)
    rows, columns = ((own[each][:, None] + rest).ravel() for each in (first, second))
    values = entries.repeat(len(rest))
    d = prod(levels)
    if d > MOST_DENSE:
        from scipy.sparse import csr_array

        return csr_array((values, (rows, columns)), (d, d))
    made = np.zeros((d, d), dtype=complex)
    made[rows, columns] = values
    return made


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
        for kind, made in pieces.items():
            for name, operator in getattr(site, kind).items():
                made[f"{name}_{number}"] = embedded(operator, range(first, end), levels)
        parameters |= {f"{name}_{number}": value for name, value in site.parameters.items()}
        rates |= {f"{name}_{number}": site.rates.get(name, 0.0) for name in site.jumps}
    for pair, strength in (couplings or {}).items():
        if getattr(strength, "requires_grad", False):
            raise UserError(f"couplings: that of {pair} has a gradient; give its parameter to evolve")
        name, exchanges = _coupling(pair), np.ndim(strength) == 0
        if exchanges and (isinstance(strength, str) or not np.isreal(strength)):
            raise UserError(f"couplings: {strength} of {pair} is not real; give the pair's Hermitian matrix")
        operator = _exchange(pair, levels) if exchanges else strength
        _check_new(name, pieces["drift"])
        pieces["drift"][name] = embedded(operator, pair, levels)
        parameters[name] = float(strength) if exchanges else 1.0
    for pair in driven:
        name = _coupling(pair)
        operator = driven[pair] if isinstance(driven, Mapping) else _exchange(pair, levels)
        _check_new(name, pieces["controls"])
        pieces["controls"][name] = embedded(operator, pair, levels)
    return System(
        **pieces,
        parameters=parameters,
        rates=rates if any(site.rates for site in sites) else {},
        levels=levels,
    )


def from_device(device: Device, levels: int, drive_sites: Sequence[int] | None = None) -> System:
    """The lowest levels of a device's circuits, in the laboratory frame; angular frequencies in rad/ns, times in ns.

    Each site's energies are the term energies_i, and each coupling is coupling_i_j, with parameters 1. A control drive_i
    acts on the phase of a fluxonium, and on the charge of a transmon, of site i (from 1).

    levels: of each site, from 2. drive_sites: those that are driven (from 0); None: all.

    Raises:
        UserError: see `Device.lattice`; or the device has gradients, which only `engines.pulses` follows.

    Example:
        >>> from ketscale import dynamics as kd
        >>> from_device(kd.fluxonium_chain(2), levels=3).dimension
        9
    """
    if drive_sites is not None and len(set(drive_sites)) != len(drive_sites):
        raise UserError(f"drive_sites: {list(drive_sites)} has a site twice; leave it out once")
    lattice = device.lattice(levels, drive_sites)
    every = (levels,) * lattice.sites
    drift = {
        f"energies_{site + 1}": embedded(_numpy(torch.diag(each)), [site], every)
        for site, each in enumerate(lattice.energies)
    }
    for pair, coupling in zip(lattice.pairs, lattice.couplings, strict=True):
        drift[_coupling(pair)] = embedded(_numpy(coupling), pair, every)
    drives = {
        f"drive_{site + 1}": embedded(_numpy(drive), [site], every)
        for site, drive in zip(lattice.drive_sites, lattice.drives, strict=True)
    }
    return System(drift, dict.fromkeys(drift, 1.0), drives, levels=every)


def _places(sites: Sequence[int], levels: Sequence[int]) -> NDArray[np.int64]:
    """The places of some sites' states among those of all, the others in level 0; the first site is the slowest."""
    made = np.zeros(1, dtype=np.int64)
    for site in sites:
        made = (made[:, None] + np.arange(levels[site]) * prod(levels[site + 1 :])).ravel()
    return made


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


def _numpy(tensor: torch.Tensor) -> Matrix:
    if tensor.requires_grad:
        raise UserError(
            "device: has gradients, which operators cannot have; detach it, or use ketscale.engines.pulses"
        )
    made: Matrix = tensor.cpu().numpy()
    return made
