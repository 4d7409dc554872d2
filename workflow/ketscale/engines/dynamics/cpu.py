"""The compiled evolution of real linear systems, differentiable to any order.

The backward pass keeps the state before each segment only: a dissipative evolution is not integrated backwards, and
the steps within a segment are computed again. The gradient is itself differentiable: the derivative of a linear system
in a direction is a linear system of twice the size (`Generators.with_tangent`), which the same code evolves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ketscale.autograd_function import applied
from ketscale.engines.compiled.kernel import Kernel, lanes_of, threads_for
from ketscale.engines.derivatives import Rows, is_recorded, one_gradient
from ketscale.engines.dynamics import kernels
from ketscale.engines.dynamics.generators import Evolution
from ketscale.engines.dynamics.plan import table
from ketscale.private_torch import transforms_active
from ketscale.spans import span


@lru_cache(maxsize=16)
def _kernel(dtype: torch.dtype, lanes: int) -> Kernel:
    return Kernel((kernels.forward, kernels.backward), kernels.ARGUMENTS, dtype, lanes)


def _lanes(tasks: int, dtype: torch.dtype) -> int:
    """Tasks in a vector: two vectors side by side share what is looked up."""
    usual = lanes_of(dtype)
    return 1 if tasks == 1 else 2 * usual if tasks > usual else usual


def evolve(
    fixed: torch.Tensor,
    controls: torch.Tensor,
    initial: torch.Tensor,
    evolution: Evolution,
    trajectory: bool = False,
) -> torch.Tensor:
    """Final coordinates (tasks, size), differentiable in all three; on the CPU, in fp32 or fp64.

    fixed: (tasks, F). controls: (tasks, segments, K). initial: (tasks, size), or several states for each task,
    (tasks, m, size), and so the result. See `Generators`. trajectory: whether the result has the start and the end of
    each segment, (tasks, segments + 1, [m,] size).
    """
    keeps = is_recorded(fixed, controls, initial) and not transforms_active()
    return applied(_States(evolution, trajectory, keeps), fixed, controls, initial)[0]


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


class _States(Rows):
    """The final coordinates, or those of the trajectory, by fixed coefficients, controls and initial coordinates.

    keeps: whether the states before each segment are kept for one backward pass, which otherwise computes them again.
    """

    def __init__(self, evolution: Evolution, trajectory: bool = False, keeps: bool = False) -> None:
        self.evolution, self.trajectory, self.keeps = evolution, trajectory, keeps
        self.kept: tuple[_Call, torch.Tensor] | None = None

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        call, initial = _call(*_each_a_task(*tensors), self.evolution), tensors[2]
        saved = call.saved() if self.keeps or self.trajectory else None
        self.kept = (call, saved) if saved is not None and self.keeps else None
        final = call.forward(initial.new_empty(initial.shape), saved)
        if saved is None or not self.trajectory:
            return (final,)
        ends = final if initial.ndim == 2 else final.flatten(0, 1)
        before = saved.permute(0, 3, 1, 2).flatten(0, 1)[: len(ends)]
        states = torch.cat([before, ends[:, None]], 1)
        return (states if initial.ndim == 2 else states.unflatten(0, initial.shape[:2]).transpose(1, 2),)

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], _: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        one_gradient("a propagator", cotangents[0])
        kept, self.kept = self.kept, None
        gradient = _Gradient(self.evolution, self.trajectory, kept)
        if torch.is_grad_enabled() or transforms_active():
            return applied(gradient, *cotangents, *tensors)
        return gradient(*cotangents, *tensors)

    def push(
        self, tensors: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor, ...]:
        (states,) = applied(
            _States(_with_tangent(self.evolution), self.trajectory), *_beside(tensors, tangents)
        )
        return (states[..., states.shape[-1] // 2 :],)


class _Gradient(Rows):
    """The gradients by the tensors of `_States`, by its cotangent and these tensors.

    kept: see `_States`; the states are not changed.
    """

    def __init__(
        self, evolution: Evolution, trajectory: bool, kept: tuple[_Call, torch.Tensor] | None = None
    ) -> None:
        self.evolution, self.trajectory, self.kept = evolution, trajectory, kept

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cotangent, *given = tensors
        initial = given[2]
        if self.kept is None:
            call = _call(*_each_a_task(*given), self.evolution)
            saved = call.saved()
            call.forward(initial.new_empty(initial.shape), saved)
        else:
            call, saved = self.kept
        self.kept = None
        if initial.ndim > 2:
            # Each state's times side by side.
            cotangent = (cotangent.transpose(1, 2) if self.trajectory else cotangent).flatten(0, 1)
        rows, by_initial = _by_task(cotangent), initial.new_empty(initial.shape)
        by_fixed, by_controls = call.backward(rows, rows.stride(0), saved, by_initial, self.trajectory)
        if initial.ndim > 2:
            by_fixed, by_controls = (
                found.unflatten(0, initial.shape[:2]).sum(1) for found in (by_fixed, by_controls)
            )
        return by_fixed, by_controls, by_initial

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], _: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        """See `Differentiable.pull`.

        Gradients v have the product <v, directions> = <cotangent, p>, where p is the derivative of the states in
        these directions. So v's own gradients are p, and those of <cotangent, p> by the evolution with tangent.
        """
        cotangent, *given = tensors
        with span("dynamics.backward"):
            (along,) = _States(self.evolution, self.trajectory).push(given, cotangents)
            return along, *self._along(torch.zeros_like(cotangent), cotangent, given, cotangents)

    def push(
        self, tensors: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor, ...]:
        """See `Differentiable.push`: the gradients of <its tangent, states> + <cotangent, p>, as in `pull`."""
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
        """The gradients by what is given of the product of two cotangents with the states and their derivative."""
        twice = _Gradient(_with_tangent(self.evolution), self.trajectory)
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
    """What the forward and the backward pass of some tasks with one state each ask of the code alike.

    lanes: tasks in a vector. dtype, shape: of the tasks' floats, and (tasks, segments).
    """

    lanes: int
    dtype: torch.dtype
    shape: tuple[int, int]
    threads: int
    arguments: Mapping[str, Any]

    def saved(self) -> torch.Tensor:
        """Memory for the states before each segment (groups, segments, coordinates, lanes)."""
        size = self.arguments["groups"], self.shape[1], self.arguments["size"], self.lanes
        return torch.empty(size, dtype=self.dtype, device="cpu")

    def forward(self, final: torch.Tensor, saved: torch.Tensor | None) -> torch.Tensor:
        """The final coordinates, written to the memory of `final`, whose floats are (tasks, size)."""
        self._run("forward", final=final, **({} if saved is None else {"saved": saved, "keep": 1}))
        return final

    def backward(
        self,
        cotangent: torch.Tensor,
        stride: int,
        saved: torch.Tensor,
        by_initial: torch.Tensor,
        trajectory: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients by fixed coefficients and controls; those by initial coordinates are written to `by_initial`.

        cotangent: floats (tasks, size), or of a trajectory (tasks, segments + 1, size). stride: of its tasks, in floats.
        """
        (tasks, segments), of = self.shape, self.arguments
        fixed = torch.empty(tasks, of["fixed_count"], dtype=self.dtype, device="cpu")
        controls = torch.empty(tasks, segments, of["control_count"], dtype=self.dtype, device="cpu")
        made = {
            "to_fixed": fixed, "to_controls": controls, "to_initial": by_initial, "each_end": int(trajectory)
        }  # fmt: skip
        self._run("backward", cotangent=cotangent, cotangent_stride=stride, saved=saved, **made)
        return fixed, controls

    def _run(self, name: str, **more: Any) -> None:
        if self.shape[0]:
            size = self.threads * self.arguments["scratch_vectors"] * self.lanes
            scratch = torch.empty(size, dtype=self.dtype, device="cpu")
            kernel = _kernel(self.dtype, self.lanes)
            kernel.run(name, self.threads, scratch=scratch, **self.arguments, **more)


