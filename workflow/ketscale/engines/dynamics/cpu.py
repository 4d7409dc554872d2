"""The compiled evolution of real linear systems, differentiable to any order.

The backward pass keeps the state before each segment only: a dissipative evolution is not integrated backwards, and
the steps within a segment are computed again. The gradient is itself differentiable: the derivative of a linear system
in a direction is a linear system of twice the size (`Generators.with_tangent`), which the same code evolves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ketscale.engines.compiled.kernel import threads_for
from ketscale.engines.derivatives import Rows
from ketscale.engines.dynamics.code import Code, code_of
from ketscale.engines.dynamics.evolution import Evolution
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
    if initial.ndim == 3:
        return evolve(*_each_a_task(fixed, controls, initial), evolution).unflatten(0, initial.shape[:2])
    segments, recorded = controls.shape[1], is_recorded(fixed, controls, initial)
    at_once = max(1, KEPT_BYTES // max(1, initial.numel() * initial.element_size()))
    if not recorded or segments <= at_once:
        keeps = recorded and not transforms_active()
        return applied(_Final(evolution, keeps), fixed, controls, initial)[0]
    for part in controls.split(at_once, 1):
        (initial,) = applied(_Final(evolution, False), fixed, part, initial)
    return initial


def segment_ends(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
) -> torch.Tensor:
    """Coordinates at the start and at the end of each segment (tasks, segments + 1, [m,] size); see `evolve`."""
    if initial.ndim == 3:
        ends = segment_ends(*_each_a_task(fixed, controls, initial), evolution)
        return ends.unflatten(0, initial.shape[:2]).transpose(1, 2)
    if is_recorded(fixed, controls, initial):
        states = [initial]
        for part in controls.split(1, 1):
            states.append(evolve(fixed, part, states[-1], evolution))
        return torch.stack(states, 1)
    code = code_of(evolution, initial)
    saved = code.saved(controls)
    final = _forward(fixed, controls, initial, evolution, code, saved)
    rows = saved.permute(0, 3, 1, 2).flatten(0, 1)[: len(initial)]
    made = initial[:, None].repeat(1, controls.shape[1] + 1, 1)
    made[:, :-1, code.plan.rows] = rows
    made[:, -1] = final
    return made


def _each_a_task(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Several states of a task as tasks with the same coefficients."""
    states = initial.shape[1]
    fixed, controls = (
        each[:, None].expand(-1, states, *each.shape[1:]).flatten(0, 1) for each in (fixed, controls)
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
    """

    def __init__(self, evolution: Evolution, keeps: bool) -> None:
        self.evolution, self.keeps = evolution, keeps
        self.kept: tuple[Code, torch.Tensor] | None = None

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.__call__`."""
        fixed, controls, initial = tensors
        code = code_of(self.evolution, initial)
        saved = code.saved(controls) if self.keeps else None
        self.kept = None if saved is None else (code, saved)
        return (_forward(fixed, controls, initial, self.evolution, code, saved),)

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], _: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """See `Differentiable.pull`."""
        kept, self.kept = self.kept, None
        return applied(_Gradient(self.evolution, kept), *cotangents, *tensors)

    def push(
        self, tensors: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.push`."""
        (final,) = applied(_Final(_with_tangent(self.evolution), False), *_beside(tensors, tangents))
        return (final[..., final.shape[-1] // 2 :],)


class _Gradient(Rows):
    """The gradients by the tensors of `_Final`, by its cotangent and these tensors.

    kept: see `_Final`; the states are not changed.
    """

    def __init__(self, evolution: Evolution, kept: tuple[Code, torch.Tensor] | None = None) -> None:
        self.evolution, self.kept = evolution, kept

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.__call__`."""
        cotangent, fixed, controls, initial = tensors
        evolution = self.evolution
        if self.kept is None:
            code = code_of(evolution, initial)
            saved = code.saved(controls)
            _forward(fixed, controls, initial, evolution, code, saved)
        else:
            code, saved = self.kept
        self.kept = None
        return _backward(cotangent, fixed, controls, initial, saved, evolution, code)

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


def _forward(
    fixed: torch.Tensor,
    controls: torch.Tensor,
    initial: torch.Tensor,
    evolution: Evolution,
    code: Code,
    saved: torch.Tensor | None,
) -> torch.Tensor:
    final = initial.new_empty(initial.shape)
    results = {"final": final} if saved is None else {"final": final, "saved": saved, "keep": 1}
    _call("forward", fixed, controls, initial, evolution, code, results)
    return final


def _backward(
    cotangent: torch.Tensor,
    fixed: torch.Tensor,
    controls: torch.Tensor,
    initial: torch.Tensor,
    saved: torch.Tensor,
    evolution: Evolution,
    code: Code,
) -> tuple[torch.Tensor, ...]:
    made = tuple(tensor.new_empty(tensor.shape) for tensor in (fixed, controls, initial))
    gradients = dict(zip(("to_fixed", "to_controls", "to_initial"), made, strict=True))
    given = _by_task(cotangent) if len(cotangent) else cotangent
    values = {"cotangent": given, "cotangent_stride": given.stride(0), "saved": saved, **gradients}
    _call("backward", fixed, controls, initial, evolution, code, values)
    return made


def _call(
    name: str,
    fixed: torch.Tensor,
    controls: torch.Tensor,
    initial: torch.Tensor,
    evolution: Evolution,
    code: Code,
    values: dict[str, Any],
) -> None:
    tasks, segments = controls.shape[:2]
    if tasks == 0:
        return
    plan, lanes, steps = code.plan, code.lanes, evolution.division.steps
    groups = -(-tasks // lanes)
    threads = threads_for(groups, plan.multiplications * segments * max(1, steps) * tasks)
    fixed, controls, initial = _by_task(fixed), _by_task(controls), _by_task(initial)
    code.kernel.run(
        name,
        threads,
        **code.arguments,
        **values,
        batch=tasks,
        groups=groups,
        segments=segments,
        steps=steps,
        tau=evolution.tau,
        fixed=fixed,
        fixed_stride=fixed.stride(0),
        controls=controls,
        controls_stride=controls.stride(0),
        initial=initial,
        initial_stride=initial.stride(0),
        scratch=initial.new_empty(threads * plan.scratch_vectors * lanes),
    )


def _by_task(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with the floats of each task side by side; tasks that share them still do."""
    tensor = tensor.resolve_neg()
    return tensor if tensor[0].is_contiguous() else tensor.contiguous()
