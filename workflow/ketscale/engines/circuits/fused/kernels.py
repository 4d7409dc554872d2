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
ODD, LANES, PAIRS, DIAGONAL, WORDS, TWO = 1, 2, 4, 8, 10, 16
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
    "forward_passes word_passes backward_passes": INTEGER,
    "passes": integers("passes", PASS_FIELDS),
    "steps": integers("steps", STEP_FIELDS),
    "blocks": integers("numbers"),  # pivots and offsets of passes; basis states of moves
    "move_factors": reals("moved", 2),
    "partners": integers("size", 2),  # of the amplitudes that are mixed
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
    every angle. signs, sines: for each of two steps two vectors, with both signs. overlaps: of pending diagonals, by basis state.
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
    signs: list[Buffer]
    sines: list[Buffer]
    field: Buffer

    def lane_signs(self, row: Buffer) -> Number:
        """The signs of a step's lanes: minus where an odd number of its `SIGNS` is set in the lane's number."""
        lanes = range(self.k.lanes)
        table = self.k.table(
            "lane signs", [1.0 - 2 * parity(mask & lane) for mask in lanes for lane in lanes]
        )
        signs: Number = table.part((row[SIGNS] * len(lanes),), 1, element="vector")[0]
        return signs


class _Block(NamedTuple):
    """A block of vectors of psi, forward, or of psi and the adjoint, backward.

    base, offsets: vector j is that of number offsets[j] ^ base in the tile. size: how many vectors steps change.
    """

    tile: Tile
    states: list[Buffer]
    base: Number
    offsets: Buffer
    size: Number

    @property
    def backward(self) -> bool:
        """Whether there is an adjoint."""
        return len(self.states) == 2

    def negative(self, row: Buffer) -> Number:
        """Whether the block turns a step's sign."""
        return row[NEGATIVE] ^ _parity(self.base & row[BASE])


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
    signs, sines = ([k.local(2), k.local(2)] for _ in range(2))
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
            blocks=[_state(each, real) for each in places[2:]], signs=signs, sines=sines, field=field,
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
            _sincos(halves, _aligned(sines), v, halves[v])
        if not real:
            with k.each(args.diagonals) as number:
                cosines, sines = _diagonal(args, shared, number)
                _aligned(cosines).zero(args.table_size // k.lanes)
                with _phases(k, args, number) as (word, column, factor):
                    cosines[word] = cosines[word] - _half(k, args, weights, column, factor)
                _transformed(k, args, _aligned(cosines), partial(_sincos, _aligned(cosines), _aligned(sines)))


def _half(k: FunctionCode, args: Arguments, weights: Buffer, column: Number, factor: Number) -> Number:
    """Half of a shared angle, of which `factor` is half of the factor."""
    half = k.variable(factor)
    with k.when(column < args.weight_columns):
        half.value = weights[column] * factor
    value: Number = half.value
    return value


def _padded(args: Arguments, count: Number) -> Number:
    """So many numbers, or more, that are whole vectors."""
    lanes = count.code.lanes
    size: Number = (count + (lanes - 1)) // lanes * lanes
    return size


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


def _sincos(cosines: Buffer, sines: Buffer, place: Number, halves: Number) -> None:
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
    _walsh(k, table, vectors, inner, levels)

    def last(count: int) -> None:
        with k.loop(vectors >> (count.bit_length() - 1)) as i:
            at = [i * count + number for number in range(count)]
            for place, vector in zip(at, walsh([table[place] for place in at]), strict=True):
                for bit in range(low):
                    signs = k.vector([-1.0 if lane >> bit & 1 else 1.0 for lane in range(k.lanes)])
                    vector = fma(vector, signs, vector.shuffled([lane ^ 1 << bit for lane in range(k.lanes)]))
                finish(place, vector)

    k.either(inner > 0, lambda: last(1 << _AT_ONCE), lambda: last(1))


def forward(k: FunctionCode, args: Arguments, real: bool) -> None:
    """States from angles, then expectation values or amplitudes."""
    with tiles(k, args, real) as tile:
        _begin(tile, tile.saved)
        evolve(tile, tile.saved)
        if not real:
            with k.when(args.mixed != 0):
                _copy(tile, tile.saved, tile.states[0])
                mix(k, _partners(args), _complexes(args.mix[tile.group]), tile.states[0], tile.saved)
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
                mix(k, _partners(args), _complexes(args.mix[tile.group]), tile.saved, psi)
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
        lambda: _rows(tile, tile.args.initial, True).read(state, 1.0),
    )


