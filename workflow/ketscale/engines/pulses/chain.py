"""Systems as splittings read them: sites of as many levels each, and the operators on one and two of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import NamedTuple

import torch

from ketscale.engines.dynamics.system import System
from ketscale.engines.operators import Term, Terms, placed
from ketscale.errors import UserError


class Chain(NamedTuple):
    """H = sum_i undriven[i] + sum_p couplings[p] + sum_k f_k drives[k] + sum_l g_l pair_drives[l], each on its sites.

    levels, sites: d and n. pairs: the sites of each coupling. drive_sites: the site of each drive. driven_pairs: for each
    coupling that is driven, the number of its pair. order: the number of the system's control for each f_k, then for each g_l.
    All operators are complex and Hermitian: undriven (n, d, d), couplings (pairs, d*d, d*d), drives (drives, d, d),
    pair_drives (driven pairs, d*d, d*d).
    """

    levels: int
    sites: int
    pairs: tuple[tuple[int, ...], ...]
    drive_sites: tuple[int, ...]
    driven_pairs: tuple[int, ...]
    order: tuple[int, ...]
    undriven: torch.Tensor
    couplings: torch.Tensor
    drives: torch.Tensor
    pair_drives: torch.Tensor

    @classmethod
    def of(cls, system: System, device: torch.device, parameters: torch.Tensor | None = None) -> Chain:
        """The chain on a device, differentiable in the operators and the parameters (terms,); None: the usual ones.

        Raises:
            UserError: the sites have different numbers of levels, or a term acts on more than two.
        """
        if len(set(system.levels)) > 1:
            raise UserError(
                f"method: a splitting takes sites of the same number of levels, not {system.levels}; use exact, or for carriers whole-space"
            )
        drift, controls = (
            [_tensor(name, term, system, device) for name, term in system.terms(kind).items()]
            for kind in ("drift", "controls")
        )
        factors = list(system.parameters.values()) if parameters is None else parameters
        levels, count = system.levels[0], len(system.levels)
        driven = [[number for number, each in enumerate(controls) if len(each.sites) == n] for n in (1, 2)]

        def stacked(operators: Sequence[torch.Tensor], size: int) -> torch.Tensor:
            none = torch.zeros(0, size, size, dtype=torch.complex128, device=device)
            return torch.stack(list(operators)) if operators else none

        # Terms on the same sites are added up; the couplings that are driven come first.
        sums = {controls[number].sites: torch.zeros_like(controls[number].operator) for number in driven[1]}
        for factor, (sites, operator) in zip(factors, drift, strict=True):
            # A device's parameters are 1, and so many products would take longer than the rest.
            own = operator if parameters is None and factor == 1 else factor * operator
            sums[sites] = sums[sites] + own if sites in sums else own
        pairs = [sites for sites in sums if len(sites) == 2]
        nothing = torch.zeros(levels, levels, dtype=torch.complex128, device=device)
        return cls(
            levels,
            count,
            tuple(map(tuple, pairs)),
            tuple(controls[number].sites[0] for number in driven[0]),
            tuple(pairs.index(controls[number].sites) for number in driven[1]),
            (*driven[0], *driven[1]),
            torch.stack([sums.get((site,), nothing) for site in range(count)]),
            stacked([sums[sites] for sites in pairs], levels**2),
            stacked([controls[number].operator for number in driven[0]], levels),
            stacked([controls[number].operator for number in driven[1]], levels**2),
        )

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """All operators."""
        return self.undriven, self.couplings, self.drives, self.pair_drives

    def with_tensors(self, *tensors: torch.Tensor) -> Chain:
        """The same with other `tensors` of the same shapes."""
        return Chain._make((*self[:-4], *tensors))

    @property
    def dimension(self) -> int:
        """Number of product states, d**n."""
        return self.levels**self.sites


def with_operators(system: System, operators: Iterable[torch.Tensor]) -> System:
    """The system with other `operators` of drift and controls, of the same shapes, which are not checked again."""
    made = object.__new__(System)
    vars(made).update({each.name: getattr(system, each.name) for each in fields(system)})
    kinds = [
        (kind, name, term) for kind in ("drift", "controls") for name, term in system.terms(kind).items()
    ]
    own: dict[str, dict[str, Term]] = {"drift": {}, "controls": {}}
    for (kind, name, term), operator in zip(kinds, operators, strict=True):
        own[kind][name] = term._replace(operator=operator)
    vars(made).update({kind: Terms(terms, system.levels) for kind, terms in own.items()})
    return made


def device_of(system: System) -> torch.device:
    """The device of the first operator that is a tensor; the CPU if there is none."""
    tensors = (each.device for each in system.operators if isinstance(each, torch.Tensor))
    return next(tensors, torch.device("cpu"))


def _tensor(name: str, term: Term, system: System, device: torch.device) -> Term:
    """A term on the fewest sites, with a matrix that is a tensor."""
    sites, operator = placed(term, system.levels)
    if len(sites) > 2:
        raise UserError(
            f"method: a splitting takes terms of one or two sites, and {name} acts on {len(sites)}; use exact, or for carriers whole-space"
        )
    operator = Term(sites, operator).matrix
    if not isinstance(operator, torch.Tensor):
        operator = torch.tensor(operator.toarray() if hasattr(operator, "toarray") else operator)
    return Term(tuple(sites), operator.to(device, torch.complex128))
