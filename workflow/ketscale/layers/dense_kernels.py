"""The compiled code of `dense`: products of matrices with bias, ReLU, dropout and tanh, and their gradients.

Sums run over their terms one after the other, so a number does not depend on the batch, on other runs, on threads or on
the width of the processor's vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import torch

from ketscale.engines import randomness
from ketscale.engines.compiled.functions import tanh
from ketscale.engines.compiled.kernel import Kernel
from ketscale.engines.compiled.language import (
    INTEGER,
    Arguments,
    Buffer,
    FunctionCode,
    Lanes,
    Number,
    Operand,
    ceil_divided,
    chunk,
    doubles,
    fma,
    integers,
    maximum,
    minimum,
    reals,
    select,
)
from ketscale.engines.compiled.library import Library, vector_bytes
from ketscale.layers import masks
from ketscale.layers.masks import LANES, folded, row_of_mask

# What a layer is, in a row of the table: sizes; the number of its dropout, and the least number that this keeps; and the
# addresses of its weights, of their transpose, inputs (rows, inputs), outputs (rows, outputs), and the gradients by the last
# two. That by the inputs is 0 where it is not wanted.
FIELDS = ("inputs", "outputs", "dropout", "threshold", "transpose", "source", "out", "to_source", "to_out")
# rows, row_blocks: of each run. columns: blocks of a tile's vectors in the widest layer's inputs. tanh: 0 or 1, and
# cotangent is the gradient by its values. starts: what the keys of a run's masks begin with. places: the addresses of each
# layer's weights and biases; how far those of two runs are apart; and the same of the gradients by them.
ARGUMENTS = {
    "runs rows layers tanh row_blocks columns step": INTEGER,
    "table": integers("layers", len(FIELDS)),
    "places": integers(4, "layers", 2),
    "scales": doubles("layers"),
    "starts": integers("runs"),
    "samples": integers("all_rows"),
    "cotangent": reals("all_rows"),
}

# As many vectors stay in a core's nearest cache; and as many rows are a task.
CHUNK_ROWS, TASK_ROWS = 256, 32


class Tile(NamedTuple):
    """How many rows, and vectors of each, are in registers while a product is summed up."""

    rows: int
    vectors: int


class Layer:
    """A row of the table, in code that is being written."""

    def __init__(self, k: FunctionCode, args: Arguments, number: Number) -> None:
        self._k, self._args, self.number = k, args, number
        read = {name: args.table[number, place] for place, name in enumerate(FIELDS)}
        self.inputs, self.outputs, self.threshold = read["inputs"], read["outputs"], read["threshold"]
        self.dropout = read["dropout"]
        self.wants_source = read["to_source"] != 0
        self._read = read

    def rows(self, name: str, run: Number) -> Buffer:
        """The run's rows of `source`, `out`, or the gradients by them."""
        width = self.inputs if name.endswith("source") else self.outputs
        return self._at(self._read[name], 1, width).part((run * self._args.rows, 0), 1, width)

    def transpose(self, run: Number) -> Buffer:
        """The run's weights, (vectors of outputs, inputs) vectors; after the last output, it is repeated."""
        vectors = ceil_divided(self.outputs, LANES)
        every = self._k.array_at(self._read["transpose"], "vector", 1, vectors, self.inputs)
        return every.part((run, 0, 0), 1, self.inputs)

    def own(self, name: str, run: Number) -> Buffer:
        """The run's `weight`, `bias`, `to_weight` or `to_bias`."""
        row, column = 2 * name.startswith("to_"), int(name.endswith("bias"))
        address, stride = (self._args.places[row + own, self.number, column] for own in range(2))
        flat = self._at(address, 1).part((run * stride,), 1)
        return flat if column else flat.part((), 1, self.inputs)

    def _at(self, address: Number, *shape: Any) -> Buffer:
        return self._k.array_at(address, "real", *shape)


# A place in a row: where a vector begins, or the numbers of its lanes.
Place: TypeAlias = Number | Lanes


