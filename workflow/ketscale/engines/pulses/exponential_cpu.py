"""Exponentials exp(-i H) of many small Hermitian matrices and their gradients by machine code, with a matrix a lane.

X is -i times the given matrix. Its exponential is R_0 of Horner's rule R_(k-1) = 1 + X R_k / k, which starts from
R_degree = 1. The function is `plain.unitary`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ketscale.engines.compiled.kernel import Kernel, lanes_of, threads_for
from ketscale.engines.compiled.language import (
    INTEGER,
    Arguments,
    Buffer,
    Complex,
    FunctionCode,
    Lanes,
    Number,
    ceil_divided,
    complexes,
    fma,
)
from ketscale.engines.derivatives import first_derivatives_only

# The highest degree of a Taylor polynomial, enough for matrices of norm 1, and what its remainder is below.
HIGHEST_DEGREE, REMAINDER = 18, 1e-17

ARGUMENTS = {"count degree": INTEGER, "given cotangents result": complexes("count", "size", "size")}

Matrix = list[list[Complex]]


class MatrixSize(NamedTuple):
    """size: of a matrix."""

    size: int


def write_exponentials(k: FunctionCode, args: Arguments, plan: MatrixSize) -> None:
    """R_0 of each matrix."""
    inverses = _inverses(k)
    now = k.variable(_identity(k, plan.size))
    with _matrices(k, args) as matrices:
        x = _given(args, matrices, plan.size)
        now.value = _identity(k, plan.size)
        with k.loop(args.degree, backwards=True) as before:
            now.value = _horner(k, x, now.value, inverses[before])
        _put(args.result[matrices], now.value)


def write_gradients(k: FunctionCode, args: Arguments, plan: MatrixSize) -> None:
    """The Hermitian part of the gradient by the given matrix."""
    size, inverses = plan.size, _inverses(k)
    zero = Complex(k.vector(0.0), k.vector(0.0))
    zeros = [[zero] * size for _ in range(size)]
    now, adjoint, total = (k.variable(zeros) for _ in range(3))
    terms = k.local(HIGHEST_DEGREE, size, size, element="complex vector")
    with _matrices(k, args) as matrices:
        x = _given(args, matrices, size)
        now.value = _identity(k, size)
        with k.loop(args.degree, backwards=True) as before:
            _put(terms[before], now.value)
            now.value = _horner(k, x, now.value, inverses[before])
        adjoint.value, total.value = _matrix(args.cotangents[matrices], size), zeros
        with k.loop(args.degree) as before:
            scaled = [[entry * inverses[before] for entry in row] for row in adjoint.value]
            total.value = _product(scaled, _adjoint(_matrix(terms[before], size)), total.value)
            # The adjoint of X is -X.
            adjoint.value = _product(x, [[-entry for entry in row] for row in scaled])
        # i times the gradient by X, and its Hermitian part.
        turned = [[entry.times_i() for entry in row] for row in total.value]
        pairs = zip(turned, _adjoint(turned), strict=True)
        _put(args.result[matrices], [[0.5 * (p + q) for p, q in zip(*rows, strict=True)] for rows in pairs])


@contextmanager
def _matrices(k: FunctionCode, args: Arguments) -> Iterator[Lanes]:
    """Write the body for each vector of matrices that a thread takes; lanes after the last matrix repeat it."""
    with k.tasks(ceil_divided(args.count, k.lanes)) as group:
        yield k.lanes_of(group, args.count)[0]


def _inverses(k: FunctionCode) -> Buffer:
    """1 / (k + 1)."""
    return k.table("inverses", [1 / n for n in range(1, HIGHEST_DEGREE + 1)])


def _given(args: Arguments, matrices: Lanes, size: int) -> Matrix:
    """X."""
    return [[Complex(h.imag, -h.real) for h in row] for row in _matrix(args.given[matrices], size)]


def _identity(k: FunctionCode, size: int) -> Matrix:
    one, zero = k.vector(1.0), k.vector(0.0)
    return [[Complex(one if i == j else zero, zero) for j in range(size)] for i in range(size)]


def _horner(k: FunctionCode, x: Matrix, now: Matrix, inverse: Number) -> Matrix:
    return _product(x, [[entry * inverse for entry in row] for row in now], _identity(k, len(x)))


def _product(left: Matrix, right: Matrix, start: Matrix | None = None) -> Matrix:
    made: Matrix = []
    for i, row in enumerate(left):
        made.append([])
        for j in range(len(left)):
            total: Any = None if start is None else start[i][j]
            for n, entry in enumerate(row):
                total = fma(entry, right[n][j], total)
            made[i].append(total)
    return made


def _adjoint(matrix: Matrix) -> Matrix:
    return [[row[i].conjugate() for row in matrix] for i in range(len(matrix))]


def _matrix(array: Buffer, size: int) -> Matrix:
    return [[array[i, j] for j in range(size)] for i in range(size)]


def _put(array: Buffer, matrix: Matrix) -> None:
    for i, row in enumerate(matrix):
        for j, entry in enumerate(row):
            array[i, j] = entry


def taylor(largest: float) -> tuple[int, int]:
    """How often matrices of at most this norm are halved, and the degree of the Taylor polynomial that then serves."""
    # Beyond a norm of 1 halving is cheaper than more terms.
    halvings = max(0, math.ceil(math.log2(largest))) if 0 < largest < math.inf else 0
    norm, degree, remainder = largest / 2**halvings, 1, math.inf
    while remainder > REMAINDER and degree < HIGHEST_DEGREE:
        degree += 1
        remainder = norm ** (degree + 1) / math.factorial(degree + 1)
    return halvings, degree


def unitary(hermitian: torch.Tensor) -> torch.Tensor:
    """exp(-i H) of many small Hermitian matrices (..., d, d) on the CPU, in fp64; see `plain.unitary`."""
    largest = float(torch.view_as_real(hermitian.detach()).square().sum((-1, -2, -3)).max().sqrt())
    halvings, degree = taylor(largest)
    made: torch.Tensor = _TaylorExponential.apply(hermitian / 2**halvings if halvings else hermitian, degree)
    for _ in range(halvings):
        made = made @ made
    return made


class _TaylorExponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hermitian: torch.Tensor, degree: int) -> torch.Tensor:
        hermitian = hermitian.resolve_conj().contiguous()
        ctx.save_for_backward(hermitian)
        ctx.degree = degree
        return _call("write_exponentials", degree, {"given": hermitian})

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, None]:
        first_derivatives_only("the exponential of a matrix")
        (hermitian,) = ctx.saved_tensors
        cotangent = cotangent.resolve_conj().contiguous()
        return _call("write_gradients", ctx.degree, {"given": hermitian, "cotangents": cotangent}), None


def _call(name: str, degree: int, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    given, result = tensors["given"], torch.empty_like(tensors["given"])
    levels = given.shape[-1]
    count = given.numel() // levels**2
    threads = threads_for(count, given.numel() * levels * degree)
    _kernel(MatrixSize(levels)).run(name, threads, count=count, degree=degree, result=result, **tensors)
    return result


@lru_cache(maxsize=8)
def _kernel(plan: MatrixSize) -> Kernel:
    functions = write_exponentials, write_gradients
    return Kernel(functions, ARGUMENTS, torch.float64, lanes_of(torch.float64), plan)
