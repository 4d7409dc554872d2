"""Pauli words on a block of states: their expectation values, and their sum applied to a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ketscale.engines.circuits.fused.block import (
    Amplitude,
    RegisterBlock,
    State,
    parity,
    times_power_of_i,
    walsh,
)
from ketscale.engines.circuits.fused.program import Word
from ketscale.engines.compiled.language import Buffer, Number, fma, fnma


def expectations(block: RegisterBlock, state: State, words: Mapping[int, Word]) -> dict[int, Number]:
    """<psi|P|psi> over the block for words of one X mask, by their numbers, without the signs of base and lanes."""
    x = next(iter(words.values())).x
    move, lanes = block.flip(x)
    if not x:
        classes = walsh([_real(amplitude, 0, amplitude) for amplitude in state])
        return {number: classes[block.within(word.z)] for number, word in words.items()}
    # If vectors move, each pair of them gives the same number twice.
    half = [j for j in range(len(state)) if not move or not j & (move & -move)]
    products = {
        power: [_real(state[j], power, block.moved(state[j ^ move], lanes)) for j in half]
        for power in {word.ys % 2 for word in words.values()}
    }
    values = {}
    for number, word in words.items():
        within, total = block.within(word.z), None
        for j, product in zip(half, products[word.ys % 2], strict=True):
            minus = bool(parity(within & (j ^ move))) ^ (word.ys % 4 in (2, 3))
            if total is None:
                total = -product if minus else product
            else:
                total = total - product if minus else total + product
        assert total is not None
        values[number] = total + total if move else total
    return values


def products(block: RegisterBlock, bra: State, ket: State, words: Mapping[int, Word]) -> dict[int, Number]:
    """Re <bra|P|ket> over the block for words of one X mask, by their numbers, without the signs of base and lanes."""
    move, lanes = block.flip(next(iter(words.values())).x)
    values = {}
    for number, word in words.items():
        within = block.within(word.z)
        terms = []
        for j, q in enumerate(bra):
            power = word.ys + 2 * parity(within & (j ^ move))
            product = _real(q, power % 2, block.moved(ket[j ^ move], lanes))
            terms.append(-product if power % 4 in (2, 3) else product)
        values[number] = sum(terms[1:], terms[0])
    return values


def _real(q: Amplitude, power: int, p: Amplitude) -> Number:
    """Re(conj(q) i**power p) for a power of 0 or 1, which is 0 if amplitudes are real."""
    if isinstance(q, Number) or isinstance(p, Number):
        product: Number = q * p  # type: ignore[assignment]
        return product
    return fnma(q.real, p.imag, q.imag * p.real) if power else fma(q.real, p.real, q.imag * p.imag)


def add_words(
    block: RegisterBlock,
    psi: State,
    image: State | None,
    groups: Sequence[Mapping[int, Word]],
    weights: Buffer,
) -> State:
    """image (None: 0) plus the weighted words applied to psi, one group of words of one X mask after the other."""
    totals: list[Any] = [None] * len(psi) if image is None else list(image)
    for words in groups:
        move, lanes = block.flip(next(iter(words.values())).x)
        fields = {power: _field(block, words, power, lanes, weights) for power in (0, 1)}
        for j in range(len(totals)):
            moved = block.moved(psi[j ^ move], lanes)
            for power, field in fields.items():
                if field is not None:
                    totals[j] = fma(times_power_of_i(power, moved), field[j ^ move], totals[j])
    return totals


def _field(
    block: RegisterBlock, words: Mapping[int, Word], power: int, lanes: int, weights: Buffer
) -> list[Number] | None:
    """The factor of each vector by the words whose power of i is `power` but for a sign; None if there are none."""
    classes: list[Number | None] = [None] * len(block.offsets)
    for number, word in words.items():
        if word.ys % 2 == power:
            weight = block.signed(weights[number], word.z, lanes)
            weight = -weight if word.ys % 4 in (2, 3) else weight
            at = block.within(word.z)
            classes[at] = signed_sum(block, word.z, weight, _or_zero(block, classes[at]))
    if all(value is None for value in classes):
        return None
    return walsh([_or_zero(block, value) for value in classes])


def _or_zero(block: RegisterBlock, value: Number | None) -> Number:
    return block.k.vector(0.0) if value is None else value


def signed_sum(block: RegisterBlock, z: int, value: Number, total: Number) -> Number:
    """total plus `value` times the sign of Z on mask `z` at the block's base."""
    odd = block.base_parity(z)
    if odd is None:
        return total + value
    sign: Number = block.k.table("signs", [1.0, -1.0])[odd].splat()
    signed: Number = fma(sign, value, total)
    return signed
