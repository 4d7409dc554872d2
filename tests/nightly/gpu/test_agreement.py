"""On a GPU against fp64 on the CPU: `fused` against dense matrices, with all gates, sizes and batches; and the dynamics."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.fused import Fused
from ketscale.engines.dynamics.generators import Scheme
from ketscale.engines.dynamics.propagators import Batched
from ketscale.engines.dynamics.tasks import Tasks
from tests.nightly.gpu import reference
from tests.nightly.gpu.circuits import random_angles, random_circuit, random_states, random_words
from tests.unit.engines.dynamics.test_dynamics import SYSTEMS

CHUNK = 64
# No value and no derivative exceeds 1, so the cotangents bound what rounding can grow to.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}

Tensors = list[torch.Tensor]


def expected(
    circuit: Circuit, angles: Angles, words: tuple[str, ...], rows: torch.Tensor, weights_too: bool
) -> Tensors:
    """Values and gradients by the inputs of some rows; of the weights, over all rows, if they are wanted."""
    cotangent = cotangents(len(angles.inputs), len(words))
    inputs = angles.inputs[rows].requires_grad_()
    values = reference.expval(circuit, inputs, angles.weights, words)
    (by_inputs,) = torch.autograd.grad((values * cotangent[rows]).sum(), inputs)
    if not weights_too:
        return [values.detach(), by_inputs]
    by_weights = torch.zeros_like(angles.weights)
    for part in torch.arange(len(angles.inputs)).split(CHUNK):
        weights = angles.weights.clone().requires_grad_()
        values_ = reference.expval(circuit, angles.inputs[part], weights, words)
        by_weights += torch.autograd.grad((values_ * cotangent[part]).sum(), weights)[0]
    return [values.detach(), by_inputs, by_weights]


def cotangents(rows: int, words: int) -> torch.Tensor:
    """Random numbers that the values are multiplied with before their gradients are taken."""
    return torch.randn(rows, words, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def scales(words: int, batch: int, rows: torch.Tensor) -> list[float]:
    """For the values and the gradients by inputs of some rows, and for the gradients by weights of all."""
    cotangent = cotangents(batch, words)
    return [float(cotangent[rows].norm())] * 2 + [float(cotangent.norm())]


def on_the_gpu(
    circuit: Circuit,
    angles: Angles,
    words: tuple[str, ...],
    dtype: torch.dtype,
    evaluate: Callable[..., torch.Tensor],
) -> Tensors:
    """Values, and gradients by inputs and weights, in fp64 on the CPU."""
    there = Angles(*(t.to("cuda", dtype).requires_grad_() for t in angles))
    values = evaluate(circuit, there, words)
    cotangent = cotangents(len(angles.inputs), len(words)).to("cuda", dtype)
    gradients = torch.autograd.grad((values * cotangent).sum(), list(there))
    return [t.detach().double().cpu() for t in (values, *gradients)]


def compare(
    found: Tensors,
    wanted: Tensors,
    scales: list[float],
    dtype: torch.dtype,
    record_property: Callable[..., None],
) -> None:
    """Each as a whole: the norm of the difference in units of `scales`, which is kept with the test's outcome."""
    errors = [float((f - w).norm()) / scale for f, w, scale in zip(found, wanted, scales, strict=False)]
    record_property("errors", errors)
    assert all(error <= TOLERANCE[dtype] for error in errors), errors


# Every size at one batch, and every batch at sizes of each kind of block.
CELLS = [(qubits, 33) for qubits in range(2, 13)] + [
    (qubits, batch) for qubits in (2, 4, 6, 8) for batch in (1, 2, 31, 256, 1024, 8192)
]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["fp64", "fp32"])
@pytest.mark.parametrize("qubits, batch", CELLS)
def test_expectation_values_and_gradients(
    qubits: int, batch: int, dtype: torch.dtype, record_property: Callable[..., None]
) -> None:
    circuit, words, angles = (
        random_circuit(qubits, qubits),
        random_words(qubits, qubits),
        random_angles(batch),
    )
    rows = torch.randperm(batch, generator=torch.Generator().manual_seed(1))[:CHUNK]
    # A sum over rows: with all of them where the reference is cheap.
    complete = batch * 2**qubits <= 2**16
    target = expected(circuit, angles, words, rows, complete)
    values, by_inputs, by_weights = on_the_gpu(circuit, angles, words, dtype, Fused().expval)
    result = [values[rows], by_inputs[rows], by_weights]
    compare(result, target, scales(len(words), batch, rows), dtype, record_property)


