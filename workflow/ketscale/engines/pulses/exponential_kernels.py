"""Writes the machine code for exponentials exp(-i H) of small Hermitian matrices and their gradients, one a lane."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from ketscale.engines.compiled.vector import I32, Value, Writer

ARGUMENTS = (
    "next_group",  # counter, 0 at the start
    "count", "degree",
    "given", "cotangents", "result",  # complex (count, d, d)
)  # fmt: skip

# The highest degree of the Taylor polynomial: enough for matrices of norm 1.
HIGHEST_DEGREE = 18

Complex = tuple[Value, Value]
Matrix = list[list[Complex]]


def module(levels: int, lanes: int) -> ir.Module:
    """The functions `exponential` and `gradient`, which take the address of `ARGUMENTS`."""
    written = ir.Module("ketscale_exponentials")
    _Function(written, "exponential", levels, lanes).exponential()
    _Function(written, "gradient", levels, lanes).gradient()
    return written


class _Function:
    """Writes one of the functions. X is -i times the given Hermitian matrix.

    The exponential is R_0 of Horner's rule R_(k-1) = 1 + X R_k / k, which starts from R_degree = 1.
    """

    def __init__(self, module: ir.Module, name: str, levels: int, lanes: int) -> None:
        self.w = Writer(module, name, lanes, double=True)
        self.levels = levels
        self.count, self.degree = (self.w.argument(ARGUMENTS.index(each)) for each in ("count", "degree"))
        self.inverses = self.w.table("inverses", self.w.real, [1 / k for k in range(1, HIGHEST_DEGREE + 1)])

    def exponential(self) -> None:
        """R_0 of each matrix."""
        now = _Variable(self.w, self.levels)
        with self._groups():
            x = self._given()
            now.set(self._identity())
            with self.w.loop(self.degree) as done:
                k = self.w.b.sub(self.degree, done)
                now.set(self._horner(x, now.get(), self._inverse(k)))
            self._scatter(now.get())

    def gradient(self) -> None:
        """The Hermitian part of the gradient by the given matrix."""
        w, b = self.w, self.w.b
        now, adjoint, total = (_Variable(w, self.levels) for _ in range(3))
        stride = 2 * self.levels**2
        terms = b.alloca(w.vector, size=stride * HIGHEST_DEGREE)
        with self._groups():
            x = self._given()
            now.set(self._identity())
            with w.loop(self.degree) as done:
                k = b.sub(self.degree, done)
                place = w.at(terms, b.mul(b.sub(k, w.integer(1)), w.integer(stride)))
                self._store(now.get(), place)
                now.set(self._horner(x, now.get(), self._inverse(k)))
            adjoint.set(self._gather("cotangents"))
            total.zero()
            with w.loop(self.degree) as before:
                place = w.at(terms, b.mul(before, w.integer(stride)))
                factor = self._inverse(b.add(before, w.integer(1)))
                scaled = [[(b.fmul(u, factor), b.fmul(v, factor)) for u, v in row] for row in adjoint.get()]
                total.set(self._product(scaled, _conjugate_transpose(w, self._load(place)), total.get()))
                # The conjugate transpose of X is -X.
                negative = [[(b.fneg(u), b.fneg(v)) for u, v in row] for row in scaled]
                adjoint.set(self._product(x, negative))
            found, half = total.get(), w.constant(0.5)
            # i times the gradient by X, and its Hermitian part.
            turned = [[(b.fneg(v), u) for u, v in row] for row in found]
            other = _conjugate_transpose(w, turned)
            self._scatter(
                [
                    [
                        (b.fmul(half, b.fadd(p[0], q[0])), b.fmul(half, b.fadd(p[1], q[1])))
                        for p, q in zip(*rows, strict=True)
                    ]
                    for rows in zip(turned, other, strict=True)
                ]
            )

    def _inverse(self, k: Value) -> Value:
        """1 / k."""
        return self.w.load_splat(self.w.element(self.inverses, self.w.b.sub(k, self.w.integer(1))))

    def _identity(self) -> Matrix:
        one, zero = self.w.constant(1.0), self.w.constant(0.0)
        size = range(self.levels)
        return [[(one if i == j else zero, zero) for j in size] for i in size]

    def _horner(self, x: Matrix, now: Matrix, inverse: Value) -> Matrix:
        b = self.w.b
        scaled = [[(b.fmul(u, inverse), b.fmul(v, inverse)) for u, v in row] for row in now]
        return self._product(x, scaled, self._identity())

    def _product(self, left: Matrix, right: Matrix, start: Matrix | None = None) -> Matrix:
        w = self.w
        made: Matrix = []
        for i, row in enumerate(left):
            made.append([])
            for j in range(self.levels):
                real, imaginary = (None, None) if start is None else start[i][j]
                for k, (u, v) in enumerate(row):
                    x, y = right[k][j]
                    real = w.fma(v, y, w.fma(u, x, real), negate=True)
                    imaginary = w.fma(v, x, w.fma(u, y, imaginary))
                made[i].append((real, imaginary))
        return made

    # --- matrices in memory ---

    @contextmanager
    def _groups(self) -> Iterator[None]:
        """The vectors of matrices that a thread takes; the lanes after the last matrix repeat it."""
        w, b = self.w, self.w.b
        groups = b.udiv(b.add(self.count, w.integer(w.lanes - 1)), w.integer(w.lanes))
        last = b.sub(self.count, w.integer(1))
        with w.taken(w.argument_address(ARGUMENTS.index("next_group")), groups) as group:
            first = b.mul(group, w.integer(w.lanes))
            numbers = [b.add(first, w.integer(lane)) for lane in range(w.lanes)]
            self._numbers = [b.select(b.icmp_unsigned("<", each, last), each, last) for each in numbers]
            yield

    def _addresses(self, name: str) -> list[Value]:
        base = self.w.argument(ARGUMENTS.index(name), pointer=True)
        size = self.w.integer(2 * self.levels**2)
        return [self.w.element(base, self.w.b.mul(number, size)) for number in self._numbers]

    def _gather(self, name: str) -> Matrix:
        addresses, w = self._addresses(name), self.w

        def vector(index: int) -> Value:
            made = ir.Constant(w.vector, ir.Undefined)
            for lane, base in enumerate(addresses):
                made = w.b.insert_element(made, w.load_real(w.element(base, index)), ir.Constant(I32, lane))
            return made

        d = self.levels
        return [[(vector(2 * (i * d + j)), vector(2 * (i * d + j) + 1)) for j in range(d)] for i in range(d)]

    def _given(self) -> Matrix:
        """X."""
        return [[(v, self.w.b.fneg(u)) for u, v in row] for row in self._gather("given")]

    def _scatter(self, matrix: Matrix) -> None:
        w, addresses = self.w, self._addresses("result")
        for index, vector in enumerate(part for row in matrix for entry in row for part in entry):
            for lane, base in enumerate(addresses):
                value = w.b.extract_element(vector, ir.Constant(I32, lane))
                w.b.store(value, w.element(base, index), align=w.bytes)

    def _store(self, matrix: Matrix, place: Value) -> None:
        for number, vector in enumerate(part for row in matrix for entry in row for part in entry):
            self.w.store(vector, self.w.at(place, number))

    def _load(self, place: Value) -> Matrix:
        d, w = self.levels, self.w
        flat = [w.load(w.at(place, number)) for number in range(2 * d * d)]
        return [[(flat[2 * (i * d + j)], flat[2 * (i * d + j) + 1]) for j in range(d)] for i in range(d)]


def _conjugate_transpose(w: Writer, matrix: Matrix) -> Matrix:
    size = range(len(matrix))
    return [[(matrix[j][i][0], w.b.fneg(matrix[j][i][1])) for j in size] for i in size]


class _Variable:
    """A matrix that loops change; LLVM keeps it in registers where it can."""

    def __init__(self, w: Writer, size: int) -> None:
        self.w = w
        self._at = [[(w.b.alloca(w.vector), w.b.alloca(w.vector)) for _ in range(size)] for _ in range(size)]

    def get(self) -> Matrix:
        """Its value."""
        load = self.w.b.load
        return [
            [(load(u, typ=self.w.vector), load(v, typ=self.w.vector)) for u, v in row] for row in self._at
        ]

    def set(self, matrix: Matrix) -> None:
        """Give it a value."""
        for rows in zip(self._at, matrix, strict=True):
            for addresses, entry in zip(*rows, strict=True):
                for address, vector in zip(addresses, entry, strict=True):
                    self.w.b.store(vector, address)

    def zero(self) -> None:
        """Make it 0."""
        zero = self.w.constant(0.0)
        self.set([[(zero, zero) for _ in row] for row in self._at])
