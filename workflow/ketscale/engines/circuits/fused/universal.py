"""Kernels of any circuit, which read it from a table: compiled once for a processor, before any circuit is known.

They have the functions and the first arguments of `kernels`, and the table of `listing` besides. A *step* is a rotation,
or a word that is measured or applied; a *pass* is steps on blocks of vectors that are closed under their flips. A block
is copied to a place of its own, so its steps find it in the cache; a state that fits the cache is one block. A pass
without steps is a move (`moves`).

With p = q ^ x, a step about the word P of X on mask `x` and Z on mask `z` takes (P psi)_q = i**-ys (-1)**(z.q) psi_p.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from ketscale.engines.circuits.fused.block import parity
from ketscale.engines.circuits.fused.kernels import CALL_ARGUMENTS
from ketscale.engines.circuits.fused.mixing import mix, undo_mix
from ketscale.engines.circuits.fused.moves import MoveTable, each, move
from ketscale.engines.circuits.fused.rows import Places, Rows
from ketscale.engines.compiled.functions import sincos
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
# COLUMN: where the gradient goes.
KIND, MOVE, PIVOT, WITHIN, BASE, FLIP, SIGNS, NEGATIVE, INDEX, COLUMN, STEP_FIELDS = range(11)
# ODD: the image is i times the state. PAIRS: vectors exchange places. LANES: so do lanes.
ODD, LANES, PAIRS = 1, 2, 4
# The fields of a pass: its steps, the dimensions of its blocks, and where their pivots and offsets are listed. Of a move:
# how many basis states it multiplies, 0, how many pairs it exchanges; where these are listed, and where the factors are.
# PHASES: 0, or 1 more than where the factors of all basis states are, by which a pass first multiplies.
FIRST, COUNT, DIMENSIONS, PIVOTS, OFFSETS, PHASES, PASS_FIELDS = range(7)

ARGUMENTS = CALL_ARGUMENTS | {
    "batch groups group_tiles tiles": INTEGER,  # as in `kernels`, up to `powers`
    "scratch": aligned("workers", "scratch_vectors"),
    "states_per_tile states_per_worker": INTEGER,
    "sources": integers("states"),
    "powers": bytes_("states"),
    # Sizes; all columns are those of inputs and weights, and one for constants.
    "scratch_vectors input_columns weight_columns all_columns columns words angles": INTEGER,
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
    "factors": reals("steps"),  # of the gradients
}


@dataclass(frozen=True)
class _Tile:
    """A tile that a thread has taken; see `kernels.Tile`. signs, sines: two vectors each, of a step."""

    k: FunctionCode
    args: Arguments
    number: Number
    group: Number
    first: Number
    present: Number
    saved: Buffer
    columns: Buffer
    turns: Buffer
    words: Buffer
    gradients: Buffer
    psi: Buffer
    adjoint: Buffer
    block: Buffer
    block_adjoint: Buffer
    signs: Buffer
    sines: Buffer

    @property
    def lane_signs(self) -> Buffer:
        """By a mask, the signs of the lanes: minus where an odd number of its bits is set in the lane's number."""
        lanes = range(self.k.lanes)
        return self.k.table(
            "lane signs", [1.0 - 2 * parity(mask & lane) for mask in lanes for lane in lanes]
        ).part((), len(lanes), len(lanes))


@dataclass(frozen=True)
class _Step:
    """A step on a block. odd, lanes, pairs: of its kind. negative: whether its sign is turned. across: whether the two
    vectors of a pair differ in sign."""

    odd: bool
    lanes: bool
    pairs: bool
    size: Number
    negative: Number
    across: Number
    move: Number
    pivot: Number
    within: Number
    flip: Number
    index: Number
    column: Number
    factor: Number


# Writes the code of a step of a kind.
Body = Callable[[_Tile, _Step], None]


def _parity(bits: Number) -> Number:
    return bits.code.intrinsic("ctpop", I64, bits) & 1