def evolve(tile: Tile, state: Buffer) -> None:
    """A state after all rotations."""
    _run(tile, tile.k.integer(0), tile.args.forward_passes, [state], turns=True)


def measure(tile: Tile, state: Buffer) -> None:
    """Each sample's words."""
    with tile.k.when(tile.args.words > 0):
        tile.words.zero(tile.args.words)
    _run(tile, tile.args.forward_passes, tile.args.word_passes, [state], turns=False)


def write_results(tile: Tile, last: Buffer) -> None:
    """The words that were measured, or a state."""
    tile.k.either(
        tile.args.words > 0,
        lambda: _write_words(tile),
        lambda: _rows(tile, tile.args.out, False).write(last, 1.0),
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
        lambda: _rows(tile, args.cotangent, False).read(adjoint, 0.5),
    )
    _run(tile, args.forward_passes, args.word_passes, tile.states, turns=False)


def undo(tile: Tile) -> None:
    """The gradients, by undoing all rotations."""
    args = tile.args
    first = args.forward_passes + args.word_passes
    _run(tile, first, args.backward_passes, tile.states, turns=True)
    with tile.k.when(args.initial_wanted != 0):
        _rows(tile, args.initial_gradient, True).write(tile.states[-1], 2.0)
    _write_gradients(tile)


def collect(k: FunctionCode, args: Arguments, real: bool) -> None:
    """The gradients by what each group's samples share: its tiles' rows, added one after the other."""
    for by, size, rows, sums in (
        (args.weight_wanted, args.weight_columns, args.weight_rows, args.weight_gradient),
        (args.mix_wanted, args.mix_size, args.mix_rows, args.mix_gradient),
    ):
        count = select(by != 0, size, 0)
        with k.loop(args.groups) as group, k.each(count) as i:
            total = k.variable(k.constant(0.0, k.real))
            with k.loop(args.group_tiles) as tile:
                total.value = total.value + rows[group * args.group_tiles + tile, i]
            sums[group, i] = total.value


# --- superpositions ---


def _copy(tile: Tile, source: Buffer, target: Buffer) -> None:
    with tile.k.loop(tile.args.vectors) as v:
        target[v] = source[v]


def _partners(args: Arguments) -> Buffer:
    return args.partners.part((), args.size, 2)


def _complexes(reals: Buffer) -> Buffer:
    return reals.part((), 1, element="complex")


def _undo_mix(tile: Tile) -> None:
    """The adjoint before the mixture; psi's place is free."""
    k, args, (free, adjoint) = tile.k, tile.args, tile.states
    undo = partial(undo_mix, k, _partners(args), _complexes(args.mix[tile.group]), tile.saved, adjoint, free)
    k.either(args.mix_wanted != 0, lambda: undo(_complexes(args.mix_rows[tile.number])), lambda: undo(None))
    _copy(tile, free, adjoint)


# --- passes ---


def _run(tile: Tile, first: Number, count: Number, states: list[Buffer], turns: bool) -> None:
    """Passes over psi, or backward over psi and the adjoint. turns: their steps are rotations, or else words."""
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
            for state in states:
                move(k, table, state, args.lane_bits, args.samples)

        k.either(row[COUNT] > 0, lambda: _pass(tile, row, pairs, turns), moved)


def _pass(tile: Tile, row: Buffer, pairs: list[tuple[Buffer, Buffer]], turns: bool) -> None:
    """Steps on each block of states, which are pairs with their places for a block; the only block stays where it is."""
    k, args, backward = tile.k, tile.args, len(pairs) == 2
    size, single = k.integer(1) << row[DIMENSIONS], row[BLOCKS] == 1
    offsets, element = args.blocks.part((row[OFFSETS],), 1), "aligned" if tile.real else "complex vector"
    blocks = [k.array_at(select(single, state.address, block.address), element, 1) for state, block in pairs]
    first_step, count = row[FIRST], row[COUNT]
    with k.loop(row[BLOCKS]) as index:
        base = _base(k, args, row, index)
        with k.when(~single), k.loop(size) as j:
            place = offsets[j] ^ base
            for (state, _), block in zip(pairs, blocks, strict=True):
                block[j] = state[place]
        with k.loop(count) as step:
            _step(_Block(tile, blocks, base, offsets, size), first_step + step, turns)
        if turns or backward:
            with k.when(~single), k.loop(size) as j:
                for (state, _), block in zip(pairs, blocks, strict=True):
                    state[offsets[j] ^ base] = block[j]
    if turns and backward and not tile.real:
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


