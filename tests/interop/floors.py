"""`python -m tests.interop.floors`: a layer beside torch's and a QNode beside PennyLane's own least time, in turns.

Value and gradient of a strongly entangling circuit, 4 qubits, 3 layers, one thread: `Layer` for one sample beside an
autograd function that does nothing; a QNode on `ketscale.fused` for 64 samples beside one on a device that returns at
once, and the same QNode by `from_qnode`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import quantiles
from time import perf_counter
from typing import Any

import pennylane as qml
import torch
from pennylane.devices import Device, ExecutionConfig
from pennylane.transforms.core import CompilePipeline

import ketscale
from ketscale.engines.circuits.ansaetze import strongly_entangling_ansatz

QUBITS, LAYERS, ROUNDS, CALLS = 4, 3, 1000, 2


class Nothing(torch.autograd.Function):
    """As many tensors in and out as a layer has."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(inputs, weights)
        return torch.empty(len(inputs), QUBITS)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(map(torch.empty_like, ctx.saved_tensors))


class Immediate(Device):
    """A device that returns at once something that depends on the parameters."""

    name = "immediate"

    def setup_execution_config(self, config: Any = None, circuit: Any = None) -> ExecutionConfig:
        return replace(
            config or ExecutionConfig(),
            gradient_method="backprop",
            use_device_gradient=True,
            grad_on_execution=False,
        )

    def supports_derivatives(self, execution_config: Any = None, circuit: Any = None) -> bool:
        return True

    def preprocess_transforms(self, execution_config: Any = None) -> CompilePipeline:
        return CompilePipeline()

    def execute(self, circuits: Any, execution_config: Any = None) -> Any:
        return tuple(
            Nothing.apply(tape.operations[0].data[0], tape.operations[1].data[0]).unbind(1)
            for tape in circuits
        )


def circuit(x: Any, w: Any) -> Any:
    qml.AngleEmbedding(x, wires=range(QUBITS))
    qml.StronglyEntanglingLayers(w, wires=range(QUBITS))
    return [qml.expval(qml.Z(wire)) for wire in range(QUBITS)]


def cases() -> dict[str, Callable[[], Any]]:
    """What is timed, by name."""
    layer = ketscale.Layer(strongly_entangling_ansatz(QUBITS, LAYERS))
    one = torch.rand(1, layer.circuit.inputs, requires_grad=True)
    many = torch.rand(64, QUBITS, requires_grad=True)
    weights = torch.rand(LAYERS, QUBITS, 3, requires_grad=True)

    def of_qnode(qnode: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: torch.stack(qnode(many, weights)).sum().backward()

    fused = qml.QNode(circuit, qml.device("ketscale.fused", wires=QUBITS))
    return {
        "Layer, 1 sample": lambda: layer(one).sum().backward(),
        "nothing, 1 sample": lambda: Nothing.apply(one, layer.weight).sum().backward(),
        "QNode on ketscale.fused, 64 samples": of_qnode(fused),
        "QNode on a device that returns at once": of_qnode(qml.QNode(circuit, Immediate(wires=QUBITS))),
        "from_qnode, 64 samples": of_qnode(ketscale.from_qnode(fused)),
    }


def main() -> None:
    torch.set_num_threads(1)
    ketscale.specialise("always")
    taken: dict[str, list[float]] = {}
    functions = cases()
    for function in functions.values():
        for _ in range(20):
            function()
    for _ in range(ROUNDS):
        for name, function in functions.items():
            began = perf_counter()
            for _ in range(CALLS):
                function()
            taken.setdefault(name, []).append((perf_counter() - began) / CALLS)
    for name, seconds in taken.items():
        low, median, high = (1e6 * value for value in quantiles(seconds, n=4))
        print(f"{name:40} {median:7.1f} us  ({low:.1f} to {high:.1f}; least {1e6 * min(seconds):.1f})")


if __name__ == "__main__":
    main()
