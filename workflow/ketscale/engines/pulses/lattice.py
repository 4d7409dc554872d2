"""Systems as integrators read them: coupled sites of a few levels each, and the operators that pulses drive."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch

from ketscale.engines.dynamics.system import System
from ketscale.engines.operators import (
    Term,
    check_hermitian,
    check_pairs,
    computational_places,
    embedded,
    nonzero,
    placed,
)
from ketscale.errors import UserError
from ketscale.private_torch import is_differentiated, is_mapped


@dataclass(frozen=True, eq=False)
class Lattice:
    """H(t) = sum_i energies[i] + sum_p couplings[p] + sum_k f_k(t) drives[k] + sum_l g_l(t) pair_drives[l].

    Each acts on its sites. `Device.lattice` makes it, of a `System`.

    Angular frequencies in rad/ns, times in ns, and hbar is 1. The f_k and g_l are real. All tensors are in fp64 and may have
    gradients. In the product basis the first site is the slowest index (leftmost in a Kronecker product), and so is
    the first site of a pair.

    levels: number d of levels, the same on each site. sites: their number n.
    energies: real (n, d), the diagonal Hamiltonian of each site by itself.
    pairs: sites (i, j) that are coupled. couplings: complex Hermitian (pairs, d*d, d*d).
    drive_sites: the site of each drive. drives: complex Hermitian (drives, d, d).
    driven_pairs: for each coupling that is driven, the number of its pair; None, or pair_drives: complex Hermitian
        (driven pairs, d*d, d*d). Amplitudes have columns for the drives, and then for these.

    Raises:
        UserError: the shapes do not fit one another, a site does not exist, or an operator is not Hermitian.
    """

    levels: int
    sites: int
    energies: torch.Tensor
    pairs: tuple[tuple[int, int], ...]
    couplings: torch.Tensor
    drive_sites: tuple[int, ...]
    drives: torch.Tensor
    driven_pairs: tuple[int, ...] = ()
    pair_drives: torch.Tensor | None = None

    def __post_init__(self) -> None:
        d = self.levels
        wanted = {
            "energies": (self.sites, d),
            "couplings": (len(self.pairs), d * d, d * d),
            "drives": (len(self.drive_sites), d, d),
            "pair_drives": (len(self.driven_pairs), d * d, d * d),
        }
        if self.pair_drives is None and not self.driven_pairs:
            del wanted["pair_drives"]
        for name, shape in wanted.items():
            found = tuple(getattr(getattr(self, name), "shape", ()))
            if found != shape:
                raise UserError(f"{name}: must be of shape {shape}, not {found}")
        for name in list(wanted)[1:]:
            given = getattr(self, name).detach()
            # What is not a number passes: if a trained device diverges, its results say so.
            if not is_mapped(given) and given.isfinite().all():
                check_hermitian(name, given, instead="; instead of an operator a, give a + a^+")
        check_pairs(self.pairs, self.sites)
        for name, count in (("drive_sites", self.sites), ("driven_pairs", len(self.pairs))):
            if not set(getattr(self, name)) <= set(range(count)):
                raise UserError(f"{name}: are numbers from 0 to {count - 1}, not {getattr(self, name)}")

    @property
    def dimension(self) -> int:
        """Number of product states, d**n."""
        return self.levels**self.sites

    @property
    def computational(self) -> torch.Tensor:
        """The places of the 2**n product states of levels 0 and 1 in the product basis, int64 in their usual order."""
        return torch.from_numpy(computational_places(self._every)).to(self.energies.device)

    @property
    def _every(self) -> tuple[int, ...]:
        return (self.levels,) * self.sites

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Energies, couplings, drives and, if there are any, those of couplings."""
        own = (self.energies, self.couplings, self.drives)
        return own if self.pair_drives is None else (*own, self.pair_drives)

    @property
    def controls(self) -> int:
        """Number of amplitudes, those of drives and those of driven couplings."""
        return len(self.drive_sites) + len(self.driven_pairs)

    def with_tensors(self, *tensors: torch.Tensor) -> Lattice:
        """The same with other `tensors` of the same shapes, which are not checked again."""
        made = copy(self)
        names = ("energies", "couplings", "drives", "pair_drives")[: len(tensors)]
        vars(made).update(zip(names, tensors, strict=True))
        return made

    def to(self, device: torch.device | str) -> Lattice:
        """The same with its tensors on a device, differentiable in the given ones."""
        return self.with_tensors(*(tensor.to(device) for tensor in self.tensors))

    def embedded(self, operator: torch.Tensor, sites: tuple[int, ...]) -> torch.Tensor:
        """An operator on these sites as a matrix of the product basis; see `operators.embedded`."""
        made: torch.Tensor = embedded(operator, sites, self._every)
        return made

    def system(self) -> System:
        """The same as a system, with parameters 1."""
        drift = {f"energies_{site}": Term((site,), each) for site, each in enumerate(self.energies)}
        drift |= {
            f"coupling_{number}": Term(*each)
            for number, each in enumerate(zip(self.pairs, self.couplings, strict=True))
        }
        places = [*((site,) for site in self.drive_sites), *(self.pairs[pair] for pair in self.driven_pairs)]
        driven = zip(
            places, [*self.drives, *(() if self.pair_drives is None else self.pair_drives)], strict=True
        )
        controls = {f"drive_{number}": Term(*each) for number, each in enumerate(driven)}
        return System(drift, dict.fromkeys(drift, 1.0), controls, levels=self._every)

    def hamiltonian(self) -> torch.Tensor:
        """H without drives as a matrix of the product basis, complex (d**n, d**n)."""
        total = self.couplings.new_zeros(self.dimension, self.dimension)
        for site, energies in enumerate(self.energies):
            total = total + self.embedded(torch.diag(energies).to(total.dtype), (site,))
        for pair, coupling in zip(self.pairs, self.couplings, strict=True):
            total = total + self.embedded(coupling, pair)
        return total