def get(rows: Buffer, row: Any, place: Place) -> Number:
    """The vector at a place in a row."""
    value: Number = rows[row, place] if isinstance(place, Lanes) else _vector(rows, row, place)[0]
    return value


def store(rows: Buffer, row: Any, place: Place, value: Number) -> None:
    """Write the vector at a place in a row."""
    if isinstance(place, Lanes):
        rows[row, place] = value
    else:
        _vector(rows, row, place)[0] = value


def _vector(rows: Buffer, row: Any, place: Number) -> Buffer:
    return rows.part((row, place), 1, element="vector")


def each_place(
    k: FunctionCode, width: Number, most: int, body: Callable[[list[Place], Number], None]
) -> None:
    """Write the body for up to `most` places at a time in rows of a width, and the number of the first vector."""
    vectors = width // LANES
    several = vectors // most
    with k.each(several) as group:
        first = group * most
        body([(first + number) * LANES for number in range(most)], first)
    for number in range(most - 1):
        with k.when(several * most + number < vectors):
            first = several * most + number
            body([first * LANES], first)
    with k.when(vectors * LANES < width):
        lanes, _ = k.lanes_of(vectors, width)
        body([lanes], vectors)


def summed(
    k: FunctionCode,
    terms: Number,
    before: list[list[Number]],
    factor: Callable[[Number, int], Number],
    vector: Callable[[Number, int], Number],
) -> list[list[Number]]:
    """For each row the sums of factor * vector over the terms, in their order, added to those before."""
    sums = k.variable(before)
    with k.loop(terms) as term:
        each = [vector(term, number) for number in range(len(before[0]))]
        factors = [factor(term, row).splat() for row in range(len(before))]
        sums.value = [
            [fma(own, one, total) for one, total in zip(each, totals, strict=True)]
            for own, totals in zip(factors, sums.value, strict=True)
        ]
    numbers: list[list[Number]] = sums.value
    return numbers


@contextmanager
def tiles(k: FunctionCode, first: Number, count: Number, tile: Tile) -> Iterator[list[Number]]:
    """Write the body for the rows of each tile of a chunk of rows; the last one is repeated."""
    with k.loop(ceil_divided(count, tile.rows)) as number:
        yield [first + own for own in block_of(count, number, tile.rows)]


def block_of(count: Number, block: Number, size: int) -> list[Number]:
    """The numbers of a block, of which there are `count`; the last one is repeated."""
    return [minimum(block * size + number, count - 1) for number in range(size)]


def write_transpose(k: FunctionCode, args: Arguments, tile: Tile) -> None:
    """transpose <- weights, with outputs side by side."""
    with k.loop(args.runs) as run, k.loop(args.layers) as number:
        layer = Layer(k, args, number)
        weight, transpose = layer.own("weight", run), layer.transpose(run)
        with k.loop(ceil_divided(layer.outputs, LANES)) as vector:
            outputs = Lanes(block_of(layer.outputs, vector, LANES))
            groups = layer.inputs // LANES
            with k.each(groups) as group:
                columns = [get(weight, output, group * LANES) for output in outputs]
                for lane, row in enumerate(transposed(columns)):
                    transpose[vector, group * LANES + lane] = row
            with k.when(groups * LANES < layer.inputs), k.loop(layer.inputs - groups * LANES) as own:
                place = groups * LANES + own
                transpose[vector, place] = weight[outputs, place]


def transposed(rows: Sequence[Number]) -> list[Number]:
    """The columns of as many vectors as they have lanes."""
    lanes, mixed, distance = range(len(rows)), list(rows), 1
    while distance < len(rows):
        low = [j if not j & distance else (j ^ distance) + len(rows) for j in lanes]
        high = [j | distance if not j & distance else j + len(rows) for j in lanes]
        mixed = [
            mixed[row].shuffled(low, mixed[row | distance])
            if not row & distance
            else mixed[row ^ distance].shuffled(high, mixed[row])
            for row in lanes
        ]
        distance *= 2
    return mixed


