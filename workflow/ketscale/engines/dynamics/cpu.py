"""The compiled evolution of real linear systems, differentiable to any order.

The backward pass keeps the state before each segment only: a dissipative evolution is not integrated backwards, and
the steps within a segment are computed again. The gradient is itself differentiable: the derivative of a linear system
in a direction is a linear system of twice the size (`Generators.with_tangent`), which the same code evolves.
"""

from __future__ import annotations

from typing import Any

import torch

from ketscale.engines.compiled.kernel import threads_for
from ketscale.engines.dynamics.code import Code, code_of
from ketscale.engines.dynamics.evolution import Evolution
from ketscale.measure.spans import span

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
    if not _needs_gradients(fixed, controls, initial):
        return _forward(fixed, controls, initial, evolution, code_of(evolution, initial), saved=None)
    segments = controls.shape[1]
    at_once = max(1, KEPT_BYTES // max(1, initial.numel() * initial.element_size()))
    if segments <= at_once:
        final: torch.Tensor = _Evolution.apply(fixed, controls, initial, evolution, True)[0]
        return final
    for part in controls.split(at_once, 1):
        initial = _Evolution.apply(fixed, part, initial, evolution, False)[0]
    return initial


def segment_ends(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
) -> torch.Tensor:
    """Coordinates at the start and at the end of each segment (tasks, segments + 1, [m,] size); see `evolve`."""
    if initial.ndim == 3:
        ends = segment_ends(*_each_a_task(fixed, controls, initial), evolution)
        return ends.unflatten(0, initial.shape[:2]).transpose(1, 2)
    if _needs_gradients(fixed, controls, initial):
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


def _needs_gradients(*tensors: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


class _Evolution(torch.autograd.Function):
    """The final coordinates, and, if they are kept, the states before each segment in the code's layout."""

    @staticmethod
    def forward(
        ctx: Any,
        fixed: torch.Tensor,
        controls: torch.Tensor,
        initial: torch.Tensor,
        evolution: Evolution,
        keep: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        code = code_of(evolution, initial)
        saved = code.saved(controls) if keep else None
        final = _forward(fixed, controls, initial, evolution, code, saved)
        ctx.save_for_backward(fixed, controls, initial, saved)
        ctx.evolution, ctx.code = evolution, code
        if saved is not None:
            ctx.mark_non_differentiable(saved)
        ctx.set_materialize_grads(False)
        return final, saved

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor | None, _: None) -> tuple[torch.Tensor | None, ...]:
        if cotangent is None:
            return None, None, None, None, None
        given = (*ctx.saved_tensors, ctx.evolution, ctx.code)
        return *_EvolutionGradient.apply(cotangent, *given), None, None


class _EvolutionGradient(torch.autograd.Function):
    """The gradients of `_Evolution` by its three tensors, as functions of these and of the result's cotangent."""

    @staticmethod
    def forward(
        ctx: Any,
        cotangent: torch.Tensor,
        fixed: torch.Tensor,
        controls: torch.Tensor,
        initial: torch.Tensor,
        saved: torch.Tensor | None,
        evolution: Evolution,
        code: Code,
    ) -> tuple[torch.Tensor, ...]:
        ctx.save_for_backward(cotangent, fixed, controls, initial)
        ctx.evolution = evolution
        if saved is None:
            saved = code.saved(controls)
            _forward(fixed, controls, initial, evolution, code, saved)
        return _backward(cotangent, fixed, controls, initial, saved, evolution, code)

    @staticmethod
    def backward(
        ctx: Any, to_fixed: torch.Tensor, to_controls: torch.Tensor, to_initial: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        # Gradients v have the product <v, directions> = <cotangent, p>, where p is the derivative of the final state
        # in these directions. So v's own gradients are p, and those of <cotangent, p> by the evolution with tangent.
        cotangent, fixed, controls, initial = ctx.saved_tensors
        evolution = ctx.evolution._replace(generators=ctx.evolution.generators.with_tangent)
        pairs = (
            torch.cat([fixed, to_fixed], -1),
            torch.cat([controls, to_controls], -1),
            torch.cat([initial, to_initial], -1),
        )
        by_tangent = torch.cat([torch.zeros_like(cotangent), cotangent], -1)
        with span("dynamics.backward"):
            final, saved = _Evolution.apply(*pairs, evolution, True)
            gradients = _EvolutionGradient.apply(
                by_tangent, *pairs, saved, evolution, code_of(evolution, pairs[2])
            )
        own = [
            gradient[..., : tensor.shape[-1]]
            for gradient, tensor in zip(gradients, (fixed, controls, initial), strict=True)
        ]
        return final[..., initial.shape[-1] :], *own, None, None, None


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
