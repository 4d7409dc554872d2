"""The tasks of a batch, their checks, and their translation to the coefficients of a linear system."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from ketscale.engines.dynamics.basis import has_all_entries, hermitian_basis
from ketscale.engines.dynamics.system import System
from ketscale.errors import UserError
from ketscale.private_torch import is_differentiated, is_mapped, transforms_active, unwrapped

# The most numbers of constant matrices whose coordinates are kept.
KEPT = 256


class Tasks(NamedTuple):
    """What a propagator evolves: one pulse, environment and initial state for each task of a batch.

    All tensors have one precision, torch.float32 or torch.float64, and one device; all may require gradients. Without
    the dimension of tasks a tensor holds for all of them.

    controls: amplitudes (tasks, segments, controls) of the system's controls, constant over each segment; in units of
        angular frequency where the operators are dimensionless.
    duration: of the pulse, whose segments are equally long: a number, or a tensor () or (tasks,), which may have a gradient;
        or those of the segments, (tasks, segments).
    rates: (tasks, jumps) or (jumps,) of the system's jumps, 1 / time, not negative; or those of segments,
        (tasks, segments, jumps); None: there is no noise.
    parameters: (tasks, terms) or (terms,) of the drift; None: the system's own.
    initial: complex (tasks, d, d) or (d, d): density matrices, None: |0><0|; or several of each task, (tasks, m, d, d).
        A closed system takes any number k of kets as columns, (tasks, d, k) or (d, k), None: the identity.
    """

    controls: torch.Tensor
    duration: float | torch.Tensor
    rates: torch.Tensor | None = None
    parameters: torch.Tensor | None = None
    initial: torch.Tensor | None = None

    @property
    def segment(self) -> float:
        """Duration of a segment, of several durations the longest's."""
        longest = self.duration
        if isinstance(longest, torch.Tensor):
            if is_mapped(longest):
                raise UserError(
                    "duration: torch.func.vmap hides which is longest, and with it the number of steps; give them as a batch"
                )
            longest = float(longest.detach().max())
        return longest if self.by_segment else longest / self.controls.shape[1]

    @property
    def by_segment(self) -> bool:
        """Whether each segment has its own duration."""
        return isinstance(self.duration, torch.Tensor) and self.duration.ndim > 1

    @property
    def varied(self) -> bool:
        """Whether each segment has its own duration or rates."""
        return self.by_segment or (self.rates is not None and self.rates.ndim > 2)


def check_tasks(system: System, tasks: Tasks, strict: bool, columns: bool = False) -> None:
    """Raise UserError unless the tensors fit the system and each other, and `strict` no rate or duration is negative.

    Finite values are not asked for here: `check_values`, which states that are not finite call, takes time.

    columns: whether the initial states are kets as columns, of any number.
    """
    controls = tasks.controls
    # What is kept for later calls would be tensors without numbers.
    if torch.compiler.is_exporting():
        raise UserError("torch.export cannot follow an evolution: export the model that makes the pulse")
    if controls.ndim != 3 or controls.shape[1] < 1 or controls.shape[2] != len(system.controls):
        raise UserError(
            f"controls must be (tasks, segments, {len(system.controls)}) with at least 1 segment, not {tuple(controls.shape)}"
        )
    check_precision(controls)
    duration = tasks.duration if isinstance(tasks.duration, torch.Tensor) else None
    if duration is None and not (math.isfinite(tasks.duration) and tasks.duration > 0):
        raise UserError(f"duration: {tasks.duration} is not a positive number")
    d = system.dimension
    rates: tuple[int, ...] = (len(system.jumps),)
    if tasks.rates is not None and tasks.rates.ndim > 2:
        rates = (controls.shape[1], *rates)
    states: tuple[int, ...] = (d, d)
    if tasks.initial is not None and columns:
        states = (d, *tasks.initial.shape[1:][-1:])
    elif tasks.initial is not None:
        states = (*tasks.initial.shape[1:-2], d, d)
    for name, tensor, shape, dtype in (
        ("duration", duration, controls.shape[1:2] if tasks.by_segment else (), controls.dtype),
        ("rates", tasks.rates, rates, controls.dtype),
        ("parameters", tasks.parameters, (len(system.drift),), controls.dtype),
        ("initial", tasks.initial, states, controls.dtype.to_complex()),
    ):
        if tensor is None:
            continue
        if tensor.shape not in (shape, (controls.shape[0], *shape)):
            raise UserError(
                f"{name} must be {shape} or {(controls.shape[0], *shape)}, not {tuple(tensor.shape)}"
            )
        if tensor.dtype != dtype or tensor.device != controls.device:
            raise UserError(
                f"{name}: {tensor.dtype} on {tensor.device} does not go with {controls.dtype} controls on "
                f"{controls.device}; use {dtype} there"
            )
    # Within torch.func no values may be looked at.
    if not strict or transforms_active():
        return
    if tasks.rates is not None and tasks.rates.numel() and float(tasks.rates.detach().min()) < 0:
        _check_finite("rates", tasks.rates)
        raise UserError("rates: some are negative; a rate is at least 0")
    if duration is not None and duration.numel():
        _check_finite("duration", duration)
        if float(duration.detach().min()) <= 0:
            raise UserError("duration: some are not positive")


