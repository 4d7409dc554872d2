"""The language of compiled kernels does what its operators say, in either precision and for any number of lanes."""

import math
from array import array
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ketscale.engines.compiled import language
from ketscale.engines.compiled.functions import exp, log, polynomial, sincos, tanh
from ketscale.engines.compiled.kernel import Kernel, lanes_of, threads_for
from ketscale.engines.compiled.language import (
    INTEGER,
    REAL,
    Arguments,
    Complex,
    FunctionCode,
    aligned,
    bytes_,
    ceil_divided,
    chunk,
    complex_vectors,
    complexes,
    doubles,
    fma,
    fnma,
    integers,
    is_nan,
    lane_sum,
    lane_sums,
    maximum,
    minimum,
    reals,
    select,
    sqrt,
    vectors,
)

PRECISIONS = torch.float32, torch.float64
LANES = 4


def values(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def run(body: Callable[..., None], arguments: dict[str, Any], dtype: torch.dtype, **given: Any) -> None:
    body.__name__ = "body"
    # The test's name is in the identity of its code.
    Kernel((body,), arguments, dtype, LANES, plan=body.__qualname__).run("body", **given)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_operators_round_once_each(dtype: torch.dtype) -> None:
    def body(k: FunctionCode, args: Arguments, _: str) -> None:
        x, y = args.x[0], args.y[0]
        found = [x + y, x - y, x * y, x / y, -x, 2.0 - x, 1.0 / x, x * 3.0 + y]
        found += [
            maximum(x, 0.5),
            minimum(x, y),
            select(x <= y, x, 0.0),
            sqrt(x * x),
            fma(x, y, x),
            fnma(x, y),
        ]
        for number, each in enumerate(found):
            args.out[number] = each

    x, y = values(LANES, dtype=dtype), values(LANES, dtype=dtype, seed=1)
    out = torch.empty(14, LANES, dtype=dtype)
    run(body, {"x y out": vectors("rows")}, dtype, x=x, y=y, out=out)
    wide = (x.double() * y.double() + x.double()).to(dtype)
    expected = [x + y, x - y, x * y, x / y, -x, 2 - x, 1 / x, x * 3 + y]
    expected += [x.clamp(min=0.5), torch.minimum(x, y), torch.where(x <= y, x, 0), (x * x).sqrt()]
    torch.testing.assert_close(out[:12], torch.stack(expected), rtol=0, atol=0)
    torch.testing.assert_close(out[12], wide)
    torch.testing.assert_close(out[13], -(x * y), rtol=0, atol=0)


def test_integers_are_unsigned_unless_they_are_said_to_be_signed() -> None:
    def body(k: FunctionCode, args: Arguments, _: str) -> None:
        a, b = args.given[0], args.given[1]
        found = [a + b, a - b, a * 3, a // b, a % b, a << 2, a >> 1, a & b, a | b, a ^ b, -a]
        found += [select(b < -1, a, b), select((-a).signed < b, a, b), (-a).signed >> 1, minimum(a, b)]
        for number, each in enumerate(found):
            args.out[number] = each

    given, out = torch.tensor([37, 5]), torch.empty(15, dtype=torch.int64)
    run(body, {"given out": integers("count")}, torch.float32, given=given, out=out)
    expected = [42, 32, 111, 7, 2, 148, 18, 37 & 5, 37 | 5, 37 ^ 5, -37, 37, 37, -19, 5]
    assert out.tolist() == expected


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_indices_find_elements_rows_and_parts_of_arrays(dtype: torch.dtype) -> None:
    def body(k: FunctionCode, args: Arguments, _: str) -> None:
        with k.loop(args.rows) as i:
            row = args.matrix[i]
            with k.loop(args.columns, backwards=True) as j:
                args.transposed[j, i] = row[j] + args.matrix[i, j]
        first, second = args.scratch.split((2, 1), (args.rows,))
        first[1, 0] = args.matrix.part((2, 1), 1, element="vector")[0]
        second[1] = 7.0
        args.wide[0] = args.matrix[0, 1].as_float(language.DOUBLE)
        args.flags[1] = args.flags[0]

    matrix, transposed = values(3, 5, dtype=dtype), torch.zeros(5, 3, dtype=dtype)
    scratch = torch.zeros(8, LANES, dtype=dtype)
    wide, flags = torch.zeros(1, dtype=torch.float64), torch.tensor([9, 0], dtype=torch.int8)
    arguments = {
        "rows columns": INTEGER, "matrix": reals("rows", "columns"), "transposed": reals("columns", "rows"),
        "scratch": aligned("vectors"), "wide": doubles(1), "flags": bytes_(2),
    }  # fmt: skip
    tensors = {
        "matrix": matrix,
        "transposed": transposed,
        "scratch": scratch,
        "wide": wide,
        "flags": flags,
    }
    run(body, arguments, dtype, rows=3, columns=5, **tensors)
    assert torch.equal(transposed, 2 * matrix.T)
    assert torch.equal(scratch[1], matrix[2, 1:])
    assert torch.equal(scratch[3], torch.full((LANES,), 7.0, dtype=dtype)) and scratch[2].count_nonzero() == 0
    assert wide.item() == matrix[0, 1].item() and flags.tolist() == [9, 9]


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_lanes_gather_and_scatter_tasks_and_the_last_is_repeated(dtype: torch.dtype) -> None:
    def body(k: FunctionCode, args: Arguments, _: str) -> None:
        with k.loop(ceil_divided(args.tasks, LANES)) as group:
            tasks, present = k.lanes_of(group, args.tasks)
            own, out = args.given[tasks], args.out[tasks]
            total = k.variable({"sum": k.vector(0.0), "parts": [k.vector(1.0)]})
            total.value = {"sum": k.vector(0.0), "parts": [k.vector(1.0)]}
            with k.loop(args.size) as i:
                now = total.value
                total.value = {"sum": now["sum"] + own[i], "parts": [now["parts"][0] * own[i]]}
            out[0], out[1] = total.value["sum"], total.value["parts"][0]
            args.counted[group] = select(present, 1.0, 0.0)

    given, out, counted = values(6, 3, dtype=dtype), torch.empty(6, 2, dtype=dtype), torch.empty(2, LANES)
    counted = counted.to(dtype)
    arguments = {
        "tasks size": INTEGER, "given": reals("tasks", "size"), "out": reals("tasks", 2), "counted": vectors(2),
    }  # fmt: skip
    run(body, arguments, dtype, tasks=6, size=3, given=given, out=out, counted=counted)
    torch.testing.assert_close(out, torch.stack([given.sum(1), given.prod(1)], 1))
    assert counted.flatten().tolist() == [1.0] * 6 + [0.0] * 2


def test_complex_numbers_multiply_conjugate_and_add_to_sums() -> None:
    def body(k: FunctionCode, args: Arguments, _: str) -> None:
        a, b = args.numbers[0], args.numbers[1]
        found = [
            a * b,
            a.conjugate() * b,
            a + b,
            a - b,
            -a,
            a.times_i(),
            fma(a, b, a),
            a * 2.0,
            fma(a, b.real, b),
        ]
        for number, each in enumerate(found):
            args.numbers[number + 2] = each
        u, v = args.columns[0], args.columns[1]
        args.columns[2] = fma(u, v, Complex(k.vector(0.0), k.vector(1.0)))

    numbers = torch.zeros(11, dtype=torch.complex128)
    numbers[:2] = torch.tensor([1.5 - 2j, 0.25 + 3j])
    columns = torch.zeros(3, 2, LANES, dtype=torch.float64)
    columns[:2] = values(2, 2, LANES)
    arguments = {"numbers": complexes("count"), "columns": complex_vectors("count")}
    run(body, arguments, torch.float64, numbers=numbers, columns=columns)
    a, b = numbers[:2].tolist()
    expected = [a * b, a.conjugate() * b, a + b, a - b, -a, 1j * a, a * b + a, 2 * a, a * b.real + b]
    torch.testing.assert_close(numbers[2:], torch.tensor(expected, dtype=torch.complex128))
    u, v, w = torch.view_as_complex(columns.movedim(1, -1).contiguous())
    torch.testing.assert_close(w, u * v + 1j)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_functions_are_accurate_and_pass_on_what_is_not_a_number(dtype: torch.dtype) -> None:
    def body(k: FunctionCode, args: Arguments, _: str) -> None:
        x = args.x[0]
        for number, each in enumerate([*sincos(x), exp(x), log(exp(x)), polynomial(x, [2.0, -1.0, 0.5])]):
            args.out[number] = each
        args.out[5], args.out[6], args.out[7] = select(is_nan(x), 1.0, 0.0), tanh(x), tanh(x * 1e-3)

    x = torch.tensor([0.3, -4.0, 7.5, math.nan], dtype=dtype)
    out = torch.empty(8, LANES, dtype=dtype)
    run(body, {"x out": vectors("rows")}, dtype, x=x, out=out)
    expected = [x.sin(), x.cos(), x.exp(), x, 2 * x * x - x + 0.5]
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(out[:5, :3], torch.stack(expected)[:, :3], rtol=tolerance, atol=8 * tolerance)
    assert out[5].tolist() == [0, 0, 0, 1]
    # Near 0 too, relative to the value.
    small = torch.stack([x.tanh(), (x * 1e-3).tanh()])
    torch.testing.assert_close(out[6:], small, rtol=tolerance, atol=0, equal_nan=True)


def test_sums_over_lanes_are_pairwise() -> None:
    def body(k: FunctionCode, args: Arguments, _: str) -> None:
        rows = [args.x[i] for i in range(LANES)]
        args.out[0], args.out[1], args.out[2] = lane_sum(rows[0]), lane_sum(rows[0], 2), lane_sums(rows)
        args.out[3] = rows[0].shuffled([3, 2, 1, 0])

    x, out = values(LANES, LANES), torch.empty(4, LANES, dtype=torch.float64)
    run(body, {"x out": vectors("rows")}, torch.float64, x=x, out=out)
    pairs = x[:, ::2] + x[:, 1::2]
    assert out[0].tolist() == [(pairs[0, 0] + pairs[0, 1]).item()] * LANES
    assert torch.equal(out[1], pairs[0].repeat_interleave(2))
    assert torch.equal(out[2], pairs[:, 0] + pairs[:, 1])
    assert torch.equal(out[3], x[0].flip(0))


def add_rows(k: FunctionCode, args: Arguments) -> None:
    """Each row's numbers plus `amount` times its index, by chunks of two rows."""
    own = args.scratch[k.worker()]
    with k.tasks(ceil_divided(args.rows, 2)) as number:
        first, count = chunk(number, 2, args.rows)
        with k.loop(count) as i:
            own[0] = (first + i).as_float().splat()
            k.either(args.rows > 1, lambda: None, lambda: None)
            args.out[first + i] = fma(args.amount, own[0], args.out[first + i])


ADDED = {"rows": INTEGER, "amount": REAL, "out": vectors("rows"), "scratch": aligned("workers", 1)}


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_share_tasks_and_each_has_a_number(threads: int) -> None:
    out, scratch = torch.zeros(101, LANES), torch.empty(threads, LANES)
    kernel = Kernel((add_rows,), ADDED, torch.float32, LANES)
    kernel.run("add_rows", threads, rows=101, amount=0.5, out=out, scratch=scratch)
    assert torch.equal(out, torch.arange(101)[:, None] * 0.5 * torch.ones(LANES))


def test_arrays_may_be_given_by_their_address() -> None:
    def body(k: FunctionCode, args: Arguments, _: str) -> None:
        args.out[0] = args.given[1]

    given, out = array("q", [4, 7]), torch.zeros(1, dtype=torch.int64)
    run(body, {"given out": integers(2)}, torch.float32, given=given.buffer_info()[0], out=out)
    assert out.item() == 7


def test_little_work_is_for_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert [threads_for(8, work, 100) for work in (0, 199, 200, 399, 10_000)] == [1, 1, 2, 3, 4]
    assert threads_for(2, 10_000, 100) == 2
    assert lanes_of(torch.float32) == 2 * lanes_of(torch.float64)
