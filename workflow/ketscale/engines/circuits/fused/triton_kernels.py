"""The GPU's two kernels: a block of samples through a whole circuit, and backwards for the gradients.

Everything is real: the lowest bit of an index chooses an amplitude's real or imaginary part, or is left out if all
amplitudes are real. Multiplying by i then exchanges numbers and changes signs, and so does every Pauli word. Such a
signed exchange J, given by two masks, is the only operation here
(`_exchanged`). A rotation is cos + sin J; a word's expectation value is state . J state. Rotations and words
are read from tables in device memory, which `tables.py` makes, so one compiled kernel serves all
circuits of the same number of qubits.

Gradients are adjoint (Jones and Gacon, arXiv:2009.02823). If `adjoint` is the derivative by the state's numbers, the
derivative by half of a rotation's angle is adjoint . J state. Since J J = -1, state and adjoint before the rotation
are cos - sin J times those after it. The backward pass starts from the final state and stores no other.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Rows of the table of rotations.
X = tl.constexpr(0)
Z = tl.constexpr(1)
SOURCE = tl.constexpr(2)
COLUMN = tl.constexpr(3)
SLOT = tl.constexpr(4)

# Where a rotation's angle comes from; the factor of a constant is all of it.
INPUT = tl.constexpr(0)
WEIGHT = tl.constexpr(1)
CONSTANT = tl.constexpr(2)


@triton.jit
def _exchanged(state: tl.tensor, index: tl.tensor, x: tl.tensor, z: tl.tensor) -> tl.tensor:
    """J of each row of `state`: number k is number k ^ x, negated if k & z has an odd number of bits."""
    bits = index & z
    bits ^= bits >> 10
    bits ^= bits >> 5
    even = 0x69969669 >> (bits & 31) & 1  # bit j of the constant tells whether j has an even number of bits
    # Along one of two axes Triton gathers within a warp, with as many shuffles as the square of a thread's share
    # of a row, two numbers at most here; along an only axis it goes through shared memory.
    if state.shape[0] > 1:
        moved = tl.gather(state, tl.broadcast_to((index ^ x)[None, :], state.shape), 1)
    else:
        moved = tl.gather(tl.reshape(state, index.shape), index ^ x, 0)[None, :]
    return tl.where((even == 1)[None, :], moved, -moved)


# No argument is specialised, so no batch size, circuit or slice of a tensor makes Triton compile a kernel again.
# Pointers that may be unaligned also keep neighbouring numbers in different threads, so that they meet no bank
# conflicts where they go through shared memory.
@triton.jit(do_not_specialize=range(18))
def forward(
    inputs: tl.tensor,  # (batch, input_stride)
    input_stride: tl.tensor,
    weights: tl.tensor,
    initial: tl.tensor,  # None for |0...0>, or (batch, 2**BITS)
    initial_stride: tl.tensor,  # 0 where one state is shared
    rotation_table: tl.tensor,  # (5, rotations)
    factors: tl.tensor,  # (rotations,): half angles are factors times columns
    rotations: tl.tensor,
    word_table: tl.tensor,  # (2, words): x, z
    signs: tl.tensor,  # (words,)
    words: tl.tensor,
    places: tl.tensor,  # None for expectation values, or (2**BITS,): where a number of the state belongs
    place_signs: tl.tensor,  # (2**BITS,)
    cosines: tl.tensor,  # (batch, rotations), written
    sines: tl.tensor,  # (batch, rotations), written
    final: tl.tensor,  # None, or (batch, 2**BITS), written
    out: tl.tensor,  # (batch, words) or (batch, 2**BITS), written
    batch: tl.tensor,
    BITS: tl.constexpr,  # noqa: N803 (Triton's constants are capitals)
    SAMPLES: tl.constexpr,  # noqa: N803
) -> None:
    """Expectation values or states of SAMPLES samples, and what `backward` needs."""
    size: tl.constexpr = 1 << BITS
    sample = tl.program_id(0).to(tl.int64) * SAMPLES + tl.arange(0, SAMPLES)
    present = sample < batch
    index = tl.arange(0, size)
    number = sample[:, None] * size + index[None, :]

    # All cosines first, since in the loop over rotations every thread of a sample would compute the same one. They
    # go to device memory, from which `backward` reads them too.
    chunk: tl.constexpr = max(128 // SAMPLES, size // 8)
    for start in range(0, rotations, chunk):
        rotation = start + tl.arange(0, chunk)
        exists = rotation < rotations
        source = tl.load(rotation_table + SOURCE * rotations + rotation, mask=exists, other=CONSTANT)
        column = tl.load(rotation_table + COLUMN * rotations + rotation, mask=exists, other=0)
        factor = tl.load(factors + rotation, mask=exists, other=0.0)
        from_input = present[:, None] & (source == INPUT)[None, :]
        own = tl.load(inputs + sample[:, None] * input_stride + column[None, :], mask=from_input, other=0.0)
        shared = tl.load(weights + column, mask=source == WEIGHT, other=1.0)
        half = tl.where(from_input, own, shared[None, :]) * factor[None, :]
        place = sample[:, None] * rotations + rotation[None, :]
        tl.store(cosines + place, tl.cos(half), mask=present[:, None] & exists[None, :])
        tl.store(sines + place, tl.sin(half), mask=present[:, None] & exists[None, :])
    tl.debug_barrier()

    if initial is None:
        zero = tl.where(index == 0, 1.0, 0.0).to(cosines.dtype.element_ty)
        state = tl.broadcast_to(zero[None, :], (SAMPLES, size))
    else:
        begin = initial + sample[:, None] * initial_stride + index[None, :]
        state = tl.load(begin, mask=present[:, None], other=0.0)
    for rotation in range(rotations):
        x = tl.load(rotation_table + X * rotations + rotation)
        z = tl.load(rotation_table + Z * rotations + rotation)
        cosine = tl.load(cosines + sample * rotations + rotation, mask=present, other=1.0)
        sine = tl.load(sines + sample * rotations + rotation, mask=present, other=0.0)
        state = cosine[:, None] * state + sine[:, None] * _exchanged(state, index, x, z)

    if final is not None:
        tl.store(final + number, state, mask=present[:, None])
    if places is not None:
        place = sample[:, None] * size + tl.load(places + index)[None, :]
        tl.store(out + place, state * tl.load(place_signs + index)[None, :], mask=present[:, None])
    else:
        for word in range(words):
            x = tl.load(word_table + word)
            z = tl.load(word_table + words + word)
            value = tl.sum(state * _exchanged(state, index, x, z), 1) * tl.load(signs + word)
            tl.store(out + sample * words + word, value, mask=present)


@triton.jit(do_not_specialize=range(16))
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
    cosines: tl.tensor,
    sines: tl.tensor,
    final: tl.tensor,
    gradients: tl.tensor,  # (batch, slots), written: by the half angles of the rotations that have a slot
    slots: tl.tensor,
    initial_gradient: tl.tensor,  # None, or (batch, 2**BITS), written
    batch: tl.tensor,
    BITS: tl.constexpr,  # noqa: N803
    SAMPLES: tl.constexpr,  # noqa: N803
) -> None:
    """Gradients of SAMPLES samples; arguments are those of `forward`, or described here."""
    size: tl.constexpr = 1 << BITS
    sample = tl.program_id(0).to(tl.int64) * SAMPLES + tl.arange(0, SAMPLES)
    present = sample < batch
    index = tl.arange(0, size)
    number = sample[:, None] * size + index[None, :]

    state = tl.load(final + number, mask=present[:, None], other=0.0)
    if places is not None:
        place = sample[:, None] * size + tl.load(places + index)[None, :]
        adjoint = tl.load(cotangent + place, mask=present[:, None], other=0.0)
        adjoint *= tl.load(place_signs + index)[None, :]
    else:
        adjoint = tl.zeros_like(state)
        for word in range(words):
            x = tl.load(word_table + word)
            z = tl.load(word_table + words + word)
            by_word = tl.load(cotangent + sample * words + word, mask=present, other=0.0)
            scale = 2 * by_word * tl.load(signs + word)
            adjoint += scale[:, None] * _exchanged(state, index, x, z)

    for done in range(rotations - first):
        rotation = rotations - 1 - done
        x = tl.load(rotation_table + X * rotations + rotation)
        z = tl.load(rotation_table + Z * rotations + rotation)
        slot = tl.load(rotation_table + SLOT * rotations + rotation)
        cosine = tl.load(cosines + sample * rotations + rotation, mask=present, other=1.0)
        sine = tl.load(sines + sample * rotations + rotation, mask=present, other=0.0)
        exchanged = _exchanged(state, index, x, z)
        if slot >= 0:
            tl.store(gradients + sample * slots + slot, tl.sum(adjoint * exchanged, 1), mask=present)
        state = cosine[:, None] * state - sine[:, None] * exchanged
        adjoint = cosine[:, None] * adjoint - sine[:, None] * _exchanged(adjoint, index, x, z)

    if initial_gradient is not None:
        tl.store(initial_gradient + number, adjoint, mask=present[:, None])
