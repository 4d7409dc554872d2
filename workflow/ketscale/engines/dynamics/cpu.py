"""The compiled evolution of real linear systems, differentiable to any order.

The backward pass keeps the state before each segment only: a dissipative evolution is not integrated backwards, and
the steps within a segment are computed again. The gradient is itself differentiable: the derivative of a linear system
in a direction is a linear system of twice the size (`Generators.with_tangent`), which the same code evolves.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any

import torch

from ketscale.autograd_function import applied
from ketscale.engines.compiled.kernel import Kernel, lanes_of, threads_for
from ketscale.engines.derivatives import Rows, is_recorded, one_gradient
from ketscale.engines.dynamics import kernels
from ketscale.engines.dynamics.generators import Division, Evolution, Generators
from ketscale.engines.dynamics.plan import table
from ketscale.engines.dynamics.tasks import times
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
    readout: torch.Tensor | None = None,
) -> torch.Tensor:
    """Final coordinates (tasks, size), differentiable in all three; on the CPU, in fp32 or fp64.

    fixed: (tasks, F). controls: (tasks, segments, K). initial: (tasks, size), or several states for each task,
    (tasks, m, size), and so the result. See `Generators`. trajectory: whether the result has the start and the end of
    each segment, (tasks, segments + 1, [m,] size). readout: constant rows (k, size), whose products with the coordinates,
    (..., k), are the result instead; a small task takes a third less time than with operators of torch behind it.
    """
    if initial.ndim > 2:
        # Each is a task with the same coefficients.
        tasks, several, size = initial.shape
        fixed, controls = (
            each.expand(several, *each.shape[1:]) if tasks == 1 else each.repeat_interleave(several, 0)
            for each in (fixed, controls)
        )
        states = evolve(fixed, controls, initial.reshape(-1, size), evolution, trajectory, readout)
        states = states.unflatten(0, (tasks, several))
        return states.transpose(1, 2) if trajectory else states
    keeps = is_recorded(fixed, controls, initial) and not transforms_active()
    return applied(_States(evolution, trajectory, keeps, readout), fixed, controls, initial)[0]


@dataclass(eq=False)
class _States(Rows):
    """The final coordinates, those of the trajectory or their `readout`, by fixed coefficients, controls and initial coordinates.

    keeps: whether the states before each segment are kept for one backward pass, which otherwise computes them again.
    """

    evolution: Evolution
    trajectory: bool = False
    keeps: bool = False
    readout: torch.Tensor | None = None
    kept: _Call | None = None

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        call = _Call(self.evolution, self.keeps or self.trajectory, *tensors)
        states = call.forward()
        self.kept = call if self.keeps else None
        if self.trajectory:
            before = call.memory[call.scratch :].view(call.kept_places)
            before = before.permute(0, 3, 1, 2).flatten(0, 1)[: len(states)]
            states = torch.cat([before, states[:, None]], 1)
        return (self._read(states),)

    def _read(self, states: torch.Tensor) -> torch.Tensor:
        return states if self.readout is None else times(states, self.readout)

    def pull(
        self, tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], _: Sequence[bool]
    ) -> Sequence[torch.Tensor | None]:
        (cotangent,) = cotangents
        one_gradient("a propagator", cotangent)
        if self.readout is not None:
            single = len(self.readout) == 1
            cotangent = cotangent * self.readout if single else (cotangent[..., None] * self.readout).sum(-2)
        kept, self.kept = self.kept, None
        gradient = _Gradient(self.evolution, self.trajectory, kept)
        if torch.is_grad_enabled() or transforms_active():
            return applied(gradient, cotangent, *tensors)
        return gradient(cotangent, *tensors)

    def push(
        self, tensors: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor, ...]:
        twice = _States(_with_tangent(self.evolution), self.trajectory)
        (states,) = applied(twice, *_beside(tensors, tangents))
        return (self._read(states[..., states.shape[-1] // 2 :]),)


@dataclass(eq=False)
class _Gradient(Rows):
    """The gradients by the tensors of `_States`, by its cotangent and these tensors.

    kept: see `_States`; the states are not changed.
    """

    evolution: Evolution
    trajectory: bool
    kept: _Call | None = None

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cotangent, *given = tensors
        call, self.kept = self.kept, None
        if call is None:
            call = _Call(self.evolution, True, *given)
            call.forward()
        return call.backward(_by_task(cotangent), self.trajectory)

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


class _Call:
    """What the forward and the backward pass of some tasks with one state each ask of the code alike; see `evolve`.

    keeps: whether the forward pass keeps the states before each segment, (groups, segments, size, lanes), for the backward pass;
    they are in `memory`, behind the scratch.
    """

    def __init__(self, evolution: Evolution, keeps: bool, *tensors: torch.Tensor) -> None:
        self.given = fixed, controls, initial = tuple(map(_by_task, tensors))
        (tasks, segments, _), dtype = controls.shape, initial.dtype
        lanes, steps = _lanes(tasks, dtype), evolution.division.steps
        # It is kept, since `last` has the addresses of its tensors.
        last, self.system = _system(evolution.generators, evolution.division, dtype)
        groups, size = -(-tasks // lanes), self.system["size"]
        entries, degree = len(self.system["by_row"]), self.system["most_degree"]
        work = degree * (entries + size) * segments * max(1, steps) * tasks
        threads = threads_for(groups, work)
        # Workers' scratch, and behind it what is kept: a tensor takes microseconds to make.
        self.kept_places = groups * keeps, segments, size, lanes
        self.scratch = threads * self.system["scratch_vectors"] * lanes
        self.memory = initial.new_empty(self.scratch + prod(self.kept_places))
        self._run = partial(
            _kernel(dtype, lanes).run, threads=threads, last=last,
            batch=tasks, groups=groups, segments=segments, steps=steps, tau=evolution.tau,
            fixed=fixed, fixed_stride=fixed.stride(0), controls=controls, controls_stride=controls.stride(0),
            initial=initial, initial_stride=initial.stride(0), scratch=self.memory,
            saved=self.memory.data_ptr() + self.scratch * dtype.itemsize, keep=int(keeps),
        )  # fmt: skip

    def forward(self) -> torch.Tensor:
        """The final coordinates (tasks, size)."""
        initial = self.given[2]
        final = initial.new_empty(initial.shape)
        if len(final):
            self._run("forward", final=final)
        return final

    def backward(self, cotangent: torch.Tensor, trajectory: bool) -> tuple[torch.Tensor, ...]:
        """The gradients by fixed coefficients, controls and initial coordinates, after a forward pass that keeps states.

        cotangent: (tasks, size), or of a trajectory (tasks, segments + 1, size), each task's floats side by side.
        """
        fixed, controls, initial = gradients = tuple(each.new_empty(each.shape) for each in self.given)
        if len(initial):
            self._run(
                "backward", cotangent=cotangent, cotangent_stride=cotangent.stride(0), each_end=int(trajectory),
                to_fixed=fixed, to_controls=controls, to_initial=initial,
            )  # fmt: skip
        return gradients


def _by_task(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with the floats of each task side by side; tasks that share them still do."""
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    together = tensor.is_contiguous() or not len(tensor) or tensor[0].is_contiguous()
    return tensor if together else tensor.contiguous()
