"""The compiled evolution of real linear systems, differentiable to any order.

The backward pass keeps the state before each segment only: a dissipative evolution is not integrated backwards, and
the steps within a segment are computed again. The gradient is itself differentiable: the derivative of a linear system
in a direction is a linear system of twice the size (`Generators.with_tangent`), which the same code evolves.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ketscale.autograd_function import applied
from ketscale.engines.compiled.kernel import Kernel, lanes_of, threads_for
from ketscale.engines.derivatives import Rows, is_recorded, one_gradient
from ketscale.engines.dynamics import kernels
from ketscale.engines.dynamics.generators import Division, Evolution, Generators
from ketscale.engines.dynamics.plan import table
from ketscale.private_torch import transforms_active
from ketscale.spans import span


@lru_cache(maxsize=16)
def _kernel(dtype: torch.dtype, lanes: int) -> Kernel:
    return Kernel((kernels.forward, kernels.backward), kernels.ARGUMENTS, dtype, lanes)


@lru_cache(maxsize=64)
def _system(
    generators: Generators, division: Division, dtype: torch.dtype
) -> tuple[array[int], Mapping[str, Any]]:
    """The kernel's arguments that are about a system: an array for all calls, as they are the last ones, and by name."""
    system = table(generators, division.degrees, division.reaches, dtype)
    last = array("q")
    for name in " ".join(kernels.ARGUMENTS).split()[-len(system) :]:
        value = system[name]
        if isinstance(value, float):  # its bits
            value = torch.tensor([value, 0.0], dtype=dtype, device="cpu").view(torch.int64)[0].item()
        last.append(value.data_ptr() if isinstance(value, torch.Tensor) else value)
    return last, system


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
    if initial.ndim > 2:
        # Each is a task with the same coefficients.
        tasks, several, size = initial.shape
        fixed, controls = (
            each.expand(several, *each.shape[1:]) if tasks == 1 else each.repeat_interleave(several, 0)
            for each in (fixed, controls)
        )
        states = evolve(fixed, controls, initial.reshape(-1, size), evolution, trajectory)
        states = states.unflatten(0, (tasks, several))
        return states.transpose(1, 2) if trajectory else states
    keeps = is_recorded(fixed, controls, initial) and not transforms_active()
    return applied(_States(evolution, trajectory, keeps), fixed, controls, initial)[0]


@dataclass(eq=False)
class _States(Rows):
    """The final coordinates, or those of the trajectory, by fixed coefficients, controls and initial coordinates.

    keeps: whether the states before each segment are kept for one backward pass, which otherwise computes them again.
    """

    evolution: Evolution
    trajectory: bool = False
    keeps: bool = False
    kept: tuple[_Call, torch.Tensor] | None = None

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        call = _call(self.evolution, *tensors)
        states, saved = call.forward(self.keeps or self.trajectory)
        self.kept = (call, saved) if self.keeps else None
        if self.trajectory:
            before = saved.permute(0, 3, 1, 2).flatten(0, 1)[: len(states)]
            states = torch.cat([before, states[:, None]], 1)
        return (states,)

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


@dataclass(eq=False)
class _Gradient(Rows):
    """The gradients by the tensors of `_States`, by its cotangent and these tensors.

    kept: see `_States`; the states are not changed.
    """

    evolution: Evolution
    trajectory: bool
    kept: tuple[_Call, torch.Tensor] | None = None

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cotangent, *given = tensors
        if self.kept is None:
            call = _call(self.evolution, *given)
            self.kept = call, call.forward(keeps=True)[1]
        (call, saved), self.kept = self.kept, None
        return call.backward(_by_task(cotangent), saved, self.trajectory)

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

    lanes: tasks in a vector. last, system: see `_system`.
    """

    lanes: int
    threads: int
    arguments: Mapping[str, Any]
    last: array[int]
    system: Mapping[str, Any]

    def forward(self, keeps: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """The final coordinates (tasks, size), and, if it `keeps` them, the states before each segment as the backward pass
        reads them (groups, segments, size, lanes); otherwise an empty tensor.
        """
        given, initial = self.arguments, self.arguments["initial"]
        places = given["groups"] * keeps, given["segments"], self.system["size"], self.lanes
        final, saved = initial.new_empty(initial.shape), initial.new_empty(places)
        self._run("forward", final=final, saved=saved, keep=int(keeps))
        return final, saved

    def backward(
        self, cotangent: torch.Tensor, saved: torch.Tensor, trajectory: bool
    ) -> tuple[torch.Tensor, ...]:
        """The gradients by fixed coefficients, controls and initial coordinates.

        cotangent: (tasks, size), or of a trajectory (tasks, segments + 1, size), each task's floats side by side.
        """
        given = {name: self.arguments[name] for name in ("fixed", "controls", "initial")}
        made = {f"to_{name}": each.new_empty(each.shape) for name, each in given.items()}
        more = {"cotangent": cotangent, "cotangent_stride": cotangent.stride(0), "each_end": int(trajectory)}
        self._run("backward", saved=saved, **more, **made)
        return tuple(made.values())

    def _run(self, name: str, **more: Any) -> None:
        if self.arguments["batch"]:
            size = self.threads * self.system["scratch_vectors"] * self.lanes
            scratch = self.arguments["initial"].new_empty(size)
            run = _kernel(scratch.dtype, self.lanes).run
            run(name, self.threads, self.last, scratch=scratch, **self.arguments, **more)


def _call(evolution: Evolution, fixed: torch.Tensor, controls: torch.Tensor, initial: torch.Tensor) -> _Call:
    """The call of tasks with one state each; see `evolve`."""
    (tasks, segments, _), dtype = controls.shape, initial.dtype
    fixed, controls, initial = _by_task(fixed), _by_task(controls), _by_task(initial)
    lanes, steps = _lanes(tasks, dtype), evolution.division.steps
    last, system = _system(evolution.generators, evolution.division, dtype)
    groups = -(-tasks // lanes)
    work = system["most_degree"] * (len(system["by_row"]) + system["size"]) * segments * max(1, steps) * tasks
    arguments = {
        "batch": tasks, "groups": groups, "segments": segments, "steps": steps, "tau": evolution.tau,
        "fixed": fixed, "fixed_stride": fixed.stride(0), "controls": controls, "controls_stride": controls.stride(0),
        "initial": initial, "initial_stride": initial.stride(0),
    }  # fmt: skip
    return _Call(lanes, threads_for(groups, work), arguments, last, system)


def _by_task(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with the floats of each task side by side; tasks that share them still do."""
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    together = tensor.is_contiguous() or not len(tensor) or tensor[0].is_contiguous()
    return tensor if together else tensor.contiguous()