@contextmanager
def _tiles(k: FunctionCode, args: Arguments) -> Iterator[_Tile]:
    """Write the body for each tile that this thread takes, whose angles are read."""
    worker = k.worker()
    signs, sines = k.local(2), k.local(2)
    block = args.block_vectors * 2
    columns, turns, words, gradients, psi, adjoint, one, two = args.scratch[worker].split(
        (args.all_columns,), (args.angles, 2), (args.words,), (args.all_columns,),
        (args.kept_vectors,), (args.kept_vectors,), (block,), (block,),
    )  # fmt: skip
    with k.tasks(args.tiles) as number:
        group = number // args.group_tiles
        before = (number - group * args.group_tiles) * args.samples
        at = worker * args.states_per_worker + number * args.states_per_tile
        tile = _Tile(
            k=k, args=args, number=number, group=group,
            first=group * args.batch + before, present=minimum(args.samples, args.batch - before),
            saved=_state(args.states.part((at,), 1)), columns=columns, turns=turns, words=words, gradients=gradients,
            psi=_state(psi), adjoint=_state(adjoint), block=_state(one), block_adjoint=_state(two),
            signs=signs, sines=sines,
        )  # fmt: skip
        _read_angles(tile)
        yield tile


def _state(vectors: Buffer) -> Buffer:
    return vectors.part((), 1, element="complex vector")


def prepare(k: FunctionCode, args: Arguments) -> None:
    """Nothing: each tile computes its angles."""


def prepare_and_forward(k: FunctionCode, args: Arguments) -> None:
    """The same as `forward`."""
    k.call("forward")


def forward(k: FunctionCode, args: Arguments) -> None:
    """States from angles, then expectation values or amplitudes."""
    with _tiles(k, args) as tile:
        k.either(
            args.from_zero != 0,
            lambda: _zero_state(tile, tile.saved),
            lambda: _rows(tile, args.initial, True, lambda rows: rows.read(tile.saved, 1.0)),
        )
        _run(tile, k.integer(0), args.forward_passes, _rotate, tile.saved, None)
        with k.when(args.mixed != 0):
            _copy(tile, tile.saved, tile.psi)
            mix(k, _orbits(k, args), _complexes(args, args.mix[tile.group]), tile.psi, tile.saved)
        with k.when(args.words > 0):
            tile.words.zero(args.words)
        _run(tile, args.forward_passes, args.word_passes, _measure, tile.saved, None, kept=True)
        with k.when(args.mixed != 0):
            _copy(tile, tile.psi, tile.saved)
        k.either(
            args.words > 0,
            lambda: _write_words(tile),
            lambda: _rows(tile, args.out, False, lambda rows: rows.write(tile.saved, 1.0)),
        )


def backward(k: FunctionCode, args: Arguments) -> None:
    """Gradients from cotangents: the sweep backwards."""
    with _tiles(k, args) as tile:
        psi, adjoint = tile.psi, tile.adjoint
        _copy(tile, tile.saved, psi)
        with k.when(args.mixed != 0):
            mix(k, _orbits(k, args), _complexes(args, args.mix[tile.group]), tile.saved, psi)
        tile.gradients.zero(args.all_columns)
        k.either(
            args.words > 0,
            lambda: _read_words(tile),
            lambda: _rows(tile, args.cotangent, False, lambda rows: rows.read(adjoint, 0.5)),
        )
        _run(tile, args.forward_passes, args.word_passes, _add, psi, adjoint)
        with k.when(args.mixed != 0):
            _undo_mix(tile)
            _copy(tile, tile.saved, psi)
        before = args.forward_passes + args.word_passes
        _run(tile, before, args.backward_passes, _undo, psi, adjoint)
        with k.when(args.initial_wanted != 0):
            _rows(tile, args.initial_gradient, True, lambda rows: rows.write(adjoint, 2.0))
        _write_gradients(tile)


def collect(k: FunctionCode, args: Arguments) -> None:
    """The gradients by what each group's samples share: its tiles' rows, added one after the other."""
    for wanted, size, rows, sums in (
        (args.weight_wanted, args.weight_columns, args.weight_rows, args.weight_gradient),
        (args.mix_wanted, args.mix_size, args.mix_rows, args.mix_gradient),
    ):
        count = select(wanted != 0, size, 0)
        with k.loop(args.groups) as group, each(k, count) as i:
            total = k.variable(k.constant(0.0, k.real))
            with k.loop(args.group_tiles) as tile:
                total.value = total.value + rows[group * args.group_tiles + tile, i]
            sums[group, i] = total.value


# --- superpositions ---


