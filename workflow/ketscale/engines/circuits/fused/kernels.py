"""The kernels of circuits, which read a circuit from the table of `listing`: compiled once for a processor.

`prepare` and `collect` run once in each call, before and after the others, which run on every thread and take tiles until
none is left. Each sample's arithmetic depends on neither the thread nor the other samples, and the kernel writes sums over
samples tile by tile, so results are the same for any number of threads. A group's tiles are those that it would have alone,
so it gets the same bits too.

A *step* is a rotation, a diagonal of rotations that all samples share, or a word that is measured or applied; a *pass* is
steps on blocks of vectors that are closed under their flips. A block is copied to a place of its own, so its steps find it
in the cache; a state that fits the cache is one block, and stays where it is. A pass without steps is a move (`moves`).
With p = q ^ x, a step about the word P of X on mask `x` and Z on mask `z` takes (P psi)_q = i**-ys (-1)**(z.q) psi_p.

Gradients are adjoint (Jones and Gacon, arXiv:2009.02823): with psi the final state and adjoint = sum of cotangent times
word on psi, each rotation is undone on both, and the derivative by its angle is Im <adjoint|P|psi>.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import NamedTuple

from ketscale.engines.circuits.fused.mixing import mix, undo_mix
from ketscale.engines.circuits.fused.moves import MoveTable, move
from ketscale.engines.circuits.fused.rows import Places, Rows
from ketscale.engines.compiled.functions import lanes_flipped, sincos
from ketscale.engines.compiled.language import (
    I64,
    INTEGER,
    Arguments,
    Buffer,
    Complex,
    FunctionCode,
    Number,
    Operand,
    aligned,
    bytes_,
    fma,
    integers,
    lane_sum,
    minimum,
    reals,
    select,
)

# The fields of a step. KIND: the sum of ODD, LANES and PAIRS. MOVE: how a block's numbers are flipped; PIVOT: its highest
# bit. WITHIN, BASE: the bits of a block's numbers, and of its base, whose parity gives the sign. FLIP, SIGNS: the flipped
# lanes, and the bits of a lane's number that give its sign. NEGATIVE: 1 turns the sign. INDEX: of the angle, or the word.
# COLUMN: where the gradient goes; of a diagonal, which of its pass's it is. SIZE: how many vectors are not 0, from the first
# on; 0: all of the block. NEXT: the first of the steps that are done together with it.
KIND, MOVE, PIVOT, WITHIN, BASE, FLIP, SIGNS, NEGATIVE, INDEX, COLUMN, SIZE, NEXT, STEP_FIELDS = range(13)
# ODD: the image is i times the state. PAIRS: vectors exchange places. LANES: so do lanes. Or the step is a DIAGONAL. Two
# rotations of PAIRS are done together as one of kind TWO, with a flag for each that is ODD, and one more if some exchange
# LANES; their PIVOTs are those of both flips, ascending. Words of one flip are done together too: the row of kind WORDS, and
# ODD, has their flip and number.
ODD, LANES, PAIRS, DIAGONAL, WORDS, TWO, SEVERAL = 1, 2, 4, 8, 10, 16, 24
# So many words of PAIRS are done together, as a row of kind SEVERAL plus ODD: from 8 qubits on, psi and adjoint no longer fit
# the first cache, and are then read once for all of them.
WORDS_AT_ONCE = 4
# The fields of a pass: its steps, the dimensions of its blocks, where their pivots and offsets are listed, and the number of
# blocks. Of a move: how many basis states it multiplies, 0, how many pairs it exchanges; where these are listed, and where
# the factors are.
FIRST, COUNT, DIMENSIONS, PIVOTS, OFFSETS, BLOCKS, PASS_FIELDS = range(7)

# First the arguments of one call: `cpu` packs those before the cotangent in the forward pass, all in the backward pass.
CALL_ARGUMENTS = {
    "inputs": reals("rows", "input_stride"),
    "input_stride": INTEGER,
    "weights": reals("groups", "weight_columns"),
    "shared": reals("groups", "shared_stride"),  # what `prepare` computes
    "states": aligned("vectors"),  # the tiles' states
    "out": reals("rows", "columns"),  # expectation values or complex amplitudes
    "initial": reals("rows", "initial_stride"),  # complex amplitudes; a stride of 0: one state for all
    "initial_stride": INTEGER,
    "mix": reals("groups", "mix_size"),  # alpha, beta and the constant of a superposition, complex
    "cotangent": reals("rows", "columns"),
    "input_gradient": reals("rows", "input_gradient_stride"),
    "input_gradient_stride": INTEGER,
    "weight_rows": reals("tiles", "weight_columns"),
    "weight_gradient": reals("groups", "weight_columns"),
    "initial_gradient": reals("rows", "amplitude_floats"),
    "mix_rows": reals("tiles", "mix_size"),
    "mix_gradient": reals("groups", "mix_size"),
}
ARGUMENTS = CALL_ARGUMENTS | {
    "batch groups group_tiles tiles": INTEGER,  # samples of a group; groups, tiles of each, all tiles
    "scratch": aligned("workers", "scratch_vectors"),
    "states_per_tile states_per_worker": INTEGER,  # vectors between the states of tiles, and of workers
    # The place of each true basis state in a tile, and its power of i.
    "sources": integers("states"),
    "powers": bytes_("states"),
    # Sizes; all columns are those of inputs and weights, and one for constants.
    "scratch_vectors input_columns weight_columns all_columns columns words": INTEGER,
    # Angles of each sample, angles and diagonals that all samples of a group share; a diagonal's numbers; and of all pending.
    "own_angles shared_angles diagonals qubits table_size pending field_vectors": INTEGER,
    "mix_size shared_stride amplitude_floats size lane_bits samples vectors": INTEGER,
    "kept_vectors block_vectors": INTEGER,  # of psi and of the adjoint if gradients are wanted; of a block
    "from_zero mixed input_wanted weight_wanted initial_wanted mix_wanted": INTEGER,
    "pairs singles": INTEGER,  # orbits of the reversal
    "forward_passes word_passes backward_passes": INTEGER,
    "passes": integers("passes", PASS_FIELDS),
    "steps": integers("steps", STEP_FIELDS),
    "blocks": integers("numbers"),  # pivots and offsets of passes; basis states of moves
    "move_factors": reals("moved", 2),
    "orbit_pairs": integers("pairs", 2),
    "orbit_singles": integers("singles", 1),
    "angle_columns": integers("angles"),
    "half_factors": reals("angles"),
    # Each shared angle, and after its word each rotation of a diagonal, has a weight's number, or that of all for a constant.
    "shared_columns": integers("shared_angles"),
    "shared_factors": reals("shared_angles"),
    "diagonal_parts": integers("diagonals", 2),  # the first rotation of each, and their number
    "phases": integers("phases", 2),
    "phase_factors": reals("phases"),
    "factors": reals("steps"),  # of the gradients
}


@dataclass(frozen=True)
class Tile:
    """A tile that a thread has taken: samples of one group, which are rows of the batch from `first` on.

    number: among all tiles. present: how many samples it has. saved: its state after the forward pass, or the thread's.
    real: whether amplitudes are. states: psi and the adjoint; blocks: their places for a block. turns: cosine and sine of
    every angle. signs, sines: two vectors each, of a step, with both signs. overlaps: of pending diagonals, by basis state.
    """

    k: FunctionCode
    args: Arguments
    real: bool
    number: Number
    group: Number
    first: Number
    present: Number
    saved: Buffer
    columns: Buffer
    turns: Buffer
    words: Buffer
    gradients: Buffer
    overlaps: Buffer
    states: list[Buffer]
    blocks: list[Buffer]
    signs: Buffer
    sines: Buffer
    two_signs: list[Buffer]
    two_sines: list[Buffer]
    field: Buffer

    @property
    def lane_signs(self) -> Buffer:
        """By a mask, the signs of the lanes: minus where an odd number of its bits is set in the lane's number."""
        lanes = range(self.k.lanes)
        return self.k.table(
            "lane signs", [1.0 - 2 * parity(mask & lane) for mask in lanes for lane in lanes]
        ).part((), len(lanes), len(lanes))


