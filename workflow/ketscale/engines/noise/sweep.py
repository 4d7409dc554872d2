"""The kernels of noisy circuits, which read passes from a table: compiled once for a processor, a sample a lane.

A tile is as many samples as a vector has lanes. Its features make the matrices of all chains; then each pass reads the Pauli
vector from one place and writes it to the next, so that the sweep back finds what cannot be undone. Each sample's arithmetic
is the same in every lane, so its results depend neither on threads nor on the other samples.

Backward, with z = M y in a pass and the adjoint a of z: the adjoint of y is M^T a, and the gradient by M is a y^T, summed over
all other sites. The gradient by a factor T_k of a chain M = T_K ... T_1 is R T_1^T ... T_(k-1)^T with R = T_(k+1)^T ... T_K^T dM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product

from ketscale.engines.compiled.functions import sincos
from ketscale.engines.compiled.language import (
    INTEGER,
    Arguments,
    Buffer,
    FunctionCode,
    Number,
    aligned,
    fma,
    integers,
    lane_sum,
    minimum,
    reals,
    select,
    sqrt,
)

# The fields of a pass: its kind, the chains of its two sites, how many low bits of a place are before each of these, the row of
# its 16 places and factors, the feature of its spread; of a matrix FIRST: how many rows it has, SECOND: where it begins, and ROW:
# where the places of its sites' letters are listed, and after them those of the other sites' letters.
KIND, FIRST, SECOND, FIRST_BITS, SECOND_BITS, ROW, FEATURE, PASS_FIELDS = range(8)
# On two sites with matrices on neither, the first, the second or both; with a spread; a constant matrix.
TWO, SPREAD, MATRIX = 0, 4, 5
# The fields of a feature that is no cosine or sine: its kind, and its columns, of which weights come after inputs.
OTHERS = ("strength", "root", "product")
ROOT, PRODUCT = OTHERS.index("root"), OTHERS.index("product")
OTHER_KIND, OTHER_COLUMN, OTHER_SECOND, OTHER_FIELDS = range(4)
# The fields of a factor: how many features it has, and these.
COUNT, FEATURES, FACTOR_FIELDS = 0, 1, 4
MOST_FEATURES = 3
# A constant matrix is on at most so many sites.
MOST_SITES = 3
# Depolarising of two qubits of strength p multiplies every word but the identity by 1 + p times this.
SPREAD_SLOPE = -16 / 15

ARGUMENTS = {
    "inputs": reals("batch", "input_columns"),
    "weights": reals("weight_columns"),
    "out": reals("batch", "words"),
    "cotangent": reals("batch", "words"),
    "input_gradient": reals("batch", "input_columns"),
    "weight_rows": reals("tiles", "weight_columns"),
    "states": aligned("numbers"),
    "scratch": aligned("workers", "scratch_vectors"),
    "batch tiles size words passes chains factors scratch_vectors": INTEGER,
    "input_columns weight_columns turns others features": INTEGER,
    # Vectors between the states of tiles, and of workers; and whether a pass writes to a place of its own, or to one of two.
    "states_per_tile states_per_worker kept again": INTEGER,
    # Each turn has a cosine, and after these all have sines; then the others follow.
    "turn_columns": integers("turns"),
    "turn_factors": reals("turns"),
    "other_table": integers("others", OTHER_FIELDS),
    "pass_table": integers("passes", PASS_FIELDS),
    "places": integers("rows", 16),
    "pass_factors": reals("rows", 16),
    "chain_table": integers("chains", 2),
    "factor_table": integers("factors", FACTOR_FIELDS),
    "factor_parts": reals("factors", 1 + MOST_FEATURES, 16),
    "matrices": reals("numbers"),
    "matrix_places": integers("numbers"),
    "word_places": integers("words"),
}


Case = Callable[[], None]


@dataclass(frozen=True)
class Tile:
    """A tile that a thread has taken: samples from `first` on, `present` of them.

    number: among all tiles. columns, features: of each sample; column_gradients, gradients: by these. single, products: each
        factor's matrix, and those up to it. slopes: the gradients by the matrices of chains. adjoint: the vector's.
    """

    k: FunctionCode
    args: Arguments
    number: Number
    first: Number
    present: Number
    states: Buffer
    columns: Buffer
    column_gradients: Buffer
    features: Buffer
    gradients: Buffer
    single: Buffer
    products: Buffer
    slopes: Buffer
    adjoint: Buffer

    def state(self, number: Number) -> Buffer:
        """The vector after so many passes."""
        place = select(self.args.kept != 0, number, number & 1)
        return self.states.part((place * self.args.size,), 1)


@contextmanager
def _tiles(k: FunctionCode, args: Arguments) -> Iterator[Tile]:
    """Write the body for each tile that this thread takes."""
    worker = k.worker()
    columns = args.input_columns + args.weight_columns
    columns_of, column_gradients, features, gradients, single, products, slopes, adjoint = args.scratch[worker].split(
        (columns,), (columns,), (args.features,), (args.features,),
        (args.factors, 16), (args.factors, 16), (args.chains, 16), (1,),
    )  # fmt: skip
    with k.tasks(args.tiles) as number:
        first = number * k.lanes
        at = worker * args.states_per_worker + number * args.states_per_tile
        tile = Tile(
            k, args, number, first, minimum(k.lanes, args.batch - first), args.states.part((at,), 1),
            columns_of, column_gradients, features, gradients, single, products, slopes, adjoint,
        )  # fmt: skip
        _read_columns(tile)
        _features(tile)
        _chains(tile)
        yield tile


def _read_columns(tile: Tile) -> None:
    """The samples' inputs, those of the last one in lanes without a sample, and the weights."""
    k, args = tile.k, tile.args
    own = tile.columns.part((), args.input_columns, k.lanes, element="real")
    with k.loop(k.lanes) as lane:
        row = args.inputs[tile.first + minimum(lane, tile.present - 1)]
        with k.each(args.input_columns) as i:
            own[i, lane] = row[i]
    with k.each(args.weight_columns) as i:
        tile.columns[args.input_columns + i] = args.weights[i].splat()


