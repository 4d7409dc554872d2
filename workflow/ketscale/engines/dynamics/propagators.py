"""The protocol of propagators, which evolve the states of tasks, and those that evolve a whole batch at once."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import torch
from numpy.typing import ArrayLike

from ketscale.engines import registered
from ketscale.engines.dynamics import plain, spectral
from ketscale.engines.dynamics.basis import has_all_entries
from ketscale.engines.dynamics.costs import Way, bound, fastest
from ketscale.engines.dynamics.elements import by_elements
from ketscale.engines.dynamics.generators import DEGREES, EXACT, Division, Evolution, Scheme, substeps
from ketscale.engines.dynamics.methods import MOST_EXACT_STEPS, SIMULATORS, DynamicsMethod, Route
from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.tasks import (
    Tasks,
    as_complex,
    check_tasks,
    check_values,
    coefficients,
    coordinates,
    kets,
    matrices,
    times,
)
from ketscale.engines.evolved import CodeKind, Evolved
from ketscale.engines.operators import check_hermitian
from ketscale.errors import UserError, is_positive
from ketscale.private_torch import is_differentiated, transforms_active
from ketscale.shapes import Complex, Float
from ketscale.words import suggestion

# What `cpu.evolve`, `plain.evolve` and `spectral.evolve` take.
Linear = tuple[torch.Tensor, torch.Tensor, torch.Tensor, Evolution]

# A state whose norm has grown by this much more than it can, or shrunk, is the integrator's.
GROWTH = 1.5


class Propagator(ABC):
    """Evolves the tasks of a batch, differentiably, in the controls' precision and on their device.

    A strict propagator, as users make them, rejects impossible values. The one of a training does not look at them: its
    settings have been checked, and if its parameters diverge, results that are not numbers say so.

    A batch of zero tasks is allowed and gives a result with zero rows that can be differentiated. A propagator can be
    copied and pickled.
    """

    strict: bool

    @abstractmethod
    def state(
        self, system: System, tasks: Tasks
    ) -> Complex[torch.Tensor, "{len(tasks.controls)} {system.dimension} {system.dimension}"]:
        """Density matrices at the end of the pulses, complex (tasks, d, d).

        Raises:
            UserError: the tensors do not fit the system, or, of a strict propagator,
                a value is not finite or a rate negative.
        """

    def expval(
        self, system: System, tasks: Tasks, observables: ArrayLike
    ) -> Float[torch.Tensor, "{len(tasks.controls)} {len(observables)}"]:
        """Expectation values Tr(rho O) at the end, real (tasks, observables).

        observables: Hermitian matrices (observables, d, d); a projector gives the fidelity with a pure state.

        Raises:
            UserError: as for `state`, or the observables have another shape or, of a strict propagator, are not Hermitian.
        """
        matrices = as_observables(observables, system, tasks.controls, self.strict)
        return torch.einsum("tij,oji->to", self.state(system, tasks), matrices).real


def as_observables(array: ArrayLike, system: System, like: torch.Tensor, strict: bool = True) -> torch.Tensor:
    """Observables as a tensor of the precision and on the device of `like`; see `Propagator.expval`."""
    matrices, d = as_complex(array, like, "observables"), system.dimension
    if matrices.ndim != 3 or tuple(matrices.shape[1:]) != (d, d):
        raise UserError(f"observables: must be (observables, {d}, {d}), not {tuple(matrices.shape)}")
    if strict:
        check_hermitian("observables", matrices, 1e-5)
    return matrices


@dataclass(frozen=True)
class Batched(Propagator):
    """Evolves all tasks at once, as real linear systems of d**2 coordinates.

    An initial operator that is not Hermitian is evolved as its two Hermitian parts, and no integrator divides by a trace,
    so that any operator evolves linearly, as process tomography needs it.

    scheme: exact, whose only error is rounding, or an integrator: rk4 or euler, whose longest step is `dt` (a time in
        the same unit as the tasks' duration): a segment has as few equal ones as it allows.
    route: compiled: with machine code for this processor, and for CPU tensors only; torch: with torch's operators,
        on any device; auto: for CPU tensors the way that is `costs.fastest`; else torch.
    strict: whether impossible values are rejected, see `Propagator`.
    eigenvectors: whether auto may use those of Hamiltonians, which products replace otherwise.

    Raises:
        UserError: an integrator has no step, or `exact` has one; or there is no such route.
    """

    scheme: Scheme = "exact"
    dt: float | None = None
    route: Route = "auto"
    strict: bool = True
    eigenvectors: bool = True

    def __post_init__(self) -> None:
        check_step(self.scheme, self.dt)
        check_route(self.route)

    def state(
        self, system: System, tasks: Tasks, trajectory: bool = False
    ) -> Complex[torch.Tensor, "{len(tasks.controls)} *each {system.dimension} {system.dimension}"]:
        """See `Propagator.state`; of several initial operators for each task, (tasks, m, d, d).

        trajectory: at the start and at the end of each segment, (tasks, segments + 1, ...).
        """
        initial = tasks.initial
        # The coordinates of many levels are those of any operator.
        if initial is None or has_all_entries(system.dimension):
            return matrices(self._evolved(system, tasks, trajectory))
        check_tasks(system, tasks, self.strict)
        each = initial.expand(tasks.controls.shape[0], 1, *initial.shape) if initial.ndim == 2 else initial
        each = each[:, None] if each.ndim == 3 else each
        skew = (each - each.mH) / 2j
        # A Hermitian operator has a derivative by its other part too.
        if not (transforms_active() or skew.requires_grad or skew.count_nonzero()):
            return matrices(self._evolved(system, tasks, trajectory))
        both = matrices(self._evolved(system, tasks._replace(initial=torch.cat([each, skew], 1)), trajectory))
        hermitian, other = both.chunk(2, -3)
        states = hermitian + 1j * other
        return states if initial.ndim > 3 else states.squeeze(-3)

    def expval(
        self, system: System, tasks: Tasks, observables: ArrayLike, trajectory: bool = False
    ) -> Float[torch.Tensor, "{len(tasks.controls)} *ends {len(observables)}"]:
        """See `Propagator.expval`; trajectory: as for `state`. The states are not kept for a gradient as matrices."""
        matrices = as_observables(observables, system, tasks.controls, self.strict)
        return self._evolved(system, tasks, trajectory, readout=coordinates(matrices))

    def columns(
        self, system: System, tasks: Tasks, trajectory: bool = False
    ) -> Complex[torch.Tensor, "{len(tasks.controls)} *each {system.dimension} _"]:
        """The kets of a closed system at the end of the pulses, as columns, complex (tasks, d, k); or as for `state`.

        tasks: without rates; their `initial` are columns.

        Raises:
            UserError: as for `state`, or there are rates.
        """
        return kets(self._evolved(system, tasks, trajectory, columns=True)).mT

    def evolution(self, system: System, tasks: Tasks, columns: bool = False) -> Evolved:
        """What evolves these tasks; columns: as kets."""
        system_parts = self.linear(system, tasks, columns)
        code: CodeKind = "table" if self._way(*system_parts) == "entries" else "torch"
        steps = system_parts[-1].division.steps or None
        return Evolved(kernel="dense", method=self.scheme, code=code, states=system.dimension, steps=steps)

    def linear(self, system: System, tasks: Tasks, columns: bool = False) -> Linear:
        """See `Linear`; columns: as kets."""
        check_tasks(system, tasks, self.strict, columns)
        if columns and tasks.rates is not None:
            raise UserError("rates: kets have no decay; evolve density matrices, or leave them out")
        system, tasks = by_elements(system, tasks)
        fixed, controls, initial, tau = coefficients(system, tasks, columns)
        if columns:
            generators = system.ket_generators
        else:
            generators = system.unitary_generators if tasks.rates is None else system.generators
        generators = generators.by_segment if tasks.varied else generators
        division = self.division(tasks, controls.dtype)
        return fixed, controls, initial, Evolution(generators, tau, division, columns)

    def _evolved(
        self,
        system: System,
        tasks: Tasks,
        trajectory: bool = False,
        columns: bool = False,
        readout: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The coordinates, or instead their products with the rows of a readout."""
        operands = self.linear(system, tasks, columns)
        way = self._way(*operands)
        # An integrator's steps may be too long: the norms of its states are checked.
        is_fused = way == "entries" and self.scheme == "exact" and not is_differentiated(readout)
        if way == "entries":
            from ketscale.engines.dynamics import cpu

            evolved = cpu.evolve(*operands, trajectory, readout if is_fused else None)
        else:
            evolved = (plain if way == "products" else spectral).evolve(*operands, trajectory)
        if self.strict and not transforms_active():
            self._check(evolved.detach(), operands, system.dimension, tasks)
        return evolved if readout is None or is_fused else times(evolved, readout)

    def _check(self, evolved: torch.Tensor, operands: Linear, levels: int, tasks: Tasks) -> None:
        """Raise UserError if states are not finite, or, by an integrator, larger than any evolution makes them."""
        # The sum is finite only if all are; faster than isfinite.
        if self.scheme == "exact" and not math.isfinite(evolved.sum().item()):
            check_values(tasks)
            fixed, controls, _, evolution = operands
            # No task is to blame if only the sum over all of them overflows; then it is the first.
            task = int(evolved.flatten(1).sum(1).isfinite().logical_not().int().argmax())
            norm, division = bound(fixed[task], controls[task], evolution), evolution.division
            steps = self._way(*operands) == "entries"
            most = MOST_EXACT_STEPS * division.reaches[-1] if steps else division.largest
            if norm <= most:
                raise UserError(f"initial: too large for exact in {evolved.dtype}; use smaller states")
            raise UserError(
                f"controls, parameters or rates: too large for exact in a segment of {tasks.segment:.4g}, whose generator times the "
                f"time has the norm {norm:,.6g} (a bound of row sums, at least the angle), and the largest is {most:,.6g}; use shorter segments, "
                f"or {'route auto' if self.route == 'compiled' else 'a rotating frame'}"
            )
        if self.scheme != "exact":
            initial = operands[2].detach()
            check_norms(self.scheme, self.dt, evolved.norm(dim=-1), initial.norm(dim=-1), levels, tasks)

    def division(self, tasks: Tasks, dtype: torch.dtype) -> Division:
        """How the segments of tasks are divided.

        Raises:
            UserError: there are too many steps.
        """
        if self.dt is None:
            return EXACT[dtype]
        return Division((DEGREES[self.scheme],), steps=substeps(tasks.segment, self.dt))

    def _way(
        self, fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
    ) -> Way:
        """How coordinates are evolved: entries by machine code, products and eigenvectors by torch's operators."""
        if not compiles(self.route, initial.device):
            return "products"
        if self.route == "compiled" or not evolution.division.reaches:
            return "entries"
        way = fastest(fixed, controls, initial, evolution)
        return "products" if way == "eigenvectors" and not self.eigenvectors else way


def check_norms(
    scheme: str, dt: float | None, after: torch.Tensor, before: torch.Tensor, levels: int, tasks: Tasks
) -> None:
    """Raise UserError if an integrator's states have norms, `after` those `before`, that no evolution gives them.

    A norm grows by the root of the dimension at most, where a mixed state becomes pure. Without rates it neither grows nor
    shrinks.
    """
    if not after.numel():
        return
    closed = tasks.rates is None
    largest = GROWTH * math.sqrt(1 if closed else levels) * before.max()
    # Written so that what is not a number fails too.
    if after.max() <= largest and (not closed or after.min() * GROWTH >= before.min()):
        return
    check_values(tasks)
    raise UserError(
        f"dt: {dt} is too long a step of {scheme} for these controls and rates; use a shorter one, or exact"
    )


def check_step(scheme: str, dt: float | None) -> None:
    """Raise UserError unless an integrator, and only an integrator, has a positive step."""
    if scheme == "exact" and dt is not None:
        raise UserError("dt: exact has no step; leave it out")
    if scheme != "exact" and not is_positive(dt):
        raise UserError(f"dt: {scheme} needs a positive step, and this is {dt}")


def check_route(route: str) -> None:
    """Raise UserError unless there is such a route."""
    if route not in get_args(Route):
        raise UserError(f"route: {route!r} is none of {', '.join(get_args(Route))}")


def compiles(route: Route, device: torch.device) -> bool:
    """Whether machine code may evolve tensors on a device.

    Raises:
        UserError: it is to, and this is no CPU.
    """
    if route == "compiled" and device.type != "cpu":
        raise UserError(
            f"route: compiled computes on the CPU only, and the tensors are on {device}; use route torch"
        )
    return route != "torch" and device.type == "cpu"


def propagator(name: str, dt: float | None = None, route: Route = "auto", strict: bool = True) -> Propagator:
    """The propagator of a usual name (`methods.SIMULATORS`).

    dt: step of an integrator, a time in the same unit as the tasks' duration. route: of those that evolve a whole batch at
        once, see `Batched`. strict: whether impossible values are rejected, see `Propagator`.

    Raises:
        UserError: there is no such name, an integrator has no step, `exact` has one, or the propagator has no routes and is
            given one.
    """
    if name not in SIMULATORS:
        raise UserError(f"no propagator is called {name}{suggestion(name, list(SIMULATORS))}")
    method = SIMULATORS[name]
    if not method.routes and route != "auto":
        raise UserError(f"route: the propagator {name} does not support it; leave it out")
    return of_method(method, {"dt": dt, "route": route}, strict)


def of_method(method: DynamicsMethod, settings: Mapping[str, Any], strict: bool = False) -> Propagator:
    """The propagator of a method, with those of the settings that it takes; for training it is not strict."""
    propagator: Propagator = registered.build(
        method.implementation, {**settings, "scheme": method.device, "strict": strict}
    )
    return propagator
