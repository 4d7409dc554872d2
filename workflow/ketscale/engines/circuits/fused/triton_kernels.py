"""The GPU's two kernels: a block of samples through a whole circuit, and backwards for the gradients.

Everything is real: the highest bit of an index chooses an amplitude's real or imaginary part, or is left out if all
amplitudes are real. Multiplying by i then exchanges numbers and changes signs, and so does every Pauli word. Such a
signed exchange J, given by two masks, is the only operation here. A rotation is cos + sin J; a word's expectation
value is state . J state. Rotations and words are read from tables in device memory, which `tables.py` makes, so one
compiled kernel serves all circuits of the same number of qubits.

A block's state is a tensor (rows, columns): the high bits of an index choose a row, the low ones a lane, and a column
is one lane of one sample. A thread holds all rows of a column in its registers. So rows, real and imaginary parts
among them, are exchanged by naming other registers, and lanes by one shuffle for a number; only the lanes of several
warps go through shared memory. Two axes, not three, since Triton 3.6 lays rows of the latter across a warp. The signs
of an exchange are put on the sines, which costs one operation for a number.

Gradients are adjoint (Jones and Gacon, arXiv:2009.02823). If `adjoint` is the derivative by the state's numbers, the
derivative by half of a rotation's angle is adjoint . J state. Since J J = -1, state and adjoint before the rotation
are cos - sin J times those after it. The backward pass starts from the final state and stores no other. It divides
adjoint . (sin J state) by the sine, since that product of sine and sign is needed anyway.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Columns of the table of rotations; that of words has the first three.
X_LANES = tl.constexpr(0)
X_ROWS = tl.constexpr(1)
Z = tl.constexpr(2)
SOURCE = tl.constexpr(3)
COLUMN = tl.constexpr(4)
SLOT = tl.constexpr(5)
COLUMNS = tl.constexpr(6)
WORD_COLUMNS = tl.constexpr(3)

# The source of a rotation's angle; the factor of a constant is all of it.
INPUT = tl.constexpr(0)
WEIGHT = tl.constexpr(1)
CONSTANT = tl.constexpr(2)

# Sines are at least this: no number changes, but one can divide by them.
LEAST = tl.constexpr(1e-20)
# Lanes that exchange numbers by shuffles.
WARP = tl.constexpr(32)
# A thread holds at most 2**4 rows.
ROW_BITS = tl.constexpr(4)


# Sequences of branches, not a tree of them, whose ends LLVM would merge again with a copy of each number. It would
# also if it knew that one of them is taken, or x == 0 became another test than the rest: so x is loaded, not computed.
@triton.jit
def _chosen(
    FUNCTION: tl.constexpr,  # noqa: N803 (Triton's constants are capitals)
    tensors: tl.tuple,
    result: tl.core.base_value,
    x: tl.tensor,
    ROWS: tl.constexpr,  # noqa: N803
) -> tl.core.base_value:
    """FUNCTION(tensors, x) with x as a constant; `result` has its type and is not used, since x is below ROWS."""
    for known in tl.static_range(ROWS):
        if x == known:
            result = FUNCTION(tensors, known)
    return result


@triton.jit
def _rows_exchanged(state: tl.tensor, X: tl.constexpr) -> tl.tensor:  # noqa: N803
    """Row k is row k ^ X: other names of registers."""
    shape: tl.constexpr = state.shape
    for bit in tl.static_range(ROW_BITS):
        if X >> bit & 1:
            pairs = tl.reshape(state, (shape[0] >> bit + 1, 2, shape[1] << bit))
            state = tl.reshape(tl.flip(pairs, 1), shape)
    return state


@triton.jit
def _lanes_exchanged(state: tl.tensor, x: tl.tensor, LANES: tl.constexpr) -> tl.tensor:  # noqa: N803
    """Lane l of each sample is lane l ^ x."""
    if LANES <= WARP:
        # Even if x is 0: without a branch no number is copied.
        column = tl.arange(0, state.shape[1]) ^ x
        state = tl.gather(state, tl.broadcast_to(column[None, :], state.shape), 1)
    elif x != 0:
        # Along one of two axes Triton would gather within a warp, which then had to hold all lanes.
        number = tl.arange(0, state.numel) ^ x
        state = tl.reshape(tl.gather(tl.reshape(state, number.shape), number, 0), state.shape)
    return state


@triton.jit
def _signed(
    numbers: tl.tensor,  # (rows or 1, columns)
    z: tl.tensor,
    ROWS: tl.constexpr,  # noqa: N803
    LANES: tl.constexpr,  # noqa: N803
) -> tl.tensor:
    """Each of (rows, columns) negated if k & z has an odd number of bits, where k is its index."""
    bits = tl.arange(0, numbers.shape[1]) % LANES & z
    if LANES > WARP:
        bits ^= bits >> 5
    # Bit 31 - j of the constant tells whether j has an odd number of bits.
    minus = (0x69969669 << (bits & 31) & 0x80000000)[None, :]
    width: tl.constexpr = numbers.dtype.primitive_bitwidth
    integer: tl.constexpr = tl.uint64 if width == 64 else tl.uint32
    result = numbers.to(integer, bitcast=True) ^ minus.to(integer) << width - 32
    # A thread gets the sign of each row from that of another row by one operation.
    row = tl.arange(0, ROWS)[:, None]
    for bit in tl.static_range(ROW_BITS):
        if ROWS >> bit > 1:
            result ^= tl.where(row >> bit & 1 != 0, (z // LANES >> bit).to(integer) << width - 1, 0)
    return result.to(numbers.dtype, bitcast=True)


@triton.jit
def _rotated(tensors: tl.tuple, X: tl.constexpr) -> tl.tensor:  # noqa: N803
    """cosine * base + sine * J state: `moved` is `state` after its exchange of lanes, and `sine` has J's signs."""
    base, moved, cosine, sine = tensors
    return cosine * base + sine * _rows_exchanged(moved, X)


