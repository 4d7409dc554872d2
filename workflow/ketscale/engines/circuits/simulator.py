"""The protocol of simulators, which evaluate and differentiate a `Circuit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import nn

from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.errors import UserError
from ketscale.shapes import Complex, Float

# The gradients by inputs and by weights, for the cotangent of expectation values.
CircuitPullBack: TypeAlias = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


@runtime_checkable
class Simulator(Protocol):
    """Evaluates a batch of circuits, differentiably, in the angles' precision and on their device.

    `initial` is the normalised initial state, complex (2**n,) or (batch, 2**n), in place of |0...0>.
    A batch of zero samples is allowed and gives a result with zero rows that can be differentiated.
    A simulator can be copied and pickled: the copy has its settings, and compiles or builds again what it needs.
    """

    def state(
        self,
        circuit: Circuit,
        angles: Angles,
        initial: Complex[torch.Tensor, "*batch {2**circuit.qubits}"] | None = None,
    ) -> Complex[torch.Tensor, "{len(angles.inputs)} {2**circuit.qubits}"]:
        """Final state vectors, complex (batch, 2**n).

        Raises:
            UserError: the shapes do not fit, or this simulator cannot compute or differentiate this.
        """
        ...

    def expval(
        self,
        circuit: Circuit,
        angles: Angles,
        paulis: Sequence[str],
        initial: Complex[torch.Tensor, "*batch {2**circuit.qubits}"] | None = None,
    ) -> Float[torch.Tensor, "{len(angles.inputs)} {len(paulis)}"]:
        """Expectation values of full-length Pauli words such as 'ZIXI', real (batch, len(paulis)).

        Raises:
            UserError: as for `state`, or a word has a wrong length or letter, or there is no word.
        """
        ...


def stacks(simulator: Simulator) -> bool:
    """Whether torch.func.vmap over the angles of `simulator` makes one call for all copies, each with its weights.

    Others may fail under vmap, or take each copy's time.
    """
    return bool(getattr(simulator, "stacks", False))


def replays(module: nn.Module) -> bool:
    """Whether on a GPU all simulators of a module's parts launch the same kernels in each call, and wait for nothing.

    A call can then be captured as a CUDA graph after one warm-up call.
    """
    parts = (
        value for part in module.modules() for value in vars(part).values() if isinstance(value, Simulator)
    )
    return all(getattr(simulator, "replays", False) for simulator in parts)


def vjp(
    simulator: Simulator, circuit: Circuit, angles: Angles, paulis: tuple[str, ...]
) -> tuple[torch.Tensor, CircuitPullBack] | None:
    """The values of `simulator.expval` and their pullback, without autograd; None if the simulator has no such method.

    See `engines.vjp`. Several runs have inputs (runs, batch, columns) and weights (runs, columns).
    """
    function: Any = getattr(simulator, "vjp", None)
    result: tuple[torch.Tensor, CircuitPullBack] | None = function and function(circuit, angles, paulis)
    return result


def probabilities(
    simulator: Simulator,
    circuit: Circuit,
    angles: Angles,
    wires: Sequence[int],
    initial: torch.Tensor | None = None,
) -> torch.Tensor:
    """The probabilities (batch, 2**len(wires)) of the outcomes on `wires`, of which the first is the most significant.

    A simulator that draws has a method `probs` of these arguments.

    Raises:
        UserError: as for `Simulator.state`.
    """
    function: Any = getattr(simulator, "probs", None)
    if function is not None:
        result: torch.Tensor = function(circuit, angles, wires, initial)
        return result
    return plain_probabilities(simulator, circuit, angles, wires, initial, circuit.noisy)


def plain_probabilities(
    simulator: Simulator,
    circuit: Circuit,
    angles: Angles,
    wires: Sequence[int],
    initial: torch.Tensor | None,
    by_words: bool,
) -> torch.Tensor:
    """As `probabilities`, those of the state; or by the expectation values of words of Z, where there is no state vector."""
    if not {*wires} <= {*range(circuit.qubits)}:
        raise UserError(f"probabilities of wires {tuple(wires)}: the circuit has {circuit.qubits}")
    if not by_words:
        return of_state(simulator.state(circuit, angles, initial), wires)
    letters = [dict(zip(wires, each, strict=True)) for each in product("IZ", repeat=len(wires))]
    words = ["".join(each.get(wire, "I") for wire in range(circuit.qubits)) for each in letters]
    values = simulator.expval(circuit, angles, tuple(words), initial).reshape(-1, *[2] * len(wires))
    for axis in range(1, 1 + len(wires)):
        even, odd = values.unbind(axis)
        values = torch.stack([even + odd, even - odd], axis) / 2
    return values.reshape(-1, 2 ** len(wires))


def of_state(state: torch.Tensor, wires: Sequence[int]) -> torch.Tensor:
    """The probabilities of the outcomes on `wires` in states (batch, 2**n)."""
    qubits = state.shape[1].bit_length() - 1
    squares = torch.view_as_real(state).square().sum(-1).unflatten(1, (2,) * qubits)
    others = [1 + wire for wire in range(qubits) if wire not in wires]
    ordered = squares.permute(0, *(1 + wire for wire in wires), *others)
    return ordered.reshape(squares.shape[0], 2 ** len(wires), 2 ** len(others)).sum(-1)