@pytest.mark.gpu
@pytest.mark.parametrize("qubits, batch", [(10, 8192), (12, 2048), (12, 8192)])
def test_large_batches_of_large_circuits(
    qubits: int, batch: int, record_property: Callable[..., None]
) -> None:
    circuit, words, angles = random_circuit(qubits, 1), random_words(qubits, 1), random_angles(batch)
    rows = torch.randperm(batch, generator=torch.Generator().manual_seed(1))[:CHUNK]
    target = expected(circuit, angles, words, rows, weights_too=False)
    values, by_inputs, _ = on_the_gpu(circuit, angles, words, torch.float32, Fused().expval)
    compare(
        [values[rows], by_inputs[rows]],
        target,
        scales(len(words), batch, rows),
        torch.float32,
        record_property,
    )


@pytest.mark.gpu
@pytest.mark.parametrize("qubits", [13, 14])
def test_beyond_the_kernels(qubits: int, record_property: Callable[..., None]) -> None:
    circuit, words, angles = random_circuit(qubits, 1), random_words(qubits, 1), random_angles(5)
    target = expected(circuit, angles, words, torch.arange(5), weights_too=True)
    result = on_the_gpu(circuit, angles, words, torch.float64, Fused().expval)
    compare(result, target, scales(len(words), 5, torch.arange(5)), torch.float64, record_property)


@pytest.mark.gpu
@pytest.mark.parametrize("start", ["zero", "shared", "own"])
@pytest.mark.parametrize("qubits", [2, 5, 7, 9, 12])
def test_states_from_any_start(qubits: int, start: str, record_property: Callable[..., None]) -> None:
    circuit, angles = random_circuit(qubits, 3), random_angles(9)
    states = random_states(9, qubits)
    initial = {"zero": None, "shared": states[0], "own": states}[start]
    pull = random_states(9, qubits).conj()

    def results(where: str, run: Callable[..., torch.Tensor]) -> Tensors:
        there = Angles(*(t.to(where).requires_grad_() for t in angles))
        arguments = None if initial is None else initial.to(where).requires_grad_()
        final = run(there, arguments)
        leaves = [*there] if arguments is None else [*there, arguments]
        gradients = torch.autograd.grad((final * pull.to(where)).real.sum(), leaves)
        return [
            torch.view_as_real(t).cpu() if t.is_complex() else t.cpu() for t in (final.detach(), *gradients)
        ]

    expected = results("cpu", lambda there, inputs: reference.state(circuit, *there, inputs))
    result = results("cuda", lambda there, inputs: Fused().state(circuit, there, inputs))
    compare(result, expected, [float(w.norm()) for w in expected], torch.float64, record_property)


@pytest.mark.gpu
@pytest.mark.parametrize("scheme, dt", [("exact", None), ("rk4", 1 / 400)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["fp64", "fp32"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_overlaps_of_control_tasks_and_their_gradients(
    name: str, dtype: torch.dtype, scheme: Scheme, dt: float | None, record_property: Callable[..., None]
) -> None:
    """In fp32, rounding grows with the 20 segments."""
    (system, duration), generator = SYSTEMS[name], torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(33, *shape, generator=generator, dtype=torch.float64)

    controls = 6 / duration * normal(20, len(system.controls))
    rates = normal(len(system.jumps)).square() / duration
    projector = system.projector(next(iter(system.targets)))[None]

    def results(device: str, dtype: torch.dtype) -> Tensors:
        leaves = [part.to(device, dtype).requires_grad_() for part in (controls, rates)]
        propagator = Batched(scheme, dt and dt * duration, "torch")
        overlaps = propagator.expval(system, Tasks(leaves[0], duration, leaves[1]), projector)
        gradients = torch.autograd.grad(overlaps.sum(), leaves)
        return [part.detach().double().cpu() for part in (overlaps, *gradients)]

    expected = results("cpu", torch.float64)
    scales = [max(float(part.norm()), 1.0) for part in expected]
    compare(results("cuda", dtype), expected, scales, dtype, record_property)
