"""Spans add up to their parents, count backward passes, and change no gradient."""

import time

import torch

from ketscale import spans
from ketscale.engines.circuits.ansaetze import vqc_ansatz
from ketscale.engines.circuits.circuit import Angles, pauli_words
from ketscale.simulators.factory import named_simulator


def recorder():
    return spans.Recorder(torch.device("cpu"))


def test_exclusive_times_leave_out_inner_spans():
    record, start = recorder(), time.perf_counter()
    with spans.recording(record), spans.span("outer"):
        time.sleep(0.01)
        with spans.span("inner"):
            time.sleep(0.02)
        with spans.span("inner"):
            time.sleep(0.01)
    whole_s = time.perf_counter() - start
    assert 0.99 * whole_s < sum(record.exclusive_s.values()) < whole_s
    assert record.exclusive_s["inner"] >= 0.03 and 0.01 <= record.exclusive_s["outer"] <= whole_s - 0.03


def test_backward_is_counted_where_it_runs():
    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            time.sleep(0.03)
            return gradient

    x = torch.ones(3, requires_grad=True)
    record, start = recorder(), time.perf_counter()
    with spans.recording(record), spans.span("backward"):
        spans.with_backward_span("circuit.backward", Slow.apply, x * 2).sum().backward()
    assert record.exclusive_s["circuit.backward"] >= 0.03
    assert record.exclusive_s["backward"] <= time.perf_counter() - start - 0.03
    assert torch.equal(x.grad, torch.full((3,), 2.0))


def test_recorded_gradients_are_the_plain_ones():
    circuit, simulator = vqc_ansatz(2, 1), named_simulator("fused")
    gradients = []
    for record in (None, recorder()):
        inputs = torch.linspace(0, 1, 6, dtype=torch.float64).reshape(3, 2).requires_grad_()
        weights = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)
        with spans.recording(record):
            simulator.expval(circuit, Angles(inputs, weights), pauli_words(2)).pow(2).sum().backward()
        gradients.append((inputs.grad, weights.grad))
    assert {"circuit.forward", "circuit.backward"} <= set(record.exclusive_s)
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
