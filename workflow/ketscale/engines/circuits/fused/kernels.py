"""The functions that a plan is compiled to: `prepare`, `forward`, `backward` and `collect`.

`prepare` and `collect` (in `once`) run once in each call, before and after the other two, which run on every thread and
take tiles until none is left. `prepare_and_forward` saves a call if there is one thread. Each sample's arithmetic depends
on neither the thread nor the other samples, and the kernel writes sums over samples tile by tile, so results are the
same for any number of threads. A group's tiles are those that it would have alone, so it gets the same bits too.

Gradients are adjoint (Jones and Gacon, arXiv:2009.02823): with psi the final state and
adjoint = sum of cotangent times word on psi, each rotation is undone on both, and the derivative by its
angle is Im <adjoint|P|psi>.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from ketscale.engines.circuits.fused.block import RegisterBlock, State, Turns, apply, deposit, overlaps
from ketscale.engines.circuits.fused.mixing import mix, orbits, undo_mix
from ketscale.engines.circuits.fused.moves import MoveTable, move
from ketscale.engines.circuits.fused.plan import SweepPlan, rotations
from ketscale.engines.circuits.fused.program import Flip, Move, Rotation, Word
from ketscale.engines.circuits.fused.rows import Places, Rows
from ketscale.engines.circuits.fused.schedule import Pass, Phases, Step, measurement_passes
from ketscale.engines.circuits.fused.words import add_words, expectations, signed_sum
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
}


@dataclass(frozen=True)
class Tile:
    """A tile that a thread has taken: samples of one group, which are rows of the batch from `first` on.

    number: among all tiles. present: how many samples it has. saved: its state after the forward pass, or the thread's.
    buffers: the thread's, by their names in `SweepPlan.scratch`. psi, adjoint: states among them.
    """

    k: FunctionCode
    args: Arguments
    plan: SweepPlan
    number: Number
    group: Number
    first: Number
    present: Number
    saved: Buffer
    buffers: Mapping[str, Buffer]
    turns: Turns

    def state(self, name: str) -> Buffer:
        """One of the thread's buffers as a state."""
        return _state(self.plan, self.buffers[name])

    @property
    def psi(self) -> Buffer:
        """The state that the backward pass changes."""
        return self.state("psi")

    @property
    def adjoint(self) -> Buffer:
        """The adjoint state."""
        return self.state("adjoint")

    def block(self, base: Number | int = 0, basis: tuple[int, ...] = ()) -> RegisterBlock:
        """The block of a base; without arguments the first vector alone."""
        return RegisterBlock(self.k, self.plan, self.turns, self.k.integer(base), basis)

    @contextmanager
    def blocks(self, basis: tuple[int, ...]) -> Iterator[RegisterBlock]:
        """Loop over the blocks that are closed under the flips of `basis`."""
        with self.k.loop(self.plan.vectors >> len(basis)) as i:
            pivots = sorted(vector.bit_length() - 1 for vector in basis)
            yield self.block(deposit(i, pivots), basis)

    def rows(self, rows: Buffer, in_order: bool) -> Rows:
        """The samples' states in memory; a circuit's final states may have their amplitudes in another order."""
        plan, size = self.plan, 1 << self.plan.program.qubits
        reordered = not in_order and plan.program.order is not None
        places = Places(self.args.sources, self.args.powers) if reordered else None
        blocked = max(plan.lanes // 2, 1 << plan.lane_bits) <= size and not (reordered and plan.lane_bits)
        return Rows(
            self.k, rows, self.first, self.present, size, plan.lane_bits, blocked, plan.real, places,
            powers=any(plan.program.powers or ()),
        )  # fmt: skip

    def columns(self, name: str, count: int) -> Buffer:
        """One of the thread's buffers as floats (count, lanes)."""
        return self.buffers[name].part((), count, self.k.lanes, element="real")


def _state(plan: SweepPlan, vectors: Buffer) -> Buffer:
    return vectors.part((), plan.vectors, element="aligned" if plan.real else "complex vector")


@contextmanager
def tiles(k: FunctionCode, args: Arguments, plan: SweepPlan) -> Iterator[Tile]:
    """Write the body for each tile that this thread takes, whose angles are read."""
    worker = k.worker()
    scratch = args.scratch[worker].split(*((size,) for size in plan.scratch.values()))
    buffers = dict(zip(plan.scratch, scratch, strict=True))
    own = buffers["turns"].part((), len(plan.sample_angles), 3)
    with k.tasks(args.tiles) as number:
        group = number // args.group_tiles
        before = (number - group * args.group_tiles) * plan.samples
        tile = Tile(
            k=k,
            args=args,
            plan=plan,
            number=number,
            group=group,
            first=group * args.batch + before,
            present=minimum(plan.samples, args.batch - before),
            saved=_state(
                plan, args.states.part((worker * args.states_per_worker + number * args.states_per_tile,), 1)
            ),
            buffers=buffers,
            turns=Turns(plan, args.shared[group], own),
        )
        if plan.sample_angles:
            _read_angles(tile, own)
        yield tile


def forward(k: FunctionCode, args: Arguments, plan: SweepPlan) -> None:
    """States from angles, then expectation values or amplitudes."""
    with tiles(k, args, plan) as tile:
        psi = tile.saved
        _evolve(tile, psi)
        if plan.program.words is None:
            tile.rows(args.out, in_order=False).write(psi, 1.0)
        else:
            if plan.partners is not None:
                mix(k, orbits(k, plan), _factors(tile, args.mix[tile.group]), psi, tile.psi)
                psi = tile.psi
            measure(tile, plan.program.words, lambda block: partial(expectations, block, block.load(psi)))


def _evolve(tile: Tile, psi: Buffer) -> None:
    """The state after all rotations."""
    if tile.plan.from_zero:
        _make_product(tile, psi)
    else:
        tile.rows(tile.args.initial, in_order=True).read(psi, 1.0)
    for pass_ in tile.plan.forward.passes:
        run_pass(tile, pass_, [psi], apply)


def backward(k: FunctionCode, args: Arguments, plan: SweepPlan) -> None:
    """Gradients from cotangents: the sweep backwards."""
    with tiles(k, args, plan) as tile:
        psi, adjoint = tile.psi, tile.adjoint
        no_gradients(tile)
        if plan.partners is None:
            _copy(tile, tile.saved, psi)
        else:
            mix(k, orbits(k, plan), _factors(tile, args.mix[tile.group]), tile.saved, psi)
        begin_adjoint(tile, psi, adjoint)
        if plan.partners is not None:
            row = _factors(tile, args.mix_rows[tile.number]) if "mix" in plan.wanted else None
            sums = tile.buffers["sums"].part((), 2, element="complex vector")
            factors = _factors(tile, args.mix[tile.group])
            undo_mix(k, orbits(k, plan), factors, tile.saved, adjoint, row, sums)
            _copy(tile, tile.saved, psi)
        _undo_all(tile, psi, adjoint)


def pull(k: FunctionCode, args: Arguments, plan: SweepPlan) -> None:
    """Gradients from cotangents, forward and backward while a tile is in the cache: nothing was saved."""
    with tiles(k, args, plan) as tile:
        psi, adjoint = tile.psi, tile.adjoint
        no_gradients(tile)
        _evolve(tile, psi)
        begin_adjoint(tile, psi, adjoint)
        _undo_all(tile, psi, adjoint)


def no_gradients(tile: Tile) -> None:
    """Set the gradients' accumulators to 0."""
    if tile.plan.differentiated:
        tile.buffers["gradients"].zero(len(tile.plan.differentiated))


def begin_adjoint(tile: Tile, psi: Buffer, adjoint: Buffer) -> None:
    """The adjoint of the state that is measured."""
    words = tile.plan.program.words
    if words is None:
        # Half of it, since derivatives are twice a product with the adjoint.
        tile.rows(tile.args.cotangent, in_order=False).read(adjoint, 0.5)
    else:
        _start_adjoint(tile, psi, adjoint, words)


def _undo_all(tile: Tile, psi: Buffer, adjoint: Buffer) -> None:
    """The sweep backwards, whose gradients are written."""
    plan = tile.plan
    for pass_ in plan.backward:
        run_pass(tile, pass_, [psi, adjoint], partial(_undo, tile))
    if plan.from_zero:
        _undo_product(tile, psi, adjoint)
    write_gradients(tile, adjoint)


def _copy(tile: Tile, source: Buffer, target: Buffer) -> None:
    source, target = (state.part((), 1, element="aligned") for state in (source, target))
    with tile.k.loop(tile.plan.state_vectors) as v:
        target[v] = source[v]


def _factors(tile: Tile, floats: Buffer) -> Buffer:
    """A superposition's complex numbers, or their gradients."""
    return floats.part((), tile.plan.mix_size // 2, element="complex")


# --- angles in, gradients out ---


def _read_angles(tile: Tile, turns: Buffer) -> None:
    """Cosine, sine and minus sine of half of every angle that differs between samples."""
    with sample_halves(tile, tile.args.inputs) as (i, half):
        sine, cosine = sincos(half)
        for entry, turn in enumerate((cosine, sine, -sine)):
            turns[i, entry] = turn


@contextmanager
def sample_halves(tile: Tile, inputs: Buffer) -> Iterator[tuple[Number, Number]]:
    """Loop over the angles that differ between samples: the number of each, and half of it, of these inputs."""
    k, plan = tile.k, tile.plan
    _transpose(tile, inputs, tile.columns("columns", plan.input_columns), plan.input_columns)
    columns = k.table("columns", [angle.index for angle in plan.sample_angles], "integer")
    factors = k.table("factors", [angle.factor / 2 for angle in plan.sample_angles])
    with k.loop(len(plan.sample_angles)) as i:
        yield i, _spread(tile, tile.buffers["columns"][columns[i]]) * factors[i]


def _transpose(tile: Tile, rows: Buffer, columns: Buffer, count: int) -> None:
    """Put row elements of the tile's samples into lanes; lanes without a sample repeat the last sample."""
    k, plan = tile.k, tile.plan
    with k.loop(plan.samples) as sample:
        row, lane = rows[tile.first + minimum(sample, tile.present - 1)], sample << plan.lane_bits
        with k.loop(count) as i:
            columns[i, lane] = row[i]


def to_rows(tile: Any, vectors: Buffer, rows: Buffer, count: Operand, lane_bits: Operand) -> None:
    """Put each sample's first lane of so many vectors into its row. tile: of this module or of `universal`."""
    k = tile.k
    columns = vectors.part((), count, k.lanes, element="real")
    with k.loop(tile.present) as sample:
        row, lane = rows[tile.first + sample], sample << lane_bits
        with k.each(count) as i:
            row[i] = columns[i, lane]


def _spread(tile: Tile, vector: Number) -> Number:
    """Each sample's first lane in all of its lanes."""
    group = (1 << tile.plan.lane_bits) - 1
    return vector.shuffled([lane & ~group for lane in range(tile.k.lanes)])


def write_gradients(tile: Tile, adjoint: Buffer) -> None:
    """Add each rotation's accumulated gradient to its column: per sample, or over the tile for weights.

    adjoint: at the start of the circuit, which is half of the gradient by the initial state.
    """
    k, plan = tile.k, tile.plan
    if "initial" in plan.wanted:
        tile.rows(tile.args.initial_gradient, in_order=True).write(adjoint, 2.0)
    if "weight" in plan.wanted:
        row = tile.args.weight_rows[tile.number]
        for index in range(plan.weight_columns):
            total = _gradient(tile, "weight", index)
            row[index] = 0.0 if total is None else lane_sum(total).lane(0)
    if "input" in plan.wanted and plan.input_columns:
        for index in range(plan.input_columns):
            total = _gradient(tile, "input", index)
            own = k.vector(0.0) if total is None else lane_sum(total, 1 << plan.lane_bits)
            tile.buffers["columns"][index] = own
        gradient = tile.args.input_gradient
        to_rows(tile, tile.buffers["columns"], gradient, plan.input_columns, plan.lane_bits)


def _gradient(tile: Tile, kind: str, index: int) -> Number | None:
    """The gradient by a column, lane by lane; None if no rotation's angle has it."""
    plan, total = tile.plan, None
    for slot, rotation in enumerate(plan.differentiated):
        angle = rotation.angle
        if (angle.kind, angle.index) == (kind, index):
            gathered = _lane_signed(tile, tile.buffers["gradients"][slot], rotation)
            total = fma(gathered, angle.factor, total)
    return total


def _lane_signed(tile: Tile, vector: Number, word: Rotation | Word) -> Number:
    """A sum over blocks with the signs of the word in each lane."""
    return tile.block().signed(vector, word.z, word.x & ((1 << tile.plan.lane_bits) - 1))


# --- passes ---


def run_pass(
    tile: Tile,
    pass_: Pass,
    states: Sequence[Buffer],
    stepped: Callable[[RegisterBlock, Step, Sequence[State]], Sequence[State]],
) -> None:
    """A pass over states, by a function that gives a block's states after a step."""
    if pass_.move is not None:
        for state in states:
            move(tile.k, _table(tile, pass_.move), state, tile.plan.lane_bits, tile.plan.samples)
        return
    with tile.blocks(pass_.basis) as block:
        loaded: Sequence[State] = [block.load(state) for state in states]
        for step in pass_.steps:
            loaded = stepped(block, step, loaded)
        for vectors, state in zip(loaded, states, strict=True):
            block.store(vectors, state)


def _table(tile: Tile, step: Move) -> MoveTable:
    """A move in the code's constants."""
    name, swaps, (places, values) = f"{step}", step.swaps, step.factors()
    k = tile.k
    return MoveTable(
        k.table(f"{name} places", places.tolist(), "integer"),
        k.table(f"{name} factors", values.view(float).tolist()).part((), len(places), 2),
        len(places),
        k.table(f"{name} swaps", swaps.flatten().tolist(), "integer").part((), len(swaps), 2),
        len(swaps),
    )


def _undo(
    tile: Tile, block: RegisterBlock, step: Rotation | Flip | Phases, states: Sequence[State]
) -> list[State]:
    """psi and adjoint before a step, whose wanted gradients get the block's share."""
    gather(tile, block, step, (states,))
    return apply(block, step, states, inverse=True)


def gather(
    tile: Tile, block: RegisterBlock, step: Rotation | Flip | Phases, pairs: Sequence[Sequence[State]]
) -> None:
    """Add the block's share to a step's wanted gradients: the overlaps of a state and an adjoint, of all pairs together."""
    if isinstance(step, Flip) or not any(map(tile.plan.wants, rotations(step))):
        return
    for (rotation, value), *others in zip(*(overlaps(block, step, *pair) for pair in pairs), strict=True):
        if tile.plan.wants(rotation):
            for _, other in others:
                value = value + other
            gradients, slot = tile.buffers["gradients"], tile.plan.differentiated.index(rotation)
            gradients[slot] = signed_sum(block, rotation.z, value, gradients[slot])


# --- product states ---


def _make_product(tile: Tile, psi: Buffer) -> None:
    """|0...0> after the first rotations: the support doubles with every bit."""
    k, plan = tile.k, tile.plan
    low, high = _product_bits(plan)
    group, nothing = (1 << plan.lane_bits) - 1, k.vector(0.0)
    one = k.vector([0.0 if lane & group else 1.0 for lane in range(k.lanes)])
    zero = nothing if plan.real else Complex(nothing, nothing)
    block = tile.block()
    states: list[State] = [[one if plan.real else Complex(one, nothing)]]
    for rotation in low:
        states = apply(block, rotation, states)
    block.store(states[0], psi)
    for bit in range(plan.program.qubits - plan.lane_bits):
        with k.loop(1 << bit) as v:
            pair = tile.block(v, (1 << bit,))
            states = [[psi[v], zero]]
            if bit in high:
                states = apply(pair, high[bit], states)
            pair.store(states[0], psi)


def _undo_product(tile: Tile, psi: Buffer, adjoint: Buffer) -> None:
    """The backward pass through the first rotations: after each, only half of the amplitudes matter."""
    plan = tile.plan
    if not any(map(plan.wants, plan.forward.product)):
        return
    low, high = _product_bits(plan)
    for bit in sorted(high, reverse=True):
        with tile.k.loop(1 << bit) as v:
            pair = tile.block(v, (1 << bit,))
            states = _undo(tile, pair, high[bit], [pair.load(psi), pair.load(adjoint)])
            pair.store(states[0][:1], psi)
            pair.store(states[1][:1], adjoint)
    block = tile.block()
    states = [block.load(psi), block.load(adjoint)]
    for rotation in reversed(low):
        states = _undo(tile, block, rotation, states)


def _product_bits(plan: SweepPlan) -> tuple[list[Rotation], dict[int, Rotation]]:
    """The first rotations inside a vector, and those between vectors by the bit of the vector's index."""
    bits = {r.x.bit_length() - 1 - plan.lane_bits: r for r in plan.forward.product}
    return [r for bit, r in bits.items() if bit < 0], {bit: r for bit, r in bits.items() if bit >= 0}


# --- measuring ---


def measure(
    tile: Tile,
    words: Sequence[Word],
    values: Callable[[RegisterBlock], Callable[[Mapping[int, Word]], dict[int, Number]]],
) -> None:
    """Values of words, written to `out` for the tile's samples. values: of a block, for words of one X mask."""
    plan, sums = tile.plan, tile.buffers["words"]
    sums.zero(len(words))
    for basis, groups in _measurements(plan, words):
        with tile.blocks(basis) as block:
            of = values(block)
            for group in groups:
                for number, value in of(group).items():
                    sums[number] = signed_sum(block, words[number].z, value, sums[number])
    for number, word in enumerate(words):
        value = lane_sum(_lane_signed(tile, sums[number], word), 1 << plan.lane_bits)
        sums[number] = value if word.sign > 0 else -value
    to_rows(tile, sums, tile.args.out, len(words), plan.lane_bits)


def _measurements(
    plan: SweepPlan, words: Sequence[Word]
) -> list[tuple[tuple[int, ...], list[dict[int, Word]]]]:
    """The bases of passes over the state, with the words that each measures, by their numbers, in groups of one X mask."""
    # With real amplitudes, words with an odd number of Y are 0.
    seen = {number: word for number, word in enumerate(words) if not (plan.real and word.ys % 2)}
    width = min(plan.widths[0], plan.program.qubits - plan.lane_bits)
    return [
        (basis, [{number: word for number, word in seen.items() if word.x == mask} for mask in masks])
        for basis, masks in measurement_passes(list(seen.values()), width, plan.lane_bits)
    ]


def _start_adjoint(tile: Tile, psi: Buffer, adjoint: Buffer, words: Sequence[Word]) -> None:
    """adjoint = sum of cotangent times word on psi; lanes without a sample get 0."""
    k, plan, weights = tile.k, tile.plan, tile.buffers["words"]
    _transpose(tile, tile.args.cotangent, tile.columns("words", len(words)), len(words))
    samples = k.vector([lane >> plan.lane_bits for lane in range(k.lanes)], I64)
    exists = samples < tile.present
    for number, word in enumerate(words):
        weight = select(exists, _spread(tile, weights[number]), 0.0)
        weights[number] = weight if word.sign > 0 else -weight
    measurements = _measurements(plan, words)
    if not measurements:
        adjoint.part((), 1, element="aligned").zero(plan.state_vectors)
    for number, (basis, groups) in enumerate(measurements):
        with tile.blocks(basis) as block:
            state = block.load(psi)
            before = block.load(adjoint) if number else None
            block.store(add_words(block, state, before, groups, weights), adjoint)
