"""Systems whose operators have gradients, as systems of constant elements: the coefficients of these have the gradients."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from ketscale.engines.dynamics.basis import hermitian_basis
from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.tasks import Tasks, usual_parameters
from ketscale.engines.operators import Term, is_followed, states_of
from ketscale.errors import UserError

# States of a term, whose elements are as many as its square.
MOST = 64

# The sites of a term, and whether it is diagonal.
Place = tuple[tuple[int, ...], bool]


def by_elements(system: System, tasks: Tasks) -> tuple[System, Tasks]:
    """A system and its tasks as kernels take them, whose operators are constant.

    Raises:
        UserError: operators have gradients, and one of the system's is on more than 64 states.
    """
    if not system.differentiated:
        return system, tasks
    kinds = [list(system.terms(kind).values()) for kind in ("drift", "controls")]
    for term in (term for terms in kinds for term in terms if not term.is_diagonal):
        size = states_of(term.sites, system.levels)
        if size > MOST:
            raise UserError(
                f"system: beside operators with gradients each may be on {MOST} states, and one is on {size}; give terms on the "
                "sites that they act on (kd.Term), or parameters with gradients"
            )
    places = (tuple((tuple(term.sites), term.is_diagonal) for term in terms) for terms in kinds)
    jumps = ((name, tuple(term.sites), _array(term.matrix)) for name, term in system.terms("jumps").items())
    elements = _elements(
        system.levels, *places, tuple((name, sites, each.tobytes()) for name, sites, each in jumps)
    )
    parameters = usual_parameters(system, tasks.controls) if tasks.parameters is None else tasks.parameters
    drift, controlled = (_coefficients(terms).to(tasks.controls) for terms in kinds)
    return elements, tasks._replace(parameters=parameters @ drift, controls=tasks.controls @ controlled)


def _coefficients(terms: Iterable[Term]) -> torch.Tensor:
    """Those of the elements of each term, real (terms, elements of all terms); each term has its own columns."""
    found = []
    for term in terms:
        operator = term.operator if is_followed(term.operator) else torch.tensor(_array(term.operator))
        if not term.is_diagonal:
            basis = torch.from_numpy(hermitian_basis(operator.shape[-1])).to(operator)
            operator = torch.einsum("kab,ba->k", basis, operator)
        found.append(operator.real[None] if operator.is_complex() else operator[None])
    return torch.block_diag(*found) if found else torch.zeros(0, 0, dtype=torch.float64)


def _array(operator: Any) -> Any:
    if isinstance(operator, torch.Tensor):
        return operator.numpy(force=True)
    return operator.toarray() if hasattr(operator, "toarray") else operator


@lru_cache(maxsize=16)
def _elements(
    levels: tuple[int, ...],
    drift: tuple[Place, ...],
    controls: tuple[Place, ...],
    jumps: tuple[tuple[str, tuple[int, ...], bytes], ...],
) -> System:
    """The elements of the terms in these places: projectors on levels of a diagonal one, otherwise `hermitian_basis`.

    jumps: names, sites and matrices, which stay as they are.
    """

    def named(places: tuple[Place, ...]) -> dict[str, Term]:
        return {
            f"{number}_{each}": Term(sites, element)
            for number, (sites, is_diagonal) in enumerate(places)
            for size in [states_of(sites, levels)]
            for each, element in enumerate(np.eye(size) if is_diagonal else hermitian_basis(size))
        }

    terms = named(drift)
    kept = {
        name: Term(sites, np.frombuffer(each, complex).reshape((states_of(sites, levels),) * 2))
        for name, sites, each in jumps
    }
    return System(terms, dict.fromkeys(terms, 1.0), named(controls), kept, levels=levels)
