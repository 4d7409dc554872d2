"""Systems as splittings read them: sites of as many levels each, and the operators on one and two of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import torch

from ketscale.engines.dynamics.system import System
from ketscale.engines.operators import Term, Terms
from ketscale.errors import UserError


class Chain(NamedTuple):
    """H = sum_i undriven[i] + sum_p couplings[p] + sum_k f_k drives[k], each on its sites.

    levels, sites: d and n. pairs: the sites of each coupling. drive_sites: the site of each drive, in the order of the
    system's controls. All operators are complex and Hermitian: undriven (n, d, d), couplings (pairs, d*d, d*d), drives
    (drives, d, d).
    """

    levels: int
    sites: int
    pairs: tuple[tuple[int, ...], ...]
    drive_sites: tuple[int, ...]
    undriven: torch.Tensor
    couplings: torch.Tensor
    drives: torch.Tensor

    @classmethod
    def of(cls, system: System, device: torch.device, parameters: torch.Tensor | None = None) -> Chain:
        """The chain on a device, differentiable in the operators and the parameters (terms,); None: the usual ones.

        Raises:
            UserError: the sites have different numbers of levels, a term acts on more than two, or a control on more than one.
        """
        if len(set(system.levels)) > 1:
            raise UserError(
                f"method: a splitting needs sites with equal levels, not {system.levels}; use exact or whole-space"
            )
        drift, controls = (
            [_tensor(name, term, system, device) for name, term in system.terms(kind).items()]
            for kind in ("drift", "controls")
        )
        factors = list(system.parameters.values()) if parameters is None else parameters
        levels, count = system.levels[0], len(system.levels)

        def stacked(operators: Sequence[torch.Tensor], size: int) -> torch.Tensor:
            none = torch.zeros(0, size, size, dtype=torch.complex128, device=device)
            return torch.stack(list(operators)) if operators else none

        for name, term in zip(system.controls, controls, strict=True):
            if len(term.sites) > 1:
                raise UserError(
                    f"method: a splitting needs controls of one site, not two as {name}; give kd.Term([site], matrix) if it acts "
                    "on one, or use exact, or for carriers whole-space"
                )
        # Terms on the same sites are added up.
        sums: dict[Any, torch.Tensor] = {}
        for factor, (sites, operator) in zip(factors, drift, strict=True):
            # A device's parameters are 1, and so many products would take longer than the rest.
            own = operator if parameters is None and factor == 1 else factor * operator
            sums[sites] = sums[sites] + own if sites in sums else own
        pairs = [sites for sites in sums if len(sites) == 2]
        zero = torch.zeros(levels, levels, dtype=torch.complex128, device=device)
        return cls(
            levels,
            count,
            tuple(map(tuple, pairs)),
            tuple(control.sites[0] for control in controls),
            torch.stack([sums.get((site,), zero) for site in range(count)]),
            stacked([sums[sites] for sites in pairs], levels**2),
            stacked([control.operator for control in controls], levels),
        )

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """All operators."""
        return self.undriven, self.couplings, self.drives

    def with_tensors(self, *tensors: torch.Tensor) -> Chain:
        """The same with other `tensors` of the same shapes."""
        return Chain._make((*self[:-3], *tensors))

    @property
    def dimension(self) -> int:
        """Number of product states, d**n."""
        return self.levels**self.sites


def with_operators(system: System, operators: Iterable[torch.Tensor]) -> System:
    """The system with other `operators` of drift and controls, of the same shapes, which are not checked again."""
    system_copy = object.__new__(System)
    vars(system_copy).update({each.name: getattr(system, each.name) for each in fields(system)})
    kinds = [
        (kind, name, term) for kind in ("drift", "controls") for name, term in system.terms(kind).items()
    ]
    own: dict[str, dict[str, Term]] = {"drift": {}, "controls": {}}
    for (kind, name, term), operator in zip(kinds, operators, strict=True):
        own[kind][name] = term._replace(operator=operator)
    vars(system_copy).update({kind: Terms(terms, system.levels) for kind, terms in own.items()})
    return system_copy


def device_of(system: System) -> torch.device:
    """The device of the first operator that is a tensor; the CPU if there is none."""
    tensors = (each.device for each in system.operators if isinstance(each, torch.Tensor))
    return next(tensors, torch.device("cpu"))


def _tensor(name: str, term: Term, system: System, device: torch.device) -> Term:
    """A term with a matrix that is a tensor."""
    if len(term.sites) > 2:
        raise UserError(
            f"method: a splitting needs terms of one or two sites, not {len(term.sites)} as {name}; give kd.Term on the "
            "sites that it acts on, or use exact, or for carriers whole-space"
        )
    operator = term.matrix
    if not isinstance(operator, torch.Tensor):
        operator = torch.tensor(operator.toarray() if hasattr(operator, "toarray") else operator)
    return Term(tuple(term.sites), operator.to(device, torch.complex128))