@dataclass(frozen=True)
class _Step:
    """A step on a block of each state. odd, pairs: of its kind. negative: whether its sign is turned. across: whether
    the two vectors of a pair differ in sign. flip: of lanes, None if these stay."""

    blocks: list[Buffer]
    odd: bool
    pairs: bool
    size: Number
    negative: Number
    across: Number
    move: Number
    pivot: Number
    within: Number
    flip: Number | None
    index: Number
    column: Number
    factor: Number


# Numbers q and p of vectors, and which sign q has.
_Places = list[tuple[Number, Number, Number]]
# Writes the code of a step of a kind.
Body = Callable[[Tile, _Step], None]
# An amplitude of every lane.
Amplitude = Number | Complex


def parity(bits: int) -> int:
    """1 if an odd number of bits is set, else 0."""
    return bits.bit_count() % 2


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


def of_amplitudes(table: Buffer, first: Number, lane_bits: int) -> Number:
    """What a table of basis states has for a vector's amplitudes, of which the first has index `first`."""
    amplitudes, lanes = 1 << lane_bits, table.code.lanes
    if amplitudes == 1:
        one: Number = table[first].splat()
        return one
    few: Number = table.part((first,), 1, element=table.code.few(amplitudes))[0]
    return few.shuffled([lane % amplitudes for lane in range(lanes)])


def _parity(bits: Number) -> Number:
    return bits.code.intrinsic("ctpop", I64, bits) & 1


@contextmanager
def tiles(k: FunctionCode, args: Arguments, real: bool) -> Iterator[Tile]:
    """Write the body for each tile that this thread takes, whose angles are read."""
    worker = k.worker()
    signs, sines = k.local(2), k.local(2)
    angles = args.own_angles + args.shared_angles
    columns, turns, words, gradients, overlaps, field, *places = args.scratch[worker].split(
        (args.all_columns,), (angles, 2), (args.words,), (args.all_columns,), (args.pending,), (args.field_vectors,),
        *[(args.kept_vectors,)] * 2, *[(args.block_vectors,)] * 2,
    )  # fmt: skip
    with k.tasks(args.tiles) as number:
        group = number // args.group_tiles
        before = (number - group * args.group_tiles) * args.samples
        at = worker * args.states_per_worker + number * args.states_per_tile
        tile = Tile(
            k=k, args=args, real=real, number=number, group=group,
            first=group * args.batch + before, present=minimum(args.samples, args.batch - before),
            saved=_state(args.states.part((at,), 1), real), columns=columns, turns=turns, words=words,
            gradients=gradients, overlaps=overlaps, states=[_state(each, real) for each in places[:2]],
            blocks=[_state(each, real) for each in places[2:]], signs=signs, sines=sines,
            two_signs=[k.local(2), k.local(2)], two_sines=[k.local(2), k.local(2)], field=field,
        )  # fmt: skip
        _read_angles(tile)
        yield tile


def _state(vectors: Buffer, real: bool) -> Buffer:
    return vectors.part((), 1, element="aligned" if real else "complex vector")


def _amplitude(k: FunctionCode, value: Number, real: bool) -> Amplitude:
    return value if real else Complex(value, k.vector(0.0))


