"""Training steps on a GPU as CUDA graphs: a step's kernels are launched together, without the Python between them.

At small sizes launching takes most of a step. A step is captured if its problem says that it may be (`Problem.replays`)
and there is one rank: the sums over several are messages between processes. A sampled step is taken kernel by kernel,
since its spans are times of what Python calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from ketscale.engines.graphs import NoGraph, captured, release
from ketscale.engines.randomness import DeviceStep, Step
from ketscale.engines.vjp import watchers
from ketscale.problems.problem import Problem
from ketscale.spans import active
from ketscale.training.step_sums import StepSums

_LOG = logging.getLogger("ketscale")

# Steps of a kind that are taken before one is captured: they compile and upload what a capture cannot.
BEFORE = 2
# A graph keeps as much memory as a step needs, and the sampled steps need as much again.
SHARES = 2

Take = Callable[[torch.Tensor, Step], StepSums]


def may_replay(problem: Problem) -> bool:
    """Whether a problem's steps may be captured: it says so, and no hook would be called at the capture alone."""
    return problem.replays and not any(any(watchers(module)[:4]) for module in problem.modules())


class Replayed:
    """Takes steps by replaying graphs of them.

    take: takes a step. rates: the learning rates, which a graph has as constants.

    Attributes:
        count: how many steps were replays. preparing: whether the last step came before its graph, or tried to capture it.
    """

    def __init__(self, take: Take, rates: Callable[[], list[float]], device: torch.device) -> None:
        self._take, self._rates, self._device = take, rates, device
        # By the number of samples, at these learning rates; None if there is to be no graph.
        self._graphs: dict[int, _Graph | None] = {}
        self._captured_at: list[float] = []
        self.count, self.preparing = 0, False

    def take(self, indices: torch.Tensor, step: Step) -> StepSums | None:
        """Take a step; None if it is to be taken kernel by kernel."""
        self.preparing = False
        if not isinstance(step, int) or active() is not None:
            return None
        if self._captured_at != self._rates():
            # A graph keeps its memory until Python has found the circle that refers to it.
            self._graphs.clear()
            release(self._device)
            self._captured_at = list(self._rates())
        samples = len(indices)
        if samples not in self._graphs:
            self._graphs[samples] = _Graph(self._take, samples, self._device)
        graph = self._graphs[samples]
        if graph is None:
            return None
        self.preparing = graph.replay is None
        others = sum(other is not None and other.replay is not None for other in self._graphs.values())
        sums = graph.take(indices, step, others)
        if sums is None:
            self._graphs[samples] = None
        self.count += graph.replay is not None
        return sums


class _Graph:
    """The steps of one number of samples."""

    def __init__(self, take: Take, samples: int, device: torch.device) -> None:
        self._take, self._device = take, device
        self._indices = torch.zeros(samples, dtype=torch.int64, device=device)
        self._step = DeviceStep(device)
        self._steps = 0
        self._aside = torch.cuda.Stream(device)
        self.replay: Callable[[], StepSums] | None = None

    def take(self, indices: torch.Tensor, step: int, others: int) -> StepSums | None:
        """Take a step; None if none of its kind can be captured. others: how many graphs there are."""
        self._indices.copy_(indices, non_blocking=True)
        self._step.set(step)
        if self._steps < BEFORE:
            self._steps += 1
            return self._eager_step(step)
        if self.replay is None and not self._capture(others):
            return None
        assert self.replay is not None
        return _copied(self.replay(), step)

    def _eager_step(self, step: int) -> StepSums:
        """Take a step in another stream, as torch asks for of those that come before a capture."""
        here = torch.cuda.current_stream(self._device)
        self._aside.wait_stream(here)
        with torch.cuda.stream(self._aside):
            sums = _copied(self._take(self._indices, self._step), step)
        here.wait_stream(self._aside)
        return sums

    def _capture(self, others: int) -> bool:
        """Whether there is a graph from now on."""
        # What the others keep counts as reserved.
        total = torch.cuda.mem_get_info(self._device)[0] + torch.cuda.memory_reserved(self._device)
        if (SHARES + others) * torch.cuda.max_memory_allocated(self._device) > total:
            _LOG.warning(
                "steps are no CUDA graphs: their memory in addition to that of a step does not fit into the GPU"
            )
            return False
        graph = captured(partial(self._take, self._indices, self._step), self._device, None, warm_calls=0)
        if isinstance(graph, NoGraph):
            _LOG.warning("steps are no CUDA graphs: %s", graph.reason)
            return False
        self.replay = graph
        return True


def _copied(sums: StepSums, step: int) -> StepSums:
    """What the next replay does not overwrite, of a world of one rank."""
    norm, penalty = sums.norm.clone(), sums.penalty
    penalty = None if penalty is None else penalty.clone()
    return replace(sums, step=step, sums=sums.sums.clone(), penalty=penalty, norm=norm, own_norm=norm)