def _call(fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor, evolution: Evolution) -> _Call:
    """The call of tasks with one state each; see `evolve`."""
    (tasks, segments, _), dtype = controls.shape, initial.dtype
    fixed, controls, initial = _by_task(fixed), _by_task(controls), _by_task(initial)
    degrees, reaches, steps, _ = evolution.division
    of_system = table(evolution.generators, degrees, reaches, dtype)
    lanes = _lanes(tasks, dtype)
    groups = -(-tasks // lanes)
    multiplications = degrees[-1] * (len(of_system["by_row"]) + of_system["size"])
    work = multiplications * segments * max(1, steps) * tasks
    arguments = {
        **of_system,
        "batch": tasks, "groups": groups, "segments": segments, "steps": steps, "tau": evolution.tau,
        "fixed": fixed, "fixed_stride": fixed.stride(0), "controls": controls, "controls_stride": controls.stride(0),
        "initial": initial, "initial_stride": initial.stride(0),
    }  # fmt: skip
    return _Call(lanes, dtype, (tasks, segments), threads_for(groups, work), arguments)


def _by_task(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with the floats of each task side by side; tasks that share them still do."""
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    together = tensor.is_contiguous() or not len(tensor) or tensor[0].is_contiguous()
    return tensor if together else tensor.contiguous()
