"""Evolves kets, unitaries, density matrices and channels under piecewise-constant controls or pulses with carriers.

The convention of axes, here and in all of `ketscale.dynamics`: (batch, times, states..., columns). A batch is in front, a
trajectory's times come next; a ket is (d,), and several kets are columns (d, k). Controls are (segments, controls).
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, get_args

import torch

from ketscale.engines.derivatives import uncompiled
from ketscale.engines.dynamics.basis import hermitian_basis
from ketscale.engines.dynamics.generators import Scheme
from ketscale.engines.dynamics.methods import Route
from ketscale.engines.dynamics.propagators import Batched, Propagator, as_observables
from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.tasks import (
    Tasks,
    as_complex,
    as_real,
    as_states,
    check_precision,
)
from ketscale.engines.pulses.drives import Pulses
from ketscale.engines.pulses.integrators import Stepped
from ketscale.engines.pulses.schemes import SIMULATORS, advice
from ketscale.errors import UserError
from ketscale.private_torch import transforms_active
from ketscale.words import suggestion

Kind = Literal["ket", "unitary", "density", "channel"]
# A tensor, an array, or numbers and tensors by name; names that are omitted keep their usual value.
Values = Any

# Initial states of each kind, of d amplitudes.
_INITIAL = {
    "ket": "a ket ({d},)",
    "unitary": "columns ({d}, k)",
    "density": "an operator ({d}, {d}), a batch of them, or one ket ({d},)",
    "channel": "columns ({d}, k)",
}


# Axes from which on `Tasks` has a batch in front of them in any case.
_BATCHED = {"controls": 2, "duration": 1, "rates": 2, "initial": 3}


@uncompiled
def evolve(
    system: System | Sequence[System],
    controls: Any,
    duration: Any = None,
    *,
    initial: Any = None,
    kind: Kind | None = None,
    rates: Values = None,
    parameters: Values = None,
    method: str | Propagator = "exact",
    dt: float | None = None,
    route: Route = "auto",
    trajectory: bool = False,
    lengths: Any = None,
    rate_factors: Any = None,
    expect: Any = None,
) -> torch.Tensor:
    """The state at the end of the controls, complex, differentiable in every tensor that is given.

    Any argument may have one batch axis in front of the shape that is stated, (batch, ...); then so has the result.
    It is computed in fp64, and rounded if the controls are a tensor in fp32.
    `torch.compile` breaks its graph here, as at the fidelities of gates.

    system: a system; or a list of systems, such as circuits of different energies, which are a batch, one call each. They have
        the same levels and names.
    controls: real (segments, controls), constant over segments, in the units of `System`. None: there are none, and all is
        one segment. Or `engines.pulses.Pulses`, whose carriers a `method` with a step samples; they are in no batch.
    duration: the time of all segments together, a number or a real tensor (). Pulses have their own.
    kind: what is evolved, and what `initial` and the result are; None is 'density' if there are rates, else 'ket'. 'ket':
        (d,), usually |0>; the system's own rates are ignored, also for a unitary. 'unitary': kets as columns,
        (d, k), usually the identity. 'density': any operator (d, d), usually |0><0|; from one ket (d,) its projector is
        made; several kets are given as projectors. 'channel': the images of |i><j| for kets i, j that are the columns of
        `initial`, (d, k), usually the system's computational states; the result is (k, k, d, d).
    rates: (jumps,), 1 / time, or by name; None: the system's own, if it has any.
    parameters: (terms,) of the drift, or by name; None: the system's own.
    method: exact, whose only error is rounding, whatever the size; or an integrator with a longest step `dt`: rk4 or euler, which
        work on the whole system as exact does; or for kets and unitaries of a chain of several sites with equal levels those of
        `engines.pulses.integrators`, in fp64, which evolve sites and pairs: suzuki4, of order 4; or interaction4, of order 4
        where layers of couplings commute (two sites), otherwise of order 2 with a small error. Pulses with carriers take one of
        these, in steps that are equal and as many in each of their segments, or whole-space, of order 6, which evolves any
        system and with it density matrices and channels. No `dt` bounds an error by construction; `error_estimate` checks one.
    route: compiled: machine code that goes through the entries of the equations, for CPU tensors; torch: products of
        matrices by torch's operators, on any device; auto: the fastest for CPU tensors. That is compiled, but for kets
        and unitaries of 8 levels and more, or of segments whose angle may exceed 200 radians, also products or the eigenvectors
        of each segment's Hamiltonian (not within `torch.func`), and but for density matrices of few levels in segments whose angle
        or decay may exceed 2,000, products. A batch goes one way, so a member's rounding may depend on the others.
    trajectory: whether the result has the states at the start and at the end of each segment, on an axis of
        (segments + 1) behind the batch's.
    lengths: of the segments relative to one another, real (segments,); None: they are equally long. Of pulses with carriers they
        are those of any parts that divide the pulses' segments; a trajectory has their ends.
    rate_factors: of the rates in each segment, for rates that depend on time, real (segments, jumps); None: they are constant.
    expect: observables O of kets or density matrices, Hermitian (observables, d, d). Then the result has the real parts of
        their expectation values, Tr(rho O), (observables,), in the place of each state.

    Raises:
        UserError: shapes, precisions or devices do not fit; systems of a list are not alike; a value is not finite, or a rate
            negative; kets or unitaries are given rates; a segment's angle is above 1e9 radians (compiled steps: 350,000; but for
            eigenvectors the row sums of its generator, which may be several times the angle), or a step too long.

    Example:
        >>> from ketscale import dynamics as kd
        >>> controls = torch.full((10, 2), 0.05 * torch.pi, dtype=torch.float64)
        >>> final = evolve(kd.transmon(), controls, 20.0)
        >>> kd.ket_fidelity(final, kd.transmon().targets["x"]).item() < 0.9
        True
    """
    arguments = {
        "controls": controls, "duration": duration, "initial": initial, "rates": rates, "parameters": parameters,
        "lengths": lengths, "rate_factors": rate_factors, "expect": expect,
    }  # fmt: skip
    systems, listed = as_systems(system), not isinstance(system, System)
    system = systems[0]
    explicit, kind = kind is not None, kind or _default_kind(systems, rates)
    if kind not in _INITIAL:
        raise UserError(f"kind: {kind!r} is none of {', '.join(_INITIAL)}")
    columns = kind in ("ket", "unitary")
    if columns and rates is not None:
        raise UserError(f"rates: a {kind} has no decay; use kind density or channel, or leave them out")
    pulses = controls if isinstance(controls, Pulses) else None
    propagator = _propagator(method, dt, route, columns, pulses)
    if rates is None and not columns and any(each.rates for each in systems):
        rates = {}
    if (pulses is None) == (duration is None):
        raise UserError("duration: give that of all controls together; pulses with carriers have their own")
    if pulses is not None:
        controls, duration = _parts(pulses, lengths), pulses.duration
    controls = _controls(system, controls)
    if isinstance(duration, torch.Tensor) or not isinstance(duration, (int, float)):
        duration = as_real("duration", duration, controls)
        if duration.ndim == 0 and not (duration.requires_grad or transforms_active()):
            duration = float(duration)
    if lengths is not None:
        parts = as_real("lengths", lengths, controls).to(controls.dtype)
        if not bool((parts > 0).all()):
            raise UserError("lengths: must be above 0, one of each segment")
        if not parts.ndim or parts.shape[-1] != controls.shape[-2]:
            raise UserError(
                f"lengths: must be ({controls.shape[-2]},), one of each segment, not {tuple(parts.shape)}"
            )
        length = duration[..., None] if isinstance(duration, torch.Tensor) else duration
        duration = length * parts / parts.sum(-1, keepdim=True)
    if expect is not None and kind not in ("ket", "density"):
        raise UserError(f"expect: is of a ket or a density matrix, not of a {kind}")
    tensors_of = {
        "controls": (controls, 2),
        "duration": (duration, 0 if lengths is None else 1),
        "rates": (named_values("rates", rates, systems, controls), 1),
        "parameters": (named_values("parameters", parameters, systems, controls), 1),
        "initial": _initial(system, initial, kind, controls),
    }
    if rate_factors is not None:
        factors, by_jumps = as_real("rate_factors", rate_factors, controls), tensors_of["rates"][0]
        if by_jumps is None:
            raise UserError("rate_factors: there are no rates; give them, with kind density or channel")
        shape = (controls.shape[-2], len(system.jumps))
        if factors.shape[-2:] != shape:
            raise UserError(
                f"rate_factors: must be {shape}, of each segment's rates, not {tuple(factors.shape)}"
            )
        tensors_of["rates"] = (by_jumps[..., None, :] * factors, 2)
    d = system.dimension
    if not explicit and kind == "ket" and initial is not None and tensors_of["initial"][0].shape == (d, d, 1):
        raise UserError(
            f"initial: ({d}, {d}) may be a density matrix, columns or {d} kets; say kind='density', 'unitary' or 'ket'"
        )
    batch = _batch({**tensors_of, "system": (torch.empty(len(systems)), 0)} if listed else tensors_of)
    if controls.dtype == torch.float32:
        options: Any = {"kind": kind, "method": method, "dt": dt, "route": route, "trajectory": trajectory}
        double = evolve(systems if listed else system, **_in_fp64(arguments), **options)
        rounded = double.to(torch.complex64 if double.is_complex() else torch.float32)
        if not transforms_active() and not cmath.isfinite(rounded.detach().sum().item()):
            raise UserError("initial: too large for torch.float32; use smaller states")
        return rounded

    def evolved(system: System, tasks: Tasks) -> torch.Tensor:
        if expect is not None and not columns:
            values: torch.Tensor = propagator.expval(system, tasks, expect, trajectory)
            return values
        return (propagator.columns if columns else propagator.state)(system, tasks, trajectory)

    tensors = {
        name: each.expand(1 if batch is None else batch, *each.shape[each.ndim - axes :])
        if isinstance(each, torch.Tensor) and (each.ndim > axes or axes >= _BATCHED.get(name, math.inf))
        else each
        for name, (each, axes) in tensors_of.items()
    }
    if listed and batch:
        # A search has each of an ensemble's systems for each of its starts.
        members: dict[System, list[int]] = {}
        for number in range(batch):
            members.setdefault(systems[number % len(systems)], []).append(number)
        finals = []
        for each, numbers in members.items():
            rows = {
                name: tensor[numbers] if getattr(tensor, "ndim", 0) > tensors_of[name][1] else tensor
                for name, tensor in tensors.items()
            }
            finals.append(evolved(each, Tasks(**rows)))
        final = torch.cat(finals)[
            torch.tensor([number for each in members.values() for number in each]).argsort()
        ]
    else:
        final = evolved(system, Tasks(**tensors))
    final = _images(final) if kind == "channel" else final
    final = final if batch is not None else final.squeeze(0)
    final = final.squeeze(-1) if kind == "ket" else final
    if columns and expect is not None:
        observables = as_observables(expect, system, controls)
        final = torch.einsum("...a,oab,...b->...o", final.conj(), observables, final).real
    return final


def as_systems(system: System | Sequence[System]) -> Sequence[System]:
    """A system alone as a list.

    Raises:
        UserError: they have other levels or names than the first.
    """
    systems = [system] if isinstance(system, System) else system
    for number, each in enumerate(systems[1:], 1):
        for what in ("levels", "drift", "controls", "jumps"):
            own, first = (tuple(getattr(one, what)) for one in (each, systems[0]))
            if own != first:
                raise UserError(
                    f"system: number {number} has {what} {own}, and the first {first}; systems of a list have the same"
                )
    return systems


def _in_fp64(value: Any) -> Any:
    """Arguments of `evolve`, whose tensors in fp32 are in fp64, and all else as it is."""
    if isinstance(value, Mapping):
        return {name: _in_fp64(each) for name, each in value.items()}
    if isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.complex64):
        return value.to(torch.promote_types(value.dtype, torch.float64))
    return value


@torch.no_grad()
def error_estimate(
    system: System | Sequence[System],
    controls: Any,
    duration: Any = None,
    *,
    kind: Kind | None = None,
    dt: float | None = None,
    trajectory: bool = False,
    **others: Any,
) -> torch.Tensor:
    """The error of `evolve` with these arguments by two resolutions: real () or (batch,), without gradients.

    It is the norm (Frobenius) of what changes if every segment is halved, and `dt` too, in fp64: of an integrator nearly its
    error, but without rounding, some 1e-16 for each radian. Of `exact`, whose segments are divided in other ways, it is the
    rounding; that of fp64 is estimated within a factor of about ten, and may be 100 times too large. An infidelity is of the
    order of its square for pure states. A trajectory has one for each of its times. Of an integrator of order p that is the
    error times 1 - 2^-p.

    Raises:
        UserError: see `evolve`.

    Example:
        >>> from ketscale import dynamics as kd
        >>> controls = torch.ones(10, 2, dtype=torch.float64)
        >>> bool(1e-7 < error_estimate(kd.qubit(), controls, 1.0, method="rk4", dt=0.05) < 1e-5)
        True
    """
    systems = as_systems(system)
    kind = kind or _default_kind(systems, others.get("rates"))
    axes = {"ket": 1, "unitary": 2, "density": 2, "channel": 4}[kind]
    axes = axes if others.get("expect") is None else 1
    pulses, lengths = controls if isinstance(controls, Pulses) else None, others.pop("lengths", None)
    if pulses is not None:
        controls = _parts(pulses, lengths)
        # Without lengths all parts are evolved in one call: 2,000 in 0.2 s, and not in 40.
        lengths = controls.new_ones(len(controls)) if lengths is None and trajectory else lengths
    single = _controls(systems[0], controls)

    def evolved(parts: int) -> torch.Tensor:
        arguments = {"duration": duration, "dt": dt, **others}
        if lengths is not None:
            arguments["lengths"] = as_real("lengths", lengths, single).repeat_interleave(parts, -1)
        if arguments.get("rate_factors") is not None:
            factors = as_real("rate_factors", arguments["rate_factors"], single)
            arguments["rate_factors"] = factors.repeat_interleave(parts, -2)
        played = single if pulses is None else pulses.divided(parts if lengths is None else 1)
        if parts > 1:
            arguments = _in_fp64(arguments) | {"dt": dt and dt / 2}
            played = single.double().repeat_interleave(parts, -2) if pulses is None else played
            if arguments.get("method", "exact") == "exact":
                # Parts have the eigenvectors of the whole, with the same rounding, so they are evolved in another way.
                arguments["method"] = Batched(route=arguments.get("route", "auto"), eigenvectors=False)
        return evolve(system, played, kind=kind, trajectory=trajectory, **arguments)

    coarse, errors = evolved(1), []
    # Halves of segments without steps would repeat the same substeps bit for bit, and two roundings may be alike by chance.
    for parts in (2,) if dt else (3,) if single.dtype == torch.float32 else (3, 5):
        fine = evolved(parts)
        if trajectory:
            times = fine.ndim - axes - 1
            fine = fine.index_select(times, torch.arange(0, fine.shape[times], parts, device=fine.device))
        errors.append((coarse - fine).flatten(-axes).norm(dim=-1))
        if not dt:  # at least half a unit in the last place
            errors.append(fine.flatten(-axes).norm(dim=-1) * (torch.finfo(torch.float64).eps / 2))
    return torch.stack(errors).amax(0)


def _default_kind(systems: Sequence[System], rates: Values) -> Kind:
    return "density" if rates is not None or any(each.rates for each in systems) else "ket"


def _propagator(
    method: str | Propagator, dt: float | None, route: Route, columns: bool, pulses: Pulses | None
) -> Any:
    dense = get_args(Scheme)
    by_object = isinstance(method, Propagator)
    if pulses is not None and (by_object or method in dense or not (columns or method == "whole-space")):
        which = "interaction4, suzuki4 or whole-space" if columns else "whole-space"
        raise UserError(f"method: carriers need steps, which {method} does not have; use {which} with a dt")
    if by_object:
        return method
    if method in dense:
        return Batched(cast(Scheme, method), dt, route)
    if not columns and pulses is None and isinstance(method, str) and method in SIMULATORS:
        raise UserError(f"method: {method} evolves kets and unitaries only; use {', '.join(dense)}")
    if not isinstance(method, str) or method not in SIMULATORS:
        raise UserError(f"method: no method is called {method}{advice(str(method), [*dense, *SIMULATORS])}")
    return Stepped(method, dt, route, pulses)


def _parts(pulses: Pulses, lengths: Any) -> torch.Tensor:
    """What is in the place of controls, (parts, drives), where `Stepped` samples pulses with carriers."""
    parts = pulses.envelope.divisions if lengths is None else torch.as_tensor(lengths).shape[-1]
    return pulses.frequency.new_zeros(parts, pulses.envelope.drives)


def _controls(system: System, controls: Any) -> torch.Tensor:
    if controls is None:
        controls = torch.zeros(1, len(system.controls), dtype=torch.float64)
    if not isinstance(controls, torch.Tensor):
        controls = as_real("controls", controls, torch.empty(0, dtype=torch.float64))
    check_precision(controls)
    if controls.ndim < 2 or controls.shape[-2] < 1 or controls.shape[-1] != len(system.controls):
        names = ", ".join(system.controls) or "none"
        raise UserError(
            f"controls: must be (segments, {len(system.controls)}), a column for each of {names}, not {tuple(controls.shape)}"
        )
    return controls


def named_values(
    what: Literal["parameters", "rates"], numbers: Values, systems: Sequence[System], like: torch.Tensor
) -> torch.Tensor | None:
    """Parameters or rates as `evolve` takes them, as a tensor (terms,) or (batch, terms); None stays None.

    Raises:
        UserError: a name is unknown, or one without a usual value is missing.
    """
    if numbers is None:
        return None
    if not isinstance(numbers, Mapping):
        return as_real(what, numbers, like)
    terms = list(systems[0].drift if what == "parameters" else systems[0].jumps)
    own = [getattr(each, what) for each in systems]
    # A system without usual rates has none if another one has.
    defaults = (
        own[0]
        if len(own) == 1
        else {name: [each.get(name, 0.0) for each in own] for name in max(own, key=len)}
    )
    for name in numbers:
        if name not in terms:
            raise UserError(f"{what}: this system has no {name}{suggestion(name, terms)}")
    for name in terms:
        if name not in numbers and name not in defaults:
            raise UserError(f"{what}: {name} is missing, and the system has no usual ones; give one for each")
    values = [as_real(f"{what}.{name}", numbers.get(name, defaults.get(name)), like) for name in terms]
    return torch.stack(torch.broadcast_tensors(*values), -1) if values else like.new_zeros(0)


def _initial(system: System, start: Any, kind: Kind, like: torch.Tensor) -> tuple[torch.Tensor | None, int]:
    """The initial states as `Tasks` has them, and the number of their axes without the batch's."""
    if start is None and kind == "ket":
        start = [1.0, *[0.0] * (system.dimension - 1)]
    if start is None and kind == "channel":
        start = system.computational_states
    if start is None:
        return None, 2
    state = (
        as_states("initial", start) if isinstance(start, torch.Tensor) else as_complex(start, like, "initial")
    )
    d, axes = system.dimension, 1 if kind == "ket" else 2
    valid = axes <= state.ndim <= axes + 1 or (kind == "density" and state.ndim == 1)
    ends = (d,) * min(axes, state.ndim) if kind in ("ket", "density") else (d, *state.shape[-1:])
    if not valid or state.shape[-len(ends) :] != ends:
        raise UserError(f"initial: must be {_INITIAL[kind].format(d=d)}, not {tuple(state.shape)}")
    if kind == "ket":
        return state[..., None], 2
    if kind == "density" and state.ndim == 1:
        return state[:, None] * state.conj(), 2
    if kind == "channel":
        basis = as_complex(hermitian_basis(state.shape[-1]), like)
        return state[..., None, :, :] @ basis @ state[..., None, :, :].mH, 3
    return state, 2


def _batch(arguments: Mapping[str, tuple[Any, int]]) -> int | None:
    """The length of the batch; None: nothing has one."""
    for name, (each, axes) in arguments.items():
        if isinstance(each, torch.Tensor) and each.ndim > axes + 1:
            raise UserError(f"{name}: is of shape {tuple(each.shape)}, and has one batch axis at most")
    sizes = {
        name: each.shape[0]
        for name, (each, axes) in arguments.items()
        if isinstance(each, torch.Tensor) and each.ndim > axes
    }
    longer = {size for size in sizes.values() if size != 1}
    if len(longer) > 1:
        listing = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise UserError(f"batch: arguments have batches of several lengths: {listing}")
    return next(iter(longer), 1) if sizes else None


def _images(images: torch.Tensor) -> torch.Tensor:
    """E(|i><j|), (..., k, k, d, d), from the images of the Hermitian basis (..., k**2, d, d)."""
    k = round(images.shape[-3] ** 0.5)
    basis = as_complex(hermitian_basis(k), images.real)
    return torch.einsum("aji,...apq->...ijpq", basis, images)
