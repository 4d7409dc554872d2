"""The compiled evolution of real linear systems, differentiable to any order.

The backward pass keeps the state before each segment only: a dissipative evolution is not integrated backwards, and
the steps within a segment are computed again. The gradient is itself differentiable: the derivative of a linear system
in a direction is a linear system of twice the size (`Generators.with_tangent`), which the same code evolves.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ketscale.engines.compiled.kernel import Kernel, lanes_of, threads_for
from ketscale.engines.dynamics import kernels
from ketscale.engines.dynamics import plan as plan_module
from ketscale.engines.dynamics.evolution import Evolution
from ketscale.engines.dynamics.plan import EvolutionPlan
from ketscale.measure.spans import span

# Up to this many coordinates two vectors are interleaved, since one alone waits for its own results.
FEW_COORDINATES = 4


def evolve(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
) -> torch.Tensor:
    """Final coordinates (tasks, size), differentiable in all three; on the CPU, in fp32 or fp64.

    fixed: (tasks, F). controls: (tasks, segments, K). initial: (tasks, size). See `Generators`.
    """
    if not (
        torch.is_grad_enabled() and (fixed.requires_grad or controls.requires_grad or initial.requires_grad)
    ):
        return _forward(fixed, controls, initial, evolution, saved=None)
    final: torch.Tensor = _Evolution.apply(fixed, controls, initial, evolution)[0]
    return final


def segment_ends(
    fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
) -> torch.Tensor:
    """Coordinates at the start and at the end of each segment (tasks, segments + 1, size), without gradients."""
    compiled = _compiled(evolution, initial.dtype)
    saved = _saved(compiled, controls)
    final = _forward(fixed, controls, initial, evolution, saved)
    rows = saved.permute(0, 3, 1, 2).flatten(0, 1)[: len(initial)]
    made = initial[:, None].repeat(1, controls.shape[1] + 1, 1)
    made[:, :-1, compiled.plan.forms.rows] = rows
    made[:, -1] = final
    return made


class _Evolution(torch.autograd.Function):
    """The final coordinates, and the states before each segment in the kernel's layout."""

    @staticmethod
    def forward(
        ctx: Any, fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution
    ) -> tuple[torch.Tensor, torch.Tensor]:
        saved = _saved(_compiled(evolution, initial.dtype), controls)
        final = _forward(fixed, controls, initial, evolution, saved)
        ctx.save_for_backward(fixed, controls, initial, saved)
        ctx.evolution = evolution
        ctx.mark_non_differentiable(saved)
        ctx.set_materialize_grads(False)
        return final, saved

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor | None, _: None) -> tuple[torch.Tensor | None, ...]:
        if cotangent is None:
            return None, None, None, None
        return *_EvolutionGradient.apply(cotangent, *ctx.saved_tensors, ctx.evolution), None


class _EvolutionGradient(torch.autograd.Function):
    """The gradients of `_Evolution` by its three tensors, as functions of these and of the result's cotangent."""

    @staticmethod
    def forward(
        ctx: Any,
        cotangent: torch.Tensor,
        fixed: torch.Tensor,
        controls: torch.Tensor,
        initial: torch.Tensor,
        saved: torch.Tensor,
        evolution: Evolution,
    ) -> tuple[torch.Tensor, ...]:
        ctx.save_for_backward(cotangent, fixed, controls, initial)
        ctx.evolution = evolution
        return _backward(cotangent, fixed, controls, initial, saved, evolution)

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
            final, saved = _Evolution.apply(*pairs, evolution)
            gradients = _EvolutionGradient.apply(by_tangent, *pairs, saved, evolution)
        own = [
            gradient[..., : tensor.shape[-1]]
            for gradient, tensor in zip(gradients, (fixed, controls, initial), strict=True)
        ]
        return final[..., initial.shape[-1] :], *own, None, None


def _saved(compiled: _Compiled, controls: torch.Tensor) -> torch.Tensor:
    """Memory for the states before each segment (groups, segments, changing coordinates, lanes)."""
    tasks, segments = controls.shape[:2]
    return controls.new_empty(-(-tasks // compiled.lanes), segments, compiled.plan.changing, compiled.lanes)


def _forward(
    fixed: torch.Tensor,
    controls: torch.Tensor,
    initial: torch.Tensor,
    evolution: Evolution,
    saved: torch.Tensor | None,
) -> torch.Tensor:
    final = initial.new_empty(initial.shape)
    results = {"final": final} if saved is None else {"final": final, "saved": saved, "keep": 1}
    _call("forward", fixed, controls, initial, evolution, results)
    return final


def _backward(
    cotangent: torch.Tensor,
    fixed: torch.Tensor,
    controls: torch.Tensor,
    initial: torch.Tensor,
    saved: torch.Tensor,
    evolution: Evolution,
) -> tuple[torch.Tensor, ...]:
    made = tuple(tensor.new_empty(tensor.shape) for tensor in (fixed, controls, initial))
    gradients = dict(zip(("to_fixed", "to_controls", "to_initial"), made, strict=True))
    given = _by_task(cotangent) if len(cotangent) else cotangent
    values = {"cotangent": given, "cotangent_stride": given.stride(0), "saved": saved, **gradients}
    _call("backward", fixed, controls, initial, evolution, values)
    return made


def _call(
    name: str,
    fixed: torch.Tensor,
    controls: torch.Tensor,
    initial: torch.Tensor,
    evolution: Evolution,
    values: dict[str, Any],
) -> None:
    tasks, segments = controls.shape[:2]
    if tasks == 0:
        return
    (plan, lanes, kernel), steps = _compiled(evolution, initial.dtype), evolution.division.steps
    groups = -(-tasks // lanes)
    threads = threads_for(groups, plan.multiplications * segments * max(1, steps) * tasks)
    fixed, controls, initial = _by_task(fixed), _by_task(controls), _by_task(initial)
    kernel.run(
        name,
        threads,
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


class _Compiled(NamedTuple):
    """The code of an evolution in one precision, and the tasks in a vector."""

    plan: EvolutionPlan
    lanes: int
    kernel: Kernel


@lru_cache(maxsize=256)
def _compiled(evolution: Evolution, dtype: torch.dtype) -> _Compiled:
    plan = EvolutionPlan(evolution.generators, evolution.division.degrees, evolution.division.reaches)
    lanes = (2 if plan.size <= FEW_COORDINATES else 1) * lanes_of(dtype)
    return _Compiled(plan, lanes, _kernel(plan, dtype, lanes))


@lru_cache(maxsize=64)
def _kernel(plan: EvolutionPlan, dtype: torch.dtype, lanes: int) -> Kernel:
    functions = (kernels.forward, kernels.backward)
    return Kernel(functions, kernels.ARGUMENTS, dtype, lanes, plan, (plan_module,))
