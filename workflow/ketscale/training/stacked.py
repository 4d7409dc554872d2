"""A copy of a problem for torch.func.vmap."""

from __future__ import annotations

import copy

from torch import nn

from ketscale.layers.stacked_linear import StackedLinear
from ketscale.problems.problem import Problem


def stacked(problem: Problem) -> Problem:
    """The copy, which shares the problem's buffers, such as its data; its linear layers are `StackedLinear`."""
    made = copy.deepcopy(problem, {id(buffer): buffer for buffer in problem.buffers()})
    for module in made.modules():
        if type(module) is nn.Linear:
            module.__class__ = StackedLinear
    return made
