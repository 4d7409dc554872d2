"""Systems whose operators have gradients, or that differ, as one of constant elements: their coefficients have the gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from ketscale.engines.dynamics.basis import hermitian_basis
from ketscale.engines.dynamics.system import KINDS, System
from ketscale.engines.dynamics.tasks import Tasks, usual_parameters
from ketscale.engines.operators import MOST_DENSE, Term, states_of
from ketscale.errors import UserError
from ketscale.private_torch import is_differentiated

# The most states of a term with gradients: its elements are as many as their square.
MOST = 64


class _Place(NamedTuple):
    """A term's sites, whether it is diagonal, and its numbers in bytes unless they differ or have gradients."""

    sites: tuple[int, ...]
    is_diagonal: bool
    numbers: bytes | None


def by_elements(system: System, tasks: Tasks) -> tuple[System, Tasks]:
    """A system and its tasks as kernels take them, whose operators are constant.

    Raises:
        UserError: as for `together`.
    """
    if not system.differentiated:
        return system, tasks
    parameters = usual_parameters(system, tasks.controls) if tasks.parameters is None else tasks.parameters
    made, to_drift, to_controls = together([system], tasks.controls)
    return made, tasks._replace(parameters=parameters @ to_drift[0], controls=tasks.controls @ to_controls[0])


def together(systems: Sequence[System], like: torch.Tensor) -> tuple[System, torch.Tensor, torch.Tensor]:
    """One system of constant elements, and the coefficients of each system's terms: of drift and controls.

    Coefficients are real (systems, terms, elements), of the precision and on the device of `like`.

    Raises:
        UserError: the systems, of the same levels and names, have other sites or jumps than the first; or an operator with
            gradients is on more than 64 states, or another beside it on more than 512.
    """
    first = systems[0]
    drift, controls, jumps = (
        tuple(
            _place(name, alike, first.levels)
            for name, alike in zip(
                first.terms(kind),
                zip(*(each.terms(kind).values() for each in systems), strict=True),
                strict=True,
            )
        )
        for kind in KINDS
    )
    if any(jump.numbers is None for jump in jumps):
        raise UserError(
            "jumps: differ between the systems of a list; give them the same, and rates of their own"
        )
    to_drift, to_controls = (
        torch.stack([_coefficients(each.terms(kind).values(), places, like) for each in systems])
        for kind, places in (("drift", drift), ("controls", controls))
    )
    return _elements(first.levels, drift, controls, jumps), to_drift, to_controls


def _place(name: str, alike: Sequence[Term], levels: tuple[int, ...]) -> _Place:
    """The place of terms of one name, each of another system."""
    first = alike[0]
    if len({tuple(each.sites) for each in alike}) > 1 or len({each.is_diagonal for each in alike}) > 1:
        raise UserError(f"{name}: is on other sites, or a diagonal, in some of the systems; give all alike")
    size, numbers = states_of(first.sites, levels), None
    if any(is_differentiated(each.operator) for each in alike) or not _are_equal(alike):
        if size > MOST and not first.is_diagonal:
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
        numbers = _array(first.operator).astype(complex).tobytes()
    return _Place(tuple(first.sites), first.is_diagonal, numbers)


def _are_equal(alike: Sequence[Term]) -> bool:
    first = alike[0].operator
    operators = (each.operator for each in alike)
    return all(each is first or np.array_equal(_array(each), _array(first)) for each in operators)


def _array(operator: Any) -> Any:
    if isinstance(operator, torch.Tensor):
        return operator.numpy(force=True)
    return operator.toarray() if hasattr(operator, "toarray") else operator


def _coefficients(terms: Iterable[Term], places: Iterable[_Place], like: torch.Tensor) -> torch.Tensor:
    """The coefficients of the elements of each term, real (terms, elements of all terms); each term has its own columns."""
    found = []
    for term, place in zip(terms, places, strict=True):
        operator = torch.ones(1) if place.numbers is not None else term.operator
        if not isinstance(operator, torch.Tensor):
            operator = torch.tensor(_array(operator))
        if place.numbers is None and not term.is_diagonal:
            basis = torch.from_numpy(hermitian_basis(operator.shape[-1])).to(operator)
            operator = torch.einsum("kab,ba->k", basis, operator)
        found.append((operator.real if operator.is_complex() else operator)[None].to(like))
    return torch.block_diag(*found) if found else like.new_zeros(0, 0)


@lru_cache(maxsize=16)
def _elements(levels: tuple[int, ...], *kinds: tuple[_Place, ...]) -> System:
    """The elements of the terms in these places, of drift, controls and jumps.

    They are a constant term itself, otherwise projectors on levels of a diagonal one, and a `hermitian_basis` of others.
    """

    def named(places: tuple[_Place, ...]) -> Mapping[str, Term]:
        made: dict[str, Term] = {}
        for number, (sites, is_diagonal, numbers) in enumerate(places):
            size = states_of(sites, levels)
            if numbers is not None:
                shape = (size,) if is_diagonal else (size, size)
                elements: Any = np.frombuffer(numbers, complex).reshape(1, *shape)
            else:
                elements = np.eye(size) if is_diagonal else hermitian_basis(size)
            made |= {f"{number}_{each}": Term(sites, element) for each, element in enumerate(elements)}
        return made

    drift, controls, jumps = map(named, kinds)
    return System(drift, dict.fromkeys(drift, 1.0), controls, jumps, levels=levels)