class Chain:
    """Makes a lattice of a system: local drift terms that are diagonal are its energies, others drives that are always on.

    said: what needs it, for errors.

    Raises:
        UserError: the sites have different numbers of levels, or a term acts on more than two.
    """

    def __init__(self, system: System, said: str = "a lattice") -> None:
        self._system = system
        if len(set(system.levels)) > 1:
            raise UserError(
                f"{said} takes sites of the same number of levels, not {system.levels}; use exact"
            )
        drift, controls = (
            {name: placed(term, system.levels) for name, term in system.terms(kind).items()}
            for kind in ("drift", "controls")
        )
        for name, (sites, _) in (*drift.items(), *controls.items()):
            if len(sites) > 2:
                raise UserError(
                    f"{said} takes terms of one or two sites, and {name} acts on {len(sites)}; use exact"
                )
        # Numbers of controls in the order of the lattice's drives: sites, and then pairs.
        self._driven = [
            [place for place, each in enumerate(controls.values()) if len(each.sites) == n] for n in (1, 2)
        ]
        self._on = [
            place
            for place, each in enumerate(drift.values())
            if len(each.sites) == 1 and not _is_diagonal(each)
        ]
        terms, driven = [[_tensor(each) for each in kind.values()] for kind in (drift, controls)]
        self._undriven = {place: each for place, each in enumerate(terms) if place not in self._on}
        self._drives = [driven[place] for place in self._driven[0]] + [terms[place] for place in self._on]
        self._pair_drives = [driven[place] for place in self._driven[1]]

    def lattice(self, parameters: torch.Tensor | None = None) -> Lattice:
        """The lattice at these parameters (terms,), on their device and differentiable in them; None: at the usual ones.

        Drift terms that are always on are drives, and so not in the lattice's Hamiltonian.
        """
        levels, count = self._system.levels[0], len(self._system.levels)
        factors: Any = list(self._system.parameters.values()) if parameters is None else parameters
        own = [parameters] if parameters is not None else [term.operator for term in self._undriven.values()]
        device = own[0].device if own else torch.device("cpu")

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(
                shape, dtype=torch.float64 if len(shape) == 1 else torch.complex128, device=device
            )

        def stacked(operators: Sequence[torch.Tensor], size: int) -> torch.Tensor:
            return torch.stack([each.to(device) for each in operators]) if operators else zeros(0, size, size)

        # Terms on the same sites are added up; the couplings that are driven come first.
        sums: dict[Any, torch.Tensor] = {
            term.sites: zeros(levels**2, levels**2) for term in self._pair_drives
        }
        for place, term in self._undriven.items():
            sites, made = term.sites, term.matrix if len(term.sites) == 2 else _energies(term)
            # A device's parameters are 1, and so many products would take longer than the rest.
            if parameters is not None or factors[place] != 1:
                made = factors[place] * made.to(device)
            sums[sites] = sums[sites] + made if sites in sums else made
        pairs = {sites: each for sites, each in sums.items() if len(sites) == 2}
        return Lattice(
            levels,
            count,
            torch.stack([sums.get((site,), zeros(levels)) for site in range(count)]),
            tuple(pairs),
            stacked(list(pairs.values()), levels**2),
            tuple(term.sites[0] for term in self._drives),
            stacked([term.matrix for term in self._drives], levels),
            tuple(list(pairs).index(term.sites) for term in self._pair_drives),
            stacked([term.matrix for term in self._pair_drives], levels**2) if self._pair_drives else None,
        )

    def amplitudes(self, controls: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
        """The amplitudes of the lattice's drives, (tasks, segments, drives)."""
        always = parameters[:, None, self._on].expand(-1, controls.shape[1], -1)
        return torch.cat([controls[..., self._driven[0]], always, controls[..., self._driven[1]]], 2)


def _is_diagonal(term: Term) -> bool:
    """Whether it is; a matrix with gradients may become another."""
    if term.is_diagonal or is_differentiated(term.operator):
        return term.is_diagonal
    operator = term.operator.numpy(force=True) if isinstance(term.operator, torch.Tensor) else term.operator
    rows, columns, _ = nonzero(operator)
    return bool((rows == columns).all())


def _energies(term: Term) -> torch.Tensor:
    """The diagonal of a diagonal term."""
    made: torch.Tensor = (term.operator if term.is_diagonal else term.operator.diagonal()).real
    return made


def _tensor(term: Term) -> Term:
    """The term with a tensor."""
    operator = term.operator
    if not isinstance(operator, torch.Tensor):
        operator = torch.tensor(operator.toarray() if hasattr(operator, "toarray") else operator)
    return Term(tuple(term.sites), operator)