def write_forward(k: FunctionCode, args: Arguments, tile: Tile) -> None:
    """out <- mask * relu(source weight^T + bias), which leaves a NaN one; of the last layer, source weight^T + bias."""
    with k.tasks(args.runs * args.row_blocks) as task:
        run = task // args.row_blocks
        first_row, count = chunk(task % args.row_blocks, TASK_ROWS, args.rows)
        with k.loop(args.layers) as number:
            layer = Layer(k, args, number)
            source, out, transpose = layer.rows("source", run), layer.rows("out", run), layer.transpose(run)
            bias = layer.own("bias", run).part((), 1, 1)
            scale = args.scales[number].as_float()
            key = folded(folded(args.starts[run], args.step), layer.dropout)

            def body(places: list[Place], first: Number) -> None:
                with tiles(k, first_row, count, tile) as rows:
                    sums = summed(
                        k,
                        layer.inputs,
                        [[k.vector(0.0)] * len(places) for _ in rows],
                        lambda term, row: source[rows[row], term],
                        lambda term, vector: transpose[first + vector, term],
                    )
                    biases = [get(bias, 0, place) for place in places]

                    def hidden() -> None:
                        for row, totals in zip(rows, sums, strict=True):
                            sample = args.samples[run * args.rows + row]
                            mask = row_of_mask(k, sample, key, layer.threshold, scale)
                            for vector, (place, own, total) in enumerate(
                                zip(places, biases, totals, strict=True)
                            ):
                                store(out, row, place, maximum(0.0, total + own) * mask(first + vector))

                    def last() -> None:
                        for row, totals in zip(rows, sums, strict=True):
                            for place, own, total in zip(places, biases, totals, strict=True):
                                value = total + own
                                store(out, row, place, value)
                                with k.when(args.tanh != 0):
                                    store(out, row, place, tanh(value))

                    k.either(number < args.layers - 1, hidden, last)

            each_place(k, layer.outputs, tile.vectors, body)


def write_back(k: FunctionCode, args: Arguments, tile: Tile) -> None:
    """The gradients by each layer's inputs, and so by the outputs of the one before, without bias and ReLU."""
    with k.tasks(args.runs * args.row_blocks) as task:
        run = task // args.row_blocks
        first_row, count = chunk(task % args.row_blocks, TASK_ROWS, args.rows)
        last = Layer(k, args, args.layers - 1)

        def through_tanh(places: list[Place], first: Number) -> None:
            cotangent = args.cotangent.part((), 1, last.outputs).part((run * args.rows, 0), 1, last.outputs)
            out, to_out = last.rows("out", run), last.rows("to_out", run)
            with k.loop(count) as own:
                row = first_row + own
                for place in places:
                    value = get(out, row, place)
                    store(to_out, row, place, get(cotangent, row, place) * (1.0 - value * value))

        with k.when(args.tanh != 0):
            each_place(k, last.outputs, 1, through_tanh)
        with k.loop(args.layers, backwards=True) as number:
            layer = Layer(k, args, number)
            source, weight = layer.rows("source", run), layer.own("weight", run)
            to_out, to_source = layer.rows("to_out", run), layer.rows("to_source", run)

            def body(places: list[Place], first: Number) -> None:
                with tiles(k, first_row, count, tile) as rows:
                    sums = summed(
                        k,
                        layer.outputs,
                        [[k.vector(0.0)] * len(places) for _ in rows],
                        lambda term, row: to_out[rows[row], term],
                        lambda term, vector: get(weight, term, places[vector]),
                    )

                    def hidden() -> None:
                        scale = args.scales[number - 1].as_float().splat()
                        for row, totals in zip(rows, sums, strict=True):
                            for place, total in zip(places, totals, strict=True):
                                # A value is not positive if its unit was off or its mask was 0. Nothing is drawn.
                                off = get(source, row, place) <= 0.0
                                store(to_source, row, place, select(off, 0.0, total * scale))

                    def first_layer() -> None:
                        for row, totals in zip(rows, sums, strict=True):
                            for place, total in zip(places, totals, strict=True):
                                store(to_source, row, place, total)

                    k.either(number > 0, hidden, first_layer)

            with k.when(layer.wants_source):
                each_place(k, layer.inputs, tile.vectors, body)