def _copy(tile: _Tile, source: Buffer, target: Buffer) -> None:
    with tile.k.loop(tile.args.vectors) as v:
        target[v] = source[v]


def _orbits(k: FunctionCode, args: Arguments) -> list[Buffer]:
    return [args.orbit_pairs.part((), args.pairs, 2), args.orbit_singles.part((), args.singles, 1)]


def _complexes(args: Arguments, reals: Buffer) -> Buffer:
    return reals.part((), 1, element="complex")


def _undo_mix(tile: _Tile) -> None:
    k, args, sums = tile.k, tile.args, _state(tile.k.local(4))
    undo = partial(
        undo_mix, k, _orbits(k, args), _complexes(args, args.mix[tile.group]), tile.saved, tile.adjoint
    )
    k.either(
        args.mix_wanted != 0,
        lambda: undo(_complexes(args, args.mix_rows[tile.number]), sums),
        lambda: undo(None, sums),
    )


# --- passes ---


def _run(
    tile: _Tile,
    first: Number,
    count: Number,
    body: Body,
    psi: Buffer,
    adjoint: Buffer | None,
    kept: bool = False,
) -> None:
    """Passes over a state, and its adjoint, by a body for their steps. kept: the steps change nothing."""
    k, args = tile.k, tile.args
    pairs = [(psi, tile.block), *([] if adjoint is None else [(adjoint, tile.block_adjoint)])]
    with each(k, count) as number:
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


def _pass(tile: _Tile, row: Buffer, body: Body, pairs: list[tuple[Buffer, Buffer]], kept: bool) -> None:
    """Steps on each block of states, which are pairs with their places for a block."""
    k, args = tile.k, tile.args
    size = k.integer(1) << row[DIMENSIONS]
    with k.loop(args.vectors >> row[DIMENSIONS]) as index:
        base = _base(k, args, row, index)
        offsets = args.blocks.part((row[OFFSETS],), 1)

        def load(lane_bits: int | None) -> None:
            with k.loop(size) as j:
                place = offsets[j] ^ base
                loaded = [state[place] for state, _ in pairs]
                if lane_bits is not None:
                    factor = _factor(k, args, row[PHASES] - 1, place, lane_bits)
                    loaded = [factor * each for each in loaded]
                for (_, block), each in zip(pairs, loaded, strict=True):
                    block[j] = each

        with k.when(row[PHASES] == 0):
            load(None)
        for lane_bits in range(k.lanes.bit_length()):
            with k.when((row[PHASES] > 0) & (args.lane_bits == lane_bits)):
                load(lane_bits)
        first_step = row[FIRST]
        with k.loop(row[COUNT]) as step:
            _steps(tile, first_step + step, base, size, body)
        if not kept:
            with k.loop(size) as j:
                for state, block in pairs:
                    state[offsets[j] ^ base] = block[j]


def _factor(k: FunctionCode, args: Arguments, first: Number, place: Number, lane_bits: int) -> Complex:
    """The factors of a vector's amplitudes: of all basis states the real parts are listed, then the imaginary ones."""
    amplitudes, parts = 1 << lane_bits, []
    for part in (0, 1):
        at = first * 2 + args.size * part + (place << lane_bits)
        few = args.move_factors.flat.part((at,), 1, element=k.few(amplitudes))[0]
        parts.append(few.shuffled([lane % amplitudes for lane in range(k.lanes)]))
    return Complex(*parts)


def _base(k: FunctionCode, args: Arguments, row: Buffer, index: Number) -> Number:
    """`index` with a 0 inserted at each of the pass's pivots, in ascending order."""
    base = k.variable(index)
    with each(k, row[DIMENSIONS]) as number:
        pivot = args.blocks[row[PIVOTS] + number]
        high = base.value >> pivot
        base.value = base.value + (high << pivot)
    return base.value


