"""The kernel of dampings in quantum trajectories: jumps of pure states, a row in each lane, and their derivatives.

A damping of strength g of a qubit that is excited with probability E jumps to |0> if a uniform number u < g E. With q = g E, or
1 - g E without a jump, the state x becomes y, and the row's quotient is multiplied by q over its constant value:

    jump: y_0 = x_1 / sqrt(E), y_1 = 0        none: y_0 = x_0 / sqrt(q), y_1 = x_1 sqrt(1 - g) / sqrt(q)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ketscale.engines.compiled.kernel import Kernel, lanes_of, threads_for
from ketscale.engines.compiled.language import (
    INTEGER,
    Arguments,
    Buffer,
    FunctionCode,
    Lanes,
    Number,
    aligned,
    ceil_divided,
    fma,
    integers,
    reals,
    select,
    sqrt,
)
from ketscale.engines.derivatives import first_derivatives_only

ARGUMENTS = {
    # Real and imaginary parts side by side.
    "states out state_gradient": reals("rows", "numbers"),
    "quotients": reals("rows"),
    # A damping has the bits below its qubit's in a place and the share of even odds in its draws. In each row it has a strength, more
    # than 0 and less than 1, a uniform number, and 1.0 where |0> is what decays.
    "bits": integers("dampings"),
    "even": reals("dampings"),
    "strengths up uniform strength_gradient": reals("dampings", "rows"),
    "scratch": aligned("workers", "scratch_vectors"),
    "rows numbers dampings scratch_vectors": INTEGER,
}


class _Tile(NamedTuple):
    """Rows that a thread has taken, in lanes. states: before and after all dampings. saved: of each, E, q, their root and the jumps."""

    k: FunctionCode
    args: Arguments
    rows: Lanes
    states: Buffer
    saved: Buffer
    adjoint: Buffer

    @contextmanager
    def pairs(self, damping: Number) -> Iterator[tuple[Number, Number]]:
        """Write the body for the places of the numbers with |0> and |1>."""
        bits = self.args.bits[damping]
        with self.k.loop(self.args.numbers >> 1) as index:
            zero = index + (index >> bits << bits)
            yield zero, zero + (self.k.integer(1) << bits)


@contextmanager
def _tiles(k: FunctionCode, args: Arguments, places: Number) -> Iterator[_Tile]:
    """Write the body for each tile, with its states in the first of so many places."""
    parts = args.scratch[k.worker()].split((places, args.numbers), (args.dampings, 4), (args.numbers,))
    with k.tasks(ceil_divided(args.rows, k.lanes)) as number:
        rows, _ = k.lanes_of(number, args.rows)
        with k.loop(args.numbers) as i:
            parts[0][0, i] = args.states[rows, i]
        yield _Tile(k, args, rows, *parts)


def _ordered(up: Number, zero: Number, one: Number) -> tuple[Number, Number]:
    """What damping leads to, and what it leads from; and back."""
    return select(up, one, zero), select(up, zero, one)


def _evolve(tile: _Tile, keep: bool) -> Number:
    """All dampings. keep: each state has its own place. Returns the quotients."""
    k, args = tile.k, tile.args
    quotient = k.variable(k.vector(1.0))
    with k.loop(args.dampings) as damping:
        source, target = (tile.states[damping], tile.states[damping + 1]) if keep else (tile.states[0],) * 2
        strength, up = args.strengths[damping, tile.rows], args.up[damping, tile.rows] != 0.0
        total = k.variable(k.vector(0.0))
        with tile.pairs(damping) as (zero, one):
            upper = select(up, source[zero], source[one])
            total.value = fma(upper, upper, total.value)
        excited = total.value
        even = args.even[damping].splat()
        odds = (strength * (1.0 - even) + even * 0.5) * excited
        jumps = args.uniform[damping, tile.rows] < odds
        chance = select(jumps, strength * excited, 1.0 - strength * excited)
        quotient.value = quotient.value * (chance / select(jumps, odds, 1.0 - odds))
        root = sqrt(select(jumps, excited, chance))
        for place, value in enumerate((excited, chance, root, select(jumps, k.vector(1.0), k.vector(0.0)))):
            tile.saved[damping, place] = value
        scale, stays = 1.0 / root, select(jumps, k.vector(0.0), sqrt(1.0 - strength) / root)
        with tile.pairs(damping) as (zero, one):
            lower, upper = _ordered(up, source[zero], source[one])
            target[zero], target[one] = _ordered(up, select(jumps, upper, lower) * scale, upper * stays)
    found: Number = quotient.value
    return found


def forward(k: FunctionCode, args: Arguments) -> None:
    """States after all dampings, and quotients."""
    with _tiles(k, args, k.integer(1)) as tile:
        args.quotients[tile.rows] = _evolve(tile, keep=False)
        with k.loop(args.numbers) as i:
            args.out[tile.rows, i] = tile.states[0, i]


def backward(k: FunctionCode, args: Arguments) -> None:
    """Gradients by states and strengths; `out` and `quotients` have those by the results, the latter times the results."""
    with _tiles(k, args, args.dampings + 1) as tile:
        _evolve(tile, keep=True)
        a, by_quotient = tile.adjoint, args.quotients[tile.rows]
        with k.loop(args.numbers) as i:
            a[i] = args.out[tile.rows, i]
        with k.loop(args.dampings, backwards=True) as damping:
            x = tile.states[damping]
            strength, up = args.strengths[damping, tile.rows], args.up[damping, tile.rows] != 0.0
            excited, chance, root, jumped = (tile.saved[damping, place] for place in range(4))
            jumps, scale, none = jumped != 0.0, 1.0 / root, k.vector(0.0)
            stays = select(jumps, none, sqrt(1.0 - strength) / root)
            sums = k.variable([none, none])
            with tile.pairs(damping) as (zero, one):
                lower, upper = _ordered(up, x[zero], x[one])
                a_lower, a_upper = _ordered(up, a[zero], a[one])
                sums.value = [
                    fma(a_lower, select(jumps, upper, lower) * scale, sums.value[0]),
                    fma(a_upper, upper * stays, sums.value[1]),
                ]
            below, above = sums.value
            # By q without a jump, by E with one; both are under the root.
            by_norm = (by_quotient - 0.5 * (below + above)) / select(jumps, excited, chance)
            by_excited = 2.0 * select(jumps, by_norm, 0.0 - strength * by_norm)
            args.strength_gradient[damping, tile.rows] = select(
                jumps, by_quotient / strength, 0.0 - excited * by_norm - 0.5 * above / (1.0 - strength)
            )
            with tile.pairs(damping) as (zero, one):
                upper = select(up, x[zero], x[one])
                a_lower, a_upper = _ordered(up, a[zero], a[one])
                b_lower = select(jumps, none, a_lower * scale)
                b_upper = fma(by_excited, upper, select(jumps, a_lower * scale, a_upper * stays))
                a[zero], a[one] = _ordered(up, b_lower, b_upper)
        with k.loop(args.numbers) as i:
            args.state_gradient[tile.rows, i] = a[i]


# A thread's numbers, as far as fewer rows at once keep to it.
MOST_NUMBERS = 2**25


@lru_cache(maxsize=16)
def _kernel(dtype: torch.dtype, lanes: int) -> Kernel:
    return Kernel((forward, backward), ARGUMENTS, dtype, lanes)


class Dampings(torch.autograd.Function):
    """The normalised states (rows, 2**n) after dampings of strengths (dampings, rows), and the rows' quotients (rows,).

    wires: one for each. up, uniform: (dampings, rows). even: the share of even odds in each damping's draws.
    """

    @staticmethod
    def forward(
        ctx: Any, state: torch.Tensor, strengths: torch.Tensor, wires: list[int], up: torch.Tensor,
        uniform: torch.Tensor, even: list[float],
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        state, strengths = state.contiguous(), strengths.contiguous()
        qubits = state.shape[1].bit_length() - 1
        fixed = (
            torch.tensor([qubits - wire for wire in wires]),
            strengths.new_tensor(even),
            up.to(strengths.dtype),
            # Rounded to single precision a number may become 1.
            uniform.to(strengths.dtype).clamp_max(1 - torch.finfo(strengths.dtype).eps),
        )
        out, quotients = torch.empty_like(state), strengths.new_empty(len(state))
        _run("forward", state, strengths, fixed, 1, out=out, quotients=quotients)
        ctx.fixed = fixed
        ctx.save_for_backward(state, strengths, quotients)
        return out, quotients

    @staticmethod
    def backward(
        ctx: Any, by_out: torch.Tensor, by_quotients: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        first_derivatives_only("damping in trajectories")
        state, strengths, quotients = ctx.saved_tensors
        by_state, by_strengths = torch.empty_like(state), torch.empty_like(strengths)
        _run(
            "backward", state, strengths, ctx.fixed, len(strengths) + 1, out=by_out.contiguous(),
            quotients=by_quotients * quotients, state_gradient=by_state, strength_gradient=by_strengths,
        )  # fmt: skip
        return by_state, by_strengths, None, None, None, None


def _run(
    name: str, state: torch.Tensor, strengths: torch.Tensor, fixed: tuple[torch.Tensor, ...], places: int, **more: Any
) -> None:  # fmt: skip
    rows, numbers, dampings = len(state), 2 * state.shape[1], len(strengths)
    lanes, vectors = lanes_of(strengths.dtype), (places + 1) * numbers + 4 * dampings
    while lanes > 1 and vectors * lanes > MOST_NUMBERS:
        lanes //= 2
    threads = threads_for(-(-rows // lanes), 8 * rows * numbers * dampings, 1_000_000)
    bits, even, up, uniform = fixed
    _kernel(strengths.dtype, lanes).run(
        name, threads=threads, states=state, strengths=strengths, bits=bits, even=even, up=up, uniform=uniform,
        scratch=strengths.new_empty(threads * vectors * lanes), rows=rows, numbers=numbers, dampings=dampings,
        scratch_vectors=vectors, **more,
    )  # fmt: skip