def write_gradients(k: FunctionCode, args: Arguments, tile: Tile) -> None:
    """to_weight <- to_out^T source; to_bias <- the sum of to_out over the rows. Threads share the columns."""
    most, several = tile
    panel, total = k.local(CHUNK_ROWS, several), k.variable(k.vector(0.0))
    with k.tasks(args.runs * args.columns) as task, k.loop(args.layers) as number:
        run, column, layer = task // args.columns, task % args.columns, Layer(k, args, number)
        source, to_out = layer.rows("source", run), layer.rows("to_out", run)
        to_weight, to_bias = layer.own("to_weight", run), layer.own("to_bias", run).part((), 1, 1)

        def products(places: list[Place]) -> None:
            with k.loop(ceil_divided(args.rows, CHUNK_ROWS)) as part:
                first, count = chunk(part, CHUNK_ROWS, args.rows)
                # Rows of a wide source are so far apart that they are in each other's way in a cache.
                with k.loop(count) as row:
                    for vector, place in enumerate(places):
                        panel[row, vector] = get(source, first + row, place)
                blocks = layer.outputs // most

                def block(number: Operand, owns: Sequence[Any]) -> None:
                    base = number * most
                    outputs = [base + own for own in owns]
                    before = [
                        [select(first == 0, 0.0, get(to_weight, each, place)) for place in places]
                        for each in outputs
                    ]
                    sums = summed(
                        k,
                        count,
                        before,
                        lambda row, own: to_out.part((first + row, base), most)[owns[own]],
                        lambda row, vector: panel[row, vector],
                    )
                    for output, totals in zip(outputs, sums, strict=True):
                        for place, each in zip(places, totals, strict=True):
                            store(to_weight, output, place, each)

                with k.each(blocks) as each:
                    block(each, range(most))
                with k.when(blocks * most < layer.outputs):
                    block(blocks, block_of(layer.outputs - blocks * most, k.integer(0), most))

        def biases(places: list[Place], first: Number) -> None:
            total.value = k.vector(0.0)
            with k.loop(args.rows) as row:
                total.value += get(to_out, row, places[0])
            store(to_bias, 0, places[0], total.value)

        first_vector, vectors = column * several, layer.inputs // LANES
        all_there = first_vector + several <= vectors
        with k.when(all_there):
            products([(first_vector + own) * LANES for own in range(several)])
        for own in range(several - 1):
            with k.when(~all_there & (first_vector + own < vectors)):
                products([(first_vector + own) * LANES])
        with k.when((column == vectors // several) & (vectors * LANES < layer.inputs)):
            products([k.lanes_of(vectors, layer.inputs)[0]])
        with k.when(column == 0):
            each_place(k, layer.outputs, 1, biases)


def write_all_forward(k: FunctionCode, args: Arguments, tile: Tile) -> None:
    """One call instead of two, if there is one thread."""
    k.call("write_transpose")
    k.call("write_forward")


def write_all_back(k: FunctionCode, args: Arguments, tile: Tile) -> None:
    """One call instead of two, if there is one thread."""
    k.call("write_back")
    k.restart_tasks()
    k.call("write_gradients")


@cache
def compiled(dtype: torch.dtype) -> tuple[Library, Tile]:
    """The functions, for tiles with as many sums as there are registers for."""
    each = LANES * dtype.itemsize // vector_bytes()
    # AVX2 has 16, AVX-512 and NEON have 32.
    registers = 16 if vector_bytes() == 32 else 32
    tile = Tile(8, 2 // each) if vector_bytes() == 64 else Tile((registers - each - 1) // each, 1)
    parts = write_transpose, write_forward, write_back, write_gradients
    functions, sources = (*parts, write_all_forward, write_all_back), (masks, randomness)
    return Kernel(functions, ARGUMENTS, dtype, LANES, tile, sources).library, tile
