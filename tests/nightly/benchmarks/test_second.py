"""The benchmark of second derivatives times every way, and its ways agree."""

import numpy as np
import pytest
import torch

from benchmarks import second

pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated"
)  # torch's forward mode itself


def test_a_row_is_printed_for_every_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(second, "CASES", [(2, 3)])
    monkeypatch.setattr(second, "TURNS", 2)
    # It sets one thread for the whole process.
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    second.main()
    rows = [line.split(" | ")[1] for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == [second.GRADIENT, *second.WAYS]


def test_the_ways_to_a_direction_agree() -> None:
    torch.manual_seed(0)
    calls = second.ways(2, 3)
    by_graph = calls["and one direction, create_graph"]()
    _, by_function = calls["jvp of grad, torch.func"]()
    for mine, other in zip(by_graph, by_function, strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-5)
    hessians = (calls[f"hessian by inputs, {way}, jitted"]() for way in ("ketscale.jax", "default.qubit"))
    np.testing.assert_allclose(*hessians, rtol=0, atol=1e-5)
