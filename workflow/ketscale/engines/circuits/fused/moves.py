"""Moves a tile's amplitudes in place: some are multiplied by phases, then pairs are exchanged one after the other."""

from __future__ import annotations

from typing import NamedTuple

from ketscale.engines.compiled.language import Buffer, Complex, FunctionCode, Number, Operand


class MoveTable(NamedTuple):
    """A move as a kernel reads it; see `program.Move`.

    places: the basis states (multiplied,) that are multiplied, by factors (multiplied, 2), real and imaginary parts.
    swaps: the basis states (swapped, 2) that are exchanged.
    """

    places: Buffer
    factors: Buffer
    multiplied: Operand
    swaps: Buffer
    swapped: Operand


class _Amplitudes:
    """A tile's state by basis states: a vector of each, or with `lane_bits` a sample's number of each."""

    def __init__(self, k: FunctionCode, state: Buffer, lane_bits: Operand, sample: Number | None) -> None:
        self._state, self._lane_bits, self._sample = state, lane_bits, sample
        self._complex = state.element == "complex vector"
        self._floats = state.part((), 1, 1 + self._complex, k.lanes, element="real")

    def _at(self, place: Number) -> tuple[Number, Number]:
        assert self._sample is not None
        vector = place >> self._lane_bits
        return vector, place - (vector << self._lane_bits) + (self._sample << self._lane_bits)

    def __getitem__(self, place: Number) -> Number | Complex:
        if self._sample is None:
            vectors: Number | Complex = self._state[place]
            return vectors
        vector, lane = self._at(place)
        real: Number = self._floats[vector, 0, lane]
        return Complex(real, self._floats[vector, 1, lane]) if self._complex else real

    def __setitem__(self, place: Number, value: Number | Complex) -> None:
        if self._sample is None:
            self._state[place] = value
            return
        vector, lane = self._at(place)
        for part, number in enumerate((value.real, value.imag) if isinstance(value, Complex) else (value,)):
            self._floats[vector, part, lane] = number


def move(k: FunctionCode, table: MoveTable, state: Buffer, lane_bits: Number, samples: Operand) -> None:
    """Move the amplitudes of a state.

    lane_bits: of a basis index, that are in a vector's lanes. samples: in a tile, if there are such bits.
    """

    def of_samples() -> None:
        with k.loop(samples) as sample:
            _move(k, table, _Amplitudes(k, state, lane_bits, sample))

    def whole() -> None:
        _move(k, table, _Amplitudes(k, state, 0, None))

    k.either(lane_bits > 0, of_samples, whole)


def _move(k: FunctionCode, table: MoveTable, amplitudes: _Amplitudes) -> None:
    with k.each(table.multiplied) as i:
        place, real, imag = table.places[i], table.factors[i, 0], table.factors[i, 1]
        amplitude = amplitudes[place]
        if isinstance(amplitude, Complex):
            amplitudes[place] = Complex(
                amplitude.real * real - amplitude.imag * imag, amplitude.real * imag + amplitude.imag * real
            )
        else:
            amplitudes[place] = amplitude * real
    with k.each(table.swapped) as i:
        first, second = table.swaps[i, 0], table.swaps[i, 1]
        one, other = amplitudes[first], amplitudes[second]
        amplitudes[first], amplitudes[second] = other, one