def _step(block: _Block, number: Number, turns: bool) -> None:
    """One step on a block, by the code of its kind."""
    tile, row = block.tile, block.tile.args.steps[number]
    cases: dict[int, Callable[[], None]] = {}
    # Odd steps would take real amplitudes to imaginary ones.
    odds = (False,) if tile.real else (False, True)
    kinds = product(odds, (False, True), (False, True))
    if turns:
        block = block._replace(size=select(row[SIZE] > 0, row[SIZE], block.size))
        for odd, lanes, pairs in kinds:
            kind = ODD * odd + LANES * lanes + PAIRS * pairs
            cases[kind] = partial(_rotate, block, [number], [odd], lanes, pairs)
        for first, second, lanes in product(odds, odds, (False, True)):
            kind, numbers = TWO + first + 2 * second + 4 * lanes, [number, row[NEXT]]
            cases[kind] = partial(_rotate, block, numbers, [first, second], lanes, True)
        if not tile.real:
            cases[DIAGONAL] = partial(_multiply, block, row)
    else:
        one = _add if block.backward else _measure
        for odd, lanes, pairs in kinds:
            kind = ODD * odd + LANES * lanes + PAIRS * pairs
            cases[kind] = partial(one, block, row, odd, lanes, pairs)
        for odd in odds:
            cases[WORDS + odd] = partial(_words, block, row, odd)
    tile.k.switch(row[KIND], cases)


class _Turn(NamedTuple):
    """One of the rotations that are done together. odd: see `ODD`. cosine: in every lane. sines, signs: two vectors each,
    with both signs. within, flip: see `WITHIN` and `FLIP`. crosses: whether the sign changes where each of the flips leads.
    """

    odd: bool
    cosine: Number
    sines: Buffer
    signs: Buffer
    within: Number
    flip: Number | None
    crosses: list[Number]


def _rotate(block: _Block, numbers: Sequence[Number], odd: Sequence[bool], lanes: bool, pairs: bool) -> None:
    """A rotation, psi'_q = c psi_q - i s (P psi)_q, or two, on the vectors that their flips connect.

    Backward their inverses, and Im <adjoint|P|psi>, which is added to the gradients. numbers: of the steps. lanes, pairs:
    whether lanes exchange places, and vectors.
    """
    tile, undoes = block.tile, block.backward
    k, args = tile.k, tile.args
    fields = [args.steps[each] for each in numbers]
    flips, pivots = ([row[at] for row in fields if pairs] for at in (MOVE, PIVOT))
    turns = []
    for row, is_odd, sines, signs in zip(fields, odd, tile.sines, tile.signs, strict=False):
        negative, lane_signs = block.negative(row) ^ int(undoes), tile.lane_signs(row)
        if undoes:
            signs[0], signs[1] = lane_signs, -lane_signs
        signed = tile.turns[row[INDEX], 1] * lane_signs
        sines[negative], sines[negative ^ 1] = signed, -signed
        crosses = [_parity(flip & row[WITHIN]) for flip in flips]
        flip = row[FLIP] if lanes else None
        turns.append(_Turn(is_odd, tile.turns[row[INDEX], 0], sines, signs, row[WITHIN], flip, crosses))
    members = range(1 << len(flips))
    totals = [k.variable(k.vector(0.0)) for _ in turns]
    with k.loop(block.size >> len(flips)) as i:
        first = i
        for pivot in pivots:
            first = first + ((first >> pivot) << pivot)
        places = [_combined(first, flips, member) for member in members]
        states = [[state[place] for place in places] for state in block.states]
        for which, turn in enumerate(turns):
            own = _parity(first & turn.within)
            # Pair by pair, so that few numbers are needed at a time.
            for one in (at for at in members if not (pairs and at >> which & 1)):
                pair = [one, one | 1 << which] if pairs else [one]
                sign = _combined(own, turn.crosses, one)
                # Without exchanges of lanes a word of an odd number of Y has another sign at the other place, and it alone.
                across = _combined(sign, turn.crosses, 1 << which) if lanes else sign
                minus = not (lanes or turn.odd)
                images = [
                    [_image(state[at], turn.odd, turn.flip) for at in reversed(pair)] for state in states
                ]
                if minus and pairs:
                    images = [[here, -there] for here, there in images]
                if undoes:
                    products = [
                        _product(states[1][at], image) for at, image in zip(pair, images[0], strict=True)
                    ]
                    if len(turns) == 2 and not lanes:
                        products = [products[0] + products[1]]
                    for each, which_sign in zip(products, (sign, across), strict=False):
                        totals[which].value = fma(each, turn.signs[which_sign], totals[which].value)
                for state, image in zip(states, images, strict=True):
                    for at, other, which_sign in zip(pair, image, (sign, across), strict=False):
                        state[at] = fma(other, turn.sines[which_sign], turn.cosine * state[at])
        for vectors, state in zip(block.states, states, strict=True):
            for place, amplitude in zip(places, state, strict=True):
                vectors[place] = amplitude
    for number, row, total in zip(numbers, fields, totals, strict=True) if undoes else ():
        factor = k.table("plus", [1.0, -1.0])[block.negative(row)] * args.factors[number]
        column = row[COLUMN]
        tile.gradients[column] = fma(total.value, factor.splat(), tile.gradients[column])


