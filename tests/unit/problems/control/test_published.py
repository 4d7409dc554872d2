"""The published losses and training step of control, written here once more and plainly, are those of `literal`."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
import torch

from ketscale.engines.dynamics.literal import PublishedLoop
from ketscale.problems.control.meta_learning import Inner, MetaLearning
from ketscale.problems.control.policy import Policy
from ketscale.problems.control.problem import Objective
from ketscale.problems.control.workloads import QubitSpectrum, Rates

Scheme = Literal["rk4", "euler"]
X, Y, Z = np.array([[[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]]])
SEGMENTS, LIMIT, HIGHEST = 20, 10.0, 20.0
STEPS: list[tuple[Scheme, float, torch.dtype]] = [
    ("rk4", 0.02, torch.float64),
    ("rk4", 0.01, torch.float32),
    ("euler", 0.02, torch.float64),
    ("euler", 0.01, torch.float32),
]
WORKLOAD = QubitSpectrum(fidelity="squared")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def rate(alpha: float, strength: float, cutoff: float) -> float:
    omega = np.linspace(0, 2 * HIGHEST, 500)
    density = strength / (np.abs(omega) ** alpha + cutoff**alpha) * (omega <= HIGHEST)
    return float(np.trapezoid(density, omega)) / (2 * HIGHEST)


def published_loss(pulse: torch.Tensor, task: torch.Tensor, scheme: Scheme, dt: float) -> torch.Tensor:
    """1 - clamp(Tr(rho sigma)^2, 0, 1), in the pulse's precision."""
    kind = pulse.dtype.to_complex()
    x, y, z = (torch.tensor(sigma).to(kind) for sigma in (X, Y, Z))
    jumps = [math.sqrt(rate(*task.tolist())) * sigma for sigma in (x, y, z)]
    rho = torch.diag(torch.tensor([1.0, 0.0])).to(kind)
    steps = max(1, math.floor((1.0 / SEGMENTS) / dt))
    h = 1.0 / SEGMENTS / steps
    for u_x, u_y in torch.clamp(pulse, -LIMIT, LIMIT):
        hamiltonian = 0.1 * z + u_x * x + u_y * y

        def slope(rho: torch.Tensor, hamiltonian: torch.Tensor = hamiltonian) -> torch.Tensor:
            result = -1j * (hamiltonian @ rho - rho @ hamiltonian)
            for jump in jumps:
                square = jump.conj().T @ jump
                result = result + jump @ rho @ jump.conj().T - 0.5 * (square @ rho + rho @ square)
            return result

        for _ in range(steps):
            k1 = slope(rho)
            if scheme == "euler":
                rho = rho + h * k1
            else:
                k2 = slope(rho + h / 2 * k1)
                k3 = slope(rho + h / 2 * k2)
                rho = rho + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(rho + h * k3))
            rho = rho / torch.trace(rho).real
    return 1 - torch.clamp(rho[1, 1].real ** 2, 0, 1)


@pytest.mark.parametrize("scheme, dt, dtype", STEPS)
def test_literal_reproduces_the_published_losses(scheme: Scheme, dt: float, dtype: torch.dtype) -> None:
    """Random tasks and pulses agree, in complex64 as published, and in complex128."""
    rng = np.random.default_rng(0)
    tasks = rng.uniform([0.5, 1e-3, 100], [2, 1e-2, 1000], (6, 3))
    tasks[3:] = [[0.5, 30.0, 5.0], [2.0, 2e3, 10.0], [1.2, 300.0, 30.0]]  # beyond the published range: felt
    pulses = 3 * rng.normal(size=(6, SEGMENTS, 2))
    arguments = torch.tensor(pulses, dtype=dtype)
    expected = [
        published_loss(*each, scheme, dt).item() for each in zip(arguments, torch.tensor(tasks), strict=True)
    ]
    assert sum(0 < loss < 1 for loss in expected) >= 4
    values = torch.tensor(np.column_stack([tasks, np.full(6, 0.1)]))
    rates = Rates(*(part.to(dtype) for part in WORKLOAD.environment(values)))
    result = Objective(WORKLOAD, PublishedLoop(scheme, dt)).losses(arguments, rates)
    torch.testing.assert_close(
        result.double(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=TOLERANCE[dtype]
    )


def loss_by_torch(weights: list[torch.Tensor], task: torch.Tensor, scheme: Scheme, dt: float) -> torch.Tensor:
    """The loss of the policy's pulse for a task."""
    value = task.to(weights[0].dtype)
    for number in range(0, len(weights), 2):
        value = torch.tanh(value) if number else value
        value = weights[number] @ value + weights[number + 1]
    return published_loss(2 * value.reshape(SEGMENTS, 2), task, scheme, dt)


@pytest.mark.parametrize("scheme, dt, dtype", STEPS[::3])
def test_a_step_of_training_is_the_published_one(scheme: Scheme, dt: float, dtype: torch.dtype) -> None:
    """First-order MAML: K = 2 steps of SGD for each of 3 tasks, on a copy of the weights; the mean of the gradients of the
    losses at the adapted weights."""
    torch.manual_seed(0)
    inner, network = Inner(2, 0.02), Policy()
    # The published start hardly leaves |0>, where the squared overlap has no slope.
    torch.nn.init.constant_(network.biases[-1], 0.2)
    problem = MetaLearning(
        network, Objective(WORKLOAD, PublishedLoop(scheme, dt)), "fomaml", inner, seed=5, arguments={}
    ).convert(torch.device("cpu"), dtype)
    numbers = torch.arange(3)
    loss = problem.combine(problem(numbers, 4), 3)
    loss.backward()

    start = [part for pair in network.layers() for part in pair]
    tasks = problem.distribution.fresh([5], 4, numbers, torch.float64).inputs
    losses, gradients = [], [torch.zeros_like(part) for part in start]
    for task in tasks:
        adapted = [part.detach().clone().requires_grad_() for part in start]
        for _ in range(inner.steps):
            slopes = torch.autograd.grad(loss_by_torch(adapted, task, scheme, dt), adapted)
            adapted = [
                (part - inner.rate * slope).detach().requires_grad_()
                for part, slope in zip(adapted, slopes, strict=True)
            ]
        query = loss_by_torch(adapted, task, scheme, dt)
        losses.append(query.item())
        slopes = torch.autograd.grad(query, adapted)
        gradients = [total + slope / 3 for total, slope in zip(gradients, slopes, strict=True)]

    assert loss.item() == pytest.approx(sum(losses) / 3, abs=TOLERANCE[dtype])
    scale = max(float(part.abs().max()) for part in gradients)
    assert scale > 0.01
    for part, expected in zip(start, gradients, strict=True):
        torch.testing.assert_close(part.grad, expected, rtol=0, atol=10 * scale * TOLERANCE[dtype])