def check_values(tasks: Tasks) -> None:
    """Raise UserError if some are not finite; neither are the states that they make."""
    if not transforms_active():
        for name, tensor in tasks._asdict().items():
            if isinstance(tensor, torch.Tensor):
                _check_finite(name, tensor)


def _check_finite(name: str, tensor: torch.Tensor) -> None:
    if not tensor.detach().isfinite().all():
        raise UserError(f"{name}: some are not finite; give numbers")


def check_precision(controls: torch.Tensor) -> None:
    """Raise UserError unless the controls are in a precision that propagators have."""
    if controls.dtype not in (torch.float32, torch.float64):
        raise UserError(f"controls are {controls.dtype}: propagators take torch.float32 or torch.float64")
    if controls.layout != torch.strided:
        raise UserError(f"controls are {controls.layout}: propagators take dense tensors; use to_dense()")


def coefficients(
    system: System, tasks: Tasks, columns: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """The fixed coefficients of the system's generators, their controls, the initial coordinates, and the time of a segment.

    They are what `cpu.evolve` and `plain.evolve` take; tensors without tasks are repeated.

    A duration that is a tensor is a factor of all coefficients, and its segments take the time 1. Where each segment has
    its own, or rates, all coefficients are those of segments; see `Generators.by_segment`.

    columns: see `check_tasks`; the coordinates are then (tasks, k, 2 d), each row a ket's.
    """
    controls, count = tasks.controls, tasks.controls.shape[0]
    parameters = tasks.parameters
    if parameters is None:
        parameters = default_parameters(system, controls)
    fixed, rates = parameters.expand(count, -1), tasks.rates
    if rates is not None and rates.ndim < 3:
        fixed = torch.cat([fixed, rates.expand(count, -1) if rates.ndim == 1 else rates], 1)
    if tasks.varied:
        of_segments = [rates] if rates is not None and rates.ndim > 2 else []
        every = [fixed[:, None].expand(-1, controls.shape[1], -1), *of_segments, controls]
        fixed, controls = fixed[:, :0], torch.cat(every, 2)
    tau = 1.0 if isinstance(tasks.duration, torch.Tensor) else tasks.segment
    if isinstance(tasks.duration, torch.Tensor):
        durations = tasks.duration
        if not tasks.by_segment:
            durations = (durations / controls.shape[1]).expand(count)[:, None]
        fixed, controls = durations[:, :1] * fixed, durations[:, :, None] * controls
    initial, dtype = tasks.initial, controls.dtype
    if columns:
        if initial is None:
            initial = torch.eye(system.dimension, dtype=dtype.to_complex(), device=controls.device)
        rows = torch.view_as_real(initial.mT.resolve_conj()).flatten(-2)
        return fixed, controls, rows.expand(count, -1, -1), tau
    rows = _start(system.dimension, dtype, controls.device) if initial is None else coordinates(initial)
    return fixed, controls, rows if rows.ndim > 2 else rows.expand(count, -1), tau


@lru_cache(maxsize=64)
def _start(levels: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The coordinates of |0><0|; not to be written to. To make them anew takes a tenth of a small task's time."""
    with torch.inference_mode(False):
        state = torch.eye(levels, dtype=dtype.to_complex(), device=device)
        state[1:] = 0
        return unwrapped(coordinates(state))


def default_parameters(system: System, like: torch.Tensor) -> torch.Tensor:
    """The system's own parameters (terms,), of the precision and on the device of `like`; not to be written to."""
    # Much faster than `torch.tensor`, and no tensor of inference mode or of a transformation is kept.
    return torch.from_numpy(system.parameter_values).to(like.device, like.dtype)


def coordinates(matrices: torch.Tensor) -> torch.Tensor:
    """The real coordinates (..., d**2) of the Hermitian part of complex matrices (..., d, d).

    With many levels they are all parts of all entries, (..., 2 d**2); see `basis.has_all_entries`.
    """
    levels, dtype = matrices.shape[-1], matrices.dtype.to_real()
    if has_all_entries(levels):
        return torch.view_as_real(matrices.resolve_conj()).flatten(-3)
    basis, small = basis_vectors(levels, dtype, matrices.device), 0 < matrices.numel() <= KEPT
    if small and matrices.is_cpu and not is_differentiated(matrices):
        return _of_constant(matrices.numpy(force=True).tobytes(), matrices.shape[:-2], basis)
    return times(torch.view_as_real(matrices.resolve_conj()).flatten(-3), basis)


@lru_cache(maxsize=64)
def _of_constant(numbers: bytes, shape: torch.Size, basis: torch.Tensor) -> torch.Tensor:
    """The coordinates of constant matrices, such as observables: most calls have those of the last one."""
    with torch.inference_mode(False):
        flat = torch.frombuffer(bytearray(numbers), dtype=basis.dtype).reshape(*shape, basis.shape[1])
        return unwrapped(times(flat, basis))


def matrices(coordinates: torch.Tensor) -> torch.Tensor:
    """The matrices (..., d, d) with these coordinates."""
    size = coordinates.shape[-1]
    if has_all_entries(math.isqrt(size)):
        levels, flat = math.isqrt(size // 2), coordinates
    else:
        levels = math.isqrt(size)
        flat = times(coordinates, basis_vectors(levels, coordinates.dtype, coordinates.device).T)
    return kets(flat).unflatten(-1, (levels, levels))


def kets(coordinates: torch.Tensor) -> torch.Tensor:
    """The complex kets (..., d) of these coordinates, the real and imaginary parts (..., 2 d) in turn."""
    *states, size = coordinates.shape
    # Not a view, since torch.compile cannot take one of a tensor whose last dimension is not 2.
    return torch.view_as_complex(coordinates.reshape(*states, size // 2, 2)).clone()


def times(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """`rows @ matrix.T` for rows (..., m) and a small matrix (k, m), each row bitwise the same among any others.

    The order in which a matrix product adds depends on the number of rows.
    """
    if len(matrix) == 1:  # the same in half of the time
        return (rows * matrix).sum(-1, keepdim=True)
    return (rows.unsqueeze(-2) * matrix).sum(-1)


def as_complex(given: Any, like: torch.Tensor, what: str = "") -> torch.Tensor:
    """An array of numbers as a complex tensor of the precision and on the device of `like`. what: its name, for errors.

    Raises:
        UserError: it is not an array of numbers, or a list of tensors with gradients, which would be lost.
    """
    if not isinstance(given, torch.Tensor):
        try:
            array = np.asarray(given)
            # NumPy makes numbers of text and of None.
            if array.dtype.kind not in "biufc":
                raise TypeError
            given = torch.tensor(array.astype(np.complex128))
        except (TypeError, ValueError, RuntimeError):
            said = f"{what}: " if what else ""
            raise UserError(f"{said}{str(given)[:60]} is not an array of numbers, nor a tensor") from None
    return given.to(like.device, like.dtype.to_complex())


def as_real(what: str, given: Any, like: torch.Tensor) -> torch.Tensor:
    """Numbers or arrays in the precision and on the device of `like`; a tensor as it is, to be checked.

    Raises:
        UserError: they are no numbers, or complex.
    """
    if isinstance(given, torch.Tensor):
        return given
    if isinstance(given, (int, float)):
        return torch.tensor(given, dtype=like.dtype, device=like.device)
    made = as_complex(given, like, what)
    if made.imag.count_nonzero():
        raise UserError(f"{what}: some are complex; give real numbers")
    return made.real.clone()


def as_states(what: str, given: Any) -> torch.Tensor:
    """States that somebody has evolved, perhaps as an array, or real ones, as a complex tensor.

    Raises:
        UserError: they are no floating-point numbers.
    """
    if not isinstance(given, torch.Tensor):
        return as_complex(given, torch.empty(0, dtype=torch.float64), what)
    if not given.is_complex() and given.dtype not in (torch.float32, torch.float64):
        raise UserError(f"{what}: is {given.dtype}, and must be complex")
    return given if given.is_complex() else given.to(given.dtype.to_complex())


@lru_cache(maxsize=64)
def basis_vectors(dimension: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The basis as real vectors (d**2, 2 d**2)."""
    flat = hermitian_basis(dimension).reshape(dimension**2, dimension**2).view(np.float64)
    # The first caller may be in inference mode or in torch.func.
    with torch.inference_mode(False):
        return unwrapped(torch.from_numpy(flat).to(device, dtype))
