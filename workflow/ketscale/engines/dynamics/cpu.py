"""The compiled evolution of real linear systems, differentiable to any order.

The backward pass keeps the state before each segment only: a dissipative evolution is not integrated backwards, and
the steps within a segment are computed again. The gradient is itself differentiable: the derivative of a linear system
in a direction is a linear system of twice the size (`Generators.with_tangent`), which the same code evolves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ketscale.engines.compiled.kernel import threads_for
from ketscale.engines.derivatives import Rows
from ketscale.engines.dynamics.code import Code, code_of
from ketscale.engines.dynamics.evolution import Evolution
from ketscale.engines.dynamics.tasks import ket_coordinates, kets
from ketscale.measure.spans import span
from ketscale.private_torch import applied, forward_mode, transforms_active

# Bytes of states before segments that one backward pass keeps; of longer pulses it computes parts again, from their starts.
KEPT_BYTES = 1 << 28


def evolve(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
) -> torch.Tensor:
    """Final coordinates (tasks, size), differentiable in all three; on the CPU, in fp32 or fp64.

    fixed: (tasks, F). controls: (tasks, segments, K). initial: (tasks, size), or several states for each task,
    (tasks, m, size), and so the result. See `Generators`.
    """
    return _evolved(fixed, controls, initial, evolution, columns=False)


def evolve_columns(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
) -> torch.Tensor:
    """Final kets as columns, complex (tasks, d, m), from the coordinates (tasks, m, 2 d); see `evolve`."""
    return _evolved(fixed, controls, initial, evolution, columns=True)


def _evolved(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution, columns: bool
) -> torch.Tensor:
    recorded = is_recorded(fixed, controls, initial)
    at_once = max(1, KEPT_BYTES // max(1, initial.numel() * initial.element_size()))
    if not recorded or controls.shape[1] <= at_once:
        keeps = recorded and not transforms_active()
        return applied(_Final(evolution, keeps, columns), fixed, controls, initial)[0]
    *parts, last = controls.split(at_once, 1)
    for part in parts:
        (initial,) = applied(_Final(evolution, False), fixed, part, initial)
    return applied(_Final(evolution, False, columns), fixed, last, initial)[0]


def segment_ends(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
) -> torch.Tensor:
    """Coordinates at the start and at the end of each segment (tasks, segments + 1, [m,] size); see `evolve`."""
    if is_recorded(fixed, controls, initial):
        states = [initial]
        for part in controls.split(1, 1):
            states.append(evolve(fixed, part, states[-1], evolution))
        return torch.stack(states, 1)
    given = _each_a_task(fixed, controls, initial)
    call, rows = _call(*given, evolution), given[-1]
    saved = call.saved()
    made = rows[:, None].repeat(1, controls.shape[1] + 1, 1)
    made[:, -1] = call.forward(torch.empty_like(rows, memory_format=torch.contiguous_format), saved)
    made[:, :-1, call.code.plan.rows] = saved.permute(0, 3, 1, 2).flatten(0, 1)[: rows.shape[0]]
    return made if initial.ndim == 2 else made.unflatten(0, initial.shape[:2]).transpose(1, 2)


def _each_a_task(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Several states of a task as tasks with the same coefficients."""
    if initial.ndim == 2:
        return fixed, controls, initial
    fixed, controls = (
        each.expand(initial.shape[1], *each.shape[1:])
        if each.shape[0] == 1
        else each.repeat_interleave(initial.shape[1], 0)
        for each in (fixed, controls)
    )
    return fixed, controls, initial.flatten(0, 1)


def is_recorded(*tensors: torch.Tensor) -> bool:
    """Whether somebody may ask for derivatives by these tensors."""
    if transforms_active() or forward_mode():
        return True
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