def _features(tile: Tile) -> None:
    """Cosines, sines, strengths, roots and products."""
    k, args, columns, features = tile.k, tile.args, tile.columns, tile.features
    with k.each(args.turns) as i:
        sine, cosine = sincos(columns[args.turn_columns[i]] * args.turn_factors[i])
        features[i], features[args.turns + i] = cosine, sine
    with k.each(args.others) as i:
        row = args.other_table[i]
        first, second = columns[row[OTHER_COLUMN]], columns[row[OTHER_SECOND]]
        strength = select(row[OTHER_KIND] == PRODUCT, first * second, first)
        root = sqrt(k.vector(1.0) - first)
        features[args.turns * 2 + i] = select(row[OTHER_KIND] == ROOT, root, strength)


def _column_gradients(tile: Tile) -> None:
    """The gradients by inputs and weights, from those by features."""
    k, args, columns, features = tile.k, tile.args, tile.columns, tile.features
    totals, slopes = tile.column_gradients, tile.gradients
    with k.when(args.input_columns + args.weight_columns > 0):
        totals.zero(args.input_columns + args.weight_columns)

    def add(column: Number, value: Number) -> None:
        totals[column] = totals[column] + value

    with k.each(args.turns) as i:
        slope = slopes[args.turns + i] * features[i] - slopes[i] * features[args.turns + i]
        add(args.turn_columns[i], slope * args.turn_factors[i])
    with k.each(args.others) as i:
        row, place = args.other_table[i], args.turns * 2 + i
        slope, first, second = slopes[place], row[OTHER_COLUMN], row[OTHER_SECOND]
        by_factor = select(row[OTHER_KIND] == PRODUCT, slope * columns[second], slope)
        # At a strength of 1 the root's own slope is infinite, and often of no consequence.
        by_root = select(slope == 0.0, k.vector(0.0), slope * -0.5 / features[place])
        add(first, select(row[OTHER_KIND] == ROOT, by_root, by_factor))
        with k.when(row[OTHER_KIND] == PRODUCT):
            add(second, slope * columns[first])
    _write(tile, totals, args.input_gradient, args.input_columns)
    row = args.weight_rows[tile.number]
    with k.each(args.weight_columns) as i:
        row[i] = lane_sum(totals[args.input_columns + i]).lane(0)


def _write(tile: Tile, vectors: Buffer, rows: Buffer, count: Number) -> None:
    k = tile.k
    own = vectors.part((), count, k.lanes, element="real")
    with k.loop(tile.present) as sample:
        row = rows[tile.first + sample]
        with k.each(count) as i:
            row[i] = own[i, sample]


