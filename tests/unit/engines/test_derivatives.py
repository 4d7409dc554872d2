"""Second derivatives are refused by backward passes that cannot be differentiated."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest
import torch

from ketscale.errors import UserError

FUNCTIONS = {
    "engines.circuits.shifts": "Shifted",
    "layers.losses": "_Summed",
    "layers.dense": "_Dense",
    "problems.eeg.selective_scan": "_SelectiveScan",
    "problems.sentences.likelihood": "_ByShift",
}


@pytest.mark.parametrize("module", FUNCTIONS)
def test_a_backward_pass_that_has_no_derivative_says_so(module: str) -> None:
    function = getattr(importlib.import_module(f"ketscale.{module}"), FUNCTIONS[module])
    with (
        torch.enable_grad(),
        pytest.raises(UserError, match=r"has first derivatives only: .*create_graph=True"),
    ):
        function.backward(SimpleNamespace(name="Fused"), torch.ones(1))
