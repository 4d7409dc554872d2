"""Rotations of a block of vectors in registers: the inner loop of every kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ketscale.engines.circuits.fused.plan import SweepPlan
from ketscale.engines.circuits.fused.program import Flip, Rotation
from ketscale.engines.circuits.fused.schedule import Phases
from ketscale.engines.compiled.language import BIT, I64, Buffer, Complex, FunctionCode, Number, fma, select

# An amplitude of every lane; a `Number` if amplitudes are real.
Amplitude: TypeAlias = Number | Complex
State: TypeAlias = list[Amplitude]


def parity(bits: int) -> int:
    """1 if an odd number of bits is set, else 0."""
    return bits.bit_count() % 2


def parity_of(index: Number, mask: int) -> Number:
    """1 if an odd number of the bits of `mask` is set in `index`, else 0."""
    bits = index & mask
    if mask.bit_count() > 1:
        return index.code.intrinsic("ctpop", I64, bits) & 1
    return bits >> (mask.bit_length() - 1)


def deposit(index: Number, pivots: Sequence[int]) -> Number:
    """`index` with a 0 inserted at each of the ascending bit positions `pivots`."""
    for pivot in pivots:
        low = index & ((1 << pivot) - 1)
        index = ((index >> pivot) << (pivot + 1)) | low
    return index


def walsh(values: Sequence[Number]) -> list[Number]:
    """H[f] = sum over j of (-1)**|f & j| values[j], for a number of vectors that is a power of 2."""
    out = list(values)
    distance = 1
    while distance < len(out):
        for i in range(len(out)):
            if not i & distance:
                a, b = out[i], out[i | distance]
                out[i], out[i | distance] = a + b, a - b
        distance *= 2
    return out


def times_power_of_i(power: int, amplitude: Amplitude) -> Amplitude:
    """i**power times an amplitude; a real one only for even powers."""
    if power % 2:
        assert isinstance(amplitude, Complex)
        real, imag = amplitude.real, amplitude.imag
        return Complex(imag, -real) if power % 4 == 3 else Complex(-imag, real)
    return -amplitude if power % 4 == 2 else amplitude


def of_amplitudes(table: Buffer, first: Number, lane_bits: int) -> Number:
    """What a table of basis states has for a vector's amplitudes, of which the first has index `first`."""
    amplitudes, lanes = 1 << lane_bits, table.code.lanes
    if amplitudes == 1:
        one: Number = table[first].splat()
        return one
    few: Number = table.part((first,), 1, element=table.code.few(amplitudes))[0]
    return few.shuffled([lane % amplitudes for lane in range(lanes)])


class Turns:
    """The cosines and sines of half angles, and the tables of phases.

    shared: what `prepare` wrote for the group. own: (angles, 3) vectors of cosine, sine and minus sine.
    """

    def __init__(self, plan: SweepPlan, shared: Buffer, own: Buffer) -> None:
        self._plan, self._own = plan, own
        self._shared = shared.part((), len(plan.shared_angles), 3)
        self._tables = shared.part((plan.shared_tables,), len(plan.tables), 2, plan.table_size)

    def cosine(self, rotation: Rotation) -> Number:
        """cos(angle/2) in every lane."""
        return self._at(rotation, 0)

    def sine(self, rotation: Rotation, negative: Number | int) -> Number:
        """sin(angle/2), or minus that if `negative` is 1."""
        return self._at(rotation, negative + 1)

    def _at(self, rotation: Rotation, entry: Number | int) -> Number:
        turn: Number
        if rotation.angle.shared:
            turn = self._shared[self._plan.shared_angles.index(rotation.angle), entry].splat()
        else:
            turn = self._own[self._plan.sample_angles.index(rotation.angle), entry]
        return turn

    def phases(self, step: Phases, first: Number) -> Complex:
        """The diagonal at a vector whose first amplitude has index `first`."""
        table = self._tables[self._plan.tables.index(step)]
        return Complex(*(of_amplitudes(table[part], first, self._plan.lane_bits) for part in (0, 1)))


@dataclass
class RegisterBlock:
    """2**k vectors (or pairs): number j holds the amplitudes of index base ^ offsets[j], without the lanes' bits.

    base: index of the block's first vector, its pivot bits 0.
    """

    k: FunctionCode
    plan: SweepPlan
    turns: Turns
    base: Number
    basis: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.offsets = [0]
        for vector in self.basis:
            self.offsets += [offset ^ vector for offset in self.offsets]
        self._pivots = sum(1 << (vector.bit_length() - 1) for vector in self.basis)
        self._lane_mask = (1 << self.plan.lane_bits) - 1

    def index(self, j: int) -> Number:
        """The index of vector j."""
        return self.base ^ self.offsets[j] if j else self.base

    def load(self, state: Buffer) -> State:
        """The block's vectors of a tile's state."""
        return [state[self.index(j)] for j in range(len(self.offsets))]

    def store(self, vectors: State, state: Buffer) -> None:
        """Store the block in a tile's state; if there are fewer vectors, only these."""
        for j, vector in enumerate(vectors):
            state[self.index(j)] = vector

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

    def base_parity(self, z: int) -> Number | None:
        """The parity of `z` on the block's base, or None if it is always even."""
        mask = z >> self.plan.lane_bits & ~self._pivots
        return parity_of(self.base, mask) if mask else None

    def lane_signs(self, z: int, flipped: int = 0) -> Number | None:
        """(-1)**parity of `z` on each lane's amplitude, after flipping the lanes by `flipped`; None if always +1."""
        z &= self._lane_mask
        if not z:
            return None
        lanes = range(self.k.lanes)
        return self.k.vector([1 - 2 * parity(z & ((lane ^ flipped) & self._lane_mask)) for lane in lanes])

    def signed(self, vector: Number, z: int, flipped: int) -> Number:
        """A vector with the `lane_signs`."""
        signs = self.lane_signs(z, flipped)
        return vector if signs is None else vector * signs

    def moved(self, amplitude: Amplitude, lanes: int) -> Amplitude:
        """Amplitudes whose lane i is the given ones' lane i ^ lanes."""
        if not lanes:
            return amplitude
        sources = [lane ^ lanes for lane in range(self.k.lanes)]
        if isinstance(amplitude, Number):
            return amplitude.shuffled(sources)
        return Complex(amplitude.real.shuffled(sources), amplitude.imag.shuffled(sources))


