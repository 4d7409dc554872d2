"""Kernels of any circuit, which read it from a table: compiled once for a processor, before any circuit is known.

They have the functions and the first arguments of `kernels`, and the table of `listing` besides; and they differentiate
along tangents as the functions of `tangents` do. A *step* is a rotation,
or a word that is measured or applied; a *pass* is steps on blocks of vectors that are closed under their flips. A block
is copied to a place of its own, so its steps find it in the cache; a state that fits the cache is one block. A pass
without steps is a move (`moves`).

With p = q ^ x, a step about the word P of X on mask `x` and Z on mask `z` takes (P psi)_q = i**-ys (-1)**(z.q) psi_p.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from ketscale.engines.circuits.fused.block import of_amplitudes, parity
from ketscale.engines.circuits.fused.higher import MOST
from ketscale.engines.circuits.fused.kernels import CALL_ARGUMENTS, to_rows
from ketscale.engines.circuits.fused.mixing import mix, undo_mix
from ketscale.engines.circuits.fused.moves import MoveTable, move
from ketscale.engines.circuits.fused.rows import Places, Rows
from ketscale.engines.circuits.fused.tangents import OPERANDS
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
    **OPERANDS,
    "valued": INTEGER,
}


@dataclass(frozen=True)
class Tile:
    """A tile that a thread has taken; see `kernels.Tile`.

    states: psi, its tangents if there are any, and where gradients are wanted the adjoint and its tangents; blocks: their
    places for a block. turns: cosine, sine, and half of each tangent, of every angle. signs, sines, halves: two vectors
    each, of a step, with both signs; halves: for each tangent.
    """

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
    states: list[Buffer]
    blocks: list[Buffer]
    signs: Buffer
    sines: Buffer
    halves: list[Buffer]

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


# Numbers q and p of vectors, and which sign q has.
_Places = list[tuple[Number, Number, Number]]
# Writes the code of a step of a kind.
Body = Callable[[Tile, _Step], None]


def _parity(bits: Number) -> Number:
    return bits.code.intrinsic("ctpop", I64, bits) & 1


@contextmanager
def tiles(k: FunctionCode, args: Arguments, order: int = 0, states: int = 2) -> Iterator[Tile]:
    """Write the body for each tile that this thread takes, whose angles are read, and `order` tangents of these."""
    worker = k.worker()
    signs, sines, *halves = (k.local(2) for _ in range(2 + order))
    columns, turns, words, gradients, *places = args.scratch[worker].split(
        (args.all_columns,), (args.angles, 2 + order), (args.words,), (args.all_columns,),
        *[(args.kept_vectors,)] * states, *[(args.block_vectors * 2,)] * states,
    )  # fmt: skip
    with k.tasks(args.tiles) as number:
        group = number // args.group_tiles
        before = (number - group * args.group_tiles) * args.samples
        at = worker * args.states_per_worker + number * args.states_per_tile
        tile = Tile(
            k=k, args=args, number=number, group=group,
            first=group * args.batch + before, present=minimum(args.samples, args.batch - before),
            saved=_state(args.states.part((at,), 1)), columns=columns, turns=turns, words=words, gradients=gradients,
            states=[_state(each) for each in places[:states]], blocks=[_state(each) for each in places[states:]],
            signs=signs, sines=sines, halves=halves,
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
    with tiles(k, args) as tile:
        k.either(
            args.from_zero != 0,
            lambda: _zero_state(tile, tile.saved),
            lambda: rows(tile, args.initial, True, lambda rows: rows.read(tile.saved, 1.0)),
        )
        evolve(tile, [tile.saved])
        with k.when(args.mixed != 0):
            _copy(tile, tile.saved, tile.states[0])
            mix(k, _orbits(k, args), _complexes(args, args.mix[tile.group]), tile.states[0], tile.saved)
        measure(tile, [tile.saved])
        with k.when(args.mixed != 0):
            _copy(tile, tile.states[0], tile.saved)
        write_results(tile, tile.saved)


def backward(k: FunctionCode, args: Arguments) -> None:
    """Gradients from cotangents: the sweep backwards."""
    with tiles(k, args) as tile:
        psi = tile.states[0]
        _copy(tile, tile.saved, psi)
        with k.when(args.mixed != 0):
            mix(k, _orbits(k, args), _complexes(args, args.mix[tile.group]), tile.saved, psi)
        begin_adjoint(tile)
        with k.when(args.mixed != 0):
            _undo_mix(tile)
            _copy(tile, tile.saved, psi)
        undo(tile)


def evolve(tile: Tile, states: list[Buffer]) -> None:
    """A state, and its tangents, after all rotations."""
    _run(tile, tile.k.integer(0), tile.args.forward_passes, _rotate, states)


def measure(tile: Tile, states: list[Buffer]) -> None:
    """Each sample's words, of a state; or their derivative along the tangents that come after it."""
    with tile.k.when(tile.args.words > 0):
        tile.words.zero(tile.args.words)
    _run(tile, tile.args.forward_passes, tile.args.word_passes, _measure, states, kept=True)