@triton.jit
def _product(tensors: tl.tuple, X: tl.constexpr) -> tl.tensor:  # noqa: N803
    """The scalar products of `left` and J state, by columns, where `left` has J's signs."""
    left, moved = tensors
    return tl.sum(left * _rows_exchanged(moved, X), 0)


@triton.jit
def _rotated_with_product(tensors: tl.tuple, X: tl.constexpr) -> tl.core.base_value:  # noqa: N803
    """The scalar products of `left` and sine * J state, by columns, and the rotated state."""
    left, state, moved, cosine, sine = tensors
    turned = sine * _rows_exchanged(moved, X)
    return tl.sum(left * turned, 0), cosine * state + turned


@triton.jit
def _by_samples(columns: tl.tensor, SAMPLES: tl.constexpr) -> tl.tensor:  # noqa: N803
    """The sums over the lanes of each sample."""
    return tl.sum(tl.reshape(columns, (SAMPLES, columns.numel // SAMPLES)), 1)


@triton.jit
def _paired(index: tl.tensor, size: tl.constexpr) -> tl.tensor:
    """The place of a number in a tensor of complex amplitudes: the part becomes the lowest bit."""
    return index % (size // 2) * 2 + index // (size // 2)


# No argument is specialised, so no batch size, circuit or slice of a tensor makes Triton compile a kernel again.
# The loops are not over ranges, whose ends the interpreter of Triton 3.6 cannot read with NumPy 2.4.
@triton.jit(do_not_specialize=range(17))
def forward(
    inputs: tl.tensor,  # (batch, input_stride)
    input_stride: tl.tensor,
    weights: tl.tensor,
    initial: tl.tensor,  # None for |0...0>, or (batch, 2**qubits, 2)
    initial_stride: tl.tensor,  # 0 where one state is shared
    rotation_table: tl.tensor,  # (rotations, COLUMNS)
    factors: tl.tensor,  # (rotations,): half angles are factors times columns
    rotations: tl.tensor,
    word_table: tl.tensor,  # (words, WORD_COLUMNS)
    signs: tl.tensor,  # (words,)
    words: tl.tensor,
    places: tl.tensor,  # None for expectation values, or (size,): where a number of the state belongs
    place_signs: tl.tensor,  # (size,)
    turns: tl.tensor,  # (batch, rotations, 2), written: cosines and sines
    final: tl.tensor,  # None, or (batch, size), written
    out: tl.tensor,  # (batch, words) or (batch, 2**qubits, 2), written
    batch: tl.tensor,
    ROWS: tl.constexpr,  # noqa: N803
    LANES: tl.constexpr,  # noqa: N803
    SAMPLES: tl.constexpr,  # noqa: N803
) -> None:
    """Expectation values or states of SAMPLES samples, and what `backward` needs. The size is ROWS * LANES."""
    size: tl.constexpr = ROWS * LANES
    sample = tl.program_id(0).to(tl.int64) * SAMPLES + tl.arange(0, SAMPLES)
    present = sample < batch
    # The sample of each column, which is the last one again where there is no other, and the indices of its numbers.
    column = tl.arange(0, SAMPLES * LANES)
    own = tl.program_id(0).to(tl.int64) * SAMPLES + column // LANES
    inside = (own < batch)[None, :]
    own = tl.minimum(own, batch - 1)
    index = tl.arange(0, ROWS)[:, None] * LANES + (column % LANES)[None, :]
    begin = own[None, :] * size

    # All cosines first, since in the loop over rotations every thread of a sample would compute the same one. They
    # go to device memory, from which `backward` reads them too.
    chunk: tl.constexpr = max(LANES, 32 // SAMPLES)
    first = 0
    while first < rotations:
        rotation = first + tl.arange(0, chunk)
        exists = rotation < rotations
        row = rotation_table + rotation * COLUMNS
        source = tl.load(row + SOURCE, mask=exists, other=CONSTANT)
        angle = tl.load(row + COLUMN, mask=exists, other=0)
        factor = tl.load(factors + rotation, mask=exists, other=0.0)
        from_input = present[:, None] & (source == INPUT)[None, :]
        value = tl.load(inputs + sample[:, None] * input_stride + angle[None, :], mask=from_input, other=0.0)
        shared = tl.load(weights + angle, mask=source == WEIGHT, other=1.0)
        half = tl.where(from_input, value, shared[None, :]) * factor[None, :]
        turn = turns + (sample[:, None] * rotations + rotation[None, :]) * 2
        tl.store(turn, tl.cos(half), mask=present[:, None] & exists[None, :])
        sine = tl.sin(half)
        sine = tl.where(tl.abs(sine) < LEAST, LEAST, sine)
        tl.store(turn + 1, sine, mask=present[:, None] & exists[None, :])
        first += chunk
    tl.debug_barrier()

    if initial is None:
        state = tl.where(index == 0, 1.0, 0.0).to(turns.dtype.element_ty)
    else:
        start = initial + own[None, :] * initial_stride + _paired(index, size)
        state = tl.load(start, mask=inside, other=0.0)
    rotation = 0
    while rotation < rotations:
        row = rotation_table + rotation * COLUMNS
        x_lanes, x_rows = tl.load(row + X_LANES), tl.load(row + X_ROWS)
        z = tl.load(row + Z).to(tl.uint32)
        turn = turns + (own * rotations + rotation)[None, :] * 2
        cosine, sine = tl.load(turn), tl.load(turn + 1)
        sine = _signed(sine, z, ROWS, LANES)
        moved = _lanes_exchanged(state, x_lanes, LANES)
        state = _chosen(_rotated, (state, moved, cosine, sine), state, x_rows, ROWS)
        rotation += 1

    if final is not None:
        tl.store(final + begin + index, state, mask=inside)
    if places is not None:
        state *= tl.load(place_signs + index)
        tl.store(out + begin + tl.load(places + index), state, mask=inside)
    else:
        zero = tl.zeros(column.shape, state.dtype)
        word = 0
        while word < words:
            row = word_table + word * WORD_COLUMNS
            x_lanes, x_rows = tl.load(row + X_LANES), tl.load(row + X_ROWS)
            z = tl.load(row + Z).to(tl.uint32)
            left = _signed(state, z, ROWS, LANES)
            moved = _lanes_exchanged(state, x_lanes, LANES)
            product = _chosen(_product, (left, moved), zero, x_rows, ROWS)
            value = _by_samples(product, SAMPLES) * tl.load(signs + word)
            tl.store(out + sample * words + word, value, mask=present)
            word += 1


@triton.jit(do_not_specialize=range(15))
def backward(
    cotangent: tl.tensor,  # as `out` of forward
    rotation_table: tl.tensor,
    rotations: tl.tensor,
    first: tl.tensor,  # the first rotation whose gradient is wanted
    word_table: tl.tensor,
    signs: tl.tensor,
    words: tl.tensor,
    places: tl.tensor,
    place_signs: tl.tensor,
    turns: tl.tensor,
    final: tl.tensor,
    gradients: tl.tensor,  # (batch, slots), written: by the half angles of the rotations that have a slot
    slots: tl.tensor,
    initial_gradient: tl.tensor,  # None, or (batch, 2**qubits, 2), written
    batch: tl.tensor,
    ROWS: tl.constexpr,  # noqa: N803
    LANES: tl.constexpr,  # noqa: N803
    SAMPLES: tl.constexpr,  # noqa: N803
) -> None:
    """Gradients of SAMPLES samples; arguments are those of `forward`, or described here."""
    size: tl.constexpr = ROWS * LANES
    sample = tl.program_id(0).to(tl.int64) * SAMPLES + tl.arange(0, SAMPLES)
    present = sample < batch
    # The sample of each column, which is the last one again where there is no other, and the indices of its numbers.
    column = tl.arange(0, SAMPLES * LANES)
    own = tl.program_id(0).to(tl.int64) * SAMPLES + column // LANES
    inside = (own < batch)[None, :]
    own = tl.minimum(own, batch - 1)
    index = tl.arange(0, ROWS)[:, None] * LANES + (column % LANES)[None, :]
    begin = own[None, :] * size

    state = tl.load(final + begin + index, mask=inside, other=0.0)
    if places is not None:
        place = cotangent + begin + tl.load(places + index)
        adjoint = tl.load(place, mask=inside, other=0.0) * tl.load(place_signs + index)
    else:
        adjoint = tl.zeros_like(state)
        word = 0
        while word < words:
            row = word_table + word * WORD_COLUMNS
            x_lanes, x_rows = tl.load(row + X_LANES), tl.load(row + X_ROWS)
            z = tl.load(row + Z).to(tl.uint32)
            by_word = tl.load(cotangent + own[None, :] * words + word, mask=inside, other=0.0)
            scales = _signed(2 * by_word * tl.load(signs + word), z, ROWS, LANES)
            moved = _lanes_exchanged(state, x_lanes, LANES)
            adjoint = _chosen(_rotated, (adjoint, moved, 1.0, scales), adjoint, x_rows, ROWS)
            word += 1

    zero = tl.zeros(column.shape, state.dtype)
    rotation = rotations - 1
    while rotation >= first:
        row = rotation_table + rotation * COLUMNS
        x_lanes, x_rows = tl.load(row + X_LANES), tl.load(row + X_ROWS)
        z = tl.load(row + Z).to(tl.uint32)
        slot = tl.load(row + SLOT)
        turn = turns + (own * rotations + rotation)[None, :] * 2
        cosine, sine = tl.load(turn), -tl.load(turn + 1)  # the inverse rotation's
        signed = _signed(sine, z, ROWS, LANES)
        # One after the other, so that few numbers are in registers at a time.
        moved = _lanes_exchanged(state, x_lanes, LANES)
        tensors = (adjoint, state, moved, cosine, signed)
        product, state = _chosen(_rotated_with_product, tensors, (zero, state), x_rows, ROWS)
        moved = _lanes_exchanged(adjoint, x_lanes, LANES)
        # Loaded in another way, or the compiler would keep the results of all comparisons above.
        x_rows = tl.load(row + X_ROWS, cache_modifier=".ca")
        adjoint = _chosen(_rotated, (adjoint, moved, cosine, signed), adjoint, x_rows, ROWS)
        if slot >= 0:
            derivative = _by_samples(product / tl.sum(sine, 0), SAMPLES)
            tl.store(gradients + sample * slots + slot, derivative, mask=present)
        rotation -= 1

    if initial_gradient is not None:
        tl.store(initial_gradient + begin + _paired(index, size), adjoint, mask=inside)
