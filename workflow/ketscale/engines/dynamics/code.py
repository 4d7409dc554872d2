"""The machine code that evolves a system: what reads it from a table, until code of its own is there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch

from ketscale.engines.choice import CodeChoice
from ketscale.engines.compiled.kernel import Kernel, lanes_of
from ketscale.engines.dynamics import kernels, universal
from ketscale.engines.dynamics import plan as plan_module
from ketscale.engines.dynamics.evolution import Evolution
from ketscale.engines.dynamics.generators import Generators
from ketscale.engines.dynamics.plan import EvolutionPlan
from ketscale.engines.dynamics.table import Table

# Up to this many coordinates two vectors are interleaved, since one alone waits for its own results.
FEW_COORDINATES = 4
# A system with more entries has no code of its own, which would take many seconds to compile.
MOST_WRITTEN = 1_000


class Code(NamedTuple):
    """Code that evolves a system in one precision, so many tasks in a vector.

    plan: what the code is written for, or, with `arguments` that say the same, what code of any system reads.
    """

    plan: EvolutionPlan
    lanes: int
    kernel: Kernel
    arguments: Mapping[str, Any]

    def saved(self, groups: int, segments: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory for the states before each segment (groups, segments, kept coordinates, lanes)."""
        return torch.empty(groups, segments, self.plan.changing, self.lanes, dtype=dtype)


class _Needed(NamedTuple):
    """What code is for."""

    generators: Generators
    degrees: tuple[int, ...]
    reaches: tuple[float, ...]
    dtype: torch.dtype


def code_of(evolution: Evolution, dtype: torch.dtype, tasks: int) -> Code:
    """The code of the next call with so many tasks of one state each. Both kinds give the same bits."""
    degrees, reaches, _ = evolution.division
    needed = _Needed(evolution.generators, degrees, reaches, dtype)
    if evolution.generators.entry_count > MOST_WRITTEN:
        return _reading(needed, tasks)
    choice = _choice(needed)
    return choice.own or choice.now(tasks)


@lru_cache(maxsize=256)
def _choice(needed: _Needed) -> CodeChoice[Code]:
    what = f"a linear system of {needed.generators.size} coordinates"
    return CodeChoice(what, partial(_own_kernel, needed), partial(_own, needed), partial(_reading, needed))


def _own_kernel(needed: _Needed) -> Kernel:
    return _own(needed).kernel


@lru_cache(maxsize=64)
def _own(needed: _Needed) -> Code:
    plan = EvolutionPlan(*needed[:3])
    lanes = (2 if plan.size <= FEW_COORDINATES else 1) * lanes_of(needed.dtype)
    functions = (kernels.forward, kernels.backward)
    return Code(
        plan, lanes, Kernel(functions, kernels.ARGUMENTS, needed.dtype, lanes, plan, (plan_module,)), {}
    )


@lru_cache(maxsize=32)
def _table(needed: _Needed) -> Table:
    return Table(*needed[:3])


def _reading(needed: _Needed, tasks: int) -> Code:
    return _reading_lanes(needed, _lanes(tasks, needed.dtype))


@lru_cache(maxsize=32)
def _reading_lanes(needed: _Needed, lanes: int) -> Code:
    table = _table(needed)
    return Code(table, lanes, _reader(needed.dtype, lanes), _arguments(needed))


@lru_cache(maxsize=32)
def _arguments(needed: _Needed) -> Mapping[str, Any]:
    return _table(needed).arguments(needed.dtype)


@lru_cache(maxsize=8)
def _reader(dtype: torch.dtype, lanes: int) -> Kernel:
    functions = (universal.forward, universal.backward)
    return Kernel(functions, universal.ARGUMENTS, dtype, lanes, sources=(kernels, plan_module))


def _lanes(tasks: int, dtype: torch.dtype) -> int:
    """Tasks in a vector of the code that reads tables: two vectors side by side share what is looked up."""
    usual = lanes_of(dtype)
    return 1 if tasks == 1 else 2 * usual if tasks > usual else usual
