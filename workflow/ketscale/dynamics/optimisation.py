"""Optimal control: the parameters of a pulse that bring a system to a state, make a gate or lower any cost, from many starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from tqdm import tqdm

from ketscale.dynamics.evolution import Kind, Values, as_systems, evolve, named_values
from ketscale.dynamics.fidelities import average_gate_fidelity, fidelity, ket_fidelity
from ketscale.dynamics.minimising import lbfgs
from ketscale.dynamics.optimised import Optimised
from ketscale.dynamics.pulses import Pulse, split
from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.tasks import as_complex, as_real
from ketscale.engines.gates import UNITARY, gate
from ketscale.engines.pulses.drives import between
from ketscale.engines.pulses.frame import COUPLER, Frame, bare_frame
from ketscale.errors import UserError

# Real values (batch,) of final states or of their expectation values, each with the batch in front.
Cost = Callable[[torch.Tensor], torch.Tensor]

# The infidelity that is enough. A cost of one's own may have any sign.
ENOUGH = 1e-6
# The spread of starts of a trained duration, in half widths of its range.
DURATIONS = 0.3


def optimise(
    system: System | Sequence[System],
    target: Any,
    pulse: Pulse | Sequence[Pulse],
    duration: float | Sequence[float],
    *,
    initial: Any = None,
    frame: Frame | None = None,
    virtual_z: bool = False,
    expect: Any = None,
    trajectory: bool = False,
    rates: Values = None,
    parameters: Values = None,
    method: str = "exact",
    dt: float | None = None,
    starts: Any = 16,
    evaluations: int = 300,
    wanted: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Optimised:
    """Minimise the infidelity of a state or of a gate, or any cost, over the parameters of a pulse; the best of many starts.

    All starts, and all members of an ensemble, are evolved in one call. Each start has its own search by L-BFGS, which ends with
    all others once one has the infidelity that is wanted.

    system: a system; or a list of systems that are alike, as for `evolve`, which are an ensemble.
    target: a ket (d,), such as one of the system's `targets`; a gate, (D, D) for D computational states; or the name of a
        `gate`. For a gate, the mean fidelity over all pure computational states is maximised, `average_gate_fidelity`. Or a
        cost, a function by torch's operators of what `evolve` returns, with a batch in front, to real values (batch,). They
        are best of order 1: a search ends where the norm of a gradient is below 1e-9.
    pulse: a pulse; or several, which play at once and have the system's controls one after the other, as one on a qubit and
        one on a coupling.
    duration: the pulse's length; or the shortest and the longest, between which it is optimised too.
    initial: the ket with which a state or a cost begins; None: |0>. Of a cost also columns (d, k), whose unitary or, with rates,
        channel it takes.
    frame: in which a gate is read, whatever `parameters` are; for a list of systems also one for each (`dressed_frame` of the
        list); None: `bare_frame`. virtual_z: of a gate, see `process_fidelity`.
    expect, trajectory: of a cost, see `evolve`.
    rates, parameters: see `evolve`; (members, ...) makes an ensemble and minimises its mean (robust pulses).
        With rates the evolution is open.
    method, dt: see `evolve`.
    starts: how many random ones, by the seed; or the pulse's parameters to begin with, (starts, size), such as the `numbers`
        that another search found; from zeros, where slopes often vanish, a search may end at once. evaluations: the most, of all starts at once.
    wanted: the infidelity that is enough, 1e-6 if None, or the cost, of which then none is. progress: whether a bar shows it.

    Raises:
        UserError: the pulse has other controls than the system, the target does not fit, or a setting makes no sense; or as
            for `evolve`.

    Example:
        >>> from ketscale import dynamics as kd
        >>> pulse = kd.Drag(segments=40)
        >>> found = kd.optimise(kd.transmon(), "x", pulse, 20.0, starts=4, progress=False)
        >>> found.infidelity < 1e-4
        True
    """
    pulses = (pulse,) if isinstance(pulse, Pulse) else pulse
    columns, controls = sum(each.columns for each in pulses), as_systems(system)[0].controls
    if columns != len(controls) or len({each.segments for each in pulses}) != 1:
        raise UserError(
            f"pulse: has {columns} controls, and the system {len(controls)} ({', '.join(controls)}); give as many, "
            "by drives, quadratures or several pulses, all with the same number of segments"
        )
    size = sum(each.size for each in pulses)
    like = torch.empty(0, dtype=torch.float64)
    begins = None if isinstance(starts, int) else as_real("starts", starts, like).detach()
    if begins is not None:
        if begins.is_complex() or begins.ndim != 2 or begins.shape[1] != size or not begins.isfinite().all():
            raise UserError(f"starts: must be real and finite, (starts, {size}), not {tuple(begins.shape)}")
        begins = begins.double()
    count = starts if begins is None else len(begins)
    targets = target if isinstance(target, _Each) else (target,)
    options = {"method": method, "dt": dt, "expect": expect, "trajectory": trajectory}
    goal = _Goal(as_systems(system), targets, initial, frame, virtual_z, rates, parameters, options)
    if (expect is not None or trajectory) and not goal.costs:
        raise UserError(
            "expect and trajectory: are of a cost; leave them out, or give a function as the target"
        )
    enough = (-math.inf if goal.costs else ENOUGH) if wanted is None else wanted
    trained = isinstance(duration, Sequence)
    low, high = map(float, duration if isinstance(duration, Sequence) else [duration] * 2)
    if not 0 < low <= high < math.inf:
        raise UserError(f"duration: must be positive, and a range ascending, not {duration}")

    def parts(point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The pulses' parameters, and their durations."""
        if not trained:
            return point, torch.full_like(point[:, 0], low)
        middle, half = (low + high) / 2, (high - low) / 2
        return point[:, :-1], between(middle + half * point[:, -1], low, high)

    history: list[torch.Tensor] = []

    def losses(point: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        numbers, durations = parts(point)
        controls = torch.cat([each(part, durations) for each, part in split(pulses, numbers)], -1)
        try:
            return goal.infidelities(controls, durations if trained else low, which // count)
        except UserError:
            # What could be evolved at the start, and cannot now, is a step of the search that went too far.
            if not history:
                raise
            if len(point) == 1:
                return point.sum(-1) * torch.nan
            # One start alone may have gone too far.
            halves = zip(point.chunk(2), which.chunk(2), strict=True)
            return torch.cat([losses(*half) for half in halves])

    quantity = "cost" if goal.costs else "infidelity"
    bar = tqdm(total=evaluations, unit="evaluation", disable=not progress)

    def reached(values: torch.Tensor) -> bool:
        history.append(values)
        losses = values.nan_to_num(nan=torch.inf).reshape(len(targets), count)
        least = float(losses.min(1).values.max())
        bar.update()
        bar.set_postfix_str(f"{quantity} {least:.2e}", refresh=False)
        return least > enough

    generator = torch.Generator().manual_seed(seed)
    for each in pulses:
        each(each.start(1, generator)[0], low)  # raises if it is shorter than its limits allow
    if begins is None:
        point = torch.cat([each.start(len(targets) * count, generator) for each in pulses], 1)
    else:
        point = begins.repeat(len(targets), 1)
    if trained:
        point = torch.cat([point, DURATIONS * torch.randn(len(point), 1, generator=generator).double()], 1)
    with bar:
        point = lbfgs(losses, point, evaluations, reached)
    with torch.no_grad():
        numbers, durations = parts(point)
        infidelities = losses(point, torch.arange(len(point)))
    return Optimised(
        goal.searched(),
        tuple(pulses),
        numbers,
        durations,
        infidelities,
        torch.stack(history),
        goal.start()[0] if goal.start().ndim == 3 else goal.start(),
        method,
        dt,
        quantity,
    )


def optimise_each(
    system: System | Sequence[System],
    targets: Sequence[Any],
    pulse: Pulse | Sequence[Pulse],
    duration: float | Sequence[float],
    **options: Any,
) -> list[Optimised]:
    """`optimise` for each of several targets, all states, all gates or all costs, with all starts of all targets in one call.

    The searches end once each target has a start with the infidelity that is wanted.

    Raises:
        UserError: there are no targets, or some are states and others gates; or as for `optimise`.

    Example:
        >>> from ketscale import dynamics as kd
        >>> found = kd.optimise_each(kd.qubit(), ["x", "y", "h"], kd.Piecewise(segments=10), 1.0, progress=False)
        >>> [each.infidelity < 1e-6 for each in found]
        [True, True, True]
    """
    each_target = _Each(targets)
    if not each_target:
        raise UserError("targets: give at least one")
    results = optimise(system, each_target, pulse, duration, **options)
    starts = len(results.numbers) // len(each_target)
    return [
        replace(
            results,
            numbers=results.numbers[rows],
            durations=results.durations[rows],
            infidelities=results.infidelities[rows],
            history=results.history[:, rows],
        )
        for rows in (slice(first, first + starts) for first in range(0, len(results.numbers), starts))
    ]


class _Each(tuple[Any, ...]):
    """The targets of one search; a gate may be a tuple itself."""


class _Goal:
    """What is wanted of the final states, and how they are evolved."""

    def __init__(
        self,
        systems: Sequence[System],
        targets: Sequence[Any],
        initial: Any,
        frame: Frame | None,
        virtual_z: bool,
        rates: Values,
        parameters: Values,
        options: dict[str, Any],
    ) -> None:
        self.systems, system = list(systems), systems[0]
        self.costs: list[Cost] = [each for each in targets if callable(each)]
        references = [_target(each, system) for each in targets if not callable(each)]
        if len({each.shape for each in references}) + bool(self.costs) != 1:
            raise UserError(
                "targets: some are states and others gates or costs, or of different sizes; optimise them apart"
            )
        self.references = torch.stack(references) if references else torch.zeros(0, system.dimension)
        self.is_gate = self.references.ndim == 3
        if self.is_gate and initial is not None:
            raise UserError("initial: a gate has all computational states; leave it out, or give a frame")
        if not self.is_gate and (frame is not None or virtual_z):
            raise UserError("frame and virtual_z: are of gates; leave them out")
        self.frame = frame or bare_frame(system)
        size = self.frame.states.shape[-1] if self.is_gate else system.dimension
        if self.references.shape[-1] != size:
            what = f"computational states; {COUPLER}" if self.is_gate else "amplitudes"
            raise UserError(f"target: is of shape {tuple(references[0].shape)}, and must have {size} {what}")
        self.virtual_z = virtual_z
        axes = (1, 2) if self.costs else (1,)
        self.initial = None if initial is None else _target_array("initial", initial, axes)
        is_open = rates is not None or any(each.rates for each in systems)
        gates: tuple[Kind, Kind] = ("unitary", "channel")
        states: tuple[Kind, Kind] = ("ket", "density")
        self.kind = (gates if self.start().ndim > 1 else states)[is_open]
        like = torch.empty(0, dtype=torch.float64)
        self.rates = named_values("rates", rates, systems, like)
        self.parameters = named_values("parameters", parameters, systems, like)
        ensembles = [
            len(each) for each in (self.rates, self.parameters) if each is not None and each.ndim == 2
        ]
        if self.is_gate and self.frame.states.ndim == 3:
            ensembles.append(len(self.frame.states))
        sizes = {*ensembles, len(systems)} - {1}
        if 0 in sizes:
            raise UserError("parameters, rates: the ensemble has no members; give one or more")
        if len(sizes) > 1:
            raise UserError(
                f"system, frame, parameters, rates: are ensembles of different sizes {sorted(sizes)}"
            )
        self.members = max(sizes, default=1)
        self.options = options

    def start(self) -> torch.Tensor:
        """What begins: a ket (d,), or the columns (d, D) of a gate."""
        if self.is_gate:
            return self.frame.states
        if self.initial is None:
            return torch.eye(self.systems[0].dimension, dtype=torch.complex128)[0]
        return self.initial

    def searched(self) -> System:
        """The system with the parameters and rates that were given; of an ensemble it has their means, of a list it is the first."""
        own: dict[str, Any] = {}
        system, *others = self.systems
        for name, values, terms in (
            ("parameters", self.parameters, system.drift),
            ("rates", self.rates, system.jumps),
        ):
            if values is not None:
                rows = values.detach().reshape(-1, len(terms))
                row = rows[0] if others else rows.mean(0)
                own[name] = dict(zip(terms, row.tolist(), strict=True))
        return replace(system, **own) if own else system

    def infidelities(self, controls: torch.Tensor, duration: Any, which: torch.Tensor) -> torch.Tensor:
        """The infidelity (starts,) of controls (starts, segments, controls), the mean over the ensemble.

        which: the number of each start's target, (starts,).
        """
        starts = len(controls)
        controls = controls.repeat_interleave(self.members, 0)
        if isinstance(duration, torch.Tensor):
            duration = duration.repeat_interleave(self.members)
        begins, frame = self.start(), self.frame
        rates, parameters = (
            each.expand(self.members, -1).repeat(starts, 1) if each is not None and each.ndim == 2 else each
            for each in (self.rates, self.parameters)
        )
        if begins.ndim == 3:
            begins = begins.expand(self.members, -1, -1).repeat(starts, 1, 1)
            frame = Frame(begins, frame.energies.expand(self.members, -1).repeat(starts, 1))
        final = evolve(
            self.systems * starts if len(self.systems) > 1 else self.systems[0],
            controls,
            duration,
            initial=begins,
            kind=self.kind,
            rates=rates,
            parameters=parameters,
            **self.options,
        )
        if self.costs:
            return self._costs(final, which.repeat_interleave(self.members)).reshape(starts, -1).mean(1)
        target = self.references[which].repeat_interleave(self.members, 0)
        if self.is_gate:
            block = frame.amplitudes(final, duration)
            fidelities = average_gate_fidelity(block, target, virtual_z=self.virtual_z)
        else:
            fidelities = (ket_fidelity if self.kind == "ket" else fidelity)(final, target)
        return 1 - fidelities.reshape(starts, -1).mean(1)

    def _costs(self, final: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        """The costs (batch,) of these numbers of what was evolved.

        Raises:
            UserError: a cost is not real, or not one number of each.
        """
        result = final.new_zeros(len(final), dtype=final.dtype.to_real())
        for number, cost in enumerate(self.costs):
            (rows,) = torch.where(which == number)
            if not len(rows):
                continue
            values = cost(final[rows])
            if not isinstance(values, torch.Tensor) or values.shape != rows.shape or values.is_complex():
                is_tensor = isinstance(values, torch.Tensor)
                label = f"{values.dtype} {tuple(values.shape)}" if is_tensor else values
                raise UserError(
                    f"target: a cost has a real number of each member of the batch, ({len(rows)},), not {label}"
                )
            result = result.index_put((rows,), values.to(result.dtype))
        return result


def _target(target: Any, system: System) -> torch.Tensor:
    if not isinstance(target, str):
        return _target_array("target", target, (1, 2))
    try:
        return gate(target)
    except UserError as error:
        if target not in system.targets:
            raise
        raise UserError(f"{error}; of the system's own states give system.targets[{target!r}]") from None


def _target_array(name: str, value: Any, axes: tuple[int, ...]) -> torch.Tensor:
    """A ket (d,), if `axes` has 1, or a gate (D, D), if it has 2.

    Raises:
        UserError: it is no array or has another shape, or is not of norm 1 or not unitary.
    """
    array = as_complex(value, torch.empty(0, dtype=torch.float64))
    if array.ndim not in axes:
        raise UserError(
            f"{name}: must be a ket (d,){' or a gate (D, D)' * (2 in axes)}, not {tuple(array.shape)}"
        )
    columns = array[:, None] if array.ndim == 1 else array
    off = float((columns.mH @ columns - torch.eye(columns.shape[1])).abs().max())
    if not off <= UNITARY:
        raise UserError(f"{name}: is not {'of norm 1' if array.ndim == 1 else 'unitary'} (off by {off:.1e})")
    return array
