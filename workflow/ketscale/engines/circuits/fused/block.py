"""Rotations of a block of vectors in registers: the inner loop of every kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from ketscale.engines.circuits.fused.plan import SweepPlan
from ketscale.engines.circuits.fused.program import Flip, Rotation
from ketscale.engines.circuits.fused.schedule import Phases
from ketscale.engines.compiled.vector import BIT, I32, Value, Writer

# Real and imaginary vectors of a block; no imaginary ones if amplitudes are real.
State = list[tuple[Value, "Value | None"]]


def parity(bits: int) -> int:
    """1 if an odd number of bits is set, else 0."""
    return bits.bit_count() % 2


def walsh(writer: Writer, values: Sequence[Value]) -> list[Value]:
    """H[f] = sum over j of (-1)**|f & j| values[j], for a number of vectors that is a power of 2."""
    out = list(values)
    distance = 1
    while distance < len(out):
        for i in range(len(out)):
            if not i & distance:
                a, b = out[i], out[i | distance]
                out[i], out[i | distance] = writer.b.fadd(a, b), writer.b.fsub(a, b)
        distance *= 2
    return out


@dataclass
class RegisterBlock:
    """2**k vectors (or pairs): number j holds the amplitudes of index base ^ offsets[j], without the lanes' bits.

    base: index of the block's first vector, its pivot bits 0.
    """

    writer: Writer
    plan: SweepPlan
    base: Value
    basis: tuple[int, ...]

    def __post_init__(self) -> None:
        self.offsets = [0]
        for vector in self.basis:
            self.offsets += [offset ^ vector for offset in self.offsets]
        self._pivots = sum(1 << (vector.bit_length() - 1) for vector in self.basis)
        self._lane_mask = (1 << self.plan.lane_bits) - 1

    def index(self, j: int) -> Value:
        """The index of vector j."""
        if not self.offsets[j]:
            return self.base
        return self.writer.b.xor(self.base, self.writer.integer(self.offsets[j]))

    # --- memory ---

    def load(self, buffer: Value) -> State:
        """The block's vectors of a tile's state."""
        w, state = self.writer, []
        for j in range(len(self.offsets)):
            address = self.address(buffer, j)
            imaginary = None if self.plan.real else w.load(w.at(address, 1))
            state.append((w.load(address), imaginary))
        return state

    def store(self, state: State, buffer: Value) -> None:
        """Store the block in a tile's state; if `state` is shorter, only its vectors."""
        w = self.writer
        for j, (real, imaginary) in enumerate(state):
            address = self.address(buffer, j)
            w.store(real, address)
            if imaginary is not None:
                w.store(imaginary, w.at(address, 1))

    def address(self, buffer: Value, j: int) -> Value:
        """The address of vector j in a tile's state."""
        index = self.index(j)
        return self.writer.at(
            buffer, index if self.plan.real else self.writer.b.shl(index, self.writer.integer(1))
        )

    # --- signs ---

    def flip(self, x: int) -> tuple[int, int]:
        """How X on mask `x` moves vectors: (j to j ^ move, lane to lane ^ lanes)."""
        rest, move = x >> self.plan.lane_bits, 0
        for i, vector in enumerate(self.basis):
            if rest >> (vector.bit_length() - 1) & 1:
                rest, move = rest ^ vector, move | 1 << i
        assert rest == 0, "a pass must be closed under the flips of its steps"
        return move, x & self._lane_mask

    def within(self, z: int) -> int:
        """Z on mask `z` as a functional on the block's numbers: bit i is the parity on basis vector i."""
        return sum(parity(z >> self.plan.lane_bits & vector) << i for i, vector in enumerate(self.basis))

    def base_parity(self, z: int) -> Value | None:
        """The parity of `z` on the block's base, or None if it is always even."""
        mask = z >> self.plan.lane_bits & ~self._pivots
        return self.writer.parity(self.base, mask) if mask else None

    def lane_signs(self, z: int, flipped: int = 0) -> Value | None:
        """(-1)**parity of `z` on each lane's amplitude, after flipping the lanes by `flipped`; None if always +1."""
        z &= self._lane_mask
        if not z:
            return None
        lanes = range(self.writer.lanes)
        return self.writer.constant(
            [1 - 2 * parity(z & ((lane ^ flipped) & self._lane_mask)) for lane in lanes]
        )

    def moved(self, vector: Value | None, lanes: int) -> Value | None:
        """A vector whose lane i is the given one's lane i ^ lanes."""
        if vector is None:
            return None
        return self.writer.shuffle(vector, [lane ^ lanes for lane in range(self.writer.lanes)])