def forward(k: FunctionCode, args: Arguments) -> None:
    """The measured words."""
    with _tiles(k, args) as tile:
        _evolve(tile)
        last = tile.state(args.passes)
        own = tile.adjoint
        with k.loop(args.words) as word:
            own[word] = last[args.word_places[word]]
        _write(tile, own, args.out, args.words)


def backward(k: FunctionCode, args: Arguments) -> None:
    """The gradients by inputs and weights."""
    with _tiles(k, args) as tile:
        with k.when(args.again != 0):
            _evolve(tile)
        with k.when(args.features > 0):
            tile.gradients.zero(args.features)
        with k.when(args.chains > 0):
            tile.slopes.zero(args.chains * 16)
        tile.adjoint.zero(args.size)
        with k.loop(tile.present) as sample:
            row = args.cotangent[tile.first + sample]
            own = tile.adjoint.part((), args.size, k.lanes, element="real")
            with k.loop(args.words) as word:
                place = args.word_places[word]
                own[place, sample] = own[place, sample] + row[word]
        with k.when(args.passes > 0), k.loop(args.passes, backwards=True) as number:
            at = (tile, args.pass_table[number], tile.state(number))
            back = partial(_constant_back, *at[:2])
            _by_kind(*at[:2], partial(_two_back, *at), partial(_spread_back, *at), back)
        _chain_gradients(tile)
        _column_gradients(tile)


def _evolve(tile: Tile) -> None:
    """All passes, from |0...0>: the words of Z alone are 1."""
    k, args = tile.k, tile.args
    state = tile.state(k.integer(0))
    with k.loop(args.size) as place:
        # The letters are pairs of bits, 00 for I and 11 for Z.
        odd = (place ^ (place >> 1)) & 0x5555555555555555
        state[place] = select(odd == 0, k.constant(1.0, k.real), k.constant(0.0, k.real)).splat()
    with k.each(args.passes) as number:
        at = (tile, args.pass_table[number], tile.state(number), tile.state(number + 1))
        _by_kind(*at[:2], partial(_two, *at), partial(_spread, *at), partial(_constant, *at))


# --- chains ---


def _matrix(vectors: Buffer) -> list[list[Number]]:
    return [[vectors[4 * i + j] for j in range(4)] for i in range(4)]


def _put(vectors: Buffer, matrix: Sequence[Sequence[Number]]) -> None:
    for i, row in enumerate(matrix):
        for j, entry in enumerate(row):
            vectors[4 * i + j] = entry


def _times(left: Sequence[Sequence[Number]], right: Sequence[Sequence[Number]]) -> list[list[Number]]:
    """A product of 4 x 4 matrices."""
    made: list[list[Number]] = []
    for row in left:
        made.append([])
        for j in range(4):
            total = row[0] * right[0][j]
            for n in range(1, 4):
                total = fma(row[n], right[n][j], total)
            made[-1].append(total)
    return made


def _transposed(matrix: Sequence[Sequence[Number]]) -> list[list[Number]]:
    return [list(column) for column in zip(*matrix, strict=True)]


def _chains(tile: Tile) -> None:
    """The matrix of each factor, and their products."""
    k, args = tile.k, tile.args
    with k.each(args.chains) as chain:
        first = args.chain_table[chain, 0]
        with k.loop(args.chain_table[chain, 1]) as step:
            number = first + step
            parts, single, total = args.factor_parts[number], tile.single[number], tile.products[number]
            for i in range(16):
                single[i] = parts[0, i].splat()
            with k.each(args.factor_table[number, COUNT]) as which:
                feature = tile.features[args.factor_table[number, which + FEATURES]]
                for i in range(16):
                    single[i] = fma(feature, parts[which + 1, i].splat(), single[i])

            def begun(single: Buffer = single, total: Buffer = total) -> None:
                for i in range(16):
                    total[i] = single[i]

            def joined(single: Buffer = single, total: Buffer = total, number: Number = number) -> None:
                _put(total, _times(_matrix(single), _matrix(tile.products[number - 1])))

            k.either(step == 0, begun, joined)