def write_results(tile: Tile, last: Buffer) -> None:
    """The words that were measured, or a state."""
    tile.k.either(
        tile.args.words > 0,
        lambda: _write_words(tile),
        lambda: rows(tile, tile.args.out, False, lambda rows: rows.write(last, 1.0)),
    )


def begin_adjoint(tile: Tile) -> None:
    """The adjoint of the cotangents and its tangent if there is one, and gradients of 0."""
    k, args = tile.k, tile.args
    first, *moved = tile.states[len(tile.states) // 2 :]
    tile.gradients.zero(args.all_columns)
    for tangent in moved:
        tangent.zero(args.vectors)
    k.either(
        args.words > 0,
        lambda: _read_words(tile, first),
        lambda: rows(tile, args.cotangent, False, lambda rows: rows.read(first, 0.5)),
    )
    _run(tile, args.forward_passes, args.word_passes, _add, tile.states)


def undo(tile: Tile) -> None:
    """The gradients, by undoing all rotations."""
    args = tile.args
    _run(tile, args.forward_passes + args.word_passes, args.backward_passes, _undo, tile.states)
    with tile.k.when(args.initial_wanted != 0):
        rows(tile, args.initial_gradient, True, lambda rows: rows.write(tile.states[-1], 2.0))
    _write_gradients(tile)


def collect(k: FunctionCode, args: Arguments) -> None:
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


# --- tangents ---


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


# --- superpositions ---


def _copy(tile: Tile, source: Buffer, target: Buffer) -> None:
    with tile.k.loop(tile.args.vectors) as v:
        target[v] = source[v]


def _orbits(k: FunctionCode, args: Arguments) -> list[Buffer]:
    return [args.orbit_pairs.part((), args.pairs, 2), args.orbit_singles.part((), args.singles, 1)]


def _complexes(args: Arguments, reals: Buffer) -> Buffer:
    return reals.part((), 1, element="complex")


def _undo_mix(tile: Tile) -> None:
    k, args, sums = tile.k, tile.args, _state(tile.k.local(4))
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
                    factor = _factor(args, row[PHASES] - 1, place, lane_bits)
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


def _factor(args: Arguments, first: Number, place: Number, lane_bits: int) -> Complex:
    """The factors of a vector's amplitudes: of all basis states the real parts are listed, then the imaginary ones."""
    starts = (first * 2 + args.size * part + (place << lane_bits) for part in (0, 1))
    return Complex(*(of_amplitudes(args.move_factors.flat, start, lane_bits) for start in starts))


def _base(k: FunctionCode, args: Arguments, row: Buffer, index: Number) -> Number:
    """`index` with a 0 inserted at each of the pass's pivots, in ascending order."""
    base = k.variable(index)
    with k.each(row[DIMENSIONS]) as number:
        pivot = args.blocks[row[PIVOTS] + number]
        high = base.value >> pivot
        base.value = base.value + (high << pivot)
    return base.value


def _steps(tile: Tile, number: Number, base: Number, size: Number, body: Body) -> None:
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


def _image(tile: Tile, step: _Step, amplitude: Complex) -> Complex:
    """An amplitude's vectors after the flip of their lanes, or i times these."""
    parts = [-amplitude.imag, amplitude.real] if step.odd else [amplitude.real, amplitude.imag]
    for bit in range(tile.k.lanes.bit_length() - 1 if step.lanes else 0):
        on = (step.flip >> bit & 1) != 0
        crossed = [lane ^ 1 << bit for lane in range(tile.k.lanes)]
        parts = [select(on, part.shuffled(crossed), part) for part in parts]
    return Complex(*parts)


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


def _product(left: Complex, right: Complex) -> Number:
    """The real part of conj(left) right."""
    made: Number = fma(left.imag, right.imag, left.real * right.real)
    return made


def _signed(tile: Tile, step: _Step, inverse: bool) -> Number:
    """Keep the sine and the tangents' halves with both signs, first their own, or if negative the other; the cosine."""
    turn, negative = tile.turns[step.index], step.negative ^ int(inverse)
    for place, kept in enumerate([tile.sines, *tile.halves]):
        _keep_signed(tile, kept, turn[1 + place], negative)
    return turn[0]


def _keep_signed(tile: Tile, kept: Buffer, vector: Number, negative: Number) -> None:
    signed = vector * tile.signs[0]
    kept[negative], kept[negative ^ 1] = signed, -signed


def _loaded(
    tile: Tile, step: _Step, places: _Places, blocks: Sequence[Buffer]
) -> list[list[tuple[Complex, Complex]]]:
    """For each place and block, the amplitude there and the image of the other place's."""
    before = [[block[q] for block in blocks] for q, _, _ in places]
    images = [[_image(tile, step, amplitude) for amplitude in each] for each in before]
    return [list(zip(each, images[at - 1], strict=True)) for at, each in enumerate(before)]


def _turn(
    tile: Tile,
    step: _Step,
    places: _Places,
    blocks: Sequence[Buffer],
    loaded: list[list[tuple[Complex, Complex]]],
    cosine: Number,
) -> None:
    """psi'_q = c psi_q - i s (P psi)_q, and the same of its tangents, which move with the angles too (`tangents`)."""

    def added(at: int, source: Complex, signed: Buffer, to: Complex) -> Complex:
        made: Complex = fma(_image(tile, step, source), signed[places[at][2]], to)
        return made

    turned = [
        [fma(image, tile.sines[places[at][2]], cosine * own) for own, image in each]
        for at, each in enumerate(loaded)
    ]
    for at, (q, _, _) in enumerate(places):
        after, other = list(turned[at]), turned[at - 1]
        for number, half in enumerate(tile.halves):
            after[number + 1] = added(at, other[0], half, after[number + 1])
        if len(blocks) == 4:
            first = added(at - 1, turned[at][0], tile.halves[0], other[1])
            after[3] = added(at, first, tile.halves[1], after[3])
            after[3] = added(at, other[2], tile.halves[0], after[3])
        for block, amplitude in zip(blocks, after, strict=True):
            block[q] = amplitude


def _rotate(tile: Tile, step: _Step) -> None:
    """A state and its tangents after a rotation."""
    cosine, blocks = _signed(tile, step, inverse=False), tile.blocks[: 2 ** len(tile.halves)]
    with _places(tile, step) as places:
        _turn(tile, step, places, blocks, _loaded(tile, step, places, blocks), cosine)


def _undo(tile: Tile, step: _Step) -> None:
    """psi and adjoint before a rotation, and Im <adjoint|P|psi>, or its derivative, which is added to the gradient."""
    k, half = tile.k, len(tile.blocks) // 2
    psi, adjoint = tile.blocks[:half], tile.blocks[half:]
    cosine, total = _signed(tile, step, inverse=True), k.variable(k.vector(0.0))
    with _places(tile, step) as places:
        ones, others = (_loaded(tile, step, places, blocks) for blocks in (psi, adjoint))
        for at, (_, _, sign) in enumerate(places):
            for (_, image), (amplitude, _) in zip(ones[at], reversed(others[at]), strict=True):
                total.value = fma(_product(amplitude, image), tile.signs[sign], total.value)
        _turn(tile, step, places, psi, ones, cosine)
        _turn(tile, step, places, adjoint, others, cosine)
    factor = k.table("plus", [1.0, -1.0])[step.negative] * step.factor
    column = step.column
    tile.gradients[column] = fma(total.value, factor.splat(), tile.gradients[column])


# By how many tangents there are, the states whose products with words are summed; of tangents twice.
_MEASURED = (((0, 0),), ((1, 0),), ((3, 0), (1, 2)))


def _measure(tile: Tile, step: _Step) -> None:
    """Add <psi|P|psi>, or its derivative, over the block to the word's sum."""
    k, order, total = tile.k, len(tile.halves), tile.k.variable(tile.k.vector(0.0))
    with _places(tile, step) as places:
        for q, p, sign in places:
            for left, right in _MEASURED[order]:
                product = _product(tile.blocks[left][q], _image(tile, step, tile.blocks[right][p]))
                total.value = fma(product, tile.signs[sign], total.value)
    words, word = tile.words, step.index
    signs = k.table("twice", [2.0, -2.0]) if order else k.table("plus", [1.0, -1.0])
    words[word] = fma(total.value, signs[step.negative].splat(), words[word])


def _add(tile: Tile, step: _Step) -> None:
    """Add the word's weight times P psi to the adjoint, and the same of their tangents."""
    half = len(tile.blocks) // 2
    _keep_signed(tile, tile.sines, tile.words[step.index], step.negative)
    with _places(tile, step) as places:
        for q, p, sign in places:
            for psi, adjoint in zip(tile.blocks[:half], tile.blocks[half:], strict=True):
                adjoint[q] = fma(_image(tile, step, psi[p]), tile.sines[sign], adjoint[q])


# --- angles and words in, gradients and values out ---


def _read_angles(tile: Tile) -> None:
    """Cosine and sine of half of every angle, and half of its tangents."""
    k, args, columns = tile.k, tile.args, tile.columns
    _read_columns(tile, args.inputs, args.weights, 1.0)
    with k.each(args.angles) as i:
        sine, cosine = sincos(columns[args.angle_columns[i]] * args.half_factors[i])
        tile.turns[i, 0], tile.turns[i, 1] = cosine, sine
    for number in range(len(tile.halves)):
        _read_columns(tile, getattr(args, f"inputs{number}"), getattr(args, f"weights{number}"), 0.0)
        with k.each(args.angles) as i:
            tile.turns[i, 2 + number] = columns[args.angle_columns[i]] * args.half_factors[i]


def _read_columns(tile: Tile, inputs: Buffer, weights: Buffer, constant: float) -> None:
    """The columns that angles are multiples of, of which the last is a constant."""
    k, args, columns = tile.k, tile.args, tile.columns
    own = columns.part((), args.all_columns, k.lanes, element="real")
    with k.loop(k.lanes) as lane:
        row = inputs[tile.first + minimum(lane >> args.lane_bits, tile.present - 1)]
        with k.each(args.input_columns) as i:
            own[i, lane] = row[i]
    shared = weights[tile.group]
    with k.each(args.weight_columns) as i:
        columns[args.input_columns + i] = shared[i].splat()
    columns[args.all_columns - 1] = k.vector(constant)


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
    to_rows(tile, tile.words, tile.args.out, tile.args.words, tile.args.lane_bits)


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
        to_rows(tile, tile.gradients, args.input_gradient, args.input_columns, args.lane_bits)


# --- states ---


def _zero_state(tile: Tile, state: Buffer) -> None:
    """|0...0>."""
    k, args = tile.k, tile.args
    state.zero(args.vectors)
    index = k.vector(range(k.lanes), I64) & ((k.integer(1) << args.lane_bits) - 1).splat()
    state[0] = Complex(select(index == 0, k.vector(1.0), 0.0), k.vector(0.0))


def rows(tile: Tile, memory: Buffer, in_order: bool, act: Callable[[Rows], None]) -> None:
    """Do something with the samples' states in memory, many amplitudes at a time if each has a vector of its own."""
    k, args = tile.k, tile.args
    places = None if in_order else Places(args.sources, args.powers)

    def each(lane_bits: Operand, blocked: bool) -> None:
        act(Rows(k, memory, tile.first, tile.present, args.size, lane_bits, blocked, places=places))

    blocks = (args.lane_bits == 0) & (args.size * 2 >= k.lanes)
    k.either(blocks, lambda: each(0, True), lambda: each(args.lane_bits, False))