class _Final(Rows):
    """The final coordinates, by fixed coefficients, controls and initial coordinates.

    keeps: whether the states before each segment are kept for one backward pass, which otherwise computes them again.
    columns: whether the result is complex columns.
    """

    def __init__(self, evolution: Evolution, keeps: bool, columns: bool = False) -> None:
        self.evolution, self.keeps, self.columns = evolution, keeps, columns
        self.kept: tuple[_Call, torch.Tensor] | None = None

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.__call__`."""
        call = _call(*_each_a_task(*tensors), self.evolution)
        saved = call.saved() if self.keeps else None
        self.kept = None if saved is None else (call, saved)
        initial = tensors[2]
        if not self.columns:
            return (call.forward(initial.new_empty(initial.shape), saved),)
        *states, size = initial.shape
        final = initial.new_empty((*states, size // 2), dtype=initial.dtype.to_complex())
        return (call.forward(final, saved).mT,)

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], _: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """See `Differentiable.pull`."""
        kept, self.kept = self.kept, None
        (cotangent,) = cotangents
        cotangent = ket_coordinates(cotangent.mT) if self.columns else cotangent
        gradient = _Gradient(self.evolution, kept)
        if torch.is_grad_enabled() or transforms_active():
            return applied(gradient, cotangent, *tensors)
        return gradient(cotangent, *tensors)

    def push(
        self, tensors: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.push`."""
        (final,) = applied(_Final(_with_tangent(self.evolution), False), *_beside(tensors, tangents))
        moved = final[..., final.shape[-1] // 2 :]
        return (kets(moved).mT if self.columns else moved,)


class _Gradient(Rows):
    """The gradients by the tensors of `_Final`, by its cotangent and these tensors.

    kept: see `_Final`; the states are not changed.
    """

    def __init__(self, evolution: Evolution, kept: tuple[_Call, torch.Tensor] | None = None) -> None:
        self.evolution, self.kept = evolution, kept

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.__call__`."""
        cotangent, *given = tensors
        if self.kept is None:
            call = _call(*_each_a_task(*given), self.evolution)
            saved = call.saved()
            call.forward(torch.empty_like(call.arguments["initial"]), saved)
        else:
            call, saved = self.kept
        self.kept = None
        if cotangent.ndim == 2:
            return call.backward(cotangent, saved)
        by_fixed, by_controls, by_initial = call.backward(cotangent.flatten(0, 1), saved)
        each = cotangent.shape[:2]
        by_fixed, by_controls = (
            found.view(*each, *found.shape[1:]).sum(1) for found in (by_fixed, by_controls)
        )
        return by_fixed, by_controls, by_initial.view(cotangent.shape)

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], _: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """See `Differentiable.pull`.

        Gradients v have the product <v, directions> = <cotangent, p>, where p is the derivative of the final state in
        these directions. So v's own gradients are p, and those of <cotangent, p> by the evolution with tangent.
        """
        cotangent, *given = tensors
        with span("dynamics.backward"):
            (along,) = _Final(self.evolution, False).push(given, cotangents)
            return along, *self._along(torch.zeros_like(cotangent), cotangent, given, cotangents)

    def push(
        self, tensors: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.push`: the gradients of <its tangent, final state> + <cotangent, p>, as in `pull`."""
        (cotangent, *given), (by_cotangent, *others) = tensors, tangents
        first = torch.zeros_like(cotangent) if by_cotangent is None else by_cotangent
        return self._along(first, cotangent, given, others)

    def _along(
        self,
        first: torch.Tensor,
        second: torch.Tensor,
        given: Sequence[torch.Tensor],
        tangents: Sequence[torch.Tensor | None],
    ) -> tuple[torch.Tensor, ...]:
        """The gradients by what is given of the product of two cotangents with the final state and its derivative."""
        twice = _Gradient(_with_tangent(self.evolution))
        gradients = applied(twice, torch.cat([first, second], -1), *_beside(given, tangents))
        return tuple(gradient[..., : gradient.shape[-1] // 2] for gradient in gradients)


def _with_tangent(evolution: Evolution) -> Evolution:
    return evolution._replace(generators=evolution.generators.with_tangent)


def _beside(
    tensors: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
) -> Iterator[torch.Tensor]:
    """Each tensor and its tangent, None for 0, side by side."""
    for tensor, tangent in zip(tensors, tangents, strict=True):
        yield torch.cat([tensor, torch.zeros_like(tensor) if tangent is None else tangent], -1)


class _Call(NamedTuple):
    """What the forward and the backward pass of some tasks ask of the code alike."""

    code: Code
    threads: int
    arguments: Mapping[str, Any]

    def saved(self) -> torch.Tensor:
        """See `Code.saved`."""
        return self.code.saved(self.arguments["controls"])

    def forward(self, final: torch.Tensor, saved: torch.Tensor | None) -> torch.Tensor:
        """The final coordinates, in the memory of `final`, whose floats are (tasks, size)."""
        self._run("forward", final=final, **({} if saved is None else {"saved": saved, "keep": 1}))
        return final

    def backward(self, cotangent: torch.Tensor, saved: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The gradients by fixed coefficients, controls and initial coordinates."""
        fixed, controls, initial = (
            tensor.new_empty(tensor.shape) for tensor in map(self.arguments.__getitem__, GIVEN)
        )
        given = _by_task(cotangent) if cotangent.shape[0] else cotangent
        made = {"to_fixed": fixed, "to_controls": controls, "to_initial": initial}
        self._run("backward", cotangent=given, cotangent_stride=given.stride(0), saved=saved, **made)
        return fixed, controls, initial

    def _run(self, name: str, **more: Any) -> None:
        if self.arguments["batch"]:
            plan, lanes, initial = self.code.plan, self.code.lanes, self.arguments["initial"]
            scratch = initial.new_empty(self.threads * plan.scratch_vectors * lanes)
            self.code.kernel.run(name, self.threads, scratch=scratch, **self.arguments, **more)


GIVEN = ("fixed", "controls", "initial")


def _call(fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution) -> _Call:
    """The call of tasks with one state each; see `evolve`."""
    code, (tasks, segments, _), steps = code_of(evolution, initial), controls.shape, evolution.division.steps
    groups = -(-tasks // code.lanes)
    work = code.plan.multiplications * segments * max(1, steps) * tasks
    if tasks:
        fixed, controls, initial = _by_task(fixed), _by_task(controls), _by_task(initial)
    arguments = {
        **code.arguments,
        "batch": tasks, "groups": groups, "segments": segments, "steps": steps, "tau": evolution.tau,
        "fixed": fixed, "fixed_stride": fixed.stride(0), "controls": controls, "controls_stride": controls.stride(0),
        "initial": initial, "initial_stride": initial.stride(0),
    }  # fmt: skip
    return _Call(code, threads_for(groups, work), arguments)


def _by_task(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with the floats of each task side by side; tasks that share them still do."""
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor if tensor.is_contiguous() or tensor[0].is_contiguous() else tensor.contiguous()
