"""The benchmark of second derivatives times every way, unless JAX's Hessians disagree."""

import pytest
import torch

from benchmarks import second

# Torch's forward mode itself.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


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


def test_hessians_that_disagree_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second, "pauli_words", lambda qubits: ("X" * qubits,))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        second.measured(2, 3, 1)
