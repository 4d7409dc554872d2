"""Functions of a kernel that differentiate along tangents: of results once or twice, and of their gradients once.

A state moves along a tangent as its angles do. With X the tangent's multiple of a step's generator (of exp(-i a/2 P), it is
-i t/2 P), psi' = U psi moves by U psi_t + X psi'. Two tangents t and u add U psi_tu + X_u psi'_t + X_t U psi_u. Undoing a
step reverses the sign of X. The gradient's change is the sum of the overlaps in which either state is the moved one.

Kernels start from a given state, whose tangents are given too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial

from ketscale.engines.circuits.fused.block import (
    RegisterBlock,
    State,
    apply,
    of_amplitudes,
    parity,
    times_power_of_i,
)
from ketscale.engines.circuits.fused.higher import MOST
from ketscale.engines.circuits.fused.kernels import (
    ARGUMENTS,
    Tile,
    begin_adjoint,
    gather,
    measure,
    no_gradients,
    run_pass,
    sample_halves,
    tiles,
    write_gradients,
)
from ketscale.engines.circuits.fused.once import half, write_sums
from ketscale.engines.circuits.fused.plan import SweepPlan, rotations
from ketscale.engines.circuits.fused.program import Flip, Rotation, Word
from ketscale.engines.circuits.fused.schedule import Phases, Step
from ketscale.engines.circuits.fused.words import products
from ketscale.engines.compiled.language import Arguments, Buffer, FunctionCode, Number, fma, reals

# A tile's states together take at most this many bytes, if there are several samples: a quarter of a core's second-level
# cache. At 12 qubits the kernels took twice the time with half of it.
CACHE_BYTES = 256 * 1024
# A point's tangents.
OPERANDS = {
    name: kind
    for number in range(MOST)
    for name, kind in {
        f"inputs{number}": reals("rows", "input_stride"),
        f"weights{number}": reals("groups", "weight_columns"),
        f"initial{number}": reals("rows", "initial_stride"),
    }.items()
}
# What `prepare_tangents` computes.
MOVED = {f"moved{number}": reals("groups", "moved_stride") for number in range(MOST)}
TANGENTS = ARGUMENTS | OPERANDS | MOVED


@dataclass(frozen=True)
class TangentPlan(SweepPlan):
    """A plan with `order` tangents. valued: `bend` writes what `push` does too."""

    order: int = 1
    valued: bool = False

    @cached_property
    def states(self) -> tuple[str, ...]:
        """The states that a sweep moves: psi, its tangents, and for gradients the adjoint and its tangent."""
        along = ("psi", "psi0", "psi1", "psi01")[: 2**self.order]
        return (*along, "adjoint", "adjoint0") if self.wanted else along

    @cached_property
    def scratch(self) -> dict[str, int]:
        """See `SweepPlan.scratch`."""
        angles = {f"tangents{number}": len(self.sample_angles) for number in range(self.order)}
        return {**super().scratch, **angles, **dict.fromkeys(self.states, self.state_vectors)}

    @property
    def moved_tables(self) -> int:
        """The start of the tables of moved phases, in floats; before them is half of each shared angle's tangent."""
        return -(-len(self.shared_angles) // self.lanes) * self.lanes

    @property
    def moved_stride(self) -> int:
        """Floats that `prepare_tangents` writes for a group and a tangent; a whole number of vectors."""
        return self.moved_tables + self.table_size * len(self.tables)


def tangent_plan(plan: SweepPlan, order: int, valued: bool = False) -> TangentPlan:
    """A plan with tangents, whose blocks are so small that all states fit the vector registers, and its tiles the cache."""
    width = 3 - order
    made = TangentPlan(
        **{field.name: getattr(plan, field.name) for field in fields(plan)}, order=order, valued=valued
    )
    bits, state_bytes = plan.lane_bits, (16 if plan.double else 8) << plan.program.qubits
    while plan.lanes >> bits > 1 and (plan.lanes >> bits) * len(made.states) * state_bytes > CACHE_BYTES:
        bits += 1
    return replace(made, widths=(width, 1) if plan.wanted else (width, width), lane_bits=bits)


def prepare_tangents(k: FunctionCode, args: Arguments, plan: TangentPlan) -> None:
    """Half of the tangents of each group's shared angles, and of the sums of half angles in its tables of phases."""
    if not plan.moved_stride:
        return
    with k.loop(args.groups) as group:
        for number in range(plan.order):
            weights = getattr(args, f"weights{number}")[group]
            moved = getattr(args, f"moved{number}")[group]
            for place, angle in enumerate(plan.shared_angles):
                moved[place] = half(k, angle, weights, moved=True)
            tables = moved.part((plan.moved_tables,), len(plan.tables), plan.table_size)
            for place, step in enumerate(plan.tables):
                write_sums(k, plan, step, weights, tables[place], moved=True)


@dataclass(frozen=True)
class TangentAngles:
    """One tangent of a tile's angles. shared: what `prepare_tangents` wrote for the group. own: halves, (angles,) vectors."""

    k: FunctionCode
    plan: TangentPlan
    shared: Buffer
    own: Buffer

    def added(
        self, block: RegisterBlock, step: Rotation | Flip | Phases, state: State, moved: State, inverse: bool
    ) -> State:
        """A block's moved state plus X on another one (minus, for the inverse); without change for constant angles."""
        if isinstance(step, Flip) or all(r.angle.kind == "constant" for r in rotations(step)):
            return moved
        sign, result = 2 * inverse, []
        if isinstance(step, Phases):
            plan = self.plan
            table = self.shared.part((plan.moved_tables + plan.tables.index(step) * plan.table_size,), 1)
            for q, (amplitude, own) in enumerate(zip(state, moved, strict=True)):
                phase = of_amplitudes(table, block.index(q) << plan.lane_bits, plan.lane_bits)
                result.append(fma(times_power_of_i(1 + sign, amplitude), phase, own))
            return result
        flip, lanes = block.flip(step.x)
        within, half = block.within(step.z), block.signed(self._half(block, step), step.z, lanes)
        for q, own in enumerate(moved):
            power = 3 + sign + step.ys + 2 * parity(within & (q ^ flip))
            result.append(fma(times_power_of_i(power, block.moved(state[q ^ flip], lanes)), half, own))
        return result

    def _half(self, block: RegisterBlock, rotation: Rotation) -> Number:
        """Half of a rotation's tangent, with the sign of the block's base."""
        if rotation.angle.shared:
            half = self.shared[self.plan.shared_angles.index(rotation.angle)].splat()
        else:
            half = self.own[self.plan.sample_angles.index(rotation.angle)]
        odd = block.base_parity(rotation.z)
        if odd is not None:
            half = half * self.k.table("signs", [1.0, -1.0])[odd].splat()
        return half


def _tangent_angles(tile: Tile, plan: TangentPlan) -> list[TangentAngles]:
    """The tile's tangents, whose inputs are read."""
    k, found = tile.k, []
    for number in range(plan.order):
        own = tile.buffers[f"tangents{number}"]
        if plan.sample_angles:
            with sample_halves(tile, getattr(tile.args, f"inputs{number}")) as (i, half):
                own[i] = half
        found.append(TangentAngles(k, plan, getattr(tile.args, f"moved{number}")[tile.group], own))
    return found


def _stepped(
    block: RegisterBlock,
    step: Rotation | Flip | Phases,
    states: Sequence[State],
    tangents: Sequence[TangentAngles],
    inverse: bool = False,
) -> list[State]:
    """A state and its tangents after a step: psi, psi_t, psi_u, psi_tu, or as many of these as there are."""
    after = apply(block, step, states, inverse)
    # U psi_u, before X_u psi' is added to it.
    plain = list(after)
    for number, each in enumerate(tangents):
        after[number + 1] = each.added(block, step, after[0], after[number + 1], inverse)
    if len(states) == 4:
        after[3] = tangents[1].added(block, step, after[1], after[3], inverse)
        after[3] = tangents[0].added(block, step, plain[2], after[3], inverse)
    return after


def _evolve(tile: Tile, plan: TangentPlan, tangents: Sequence[TangentAngles]) -> list[Buffer]:
    """psi and its tangents after all rotations."""
    states = [tile.state(name) for name in ("psi", "psi0", "psi1", "psi01")[: 2**plan.order]]
    starts = ["initial", *(f"initial{number}" for number in range(plan.order))]
    for state, start in zip(states, starts, strict=False):
        tile.rows(getattr(tile.args, start), in_order=True).read(state, 1.0)
    if plan.order == MOST:
        states[3].part((), 1, element="aligned").zero(plan.state_vectors)
    for pass_ in plan.forward.passes:
        run_pass(tile, pass_, states, lambda block, step, loaded: _stepped(block, step, loaded, tangents))
    return states


def push(k: FunctionCode, args: Arguments, plan: TangentPlan) -> None:
    """The result's derivative along one tangent, or along two."""
    with tiles(k, args, plan) as tile:
        _write_moved(tile, _evolve(tile, plan, _tangent_angles(tile, plan)))


def _write_moved(tile: Tile, states: Sequence[Buffer]) -> None:
    """The result's derivative, of psi and its tangents."""
    words = tile.plan.program.words
    if words is None:
        tile.rows(tile.args.out, in_order=False).write(states[-1], 1.0)
    else:
        measure(tile, words, lambda block: partial(_moved_values, block, [block.load(s) for s in states]))


def _moved_values(
    block: RegisterBlock, states: Sequence[State], words: Mapping[int, Word]
) -> dict[int, Number]:
    """The derivatives of <psi|P|psi> along the tangents."""
    halves = products(block, states[-1], states[0], words)
    if len(states) == 4:
        others = products(block, states[1], states[2], words)
        halves = {number: half + others[number] for number, half in halves.items()}
    return {number: half + half for number, half in halves.items()}


def bend(k: FunctionCode, args: Arguments, plan: TangentPlan) -> None:
    """The derivative of the gradients along a tangent, for cotangents that stay."""
    with tiles(k, args, plan) as tile:
        no_gradients(tile)
        tangents = _tangent_angles(tile, plan)
        psi = _evolve(tile, plan, tangents)
        if plan.valued:
            _write_moved(tile, psi)
        adjoint = [tile.state("adjoint"), tile.state("adjoint0")]
        begin_adjoint(tile, psi[0], adjoint[0])
        if plan.program.words is None:
            adjoint[1].part((), 1, element="aligned").zero(plan.state_vectors)
        else:
            begin_adjoint(tile, psi[1], adjoint[1])

        def undone(block: RegisterBlock, step: Step, states: Sequence[State]) -> list[State]:
            pairs = states[:2], states[2:]
            gather(tile, block, step, list(zip(states[:2], states[3:1:-1], strict=True)))
            return [state for pair in pairs for state in _stepped(block, step, pair, tangents, inverse=True)]

        for pass_ in plan.backward:
            run_pass(tile, pass_, [*psi, *adjoint], undone)
        write_gradients(tile, adjoint[1])


def push_at_once(k: FunctionCode, args: Arguments, plan: TangentPlan) -> None:
    """One call instead of three, if there is one thread."""
    for name in ("prepare", "prepare_tangents", "push"):
        k.call(name)


def bend_at_once(k: FunctionCode, args: Arguments, plan: TangentPlan) -> None:
    """One call instead of three, or of four where there are sums over tiles, if there is one thread."""
    for name in ("prepare", "prepare_tangents", "bend"):
        k.call(name)
    with k.when(k.integer(1) < args.group_tiles):
        k.call("collect")