class Turns:
    """Loads a rotation's cosine and sine: scalars if all samples share the angle, else vectors."""

    def __init__(self, writer: Writer, plan: SweepPlan, shared: Value, own: Value) -> None:
        self._w, self._plan = writer, plan
        self._shared, self._own = shared, own

    def cosine(self, rotation: Rotation) -> Value:
        """cos(angle/2) in every lane."""
        return self._at(rotation, self._w.integer(0))

    def sine(self, rotation: Rotation, negative: Value) -> Value:
        """sin(angle/2), or minus that where `negative` is 1."""
        return self._at(rotation, self._w.b.add(negative, self._w.integer(1)))

    def _at(self, rotation: Rotation, entry: Value) -> Value:
        w = self._w
        if rotation.angle.shared:
            first = 3 * self._plan.shared_angles.index(rotation.angle)
            return w.load_splat(w.element(self._shared, w.b.add(entry, w.integer(first))))
        first = 3 * self._plan.sample_angles.index(rotation.angle)
        return w.load(w.at(self._own, first, entry))

    def phases(self, step: Phases, block: RegisterBlock, j: int) -> tuple[Value, Value]:
        """Real and imaginary part of the diagonal at vector j of a block."""
        w, plan = self._w, self._plan
        first = plan.shared_tables + 2 * plan.table_size * plan.tables.index(step)
        amplitudes = 1 << plan.lane_bits
        index = w.b.shl(block.index(j), w.integer(plan.lane_bits))
        parts = []
        for part in range(2):
            address = w.element(self._shared, w.b.add(index, w.integer(first + part * plan.table_size)))
            if amplitudes == 1:
                parts.append(w.load_splat(address))
            else:
                few = w.b.load(address, typ=ir.VectorType(w.real, amplitudes), align=w.bytes)
                spread = [lane % amplitudes for lane in range(w.lanes)]
                parts.append(few if amplitudes == w.lanes else w.shuffle(few, spread))
        return parts[0], parts[1]


def apply(
    block: RegisterBlock,
    step: Rotation | Flip | Phases,
    coefficients: Turns,
    states: Sequence[State],
    inverse: bool = False,
) -> list[State]:
    """The block's states after a step (or its inverse)."""
    if isinstance(step, Flip):
        return [_flipped(block, step, state) for state in states]
    if isinstance(step, Phases):
        return _phased(block, step, coefficients, states, inverse)
    return _rotated(block, step, coefficients, states, inverse)


def _rotated(
    block: RegisterBlock, rotation: Rotation, coefficients: Turns, states: Sequence[State], inverse: bool
) -> list[State]:
    """psi'_q = c psi_q + s k (-1)**(z.p) psi_p with p = q ^ x and k = -i i**(number of Y)."""
    w = block.writer
    move, lanes = block.flip(rotation.x)
    within = block.within(rotation.z)
    negative = block.base_parity(rotation.z)
    start = w.integer(int(inverse))
    sine = coefficients.sine(rotation, start if negative is None else w.b.xor(negative, start))
    signs = block.lane_signs(rotation.z, lanes)
    if signs is not None:
        sine = w.b.fmul(sine, signs)
    cosine = coefficients.cosine(rotation)
    real_factor = rotation.ys % 2 == 1
    first = rotation.ys % 4 in (2, 3)  # k is -1 or i instead of 1 or -i
    results = []
    for state in states:
        rotated: State = []
        for j, (re, im) in enumerate(state):
            p = j ^ move
            minus = first ^ bool(parity(within & p))
            p_re, p_im = (block.moved(part, lanes) for part in state[p])
            if real_factor:
                new_re = w.fma(sine, p_re, w.b.fmul(cosine, re), negate=minus)
                new_im = None if im is None else w.fma(sine, p_im, w.b.fmul(cosine, im), negate=minus)
            else:
                new_re = w.fma(sine, p_im, w.b.fmul(cosine, re), negate=minus)
                new_im = w.fma(sine, p_re, w.b.fmul(cosine, im), negate=not minus)
            rotated.append((new_re, new_im))
        results.append(rotated)
    return results


