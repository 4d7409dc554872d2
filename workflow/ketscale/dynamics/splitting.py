"""Closed chains by the integrators of `engines.pulses`, which never make a matrix of the whole system."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.dynamics.basis import Matrix
from ketscale.engines.dynamics.evolution import substeps
from ketscale.engines.dynamics.propagators import check_route, check_step
from ketscale.engines.dynamics.settings import Route
from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.tasks import Tasks, as_complex, check_tasks, check_values, usual_parameters
from ketscale.engines.operators import nonzero
from ketscale.engines.pulses.integrators import integrator
from ketscale.engines.pulses.lattice import Lattice
from ketscale.errors import UserError
from ketscale.private_torch import transforms_active

# What rounding leaves of an operator on the sites that it does not act on, relative to its largest entry.
ROUNDING = 1e-13


class Placed(NamedTuple):
    """An operator as a matrix on the sites that it acts on, the first the slowest index."""

    sites: tuple[int, ...]
    matrix: Matrix


def placed(operator: Any, levels: Sequence[int]) -> Placed:
    """The fewest sites that an operator on all sites acts on, at least one, and what it does there.

    operator: an array or a sparse array.
    """
    rows, columns, values = nonzero(operator)
    most = np.abs(values).max(initial=0)
    rows, columns, values = (each[np.abs(values) > ROUNDING * most] for each in (rows, columns, values))
    sites = list(range(len(levels)))
    for site in range(len(levels)):
        own, stride = levels[site], prod(levels[site + 1 :])
        level = rows // stride % own
        if len(sites) == 1 or len(rows) % own or (level != columns // stride % own).any():
            continue
        # It acts on this site only if what it does there depends on the site's level.
        first, second = rows - level * stride, columns - level * stride
        order = np.lexsort((level, second, first))
        first, second, found = (each[order].reshape(-1, own) for each in (first, second, values))
        alike = (first == first[:, :1]).all() and (second == second[:, :1]).all()
        if alike and np.abs(found - found[:, :1]).max(initial=0) <= ROUNDING * most:
            sites.remove(site)
            rows, columns, values = first[:, 0], second[:, 0], found[:, 0]
    made = np.zeros((prod(levels[site] for site in sites),) * 2, dtype=complex)
    made[_within(rows, sites, levels), _within(columns, sites, levels)] = values
    return Placed(tuple(sites), made)


def _within(states: NDArray[np.int64], sites: Sequence[int], levels: Sequence[int]) -> NDArray[np.int64]:
    """The numbers of states of all sites among those of some."""
    made = np.zeros_like(states)
    for site in sites:
        made = made * levels[site] + states // prod(levels[site + 1 :]) % levels[site]
    return made


class Chain:
    """A system as a lattice: local drift terms that are diagonal are its energies, others drives that are always on.

    Raises:
        UserError: the sites have different numbers of levels, or a term acts on more than two.
    """

    def __init__(self, system: System, method: str) -> None:
        if len(set(system.levels)) > 1:
            raise UserError(
                f"method: {method} takes sites of the same number of levels, not {system.levels}; use exact"
            )
        self.system = system
        self.drift = {name: placed(term, system.levels) for name, term in system.drift.items()}
        controls = {name: placed(term, system.levels) for name, term in system.controls.items()}
        for name, (sites, _) in {**self.drift, **controls}.items():
            if len(sites) > 2:
                raise UserError(
                    f"method: {method} takes terms of one or two sites, and {name} acts on {len(sites)}; use exact"
                )
        # Numbers of controls in the order of the lattice's drives: sites, and then pairs.
        self.driven = [
            [place for place, each in enumerate(controls.values()) if len(each.sites) == n] for n in (1, 2)
        ]
        self.site_drives, self.pair_drives = (
            [list(controls.values())[place] for place in places] for places in self.driven
        )
        self.on = [
            place
            for place, (sites, matrix) in enumerate(self.drift.values())
            if len(sites) == 1 and np.count_nonzero(matrix - np.diag(np.diag(matrix)))
        ]
        self.site_drives += [list(self.drift.values())[place] for place in self.on]

    def lattice(self, parameters: torch.Tensor) -> Lattice:
        """The lattice at these parameters (terms,), differentiable in them."""
        levels, count = self.system.levels[0], len(self.system.levels)
        energies = parameters.new_zeros(count, levels)
        none = as_complex(np.zeros((levels**2, levels**2)), parameters)
        pairs = {sites: none for sites, _ in self.pair_drives}
        for place, (sites, matrix) in enumerate(self.drift.values()):
            if len(sites) == 2:
                pairs[sites] = pairs.get(sites, none) + parameters[place] * as_complex(matrix, parameters)
            elif place not in self.on:
                levelled = parameters[place] * as_complex(np.diag(matrix), parameters).real
                energies = energies.index_add(0, torch.tensor(sites, device=energies.device), levelled[None])
        locally, jointly = (
            as_complex(np.array([each.matrix for each in drives]).reshape(-1, size, size), parameters)
            for drives, size in ((self.site_drives, levels), (self.pair_drives, levels**2))
        )
        return Lattice(
            levels,
            count,
            energies,
            tuple((first, second) for first, second in pairs),
            torch.stack(list(pairs.values())) if pairs else none[None][:0],
            tuple(each.sites[0] for each in self.site_drives),
            locally,
            tuple(list(pairs).index(each.sites) for each in self.pair_drives),
            jointly if self.pair_drives else None,
        )

    def amplitudes(self, controls: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
        """The amplitudes of the lattice's drives, (tasks, segments, drives)."""
        always = parameters[:, None, self.on].expand(-1, controls.shape[1], -1)
        return torch.cat([controls[..., self.driven[0]], always, controls[..., self.driven[1]]], 2)


