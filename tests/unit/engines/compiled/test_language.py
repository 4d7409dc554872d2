"""The language of compiled kernels does what its operators say, in either precision and for any number of lanes."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ketscale.engines.compiled.functions import exp, log, polynomial, sincos, tanh
from ketscale.engines.compiled.kernel import Kernel
from ketscale.engines.compiled.language import (
    Arguments,
    FunctionCode,
    fma,
    fnma,
    integers,
    is_nan,
    maximum,
    minimum,
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
        values = [
            x + y,
            x - y,
            x * y,
            x / y,
            -x,
            2.0 - x,
            1.0 / x,
            x * 3.0 + y,
            maximum(x, 0.5),
            minimum(x, y),
        ]
        values += [select(x <= y, x, 0.0), sqrt(x * x), fma(x, y, x), fnma(x, y)]
        for number, each in enumerate(values):
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
        values = [a + b, a - b, a * 3, a // b, a % b, a << 2, a >> 1, a & b, a | b, a ^ b, -a]
        values += [select(b < -1, a, b), select((-a).signed < b, a, b), (-a).signed >> 1, minimum(a, b)]
        for number, each in enumerate(values):
            args.out[number] = each

    arguments, out = torch.tensor([37, 5]), torch.empty(15, dtype=torch.int64)
    run(body, {"given out": integers("count")}, torch.float32, given=arguments, out=out)
    expected = [42, 32, 111, 7, 2, 148, 18, 37 & 5, 37 | 5, 37 ^ 5, -37, 37, 37, -19, 5]
    assert out.tolist() == expected


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