def _chain_gradients(tile: Tile) -> None:
    """The gradients by features, from those by the matrices of chains."""
    k, args = tile.k, tile.args
    with k.each(args.chains) as chain:
        first, count, right = args.chain_table[chain, 0], args.chain_table[chain, 1], tile.slopes[chain]
        with k.loop(count, backwards=True) as step:
            number = first + step
            own = k.local(16)

            def of_first(own: Buffer = own) -> None:
                for i in range(16):
                    own[i] = right[i]

            def of_later(own: Buffer = own, number: Number = number) -> None:
                _put(own, _times(_matrix(right), _transposed(_matrix(tile.products[number - 1]))))

            k.either(step == 0, of_first, of_later)
            with k.each(args.factor_table[number, COUNT]) as which:
                parts, feature = args.factor_parts[number], args.factor_table[number, which + FEATURES]
                total = tile.gradients[feature]
                for i in range(16):
                    total = fma(own[i], parts[which + 1, i].splat(), total)
                tile.gradients[feature] = total
            _put(right, _times(_transposed(_matrix(tile.single[number])), _matrix(right)))


# --- passes ---


def _applied(matrix: Sequence[Sequence[Number]], numbers: Sequence[Number]) -> list[Number]:
    """A chain's matrix on four letters."""
    made = [numbers[0]]
    for row in matrix:
        total = row[0] * numbers[0]
        for entry, number in zip(row[1:], numbers[1:], strict=True):
            total = fma(entry, number, total)
        made.append(total)
    return made


def _applied_back(matrix: Sequence[Sequence[Number]], numbers: Sequence[Number]) -> list[Number]:
    """Its transpose."""
    made = []
    for j in range(4):
        total = matrix[0][j] * numbers[1] if j else fma(matrix[0][j], numbers[1], numbers[0])
        for row, number in zip(matrix[1:], numbers[2:], strict=True):
            total = fma(row[j], number, total)
        made.append(total)
    return made


def _on_first(
    function: Callable[..., list[Number]], matrix: object, x: list[list[Number]]
) -> list[list[Number]]:
    return _transposed([function(matrix, column) for column in _transposed(x)])


def _on_second(
    function: Callable[..., list[Number]], matrix: object, x: list[list[Number]]
) -> list[list[Number]]:
    return [function(matrix, row) for row in x]


def _by_kind(tile: Tile, row: Buffer, two: Callable[..., None], spread: Case, constant: Case) -> None:
    """The code of a pass's kind. two: takes whether the sites have matrices."""
    cases: dict[int, Case] = {SPREAD: spread, MATRIX: constant}
    for first, second in product((False, True), repeat=2):
        cases[TWO + first + 2 * second] = partial(two, first=first, second=second)
    tile.k.switch(row[KIND], cases)


@contextmanager
def _groups(tile: Tile, row: Buffer) -> Iterator[tuple[list[list[Number]], Number]]:
    """Write the body for each 16 numbers of two sites: their places, and the first one."""
    k = tile.k
    one, other = row[FIRST_BITS], row[SECOND_BITS]
    with k.loop(tile.args.size >> 4) as index:
        base = index
        for low in (minimum(one, other), select(one < other, other, one)):
            base = base + ((base >> low) * 3 << low)  # a letter I at the site
        letters = [k.integer(letter) for letter in range(4)]
        yield [[base + (i << one) + (j << other) for j in letters] for i in letters], base


def _matrices(tile: Tile, row: Buffer, first: bool, second: bool) -> list[list[list[Number]] | None]:
    """The matrices of a pass's sites, without their first rows (1, 0, 0, 0); None where a site has none."""
    matrices: list[list[list[Number]] | None] = []
    for field, there in ((FIRST, first), (SECOND, second)):
        last = tile.args.chain_table[row[field], 0] + tile.args.chain_table[row[field], 1] - 1
        matrices.append(_matrix(tile.products[last])[1:] if there else None)
    return matrices


def _two(tile: Tile, row: Buffer, source: Buffer, target: Buffer, first: bool, second: bool) -> None:
    """Forward, matrices on two sites, a permutation and factors."""
    places_row, factors = tile.args.places[row[ROW]], tile.args.pass_factors[row[ROW]]
    matrices = _matrices(tile, row, first, second)
    with _groups(tile, row) as (places, base):
        x = [[source[place] for place in each] for each in places]
        if first:
            x = _on_first(_applied, matrices[0], x)
        if second:
            x = _on_second(_applied, matrices[1], x)
        for number, value in enumerate(value for each in x for value in each):
            target[base + places_row[number]] = value * factors[number].splat()


