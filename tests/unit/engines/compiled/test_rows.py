"""Rows that compiled code copies and scales have torch's bits; calls that were recorded are made again."""

import pytest
import torch

from ketscale.engines.compiled.rows import copy, gathered, scaled
from ketscale.engines.recorded import recording

TYPES = [torch.float32, torch.float64, torch.int64]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (5,), (16,), (3, 37)], ids=str)
@pytest.mark.parametrize(
    "chosen", [torch.tensor([6, 0, 6, 2]), torch.tensor([[1, 2], [5, 6]])], ids=["run", "runs"]
)
def test_rows_are_those_of_a_table(dtype: torch.dtype, shape: tuple[int, ...], chosen: torch.Tensor) -> None:
    table = (1e3 * torch.randn(7, *shape)).to(dtype)
    assert torch.equal(gathered(table, chosen), table[chosen])


def test_rows_that_are_not_side_by_side_are_refused() -> None:
    table, chosen = torch.randn(4, 7), torch.tensor([0, 3, 1])
    for given in ((table.T, chosen), (table, torch.tensor([0, 3, 1, 2])[::2])):
        with pytest.raises(ValueError, match="contiguous"):
            gathered(*given)


@pytest.mark.parametrize("dtype", TYPES[:2])
def test_a_copy_and_a_product_are_in_place(dtype: torch.dtype) -> None:
    x, factors = torch.randn(2, 15, dtype=dtype), torch.randn(2, 1, dtype=dtype)
    out, apart = torch.empty_like(x), torch.zeros(2, 20, dtype=dtype)
    copy(out, x)
    copy(apart[:, :15], x)
    copy(apart[1, :5], x[0, 5:10])
    assert torch.equal(out, x) and torch.equal(apart[0, :15], x[0]) and torch.equal(apart[1, :5], x[0, 5:10])
    assert not apart[:, 15:].any()
    assert scaled(out, factors) is out and torch.equal(out, x * factors)


def test_recorded_calls_read_what_is_there_now() -> None:
    table, chosen = torch.randn(7, 20), torch.tensor([3, 1])
    with recording() as calls:
        made = gathered(table, chosen)
    chosen.copy_(torch.tensor([6, 0]))
    calls.run()
    assert calls.count == 1 and torch.equal(made, table[[6, 0]])