def _combined(first: Number, parts: Sequence[Number], member: int) -> Number:
    """`first` with those parts that a member's number has the bits of."""
    for bit, part in enumerate(parts):
        first = first ^ part if member >> bit & 1 else first
    return first


def _measure(block: _Block, row: Buffer, odd: bool, lanes: bool, pairs: bool) -> None:
    """Add <psi|P|psi> over the block to a word's sum."""
    tile, (psi,) = block.tile, block.states
    k, signs = tile.k, tile.signs[0]
    # All are read before the loop over the block, whose stores might change them as far as LLVM knows.
    move, pivot, within, index = (row[at] for at in (MOVE, PIVOT, WITHIN, INDEX))
    flip, negative = row[FLIP] if lanes else None, block.negative(row)
    signs[0] = tile.lane_signs(row)
    signs[1] = -signs[0]
    total = k.variable(k.vector(0.0))
    # The two of a pair give the same number.
    with k.loop(block.size >> int(pairs)) as i:
        q = i + ((i >> pivot) << pivot) if pairs else i
        each = _product(psi[q], _image(psi[q ^ move], odd, flip))
        total.value = fma(each, signs[_parity(q & within)], total.value)
    scales = k.table("twice", [2.0, -2.0]) if pairs else k.table("plus", [1.0, -1.0])
    tile.words[index] = fma(total.value, scales[negative].splat(), tile.words[index])


def _add(block: _Block, row: Buffer, odd: bool, lanes: bool, pairs: bool) -> None:
    """Add a word's weight times P psi to the adjoint."""
    tile, (psi, adjoint) = block.tile, block.states
    negative, weight = block.negative(row), tile.words[row[INDEX]] * tile.lane_signs(row)
    signed, move, within, flip = tile.signs[0], row[MOVE], row[WITHIN], row[FLIP] if lanes else None
    signed[negative], signed[negative ^ 1] = weight, -weight
    # Vectors that exchange places are not alone: two neighbours at a time.
    with tile.k.loop(block.size >> int(pairs)) as i:
        first = i << int(pairs)
        for at in range(1 + pairs):
            q = first + at
            sign = _parity(first & within) ^ (within & at)
            adjoint[q] = fma(_image(psi[q ^ move], odd, flip), signed[sign], adjoint[q])