def _two_back(tile: Tile, row: Buffer, source: Buffer, first: bool, second: bool) -> None:
    """Backward; each chain is in one pass, whose sums are its slopes."""
    k, adjoint = tile.k, tile.adjoint
    places_row, factors = tile.args.places[row[ROW]], tile.args.pass_factors[row[ROW]]
    matrices = _matrices(tile, row, first, second)
    slopes = [k.variable([[k.vector(0.0)] * 4 for _ in range(3)]) for _ in matrices]
    with _groups(tile, row) as (places, base):
        flat = [adjoint[base + places_row[n]] * factors[n].splat() for n in range(16)]
        a = [flat[4 * i : 4 * i + 4] for i in range(4)]
        x = [[source[place] for place in each] for each in places] if first or second else []
        if second:
            y = _on_first(_applied, matrices[0], x) if first else x
            slopes[1].value = _added(a, y, slopes[1].value)
            a = _on_second(_applied_back, matrices[1], a)
        if first:
            slopes[0].value = _added(_transposed(a), _transposed(x), slopes[0].value)
            a = _on_first(_applied_back, matrices[0], a)
        for each, values in zip(places, a, strict=True):
            for place, value in zip(each, values, strict=True):
                adjoint[place] = value
    for field, matrix, own in zip((FIRST, SECOND), matrices, slopes, strict=True):
        for i, each in enumerate(own.value if matrix is not None else ()):
            for j, number in enumerate(each):
                tile.slopes[row[field]][4 * (i + 1) + j] = number


def _added(
    a: Sequence[Sequence[Number]], x: Sequence[Sequence[Number]], slopes: Sequence[Sequence[Number]]
) -> list[list[Number]]:
    """The gradients by a matrix on the second letters, without its first row, of which a and x are adjoint and input."""
    # Sum by sum, so that few numbers are in registers at a time.
    sums = [list(each) for each in slopes]
    for j, n in product(range(3), range(4)):
        for adjoint, letters in zip(a, x, strict=True):
            sums[j][n] = fma(adjoint[j + 1], letters[n], sums[j][n])
    return sums


def _spread(tile: Tile, row: Buffer, source: Buffer, target: Buffer) -> None:
    k = tile.k
    factor = fma(tile.features[row[FEATURE]], k.vector(SPREAD_SLOPE), k.vector(1.0))
    with _groups(tile, row) as (places, _):
        for number, place in enumerate(place for each in places for place in each):
            target[place] = source[place] * factor if number else source[place]


def _spread_back(tile: Tile, row: Buffer, source: Buffer) -> None:
    k, adjoint, slope = tile.k, tile.adjoint, tile.k.vector(SPREAD_SLOPE)
    factor = fma(tile.features[row[FEATURE]], slope, k.vector(1.0))
    total = k.variable(k.vector(0.0))
    with _groups(tile, row) as (places, _):
        for number, place in enumerate(place for each in places for place in each):
            if number:
                total.value = fma(adjoint[place], source[place], total.value)
                adjoint[place] = adjoint[place] * factor
    tile.gradients[row[FEATURE]] = fma(total.value, slope, tile.gradients[row[FEATURE]])


def _constant(tile: Tile, row: Buffer, source: Buffer, target: Buffer, transposed: bool = False) -> None:
    """A constant matrix on some sites."""
    k, args, size = tile.k, tile.args, row[FIRST]
    matrix = args.matrices.part((row[SECOND],), 1)
    places = args.matrix_places.part((row[ROW],), 1)
    others = args.matrix_places.part((row[ROW] + size,), 1)
    with k.loop(args.size // size) as number:
        base = others[number]
        with k.loop(size) as i:
            total = k.variable(k.vector(0.0))
            with k.loop(size) as j:
                entry = matrix[j * size + i] if transposed else matrix[i * size + j]
                total.value = fma(entry.splat(), source[base + places[j]], total.value)
            target[base + places[i]] = total.value


def _constant_back(tile: Tile, row: Buffer) -> None:
    """The adjoint by way of the vector after the last pass, whose place is free by now."""
    k, args = tile.k, tile.args
    free = tile.state(args.passes)
    _constant(tile, row, tile.adjoint, free, transposed=True)
    with k.loop(args.size) as place:
        tile.adjoint[place] = free[place]
