"""`python -m benchmarks.second`: what second derivatives and forward mode of `fused` cost beside its gradient.

Strongly entangling circuits of three layers in single precision, on one thread of torch. In torch, and in JAX, where
default.qubit has the same Hessians of each sample by its inputs. All ways take turns, and a row is the median of their
times, as a multiple of the gradient's, with its quartiles.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, hessian

import ketscale.jax
from ketscale import Layer
from ketscale.engines.circuits.ansaetze import strongly_entangling_ansatz
from ketscale.engines.circuits.circuit import pauli_words
from ketscale.engines.circuits.jitted import sample_function

# Qubits and batch.
CASES = ((4, 1), (4, 64), (6, 128), (8, 128))
TURNS = 200
GRADIENT = "gradient"
WAYS = (
    "by inputs, create_graph",
    "by inputs, and their gradient by weights",
    "and one direction, create_graph",
    "forward mode, dual numbers",
    "hessian by weights, a direction",
    "hessian by inputs, ketscale.jax, jitted",
    "hessian by inputs, default.qubit, jitted",
)


def ways(qubits: int, batch: int) -> dict[str, Callable[[], Any]]:
    """The calls to time; a direction is along inputs and weights."""
    circuit = strongly_entangling_ansatz(qubits, 3)
    layer, inputs = Layer(circuit), torch.rand(batch, circuit.inputs, requires_grad=True)
    both = (inputs, layer.weight)
    along = tuple(each.detach() for each in both)

    def slopes(graph: bool) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(layer(inputs).sum(), both, create_graph=graph)

    def by_inputs(then: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (slope,) = torch.autograd.grad(layer(inputs).sum(), inputs, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), then)

    def dual() -> torch.Tensor:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(layer(forward_ad.make_dual(along[0], along[0]))).tangent

    def by_jax(function: Callable[..., Any]) -> Callable[[], Any]:
        each = jax.hessian(lambda x, weight: function(x, weight).sum())
        jitted, arguments = jax.jit(jax.vmap(each, (0, None))), tuple(x.numpy() for x in along)
        return lambda: jax.block_until_ready(jitted(*arguments))

    called = (
        lambda: by_inputs(inputs),
        lambda: by_inputs(layer.weight),
        lambda: torch.autograd.grad(slopes(True), both, along),
        dual,
        lambda: hessian(lambda w: functional_call(layer, {"weight": w}, (along[0],)).sum())(along[1]),
        by_jax(ketscale.jax.expval(circuit)),
        by_jax(sample_function(circuit, pauli_words(qubits))),
    )
    return {GRADIENT: lambda: slopes(False), **dict(zip(WAYS, called, strict=True))}


def measured(qubits: int, batch: int, turns: int) -> dict[str, np.ndarray]:
    """The seconds of each way in each turn; of the Hessian by weights, those of a direction. JAX's Hessians agree."""
    calls = ways(qubits, batch)
    for call in calls.values():
        call()  # compiles
    actual, expected = (calls[way]() for way in WAYS[-2:])
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            call()  # after another way, whose code and memory fill the caches, a call takes up to three times as long
            begin = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - begin)
    result = {name: np.array(times) for name, times in seconds.items()}
    result["hessian by weights, a direction"] /= strongly_entangling_ansatz(qubits, 3).weights
    return result


def main() -> None:
    """Print a table."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| qubits x batch | way | us | over the gradient (quartiles) |\n| --- | --- | ---: | ---: |")
    for qubits, batch in CASES:
        result = measured(qubits, batch, TURNS)
        for name, times in result.items():
            low, middle, high = np.quantile(times / result[GRADIENT], (0.25, 0.5, 0.75))
            median = 1e6 * float(np.median(times))
            print(f"| {qubits} x {batch} | {name} | {median:.0f} | {middle:.2f} ({low:.2f} to {high:.2f}) |")


if __name__ == "__main__":
    main()
