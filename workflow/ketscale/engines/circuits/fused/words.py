"""Pauli words on a block of states: their expectation values, and their sum applied to a state."""

from __future__ import annotations

from collections.abc import Sequence

from ketscale.engines.circuits.fused.block import RegisterBlock, State, parity, walsh
from ketscale.engines.circuits.fused.program import Word
from ketscale.engines.compiled.vector import Value, Writer


def expectations(
    w: Writer, block: RegisterBlock, state: State, group: Sequence[tuple[int, Word]]
) -> list[Value]:
    """<psi|P|psi> over the block for words of one X mask, without the signs of base and lanes."""
    x = group[0][1].x
    move, lanes = block.flip(x)
    if not x:
        products = [w.fma(re, re, None if im is None else w.b.fmul(im, im)) for re, im in state]
        classes = walsh(w, products)
        return [classes[block.within(word.z)] for _, word in group]
    values = []
    half = [j for j in range(len(state)) if not move or not j & (move & -move)]
    kinds: dict[int, list[Value]] = {}
    for odd in {word.ys % 2 for _, word in group}:
        kinds[odd] = []
        for j in half:
            q_re, q_im = state[j]
            p_re, p_im = (block.moved(part, lanes) for part in state[j ^ move])
            if odd:  # -Im(conj(q) p)
                kinds[odd].append(w.fma(q_re, p_im, w.b.fmul(q_im, p_re), negate=True))
            else:  # Re(conj(q) p)
                kinds[odd].append(w.fma(q_re, p_re, None if q_im is None else w.b.fmul(q_im, p_im)))
    for _, word in group:
        within, total = block.within(word.z), None
        for j, value in zip(half, kinds[word.ys % 2], strict=True):
            minus = bool(parity(within & (j ^ move))) ^ (word.ys % 4 in (2, 3))
            if total is None:
                total = w.b.fneg(value) if minus else value
            else:
                total = w.b.fsub(total, value) if minus else w.b.fadd(total, value)
        values.append(w.b.fadd(total, total) if move else total)
    return values


def add_words(
    w: Writer,
    block: RegisterBlock,
    psi: State,
    image: State,
    group: Sequence[tuple[int, Word]],
    weights: Value,
) -> State:
    """image plus the weighted words of one X mask applied to psi."""
    move, lanes = block.flip(group[0][1].x)
    fields: list[list[Value]] = []
    for odd in (0, 1):
        classes: list[Value] = [None] * len(psi)
        for i, word in group:
            if word.ys % 2 != odd:
                continue
            value = w.load(w.at(weights, i))
            signs = block.lane_signs(word.z, lanes)
            value = value if signs is None else w.b.fmul(value, signs)
            value = w.b.fneg(value) if word.ys % 4 in (2, 3) else value
            at = block.within(word.z)
            zero = w.constant(0.0) if classes[at] is None else classes[at]
            classes[at] = signed_sum(w, block, word.z, value, zero)
        if all(value is None for value in classes):
            fields.append([None] * len(psi))
        else:
            fields.append(walsh(w, [w.constant(0.0) if value is None else value for value in classes]))
    result: State = []
    for j, (re, im) in enumerate(image):
        p_re, p_im = (block.moved(part, lanes) for part in psi[j ^ move])
        even, odd_field = fields[0][j ^ move], fields[1][j ^ move]
        if even is not None:
            re = w.fma(even, p_re, re)
            im = None if p_im is None else w.fma(even, p_im, im)
        if odd_field is not None:  # times i
            re = w.fma(odd_field, p_im, re, negate=True)
            im = w.fma(odd_field, p_re, im)
        result.append((re, im))
    return result


def signed_sum(w: Writer, block: RegisterBlock, z: int, value: Value, total: Value) -> Value:
    """total plus `value` times the sign of Z on mask `z` at the block's base."""
    odd = block.base_parity(z)
    if odd is None:
        return w.b.fadd(total, value)
    signs = w.table("signs", w.real, [1.0, -1.0])
    return w.fma(w.load_splat(w.element(signs, odd)), value, total)
