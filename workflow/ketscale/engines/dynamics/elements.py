"""Systems whose operators have gradients as one of constant elements: its coefficients have the gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from ketscale.engines.dynamics.basis import hermitian_basis
from ketscale.engines.dynamics.system import KINDS, System
from ketscale.engines.dynamics.tasks import Tasks, default_parameters
from ketscale.engines.operators import MOST_DENSE, Term, states_of
from ketscale.errors import UserError
from ketscale.private_torch import is_differentiated

# The most states of a term with gradients: its elements are as many as their square.
MOST = 64


class _Place(NamedTuple):
    """A term's sites, whether it is diagonal, and its numbers in bytes unless they have gradients."""

    sites: tuple[int, ...]
    is_diagonal: bool
    numbers: bytes | None


def by_elements(system: System, tasks: Tasks) -> tuple[System, Tasks]:
    """A system and its tasks as kernels take them, whose operators are constant: its tasks' coefficients are of elements.

    Raises:
        UserError: an operator with gradients is on more than 64 states, or another operator is on more than 512.
    """
    if not system.differentiated:
        return system, tasks
    drift, controls, jumps = (
        tuple(_place(name, term, system.levels) for name, term in system.terms(kind).items())
        for kind in KINDS
    )
    to_drift, to_controls = (
        _coefficients(system.terms(kind).values(), places, tasks.controls)
        for kind, places in (("drift", drift), ("controls", controls))
    )
    parameters = default_parameters(system, tasks.controls) if tasks.parameters is None else tasks.parameters
    terms = _elements(system.levels, drift, controls, jumps)
    return terms, tasks._replace(parameters=parameters @ to_drift, controls=tasks.controls @ to_controls)


def _place(name: str, term: Term, levels: tuple[int, ...]) -> _Place:
    size, numbers = states_of(term.sites, levels), None
    if is_differentiated(term.operator):
        if size > MOST and not term.is_diagonal:
            raise UserError(
                f"system: an operator with gradients may be on {MOST} states, and {name} is on {size}; give terms on the sites that "
                "they act on (kd.Term), or parameters with gradients"
            )
    elif size > MOST_DENSE:
        raise UserError(
            f"system: beside operators with gradients others may be on {MOST_DENSE} states, and {name} is on {size}; give terms on "
            "the sites that they act on (kd.Term)"
        )
    else:
        numbers = _array(term.operator).astype(complex).tobytes()
    return _Place(tuple(term.sites), term.is_diagonal, numbers)


def _array(operator: Any) -> Any:
    if isinstance(operator, torch.Tensor):
        return operator.numpy(force=True)
    return operator.toarray() if hasattr(operator, "toarray") else operator


def _coefficients(terms: Iterable[Term], places: Iterable[_Place], like: torch.Tensor) -> torch.Tensor:
    """The coefficients of the elements of each term, real (terms, elements of all terms); each term has its own columns."""
    blocks = []
    for term, place in zip(terms, places, strict=True):
        operator = torch.ones(1) if place.numbers is not None else term.operator
        if place.numbers is None and not term.is_diagonal:
            basis = torch.from_numpy(hermitian_basis(operator.shape[-1])).to(operator)
            operator = torch.einsum("kab,ba->k", basis, operator)
        blocks.append((operator.real if operator.is_complex() else operator)[None].to(like))
    return torch.block_diag(*blocks) if blocks else like.new_zeros(0, 0)


@lru_cache(maxsize=16)
def _elements(levels: tuple[int, ...], *kinds: tuple[_Place, ...]) -> System:
    """The elements of the terms in these places, of drift, controls and jumps.

    They are a constant term itself, otherwise projectors on levels of a diagonal one, and a `hermitian_basis` of others.
    """

    def named(places: tuple[_Place, ...]) -> Mapping[str, Term]:
        terms: dict[str, Term] = {}
        for number, (sites, is_diagonal, numbers) in enumerate(places):
            size = states_of(sites, levels)
            if numbers is not None:
                shape = (size,) if is_diagonal else (size, size)
                elements: Any = np.frombuffer(numbers, complex).reshape(1, *shape)
            else:
                elements = np.eye(size) if is_diagonal else hermitian_basis(size)
            terms |= {f"{number}_{each}": Term(sites, element) for each, element in enumerate(elements)}
        return terms

    drift, controls, jumps = map(named, kinds)
    return System(drift, dict.fromkeys(drift, 1.0), controls, jumps, levels=levels)
