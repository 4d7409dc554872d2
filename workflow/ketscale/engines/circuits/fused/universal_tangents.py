"""Kernels of any circuit that differentiate along tangents, as those of `tangents` do; they read the table of `universal`."""

from __future__ import annotations

from ketscale.engines.circuits.fused import universal
from ketscale.engines.circuits.fused.higher import MOST
from ketscale.engines.circuits.fused.tangents import OPERANDS
from ketscale.engines.circuits.fused.universal import (
    Tile,
    begin_adjoint,
    evolve,
    measure,
    rows,
    tiles,
    undo,
    write_results,
)
from ketscale.engines.compiled.language import INTEGER, Arguments, Buffer, FunctionCode

ARGUMENTS = universal.ARGUMENTS | OPERANDS | {"valued": INTEGER}


def _push(k: FunctionCode, args: Arguments, order: int) -> None:
    with tiles(k, args, order, 2**order) as tile:
        _moved(tile, tile.states)
        measure(tile, tile.states)
        write_results(tile, tile.states[-1])


def push1(k: FunctionCode, args: Arguments) -> None:
    """The result's derivative along a tangent."""
    _push(k, args, 1)


def push2(k: FunctionCode, args: Arguments) -> None:
    """The result's derivative along two tangents."""
    _push(k, args, MOST)


def bend(k: FunctionCode, args: Arguments) -> None:
    """The derivative of the gradients along a tangent, for cotangents that stay; and of the result if `valued`."""
    with tiles(k, args, 1, 4) as tile:
        psi = tile.states[:2]
        _moved(tile, psi)
        with k.when(args.valued != 0):
            measure(tile, psi)
            write_results(tile, psi[1])
        begin_adjoint(tile)
        undo(tile)


def _moved(tile: Tile, states: list[Buffer]) -> None:
    """A state and its tangents after all rotations."""
    args = tile.args
    starts = [args.initial, *(getattr(args, f"initial{number}") for number in range(len(tile.halves)))]
    for start, state in zip(starts, states, strict=False):
        rows(tile, start, True, lambda rows, state=state: rows.read(state, 1.0))  # type: ignore[misc]
    for state in states[len(starts) :]:
        state.zero(args.vectors)
    evolve(tile, states)