@dataclass(frozen=True)
class Split:
    """Evolves the kets of closed chains, one task after the other, by an integrator of `engines.pulses`.

    method: its name. dt: its longest step; see `engines.dynamics.propagators.Batched` on the rest.

    Raises:
        UserError: there is no step, or no such route.
    """

    method: str
    dt: float | None = None
    route: Route = "auto"

    def __post_init__(self) -> None:
        check_step(self.method, self.dt)
        check_route(self.route)

    def columns(self, system: System, tasks: Tasks, trajectory: bool = False) -> torch.Tensor:
        """See `Batched.columns`.

        Raises:
            UserError: see `Chain`; or the numbers are not in fp64, or so large that states are not finite.
        """
        check_tasks(system, tasks, strict=True, columns=True)
        check_values(tasks)
        together = 1 if trajectory else tasks.controls.shape[1]
        per = substeps(tasks.segment, self.dt or 0.0)
        steps = integrator(self.method, per * together, self.route)
        stages, chain = steps.times(1.0).shape[1], Chain(system, self.method)
        controls, (count, segments, _) = tasks.controls, tasks.controls.shape
        parameters = usual_parameters(system, controls) if tasks.parameters is None else tasks.parameters
        initial = as_complex(np.eye(system.dimension), controls) if tasks.initial is None else tasks.initial
        length = torch.as_tensor(tasks.duration, dtype=controls.dtype, device=controls.device)
        parameters, length = parameters.expand(count, -1), length.expand(count) * (together / segments)
        lattices = [chain.lattice(each) for each in parameters]
        states = [initial.mT.expand(count, -1, -1)]
        if not count:
            empty = torch.stack(states * (1 + segments), 1).mT
            return empty if trajectory else empty[:, -1]
        for part in chain.amplitudes(controls, parameters).split(together, 1):
            sampled = part.repeat_interleave(per, 1)[:, :, None].expand(-1, -1, stages, -1)
            states.append(steps.evolve(lattices, sampled, length, states[-1]))
        if not transforms_active() and not math.isfinite(torch.view_as_real(states[-1].detach()).sum()):
            raise UserError(
                f"controls or parameters: too large for {self.method} in a segment of {tasks.segment:.4g}; use smaller ones, or a "
                "rotating frame"
            )
        return (torch.stack(states, 1) if trajectory else states[-1]).mT