def prepare(k: FunctionCode, args: Arguments, real: bool) -> None:
    """Cosines and sines of half of each group's shared angles, and its diagonals."""
    with k.loop(args.groups) as group:
        weights, shared = args.weights[group], args.shared[group]
        cosines, sines = _shared_turns(args, shared)
        with k.each(args.shared_angles) as i:
            cosines[i] = _half(k, args, weights, args.shared_columns[i], args.shared_factors[i])
        halves = _aligned(cosines)
        with k.each((args.shared_angles + (k.lanes - 1)) // k.lanes) as v:
            _turned(halves, _aligned(sines), v, halves[v])
        if not real:
            with k.each(args.diagonals) as number:
                cosines, sines = _diagonal(args, shared, number)
                _aligned(cosines).zero(args.table_size // k.lanes)
                with _phases(k, args, number) as (word, column, factor):
                    cosines[word] = cosines[word] - _half(k, args, weights, column, factor)
                _transformed(k, args, _aligned(cosines), partial(_turned, _aligned(cosines), _aligned(sines)))


def _half(k: FunctionCode, args: Arguments, weights: Buffer, column: Number, factor: Number) -> Number:
    """Half of a shared angle, of which `factor` is half of the factor."""
    half = k.variable(factor)
    with k.when(column < args.weight_columns):
        half.value = weights[column] * factor
    found: Number = half.value
    return found


def _padded(args: Arguments, count: Number) -> Number:
    """So many numbers, or more, that are whole vectors."""
    lanes = count.code.lanes
    found: Number = (count + (lanes - 1)) // lanes * lanes
    return found


def _shared_turns(args: Arguments, shared: Buffer) -> tuple[Buffer, Buffer]:
    """Cosines and sines of half of a group's angles."""
    return shared.part((), 1), shared.part((_padded(args, args.shared_angles),), 1)


def _diagonal(args: Arguments, shared: Buffer, number: Number) -> tuple[Buffer, Buffer]:
    """The real and imaginary parts of a group's diagonal, by basis state."""
    first = (_padded(args, args.shared_angles) + number * args.table_size) * 2
    return shared.part((first,), 1), shared.part((first + args.table_size,), 1)


def _aligned(numbers: Buffer) -> Buffer:
    return numbers.part((), 1, element="aligned")


@contextmanager
def _phases(k: FunctionCode, args: Arguments, number: Number) -> Iterator[tuple[Number, Number, Number]]:
    """Loop over a diagonal's rotations: the word of each, its column, and half of its factor."""
    first = args.diagonal_parts[number, 0]
    with k.loop(args.diagonal_parts[number, 1]) as i:
        phase = first + i
        yield args.phases[phase, 0], args.phases[phase, 1], args.phase_factors[phase]


def _turned(cosines: Buffer, sines: Buffer, place: Number, halves: Number) -> None:
    """The cosines and sines of half angles."""
    sines[place], cosines[place] = sincos(halves)


# So many vectors go through several levels of a transform in registers.
_AT_ONCE = 3


def _transformed(
    k: FunctionCode, args: Arguments, table: Buffer, finish: Callable[[Number, Number], None]
) -> None:
    """The Walsh-Hadamard transform of a table of all basis states, whose vectors `finish` is given with their places.

    In lanes without a basis state there are zeros before, and copies after it.
    """
    low = k.lanes.bit_length() - 1
    levels = select(args.qubits > low, args.qubits - low, 0)
    inner = select(levels > _AT_ONCE, _AT_ONCE, 0)
    vectors = args.table_size // k.lanes
    with k.each((levels - inner) >> 1) as step:
        _level(k, table, vectors, inner + step * 2, 2)
    with k.when(((levels - inner) & 1) != 0):
        _level(k, table, vectors, levels - 1, 1)

    def last(count: int) -> None:
        with k.loop(vectors >> (count.bit_length() - 1)) as i:
            at = [i * count + number for number in range(count)]
            for place, vector in zip(at, walsh([table[place] for place in at]), strict=True):
                for bit in range(low):
                    signs = k.vector([-1.0 if lane >> bit & 1 else 1.0 for lane in range(k.lanes)])
                    vector = fma(vector, signs, vector.shuffled([lane ^ 1 << bit for lane in range(k.lanes)]))
                finish(place, vector)

    k.either(inner > 0, lambda: last(1 << _AT_ONCE), lambda: last(1))


def prepare_and_forward(k: FunctionCode, args: Arguments, real: bool) -> None:
    """One call instead of two, if there is one thread."""
    k.call("prepare")
    k.call("forward")


def forward(k: FunctionCode, args: Arguments, real: bool) -> None:
    """States from angles, then expectation values or amplitudes."""
    with tiles(k, args, real) as tile:
        _begin(tile, tile.saved)
        evolve(tile, tile.saved)
        if not real:
            with k.when(args.mixed != 0):
                _copy(tile, tile.saved, tile.states[0])
                mix(k, _orbits(k, args), _complexes(args, args.mix[tile.group]), tile.states[0], tile.saved)
        measure(tile, tile.saved)
        if not real:
            with k.when(args.mixed != 0):
                _copy(tile, tile.states[0], tile.saved)
        write_results(tile, tile.saved)


def backward(k: FunctionCode, args: Arguments, real: bool) -> None:
    """Gradients from cotangents: the sweep backwards."""
    with tiles(k, args, real) as tile:
        psi = tile.states[0]
        _copy(tile, tile.saved, psi)
        if not real:
            with k.when(args.mixed != 0):
                mix(k, _orbits(k, args), _complexes(args, args.mix[tile.group]), tile.saved, psi)
        begin_adjoint(tile)
        if not real:
            with k.when(args.mixed != 0):
                _undo_mix(tile)
                _copy(tile, tile.saved, psi)
        undo(tile)


def pull(k: FunctionCode, args: Arguments, real: bool) -> None:
    """Gradients from cotangents, forward and backward while a tile is in the cache: nothing was saved."""
    with tiles(k, args, real) as tile:
        _begin(tile, tile.states[0])
        evolve(tile, tile.states[0])
        begin_adjoint(tile)
        undo(tile)


def _begin(tile: Tile, state: Buffer) -> None:
    """The initial state."""
    tile.k.either(
        tile.args.from_zero != 0,
        lambda: _zero_state(tile, state),
        lambda: rows(tile, tile.args.initial, True, lambda rows: rows.read(state, 1.0)),
    )


def evolve(tile: Tile, state: Buffer) -> None:
    """A state after all rotations."""
    _run(tile, tile.k.integer(0), tile.args.forward_passes, _rotate, [state])


def measure(tile: Tile, state: Buffer) -> None:
    """Each sample's words."""
    with tile.k.when(tile.args.words > 0):
        tile.words.zero(tile.args.words)
    _run(tile, tile.args.forward_passes, tile.args.word_passes, _measure, [state], kept=True)


def write_results(tile: Tile, last: Buffer) -> None:
    """The words that were measured, or a state."""
    tile.k.either(
        tile.args.words > 0,
        lambda: _write_words(tile),
        lambda: rows(tile, tile.args.out, False, lambda rows: rows.write(last, 1.0)),
    )


def begin_adjoint(tile: Tile) -> None:
    """The adjoint of the cotangents, and gradients of 0."""
    k, args, adjoint = tile.k, tile.args, tile.states[1]
    tile.gradients.zero(args.all_columns)
    if not tile.real:
        with k.when(args.size < k.lanes), k.when(args.pending > 0):
            tile.overlaps.zero(args.pending)
    k.either(
        args.words > 0,
        lambda: _read_words(tile, adjoint),
        lambda: rows(tile, args.cotangent, False, lambda rows: rows.read(adjoint, 0.5)),
    )
    _run(tile, args.forward_passes, args.word_passes, _add, tile.states)


def undo(tile: Tile) -> None:
    """The gradients, by undoing all rotations."""
    args = tile.args
    _run(tile, args.forward_passes + args.word_passes, args.backward_passes, _undo, tile.states)
    with tile.k.when(args.initial_wanted != 0):
        rows(tile, args.initial_gradient, True, lambda rows: rows.write(tile.states[-1], 2.0))
    _write_gradients(tile)


def collect(k: FunctionCode, args: Arguments, real: bool) -> None:
    """The gradients by what each group's samples share: its tiles' rows, added one after the other."""
    for wanted, size, rows, sums in (
        (args.weight_wanted, args.weight_columns, args.weight_rows, args.weight_gradient),
        (args.mix_wanted, args.mix_size, args.mix_rows, args.mix_gradient),
    ):
        count = select(wanted != 0, size, 0)
        with k.loop(args.groups) as group, k.each(count) as i:
            total = k.variable(k.constant(0.0, k.real))
            with k.loop(args.group_tiles) as tile:
                total.value = total.value + rows[group * args.group_tiles + tile, i]
            sums[group, i] = total.value


# --- superpositions ---


def _copy(tile: Tile, source: Buffer, target: Buffer) -> None:
    with tile.k.loop(tile.args.vectors) as v:
        target[v] = source[v]


def _orbits(k: FunctionCode, args: Arguments) -> list[Buffer]:
    return [args.orbit_pairs.part((), args.pairs, 2), args.orbit_singles.part((), args.singles, 1)]


def _complexes(args: Arguments, reals: Buffer) -> Buffer:
    return reals.part((), 1, element="complex")


def _undo_mix(tile: Tile) -> None:
    k, args, sums = tile.k, tile.args, _state(tile.k.local(4), False)
    undo = partial(
        undo_mix, k, _orbits(k, args), _complexes(args, args.mix[tile.group]), tile.saved, tile.states[1]
    )
    k.either(
        args.mix_wanted != 0,
        lambda: undo(_complexes(args, args.mix_rows[tile.number]), sums),
        lambda: undo(None, sums),
    )


# --- passes ---


def _run(
    tile: Tile, first: Number, count: Number, body: Body, states: list[Buffer], kept: bool = False
) -> None:
    """Passes over states by a body for their steps. kept: the steps change nothing."""
    k, args = tile.k, tile.args
    pairs = list(zip(states, tile.blocks, strict=False))
    with k.each(count) as number:
        row = args.passes[first + number]

        def moved() -> None:
            multiplied, swapped = row[FIRST], row[DIMENSIONS]
            table = MoveTable(
                args.blocks.part((row[PIVOTS],), multiplied),
                args.move_factors.part((row[OFFSETS], 0), multiplied, 2),
                multiplied,
                args.blocks.part((row[PIVOTS] + multiplied,), swapped, 2),
                swapped,
            )
            for state, _ in pairs:
                move(k, table, state, args.lane_bits, args.samples)

        k.either(row[COUNT] > 0, lambda: _pass(tile, row, body, pairs, kept), moved)


def _pass(tile: Tile, row: Buffer, body: Body, pairs: list[tuple[Buffer, Buffer]], kept: bool) -> None:
    """Steps on each block of states, which are pairs with their places for a block; the only block stays where it is."""
    k, args = tile.k, tile.args
    size, alone = k.integer(1) << row[DIMENSIONS], row[BLOCKS] == 1
    offsets, element = args.blocks.part((row[OFFSETS],), 1), "aligned" if tile.real else "complex vector"
    blocks = [k.array_at(select(alone, state.address, block.address), element, 1) for state, block in pairs]
    first_step, count = row[FIRST], row[COUNT]
    with k.loop(row[BLOCKS]) as index:
        base = _base(k, args, row, index)
        with k.when(~alone), k.loop(size) as j:
            place = offsets[j] ^ base
            for (state, _), block in zip(pairs, blocks, strict=True):
                block[j] = state[place]
        with k.loop(count) as step:
            _steps(tile, first_step + step, base, size, offsets, body, blocks)
        if not kept:
            with k.when(~alone), k.loop(size) as j:
                for (state, _), block in zip(pairs, blocks, strict=True):
                    state[offsets[j] ^ base] = block[j]
    if body is _undo and not tile.real:
        with k.loop(count) as step:
            fields = args.steps[first_step + step]
            with k.when(fields[KIND] == DIAGONAL):
                _phase_gradients(tile, fields)


def _base(k: FunctionCode, args: Arguments, row: Buffer, index: Number) -> Number:
    """`index` with a 0 inserted at each of the pass's pivots, in ascending order."""
    base = k.variable(index)
    with k.each(row[DIMENSIONS]) as number:
        pivot = args.blocks[row[PIVOTS] + number]
        high = base.value >> pivot
        base.value = base.value + (high << pivot)
    return base.value


def _steps(
    tile: Tile, number: Number, base: Number, size: Number, offsets: Buffer, body: Body, blocks: list[Buffer]
) -> None:
    """One step on a block, by the code of its kind."""
    k, row = tile.k, tile.args.steps[number]
    size = select(row[SIZE] > 0, row[SIZE], size)
    cases: dict[int, Callable[[], None]] = {}
    turns = body in (_rotate, _undo)
    for kind in range(2 * PAIRS):
        # Odd steps would take real amplitudes to imaginary ones.
        if not (kind & ODD and tile.real):
            cases[kind] = partial(_alone, tile, row, number, kind, base, size, body, blocks)
    if not turns:
        for odd in range(1 if tile.real else 2):
            cases[WORDS + odd] = partial(_words, tile, row, base, size, body, blocks, bool(odd))
            cases[SEVERAL + odd] = partial(_several, tile, row, base, size, body, blocks, bool(odd))
    if turns:
        if not tile.real:
            cases[DIAGONAL] = partial(_multiply, tile, row, base, size, offsets, body, blocks)
        for first, second in [(0, 0)] if tile.real else product((0, 1), repeat=2):
            odds = bool(first), bool(second)
            for lanes in (0, 1):
                turned = partial(_two, tile, row, number, base, size, body, blocks, odds, bool(lanes))
                cases[TWO + first + 2 * second + 4 * lanes] = turned
    k.switch(row[KIND], cases)


def _alone(
    tile: Tile,
    row: Buffer,
    number: Number,
    kind: int,
    base: Number,
    size: Number,
    body: Body,
    blocks: list[Buffer],
) -> None:
    """One rotation or word on a block, by the code of its kind."""
    # All are read before the loop over the block, whose stores might change them as far as LLVM knows.
    move, pivot, within, flip, index, column = (row[at] for at in (MOVE, PIVOT, WITHIN, FLIP, INDEX, COLUMN))
    negative = row[NEGATIVE] ^ _parity(base & row[BASE])
    across, factor = _parity(within & move), tile.args.factors[number]
    lane_signs = tile.lane_signs.part((row[SIGNS], 0), 1, element="vector")[0]
    tile.signs[0], tile.signs[1] = lane_signs, -lane_signs
    step = _Step(
        blocks=blocks, odd=bool(kind & ODD), pairs=bool(kind & PAIRS), size=size, negative=negative, across=across,
        move=move, pivot=pivot, within=within, flip=flip if kind & LANES else None, index=index, column=column, factor=factor,
    )  # fmt: skip
    body(tile, step)


def _words(
    tile: Tile, row: Buffer, base: Number, size: Number, body: Body, blocks: list[Buffer], odd: bool
) -> None:
    """Words of one flip: a Walsh-Hadamard transform of the block gives, or takes, the sums with all of their signs."""
    k, args, field = tile.k, tile.args, tile.field
    move, flip, count, following = row[MOVE], row[FLIP], row[COLUMN], row[NEXT]
    adds = body is _add

    if adds:
        field.zero(size)
    else:
        with k.loop(size) as q:
            field[q] = _product(blocks[0][q], _image(blocks[0][q ^ move], odd, flip))
        _walsh(k, field, size)
    with k.loop(count) as member:
        own = args.steps[following + member]
        negative = own[NEGATIVE] ^ _parity(base & own[BASE])
        signs = tile.lane_signs.part((own[SIGNS], 0), 1, element="vector")[0]
        signs = signs * k.table("plus", [1.0, -1.0])[negative].splat()
        to, of = (field, tile.words) if adds else (tile.words, field)
        places = (own[WITHIN], own[INDEX]) if adds else (own[INDEX], own[WITHIN])
        to[places[0]] = fma(of[places[1]], signs, to[places[0]])
    if adds:
        _walsh(k, field, size)
        psi, adjoint = blocks
        with k.loop(size) as q:
            adjoint[q] = fma(_image(psi[q ^ move], odd, flip), field[q], adjoint[q])


def _several(
    tile: Tile, row: Buffer, base: Number, size: Number, body: Body, blocks: list[Buffer], odd: bool
) -> None:
    """Words of several flips: all are added at once, and measured one after the other."""
    k, args, following = tile.k, tile.args, row[NEXT]
    if body is _measure:
        with k.loop(WORDS_AT_ONCE) as member:
            number = following + member
            _alone(tile, args.steps[number], number, PAIRS + odd, base, size, body, blocks)
        return
    psi, adjoint = blocks
    words = []
    kept = [*tile.two_sines, *tile.two_signs]
    for at, signed in zip(range(WORDS_AT_ONCE), kept, strict=True):
        own = args.steps[following + at]
        signs = tile.lane_signs.part((own[SIGNS], 0), 1, element="vector")[0]
        negative, weight = own[NEGATIVE] ^ _parity(base & own[BASE]), tile.words[own[INDEX]] * signs
        signed[negative], signed[negative ^ 1] = weight, -weight
        words.append((signed, own[MOVE], own[WITHIN]))
    with k.loop(size >> 1) as i:
        q = i << 1
        made = [adjoint[q], adjoint[q + 1]]
        for signed, move, within in words:
            p, sign = q ^ move, _parity(q & within)
            for at, (place, which) in enumerate([(p, sign), (p ^ 1, sign ^ (within & 1))]):
                made[at] = fma(_image(psi[place], odd, None), signed[which], made[at])
        adjoint[q], adjoint[q + 1] = made


def _walsh(k: FunctionCode, field: Buffer, size: Number) -> None:
    """The Walsh-Hadamard transform of so many vectors in place."""
    levels = k.intrinsic("ctpop", I64, size - 1)
    several = levels // _AT_ONCE
    with k.each(several) as step:
        _level(k, field, size, step * _AT_ONCE, _AT_ONCE)
    with k.each(levels - several * _AT_ONCE) as step:
        _level(k, field, size, several * _AT_ONCE + step, 1)


def _level(k: FunctionCode, table: Buffer, size: Number, bit: Number, count: int) -> None:
    """So many levels of a transform from a bit on, of vectors in place."""
    with k.loop(size >> count) as i:
        first = i + ((i >> bit) * ((1 << count) - 1) << bit)
        at = [first + (k.integer(number) << bit) for number in range(1 << count)]
        for place, vector in zip(at, walsh([table[place] for place in at]), strict=True):
            table[place] = vector


class _Turn(NamedTuple):
    """One of two rotations that are done together. odd: see `ODD`. cosine: in every lane. sines, signs: two vectors each,
    with both signs. within, flip: see `WITHIN` and `FLIP`. crosses: whether the sign changes where each of the flips leads.
    """

    odd: bool
    cosine: Number
    sines: Buffer
    signs: Buffer
    within: Number
    flip: Number
    crosses: list[Number]


def _two(
    tile: Tile,
    row: Buffer,
    number: Number,
    base: Number,
    size: Number,
    body: Body,
    blocks: list[Buffer],
    odd: Sequence[bool],
    lanes: bool,
) -> None:
    """Two rotations, or their inverses, on the four vectors that their flips connect."""
    k, args, undoes = tile.k, tile.args, body is _undo
    numbers = [number, row[NEXT]]
    fields = [args.steps[each] for each in numbers]
    flips, pivots = ([row[at] for row in fields] for at in (MOVE, PIVOT))
    turns = []
    for row, is_odd, sines, signs in zip(fields, odd, tile.two_sines, tile.two_signs, strict=True):
        negative = row[NEGATIVE] ^ _parity(base & row[BASE]) ^ int(undoes)
        lane_signs = tile.lane_signs.part((row[SIGNS], 0), 1, element="vector")[0]
        if undoes:
            signs[0], signs[1] = lane_signs, -lane_signs
        signed = tile.turns[row[INDEX], 1] * lane_signs
        sines[negative], sines[negative ^ 1] = signed, -signed
        crosses = [_parity(flip & row[WITHIN]) for flip in flips]
        turns.append(_Turn(is_odd, tile.turns[row[INDEX], 0], sines, signs, row[WITHIN], row[FLIP], crosses))
    members = range(4)
    totals = [k.variable(k.vector(0.0)) for _ in turns]
    with k.loop(size >> 2) as i:
        first = i
        for pivot in pivots:
            first = first + ((first >> pivot) << pivot)
        places = [_combined(first, flips, member) for member in members]
        states = [[block[place] for place in places] for block in blocks]
        for which, turn in enumerate(turns):
            own = _parity(first & turn.within)
            # Pair by pair, so that few numbers are needed at a time.
            for one in (at for at in members if not at >> which & 1):
                pair = one, one | 1 << which
                sign = _combined(own, turn.crosses, one)
                # Without exchanges of lanes a word of an odd number of Y has another sign at the other place, and it alone.
                across = _combined(sign, turn.crosses, 1 << which) if lanes else sign
                minus = not (lanes or turn.odd)
                images = [
                    [_image(state[at], turn.odd, turn.flip if lanes else None) for at in reversed(pair)]
                    for state in states
                ]
                if undoes:
                    products = [
                        _product(states[1][at], image) for at, image in zip(pair, images[0], strict=True)
                    ]
                    if not lanes:
                        products = [products[0] - products[1] if minus else products[0] + products[1]]
                    for product, place in zip(products, (sign, across), strict=False):
                        totals[which].value = fma(product, turn.signs[place], totals[which].value)
                for state, image in zip(states, images, strict=True):
                    image = [image[0], -image[1] if minus else image[1]]
                    for at, other, place in zip(pair, image, (sign, across), strict=True):
                        state[at] = fma(other, turn.sines[place], turn.cosine * state[at])
        for block, state in zip(blocks, states, strict=True):
            for place, amplitude in zip(places, state, strict=True):
                block[place] = amplitude
    for at, own, total in zip(numbers, fields, totals, strict=True) if undoes else ():
        negative = own[NEGATIVE] ^ _parity(base & own[BASE])
        factor = k.table("plus", [1.0, -1.0])[negative] * args.factors[at]
        column = own[COLUMN]
        tile.gradients[column] = fma(total.value, factor.splat(), tile.gradients[column])


def _combined(first: Number, parts: Sequence[Number], member: int) -> Number:
    """`first` with those parts that a member's number has the bits of."""
    for bit, part in enumerate(parts):
        first = first ^ part if member >> bit & 1 else first
    return first


def _multiply(
    tile: Tile, row: Buffer, base: Number, size: Number, offsets: Buffer, body: Body, blocks: list[Buffer]
) -> None:
    """A block times a diagonal; or psi and adjoint before it, whose overlaps are kept for the diagonal's gradients."""
    k, args = tile.k, tile.args
    diagonal = _diagonal(args, args.shared[tile.group], row[INDEX])
    overlaps = _overlaps(tile, row)
    for lane_bits in range(k.lanes.bit_length()):
        with k.when(args.lane_bits == lane_bits), k.loop(size) as j:
            place = (offsets[j] ^ base) << lane_bits
            factor = Complex(*(of_amplitudes(part, place, lane_bits) for part in diagonal))
            if body is _rotate:
                blocks[0][j] = factor * blocks[0][j]
                continue
            psi, adjoint = (block[j] for block in blocks)
            overlap = fma(adjoint.real, psi.imag, -(adjoint.imag * psi.real))
            few, distance = 1 << lane_bits, 1 << lane_bits
            while distance < k.lanes:
                overlap = overlap + overlap.shuffled([lane ^ distance for lane in range(k.lanes)])
                distance *= 2
            overlaps.part((place,), 1, element=k.few(few))[0] = overlap.shuffled(range(few))
            for block, amplitude in zip(blocks, (psi, adjoint), strict=True):
                block[j] = factor.conjugate() * amplitude


def _overlaps(tile: Tile, row: Buffer) -> Buffer:
    """The memory of a diagonal's overlaps, by basis state."""
    return tile.overlaps.part((), 1, element="real").part((row[COLUMN] * tile.args.table_size,), 1)


def _phase_gradients(tile: Tile, row: Buffer) -> None:
    """Add the gradients of a diagonal's rotations, whose overlaps are the transform of those of the basis states."""
    k, args, overlaps = tile.k, tile.args, _overlaps(tile, row)
    vectors = _aligned(overlaps)
    _transformed(k, args, vectors, vectors.__setitem__)
    own = tile.gradients.part((), args.all_columns, k.lanes, element="real")
    with _phases(k, args, row[INDEX]) as (word, column, factor), k.when(column < args.weight_columns):
        at = args.input_columns + column
        own[at, 0] = fma(overlaps[word], factor * 2.0, own[at, 0])
    # As the next pass with a diagonal needs them (`_transformed`).
    with k.when(args.size < k.lanes):
        vectors[0] = k.vector(0.0)


def _image(amplitude: Amplitude, odd: bool, flip: Number | None) -> Amplitude:
    """An amplitude's vectors, i times if it is odd, after the flip of their lanes if there is one."""
    if isinstance(amplitude, Number):
        return amplitude if flip is None else lanes_flipped(amplitude, flip)
    turned = amplitude.times_i() if odd else amplitude
    return (
        turned
        if flip is None
        else Complex(*(lanes_flipped(part, flip) for part in (turned.real, turned.imag)))
    )


@contextmanager
def _places(tile: Tile, step: _Step) -> Iterator[_Places]:
    """Loop over a block: numbers q and p, and which sign q has; the two of a pair, or one alone."""
    k = tile.k
    if step.pairs:
        with k.loop(step.size >> 1) as i:
            q = i + ((i >> step.pivot) << step.pivot)
            p, sign = q ^ step.move, _parity(q & step.within)
            yield [(q, p, sign), (p, q, sign ^ step.across)]
    else:
        with k.loop(step.size) as q:
            yield [(q, q ^ step.move, _parity(q & step.within))]


def _product(left: Amplitude, right: Amplitude) -> Number:
    """The real part of conj(left) right."""
    if isinstance(left, Number) or isinstance(right, Number):
        return left * right  # type: ignore[return-value]
    made: Number = fma(left.imag, right.imag, left.real * right.real)
    return made


def _signed(tile: Tile, step: _Step, inverse: bool) -> Number:
    """Keep the sine with both signs, first its own, or if negative the other; the cosine."""
    turn = tile.turns[step.index]
    _keep_signed(tile, turn[1], step.negative ^ int(inverse))
    return turn[0]


def _keep_signed(tile: Tile, vector: Number, negative: Number) -> None:
    signed = vector * tile.signs[0]
    tile.sines[negative], tile.sines[negative ^ 1] = signed, -signed


def _loaded(step: _Step, places: _Places, block: Buffer) -> list[tuple[Amplitude, Amplitude]]:
    """For each place, the amplitude there and the image of the other place's."""
    before = [block[q] for q, _, _ in places]
    images = [_image(amplitude, step.odd, step.flip) for amplitude in before]
    return [(amplitude, images[at - 1]) for at, amplitude in enumerate(before)]


def _turn(
    tile: Tile,
    places: _Places,
    block: Buffer,
    loaded: list[tuple[Amplitude, Amplitude]],
    cosine: Number,
) -> None:
    """psi'_q = c psi_q - i s (P psi)_q."""
    turned = [
        fma(image, tile.sines[sign], cosine * own)
        for (own, image), (_, _, sign) in zip(loaded, places, strict=True)
    ]
    for (q, _, _), amplitude in zip(places, turned, strict=True):
        block[q] = amplitude


def _rotate(tile: Tile, step: _Step) -> None:
    """A state after a rotation."""
    cosine, (block,) = _signed(tile, step, inverse=False), step.blocks
    with _places(tile, step) as places:
        _turn(tile, places, block, _loaded(step, places, block), cosine)


def _undo(tile: Tile, step: _Step) -> None:
    """psi and adjoint before a rotation, and Im <adjoint|P|psi>, which is added to the gradient."""
    k, (psi, adjoint) = tile.k, step.blocks
    cosine, total = _signed(tile, step, inverse=True), k.variable(k.vector(0.0))
    with _places(tile, step) as places:
        ones, others = (_loaded(step, places, block) for block in (psi, adjoint))
        for (_, _, sign), (_, image), (amplitude, _) in zip(places, ones, others, strict=True):
            total.value = fma(_product(amplitude, image), tile.signs[sign], total.value)
        _turn(tile, places, psi, ones, cosine)
        _turn(tile, places, adjoint, others, cosine)
    factor = k.table("plus", [1.0, -1.0])[step.negative] * step.factor
    column = step.column
    tile.gradients[column] = fma(total.value, factor.splat(), tile.gradients[column])


def _measure(tile: Tile, step: _Step) -> None:
    """Add <psi|P|psi> over the block to the word's sum."""
    k, (block,), total = tile.k, step.blocks, tile.k.variable(tile.k.vector(0.0))
    with _places(tile, step) as places:
        # The two of a pair give the same number.
        q, p, sign = places[0]
        product = _product(block[q], _image(block[p], step.odd, step.flip))
        total.value = fma(product, tile.signs[sign], total.value)
    signs = k.table("twice", [2.0, -2.0]) if step.pairs else k.table("plus", [1.0, -1.0])
    tile.words[step.index] = fma(total.value, signs[step.negative].splat(), tile.words[step.index])


def _add(tile: Tile, step: _Step) -> None:
    """Add the word's weight times P psi to the adjoint."""
    psi, adjoint = step.blocks
    _keep_signed(tile, tile.words[step.index], step.negative)
    with _places(tile, step) as places:
        for q, p, sign in places:
            adjoint[q] = fma(_image(psi[p], step.odd, step.flip), tile.sines[sign], adjoint[q])


# --- angles and words in, gradients and values out ---


def _read_angles(tile: Tile) -> None:
    """Cosine and sine of half of every angle: of each sample's own ones, and of those that samples share."""
    k, args, columns = tile.k, tile.args, tile.columns
    own = columns.part((), args.all_columns, k.lanes, element="real")
    with k.loop(k.lanes) as lane:
        row = args.inputs[tile.first + minimum(lane >> args.lane_bits, tile.present - 1)]
        with k.each(args.input_columns) as i:
            own[i, lane] = row[i]
    with k.each(args.own_angles) as i:
        sine, cosine = sincos(columns[args.angle_columns[i]] * args.half_factors[i])
        tile.turns[i, 0], tile.turns[i, 1] = cosine, sine
    cosines, sines = _shared_turns(args, args.shared[tile.group])
    with k.each(args.shared_angles) as i:
        at = args.own_angles + i
        tile.turns[at, 0], tile.turns[at, 1] = cosines[i].splat(), sines[i].splat()


def _sample_sum(tile: Tile, vector: Number) -> Number:
    """The sum over each sample's lanes, in all of them."""
    lanes = range(tile.k.lanes)
    for bit in range(len(lanes).bit_length() - 1):
        added = vector + vector.shuffled([lane ^ 1 << bit for lane in lanes])
        vector = select(tile.args.lane_bits > bit, added, vector)
    return vector


def _write_words(tile: Tile) -> None:
    with tile.k.loop(tile.args.words) as word:
        tile.words[word] = _sample_sum(tile, tile.words[word])
    _to_rows(tile, tile.words, tile.args.out, tile.args.words)


def _read_words(tile: Tile, adjoint: Buffer) -> None:
    """The cotangents as the words' weights, 0 in lanes without a sample, and an adjoint of 0."""
    k, args = tile.k, tile.args
    own = tile.words.part((), args.words, k.lanes, element="real")
    with k.loop(k.lanes) as lane:
        sample = lane >> args.lane_bits
        row = args.cotangent[tile.first + minimum(sample, tile.present - 1)]
        with k.loop(args.words) as word:
            own[word, lane] = select(sample < tile.present, row[word], k.constant(0.0, k.real))
    adjoint.zero(args.vectors)


def _to_rows(tile: Tile, vectors: Buffer, rows: Buffer, count: Operand) -> None:
    """Put each sample's first lane of so many vectors into its row."""
    k = tile.k
    columns = vectors.part((), count, k.lanes, element="real")
    with k.loop(tile.present) as sample:
        row, lane = rows[tile.first + sample], sample << tile.args.lane_bits
        with k.each(count) as i:
            row[i] = columns[i, lane]


def _write_gradients(tile: Tile) -> None:
    """The gradients by the columns: per sample, or over the tile for weights."""
    k, args = tile.k, tile.args
    with k.when(args.weight_wanted != 0):
        row = args.weight_rows[tile.number]
        with k.each(args.weight_columns) as i:
            row[i] = lane_sum(tile.gradients[args.input_columns + i]).lane(0)
    with k.when(args.input_wanted != 0):
        with k.each(args.input_columns) as i:
            tile.gradients[i] = _sample_sum(tile, tile.gradients[i])
        _to_rows(tile, tile.gradients, args.input_gradient, args.input_columns)


# --- states ---


def _zero_state(tile: Tile, state: Buffer) -> None:
    """|0...0>."""
    k, args = tile.k, tile.args
    state.zero(args.vectors)
    index = k.vector(range(k.lanes), I64) & ((k.integer(1) << args.lane_bits) - 1).splat()
    state[0] = _amplitude(k, select(index == 0, k.vector(1.0), 0.0), tile.real)


def rows(tile: Tile, memory: Buffer, in_order: bool, act: Callable[[Rows], None]) -> None:
    """Do something with the samples' states in memory, by vectors if each amplitude has one of its own."""
    k, args = tile.k, tile.args
    places = None if in_order else Places(args.sources, args.powers)

    def each(lane_bits: Number | None) -> None:
        act(Rows(k, memory, tile.first, tile.present, args.size, lane_bits, tile.real, places))

    k.either(args.lane_bits == 0, lambda: each(None), lambda: each(args.lane_bits))
