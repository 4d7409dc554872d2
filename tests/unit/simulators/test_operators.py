"""Circuits as operators of torch: the rules that torch's compilers use, and programs that leave their process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.func import functional_call, grad, vmap

from ketscale import Circuit, Layer
from ketscale.engines.circuits.circuit import Angles
from ketscale.simulators import operators
from ketscale.simulators.factory import named_simulator

CIRCUIT = (
    Circuit(2).ry(0, "x0").rx(1, 0.1 + 0.2).rot(0, "w0", "w1", "x1").unitary(np.diag([1, 1j]), 1).cnot(0, 1)
)
WORDS = ("ZI", "XY")


def some(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


STATE = some(4).to(torch.complex128) / some(4).norm()


def test_a_circuit_is_read_as_it_was_written() -> None:
    numbered = Circuit(np.int64(2))
    for wire in np.arange(2):
        numbered = numbered.ry(wire, "x0")
    permuted = CIRCUIT.permuted((1, 2, 3, 0), 1, 0).controlled("RX", [0], [1], "w2")
    for circuit in (CIRCUIT, permuted, numbered):
        repeat = operators.read(operators.encoded(circuit))
        assert repeat == circuit and hash(repeat) == hash(circuit)


@pytest.mark.parametrize(
    ("simulator", "paulis", "initial"),
    [("fused", " ".join(WORDS), None), ("fused", "", STATE), ("default.qubit", " ".join(WORDS), STATE)],
)
def test_the_operator_is_whole(simulator: str, initial: torch.Tensor | None, paulis: str) -> None:
    """Its schema, meta function and derivatives, as torch checks them; and its values are the simulator's."""
    named = named_simulator(simulator)
    inputs, weights = some(3, 2).requires_grad_(), some(2).requires_grad_()
    texts = operators.encoded(CIRCUIT), paulis, operators.encoded(named.settings)  # type: ignore[attr-defined]
    arguments = (inputs, weights, initial, *texts)
    torch.library.opcheck(
        torch.ops.ketscale.evaluate,
        arguments,
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )
    angles = Angles(inputs, weights)
    expected = (
        named.expval(CIRCUIT, angles, WORDS, initial) if paulis else named.state(CIRCUIT, angles, initial)
    )
    result = torch.ops.ketscale.evaluate(*arguments)
    torch.testing.assert_close(result, expected)
    towards = some(*result.shape).to(result)
    torch.testing.assert_close(
        torch.autograd.grad(result, (inputs, weights), towards),
        torch.autograd.grad(expected, (inputs, weights), towards),
    )


def test_a_model_is_compiled_without_a_break_and_again_when_its_circuit_changes() -> None:
    layer = Layer(CIRCUIT, WORDS, dtype=torch.float64)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(some(3, 2)), layer(some(3, 2)))
        layer.circuit = Circuit(2, tuple(reversed(CIRCUIT.gates)))
    states = torch.compile(layer.simulator.state, backend="eager", fullgraph=True)
    request = layer.circuit, Angles(some(3, 2), layer.weight)
    torch.testing.assert_close(states(*request), layer.simulator.state(*request))


@pytest.mark.parametrize("measure", ["probs", "state"])
def test_what_a_layer_measures_is_exported_at_any_batch(measure: Any) -> None:
    layer = Layer(CIRCUIT, measure=measure, dtype=torch.float64)
    shapes = ({0: torch.export.Dim("batch", min=1)},)
    program = torch.export.export(layer, (some(4, 2),), dynamic_shapes=shapes).module()
    torch.testing.assert_close(program(some(3, 2)), layer(some(3, 2)))


def test_members_of_an_ensemble_are_one_call_of_a_compiled_program() -> None:
    layer = Layer(CIRCUIT, WORDS, dtype=torch.float64)

    def ensemble(weights: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        return vmap(lambda weight, x: functional_call(layer, {"weight": weight}, (x,)), (0, None))(
            weights, inputs
        )

    compiled = torch.compile(ensemble, backend="eager", fullgraph=True)
    arguments = some(3, 2), some(5, 2)
    torch.testing.assert_close(compiled(*arguments), ensemble(*arguments))


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute"
)  # torch itself, where torch.autograd.grad breaks its graph
def test_derivatives_in_and_around_compiled_programs() -> None:
    layer = Layer(CIRCUIT, WORDS, dtype=torch.float64)

    def value(weight: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = functional_call(layer, {"weight": weight}, (some(3, 2),)).sum()
        return result

    def slope(weight: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(value(weight), weight)[0]

    weight, expected = layer.weight.detach(), grad(value)(layer.weight.detach())
    leaf = weight.clone().requires_grad_()
    torch.testing.assert_close(torch.compile(slope, backend="eager")(leaf), expected)
    with pytest.raises(Exception, match=r"call torch\.autograd\.grad in the compiled function"):
        torch.compile(grad(value), backend="eager")(weight)
