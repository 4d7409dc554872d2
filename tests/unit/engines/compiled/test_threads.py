"""Compiled code where torch has another pool of threads than GNU OpenMP's, as on macOS and Windows."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from ketscale.engines.circuits.ansaetze import strongly_entangling_ansatz
from ketscale.engines.circuits.circuit import Angles, pauli_words
from ketscale.engines.circuits.fused import Fused, call
from ketscale.engines.compiled import threads


@contextmanager
def torch_with_another_pool() -> Iterator[None]:
    """Inside, torch's library has no GOMP_parallel."""

    def refuse(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ctypes, "CDLL", refuse)
            threads._found.cache_clear()
            threads._warn.cache_clear()
            threads._found()
        yield
    finally:
        threads._found.cache_clear()
        threads._warn.cache_clear()


def values_and_slopes() -> list[torch.Tensor]:
    circuit = strongly_entangling_ansatz(4, 2)
    drawn = torch.Generator().manual_seed(1)
    angles = Angles(
        torch.rand(200, circuit.inputs, generator=drawn).requires_grad_(),
        torch.rand(circuit.weights, generator=drawn).requires_grad_(),
    )
    values = Fused().expval(circuit, angles, pauli_words(4))
    return [values.detach(), *torch.autograd.grad((values**3).sum(), list(angles))]


def test_without_torchs_pool_compiled_code_says_once_that_it_runs_on_one_thread_and_gives_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call, "WORK_PER_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    call.compiled.cache_clear()
    expected = values_and_slopes()
    assert threads.usable(3) == 3
    with torch_with_another_pool():
        assert (threads.usable(3), threads.usable(1)) == (1, 1)
        with pytest.warns(UserWarning, match="compiled code runs on one thread"):
            found = values_and_slopes()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            values_and_slopes()
    call.compiled.cache_clear()
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