def apply(
    block: RegisterBlock, step: Rotation | Flip | Phases, states: Sequence[State], inverse: bool = False
) -> list[State]:
    """The block's states after a step (or its inverse)."""
    if isinstance(step, Flip):
        return [_flipped(block, step, state) for state in states]
    if isinstance(step, Phases):
        return _phased(block, step, states, inverse)
    return _rotated(block, step, states, inverse)


def _rotated(block: RegisterBlock, rotation: Rotation, states: Sequence[State], inverse: bool) -> list[State]:
    """psi'_q = c psi_q - i s (P psi)_q, where (P psi)_q = i**(number of Y) (-1)**(z.p) psi_p with p = q ^ x."""
    move, lanes = block.flip(rotation.x)
    within, negative = block.within(rotation.z), block.base_parity(rotation.z)
    sine = block.turns.sine(rotation, int(inverse) if negative is None else negative ^ int(inverse))
    sine, cosine = block.signed(sine, rotation.z, lanes), block.turns.cosine(rotation)

    def rotated(state: State, q: int) -> Amplitude:
        p = q ^ move
        image = times_power_of_i(3 + rotation.ys + 2 * parity(within & p), block.moved(state[p], lanes))
        result: Amplitude = fma(image, sine, cosine * state[q])
        return result

    return [[rotated(state, q) for q in range(len(state))] for state in states]


def _flipped(block: RegisterBlock, step: Flip, state: State) -> State:
    """psi'_q = psi_p with p = q ^ x if the control's parity is odd on q, else psi_q."""
    k = block.k
    move, lanes = block.flip(step.x)
    within, base = block.within(step.control), block.base_parity(step.control)
    lane_bits = step.control & ((1 << block.plan.lane_bits) - 1)
    result: State = []
    for q, own in enumerate(state):
        other = block.moved(state[q ^ move], lanes)
        on = parity(within & q) if step.control else 1
        if base is None and not lane_bits:
            result.append(other if on else own)
            continue
        odd = k.vector([on ^ parity(lane_bits & lane) for lane in range(k.lanes)], BIT)
        if base is not None:
            odd = odd ^ base.truncated(BIT).splat()
        result.append(select(odd, other, own))
    return result


def _phased(block: RegisterBlock, step: Phases, states: Sequence[State], inverse: bool) -> list[State]:
    """psi'_q = d_q psi_q with the diagonal d, or its conjugate."""
    results: list[State] = [[] for _ in states]
    for q in range(len(states[0])):
        diagonal = block.turns.phases(step, block.index(q) << block.plan.lane_bits)
        factor = diagonal.conjugate() if inverse else diagonal
        for state, result in zip(states, results, strict=True):
            result.append(factor * state[q])
    return results


def overlaps(
    block: RegisterBlock, step: Rotation | Phases, psi: State, adjoint: State
) -> list[tuple[Rotation, Number]]:
    """Im <adjoint|P|psi> over the block for each rotation of a step, without the signs of base and lanes."""
    if isinstance(step, Phases):
        products = [_imaginary(a, 0, p) for a, p in zip(adjoint, psi, strict=True)]
        classes = walsh([fma(*second, left * right) for (left, right), second in products])
        return [(rotation, classes[block.within(rotation.z)]) for rotation in step.rotations]
    move, lanes = block.flip(step.x)
    within = block.within(step.z)
    # Several sums, since each addition waits for the one before.
    sums: list[Number | None] = [None] * min(4, 2 * len(psi))
    for j, a in enumerate(adjoint):
        p = j ^ move
        terms = _imaginary(a, step.ys + 2 * parity(within & p), block.moved(psi[p], lanes))
        for t, (left, right) in enumerate(terms):
            at = (len(terms) * j + t) % len(sums)
            sums[at] = fma(left, right, sums[at])
    first, *others = [part for part in sums if part is not None]
    for part in others:
        first = first + part
    return [(step, first)]


def _imaginary(a: Amplitude, power: int, p: Amplitude) -> list[tuple[Number, Number]]:
    """The real products whose sum is Im(conj(a) i**power p); of real amplitudes only for odd powers."""
    minus = power % 4 in (2, 3)
    if isinstance(a, Number) or isinstance(p, Number):
        return [(-a if minus else a, p)]  # type: ignore[list-item]
    if power % 2:
        return [(-a.real if minus else a.real, p.real), (-a.imag if minus else a.imag, p.imag)]
    return [(-a.real if minus else a.real, p.imag), (a.imag if minus else -a.imag, p.real)]