def _steps(tile: _Tile, number: Number, base: Number, size: Number, body: Body) -> None:
    """One step on a block, by the code of its kind."""
    k, row = tile.k, tile.args.steps[number]
    # All are read before the loop over the block, whose stores might change them as far as LLVM knows.
    move, pivot, within, flip, index, column = (row[at] for at in (MOVE, PIVOT, WITHIN, FLIP, INDEX, COLUMN))
    negative = row[NEGATIVE] ^ _parity(base & row[BASE])
    across, factor = _parity(within & move), tile.args.factors[number]
    lane_signs = tile.lane_signs.part((row[SIGNS], 0), 1, element="vector")[0]
    tile.signs[0], tile.signs[1] = lane_signs, -lane_signs
    kinds = range(2 * PAIRS if body in (_rotate, _undo) else PAIRS)
    for kind in kinds:
        odd, lanes, pairs = (bool(kind & part) for part in (ODD, LANES, PAIRS))
        with k.when(row[KIND] == kind):
            step = _Step(
                odd, lanes, pairs, size, negative, across, move, pivot, within, flip, index, column, factor
            )
            body(tile, step)


def _image(tile: _Tile, step: _Step, amplitude: Complex) -> Complex:
    """An amplitude's vectors after the flip of their lanes, or i times these."""
    parts = [-amplitude.imag, amplitude.real] if step.odd else [amplitude.real, amplitude.imag]
    for bit in range(tile.k.lanes.bit_length() - 1 if step.lanes else 0):
        on = (step.flip >> bit & 1) != 0
        crossed = [lane ^ 1 << bit for lane in range(tile.k.lanes)]
        parts = [select(on, part.shuffled(crossed), part) for part in parts]
    return Complex(*parts)


@contextmanager
def _places(tile: _Tile, step: _Step) -> Iterator[list[tuple[Number, Number, Number]]]:
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


def _product(left: Complex, right: Complex) -> Number:
    """The real part of conj(left) right."""
    made: Number = fma(left.imag, right.imag, left.real * right.real)
    return made


def _sines(tile: _Tile, vector: Number, negative: Number) -> None:
    """Keep a vector with both signs: first its own, or if `negative` is 1 the other one."""
    signed = vector * tile.signs[0]
    tile.sines[negative], tile.sines[negative ^ 1] = signed, -signed


def _rotate(tile: _Tile, step: _Step) -> None:
    """psi'_q = c psi_q - i s (P psi)_q."""
    turn, psi = tile.turns[step.index], tile.block
    _sines(tile, turn[1], step.negative)
    cosine = turn[0]
    with _places(tile, step) as places:
        states = [psi[q] for q, _, _ in places]
        for number, (q, _, sign) in enumerate(places):
            psi[q] = fma(_image(tile, step, states[number - 1]), tile.sines[sign], cosine * states[number])


def _undo(tile: _Tile, step: _Step) -> None:
    """psi and adjoint before a rotation, and Im <adjoint|P|psi>, which is added to the gradient."""
    k, turn, psi, adjoint = tile.k, tile.turns[step.index], tile.block, tile.block_adjoint
    _sines(tile, turn[1], step.negative ^ 1)
    cosine, total = turn[0], k.variable(k.vector(0.0))
    with _places(tile, step) as places:
        states = [(psi[q], adjoint[q]) for q, _, _ in places]
        for number, (q, _, sign) in enumerate(places):
            images = [_image(tile, step, state) for state in states[number - 1]]
            total.value = fma(_product(states[number][1], images[0]), tile.signs[sign], total.value)
            for state, own, image in zip((psi, adjoint), states[number], images, strict=True):
                state[q] = fma(image, tile.sines[sign], cosine * own)
    factor = k.table("plus", [1.0, -1.0])[step.negative] * step.factor
    column = step.column
    tile.gradients[column] = fma(total.value, factor.splat(), tile.gradients[column])


def _measure(tile: _Tile, step: _Step) -> None:
    """Add <psi|P|psi> over the block to the word's sum."""
    k, psi, total = tile.k, tile.block, tile.k.variable(tile.k.vector(0.0))
    with _places(tile, step) as places:
        for q, p, sign in places:
            product = _product(psi[q], _image(tile, step, psi[p]))
            total.value = fma(product, tile.signs[sign], total.value)
    words, word = tile.words, step.index
    sign = k.table("plus", [1.0, -1.0])[step.negative].splat()
    words[word] = fma(total.value, sign, words[word])


def _add(tile: _Tile, step: _Step) -> None:
    """Add the word's weight times P psi to the adjoint."""
    psi, adjoint = tile.block, tile.block_adjoint
    _sines(tile, tile.words[step.index], step.negative)
    with _places(tile, step) as places:
        for q, p, sign in places:
            adjoint[q] = fma(_image(tile, step, psi[p]), tile.sines[sign], adjoint[q])