def _flipped(block: RegisterBlock, step: Flip, state: State) -> State:
    w = block.writer
    move, lanes = block.flip(step.x)
    within = block.within(step.control)
    base = block.base_parity(step.control)
    lane_bits = step.control & ((1 << block.plan.lane_bits) - 1)
    result: State = []
    for j, own in enumerate(state):
        other = tuple(block.moved(part, lanes) for part in state[j ^ move])
        on = parity(within & j) if step.control else 1
        if base is None and not lane_bits:
            result.append((other[0], other[1]) if on else own)
            continue
        where = [on ^ parity(lane_bits & lane) for lane in range(w.lanes)]
        chosen = ir.Constant(ir.VectorType(BIT, w.lanes), where)
        if base is not None:
            odd = w.b.trunc(base, BIT)
            undefined = ir.Constant(ir.VectorType(BIT, w.lanes), ir.Undefined)
            spread = w.b.insert_element(undefined, odd, ir.Constant(I32, 0))
            chosen = w.b.xor(chosen, w.shuffle(spread, [0] * w.lanes))
        pairs = [
            None if mine is None else w.b.select(chosen, theirs, mine)
            for mine, theirs in zip(own, other, strict=True)
        ]
        result.append((pairs[0], pairs[1]))
    return result


def _phased(
    block: RegisterBlock, step: Phases, coefficients: Turns, states: Sequence[State], inverse: bool
) -> list[State]:
    w = block.writer
    results: list[State] = [[] for _ in states]
    for j in range(len(states[0])):
        d_re, d_im = coefficients.phases(step, block, j)
        for state, result in zip(states, results, strict=True):
            re, im = state[j]
            new_re = w.fma(d_im, im, w.b.fmul(d_re, re), negate=not inverse)
            new_im = w.fma(d_im, re, w.b.fmul(d_re, im), negate=inverse)
            result.append((new_re, new_im))
    return results


def overlaps(
    block: RegisterBlock, step: Rotation | Phases, psi: State, adjoint: State
) -> list[tuple[Rotation, Value]]:
    """Im <adjoint|P|psi> over the block for each rotation of a step, without the signs of base and lanes."""
    w = block.writer
    if isinstance(step, Phases):
        products = [_cross(w, a, p) for a, p in zip(adjoint, psi, strict=True)]
        classes = walsh(w, products)
        return [(rotation, classes[block.within(rotation.z)]) for rotation in step.rotations]
    move, lanes = block.flip(step.x)
    within = block.within(step.z)
    sums: list[Value] = [None] * min(4, 2 * len(psi))
    for j, (a_re, a_im) in enumerate(adjoint):
        p = j ^ move
        minus = (step.ys % 4 in (2, 3)) ^ bool(parity(within & p))
        p_re, p_im = (block.moved(part, lanes) for part in psi[p])
        if step.ys % 2:
            terms = [(a_re, p_re, minus)] if a_im is None else [(a_re, p_re, minus), (a_im, p_im, minus)]
        else:
            terms = [(a_re, p_im, minus), (a_im, p_re, not minus)]
        for t, (a, b, negative) in enumerate(terms):
            at = (len(terms) * j + t) % len(sums)
            sums[at] = w.fma(a, b, sums[at], negate=negative)
    total = None
    for part in sums:
        if part is not None:
            total = part if total is None else w.b.fadd(total, part)
    return [(step, total)]


def _cross(w: Writer, a: tuple[Value, Value], p: tuple[Value, Value]) -> Value:
    """Im(conj(a) p)."""
    return w.fma(a[1], p[0], w.b.fmul(a[0], p[1]), negate=True)
