"""Systems of several sites, from systems of one site and their couplings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ketscale.engines.dynamics.basis import Matrix
from ketscale.engines.dynamics.system import System
from ketscale.engines.operators import Term
from ketscale.errors import UserError

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
        site's level, a sqrt(n)|n - 1><n|; or a Hermitian matrix of the pair's states, as in `Term`. Its parameter is called
        coupling_i_j and is g, or 1.
    driven: couplings that are controls, called coupling_i_j too: pairs with that exchange, or matrices by pair.

    Raises:
        UserError: a coupling does not fit its pair, or has the name of another term; see `System`.

    Example:
        >>> from ketscale import dynamics as kd
        >>> system = chain([kd.transmon(levels=3), kd.transmon(0.5, levels=3)], {(0, 1): 0.02})
        >>> list(system.parameters)
        ['detuning_1', 'anharmonicity_1', 'detuning_2', 'anharmonicity_2', 'coupling_1_2']
    """
    levels = tuple(level for site in sites for level in site.levels)
    starts = np.cumsum([0, *(len(site.levels) for site in sites)]).tolist()
    pieces: dict[str, dict[str, Any]] = {kind: {} for kind in ("drift", "controls", "jumps")}
    parameters: dict[str, float] = {}
    rates: dict[str, float] = {}
    for number, (site, first) in enumerate(zip(sites, starts, strict=False), start=1):
        for kind, terms in pieces.items():
            for name, term in site.terms(kind).items():
                terms[f"{name}_{number}"] = Term([first + each for each in term.sites], term.operator)
        parameters |= {f"{name}_{number}": value for name, value in site.parameters.items()}
        rates |= {f"{name}_{number}": site.rates.get(name, 0.0) for name in site.jumps}
    for pair, strength in (couplings or {}).items():
        name = _coupling(pair)
        exchanges = np.ndim(strength) == 0
        operator = _exchange(pair, levels) if exchanges else strength
        _check_new(name, pieces["drift"])
        pieces["drift"][name] = Term(pair, operator)
        parameters[name] = strength if exchanges else 1.0
    for pair in driven:
        name = _coupling(pair)
        operator = driven[pair] if isinstance(driven, Mapping) else _exchange(pair, levels)
        _check_new(name, pieces["controls"])
        pieces["controls"][name] = Term(pair, operator)
    shared_rates = rates if any(site.rates for site in sites) else {}
    drift, controls, jumps = pieces.values()
    return System(drift, parameters, controls, jumps, rates=shared_rates, levels=levels)


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
    matrix: Matrix = (np.kron(first.T, second) + np.kron(first, second.T)).astype(complex)
    return matrix