# --- angles and words in, gradients and values out ---


def _read_angles(tile: _Tile) -> None:
    """Cosine and sine of half of every angle, after the columns that they are multiples of."""
    k, args, columns = tile.k, tile.args, tile.columns
    own = columns.part((), args.all_columns, k.lanes, element="real")
    with k.loop(k.lanes) as lane:
        row = args.inputs[tile.first + minimum(lane >> args.lane_bits, tile.present - 1)]
        with each(k, args.input_columns) as i:
            own[i, lane] = row[i]
    weights = args.weights[tile.group]
    with each(k, args.weight_columns) as i:
        columns[args.input_columns + i] = weights[i].splat()
    columns[args.all_columns - 1] = k.vector(1.0)
    with each(k, args.angles) as i:
        sine, cosine = sincos(columns[args.angle_columns[i]] * args.half_factors[i])
        tile.turns[i, 0], tile.turns[i, 1] = cosine, sine


def _sample_sum(tile: _Tile, vector: Number) -> Number:
    """The sum over each sample's lanes, in all of them."""
    lanes = range(tile.k.lanes)
    for bit in range(len(lanes).bit_length() - 1):
        added = vector + vector.shuffled([lane ^ 1 << bit for lane in lanes])
        vector = select(tile.args.lane_bits > bit, added, vector)
    return vector


def _rows_back(tile: _Tile, columns: Buffer, rows: Buffer, count: Number) -> None:
    """Put each sample's first lane into its row."""
    k = tile.k
    values = columns.part((), count, k.lanes, element="real")
    with k.loop(tile.present) as sample:
        row, lane = rows[tile.first + sample], sample << tile.args.lane_bits
        with each(k, count) as i:
            row[i] = values[i, lane]


def _write_words(tile: _Tile) -> None:
    with tile.k.loop(tile.args.words) as word:
        tile.words[word] = _sample_sum(tile, tile.words[word])
    _rows_back(tile, tile.words, tile.args.out, tile.args.words)


def _read_words(tile: _Tile) -> None:
    """The cotangents as the words' weights, 0 in lanes without a sample, and an adjoint of 0."""
    k, args = tile.k, tile.args
    own = tile.words.part((), args.words, k.lanes, element="real")
    with k.loop(k.lanes) as lane:
        sample = lane >> args.lane_bits
        row = args.cotangent[tile.first + minimum(sample, tile.present - 1)]
        with k.loop(args.words) as word:
            own[word, lane] = select(sample < tile.present, row[word], k.constant(0.0, k.real))
    tile.adjoint.zero(args.vectors)


def _write_gradients(tile: _Tile) -> None:
    """The gradients by the columns: per sample, or over the tile for weights."""
    k, args = tile.k, tile.args
    with k.when(args.weight_wanted != 0):
        row = args.weight_rows[tile.number]
        with each(k, args.weight_columns) as i:
            row[i] = lane_sum(tile.gradients[args.input_columns + i]).lane(0)
    with k.when(args.input_wanted != 0):
        with each(k, args.input_columns) as i:
            tile.gradients[i] = _sample_sum(tile, tile.gradients[i])
        _rows_back(tile, tile.gradients, args.input_gradient, args.input_columns)


# --- states ---


def _zero_state(tile: _Tile, state: Buffer) -> None:
    """|0...0>."""
    k, args = tile.k, tile.args
    state.zero(args.vectors)
    index = k.vector(range(k.lanes), I64) & ((k.integer(1) << args.lane_bits) - 1).splat()
    state[0] = Complex(select(index == 0, k.vector(1.0), 0.0), k.vector(0.0))


def _rows(tile: _Tile, rows: Buffer, in_order: bool, act: Callable[[Rows], None]) -> None:
    """Do something with the samples' states in memory, many amplitudes at a time if each has a vector of its own."""
    k, args = tile.k, tile.args
    places = None if in_order else Places(args.sources, args.powers)

    def each(lane_bits: Operand, blocked: bool) -> None:
        act(Rows(k, rows, tile.first, tile.present, args.size, lane_bits, blocked, places=places))

    blocks = (args.lane_bits == 0) & (args.size * 2 >= k.lanes)
    k.either(blocks, lambda: each(0, True), lambda: each(args.lane_bits, False))
