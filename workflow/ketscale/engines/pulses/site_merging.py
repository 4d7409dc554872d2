"""Merged gates by machine code, with a gate a lane: the function of `merging`."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ketscale.engines.compiled.library import Library, Recipe, vector_bytes
from ketscale.engines.pulses import merge_kernels
from ketscale.engines.pulses.merge_kernels import ARGUMENTS
from ketscale.engines.pulses.placement import Place

SOURCES = (Path(merge_kernels.__file__),)
LANES = vector_bytes() // 8


def merged(
    own: torch.Tensor, pairs: tuple[Place, ...], couplings: torch.Tensor, symmetric: bool
) -> torch.Tensor:
    """See `merging.merged`; on the CPU, in fp64."""
    gates: torch.Tensor = _Merged.apply(own, couplings, pairs, symmetric)
    return gates


class _Alike(NamedTuple):
    """Gates `first`, `first + stride`, ... that share couplings: numbers of what is after and before; None: nothing."""

    first: int
    stride: int
    number: int
    left: int | None
    right: int | None


def _alike(count: int, kicks: int, symmetric: bool) -> Iterator[_Alike]:
    """All gates of so many A's."""
    yield _Alike(0, 1, 1, 0, None)
    for kick in range(kicks):
        first = kick or kicks
        if first < count - 1:
            right = (first - 1) % kicks if symmetric else None
            yield _Alike(first, kicks, 1 + (count - 2 - first) // kicks, kick, right)
    yield _Alike(count - 1, 1, 1, None, kicks - 1 if symmetric else None)


class _Merged(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, own: torch.Tensor, couplings: torch.Tensor, pairs: tuple[Place, ...], symmetric: bool
    ) -> torch.Tensor:
        own, couplings = own.contiguous(), couplings.resolve_conj().contiguous()
        gates = own.new_empty(len(own), *couplings.shape[1:])
        ctx.save_for_backward(own, couplings)
        ctx.pairs, ctx.symmetric = pairs, symmetric
        for alike in _alike(len(own), len(couplings), symmetric):
            for number, pair in enumerate(pairs):
                _call("merge", alike, number, pair, own, couplings, gates, {})
        return gates

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        own, couplings = ctx.saved_tensors
        cotangent = cotangent.resolve_conj().contiguous()
        to_own, to_couplings = torch.zeros_like(own), torch.zeros_like(couplings)
        size = couplings.shape[-1]
        for alike in _alike(len(own), len(couplings), ctx.symmetric):
            for number, pair in enumerate(ctx.pairs):
                sums = torch.zeros(2, size, size, 2, LANES, dtype=torch.float64)
                found = {"to_own": to_own, "to_left": sums[0], "to_right": sums[1]}
                _call("gradient", alike, number, pair, own, couplings, cotangent, found)
                for which, total in zip((alike.left, alike.right), sums.sum(-1), strict=True):
                    if which is not None:
                        to_couplings[which, number] += torch.view_as_complex(total)
        return to_own, to_couplings, None, None


def _call(
    name: str,
    alike: _Alike,
    number: int,
    pair: Place,
    own: torch.Tensor,
    couplings: torch.Tensor,
    gates: torch.Tensor,
    found: dict[str, torch.Tensor],
) -> None:
    levels, size = own.shape[-1], couplings.shape[-1]
    identity = _identity(size)
    first, second = (2 * site * levels**2 for site in pair)
    at_own, at_gates = alike.first * own[0].numel(), alike.first * gates[0].numel()
    own_bytes = 16 * at_own + 8 * first
    values = {key: tensor.data_ptr() for key, tensor in found.items()}
    if found:
        values["to_own"] += own_bytes
    for side, which in (("left", alike.left), ("right", alike.right)):
        values[side] = (identity if which is None else couplings[which, number]).data_ptr()
    values |= {
        "count": alike.number,
        "own": own.data_ptr() + own_bytes,
        "own_stride": 2 * alike.stride * own[0].numel(),
        "second": second - first,
        "gates": gates.data_ptr() + 16 * (at_gates + number * size**2),
        "gates_stride": 2 * alike.stride * gates[0].numel(),
    }
    arguments = array("q", [values.get(argument, 0) for argument in ARGUMENTS])
    _library(levels).on_one_thread[name](arguments.buffer_info()[0])


@lru_cache(maxsize=8)
def _identity(size: int) -> torch.Tensor:
    return torch.eye(size, dtype=torch.complex128)


@lru_cache(maxsize=8)
def _library(levels: int) -> Library:
    return Library(
        Recipe(
            f"merging {levels} {LANES}",
            ("merge", "gradient"),
            lambda: merge_kernels.module(levels, LANES),
            SOURCES,
        )
    )