def _words(block: _Block, row: Buffer, odd: bool) -> None:
    """Words of one flip: a Walsh-Hadamard transform of the block gives, or takes, the sums with all of their signs."""
    tile, size = block.tile, block.size
    k, args, field = tile.k, tile.args, tile.field
    move, flip, count, following = row[MOVE], row[FLIP], row[COLUMN], row[NEXT]
    if block.backward:
        field.zero(size)
    else:
        psi = block.states[0]
        with k.loop(size) as q:
            field[q] = _product(psi[q], _image(psi[q ^ move], odd, flip))
        _walsh(k, field, size)
    with k.loop(count) as member:
        own = args.steps[following + member]
        signs = tile.lane_signs(own) * k.table("plus", [1.0, -1.0])[block.negative(own)].splat()
        to, of = (field, tile.words) if block.backward else (tile.words, field)
        places = (own[WITHIN], own[INDEX]) if block.backward else (own[INDEX], own[WITHIN])
        to[places[0]] = fma(of[places[1]], signs, to[places[0]])
    if block.backward:
        _walsh(k, field, size)
        psi, adjoint = block.states
        with k.loop(size) as q:
            adjoint[q] = fma(_image(psi[q ^ move], odd, flip), field[q], adjoint[q])


def _walsh(
    k: FunctionCode, table: Buffer, size: Number, first: Operand = 0, end: Number | None = None
) -> None:
    """The Walsh-Hadamard transform of so many vectors in place, or its levels from `first` to `end`."""
    levels = (k.intrinsic("ctpop", I64, size - 1) if end is None else end) - first
    several = levels // _AT_ONCE
    with k.each(several) as step:
        _level(k, table, size, step * _AT_ONCE + first, _AT_ONCE)
    with k.each(levels - several * _AT_ONCE) as step:
        _level(k, table, size, several * _AT_ONCE + step + first, 1)


def _level(k: FunctionCode, table: Buffer, size: Number, bit: Number, count: int) -> None:
    """So many levels of a transform from a bit on, of vectors in place."""
    with k.loop(size >> count) as i:
        first = i + ((i >> bit) * ((1 << count) - 1) << bit)
        at = [first + (k.integer(number) << bit) for number in range(1 << count)]
        for place, vector in zip(at, walsh([table[place] for place in at]), strict=True):
            table[place] = vector


def _multiply(block: _Block, row: Buffer) -> None:
    """A block times a diagonal; or psi and adjoint before it, whose overlaps are kept for the diagonal's gradients."""
    tile, states = block.tile, block.states
    k, args = tile.k, tile.args
    diagonal = _diagonal(args, args.shared[tile.group], row[INDEX])
    overlaps = _overlaps(tile, row)
    for lane_bits in range(k.lanes.bit_length()):
        with k.when(args.lane_bits == lane_bits), k.loop(block.size) as j:
            place = (block.offsets[j] ^ block.base) << lane_bits
            factor = Complex(*(of_amplitudes(part, place, lane_bits) for part in diagonal))
            if not block.backward:
                states[0][j] = factor * states[0][j]
                continue
            psi, adjoint = (state[j] for state in states)
            overlap = fma(adjoint.real, psi.imag, -(adjoint.imag * psi.real))
            few, distance = 1 << lane_bits, 1 << lane_bits
            while distance < k.lanes:
                overlap = overlap + overlap.shuffled([lane ^ distance for lane in range(k.lanes)])
                distance *= 2
            overlaps.part((place,), 1, element=k.few(few))[0] = overlap.shuffled(range(few))
            for state, amplitude in zip(states, (psi, adjoint), strict=True):
                state[j] = factor.conjugate() * amplitude


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
    rotated = amplitude.times_i() if odd else amplitude
    return (
        rotated
        if flip is None
        else Complex(*(lanes_flipped(part, flip) for part in (rotated.real, rotated.imag)))
    )


def _product(left: Amplitude, right: Amplitude) -> Number:
    """The real part of conj(left) right."""
    if isinstance(left, Number) or isinstance(right, Number):
        return left * right  # type: ignore[return-value]
    value: Number = fma(left.imag, right.imag, left.real * right.real)
    return value


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


def _rows(tile: Tile, memory: Buffer, in_order: bool) -> Rows:
    """The samples' states in memory."""
    k, args = tile.k, tile.args
    places = None if in_order else Places(args.sources, args.powers)
    return Rows(k, memory, tile.first, tile.present, args.size, args.lane_bits, tile.real, places)
