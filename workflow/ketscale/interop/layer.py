"""A circuit as a layer of torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from ketscale.engines.circuits import operators as _registered  # noqa: F401
from ketscale.engines.circuits import transforms
from ketscale.engines.circuits.checks import check_words
from ketscale.engines.circuits.circuit import Angles, Circuit, pauli_words
from ketscale.engines.circuits.factory import resolve_simulator
from ketscale.engines.circuits.simulator import Simulator
from ketscale.errors import UserError
from ketscale.shapes import Float

# A full-length Pauli word such as 'ZI', or a weighted sum of them such as {'ZI': 0.5, 'IZ': 0.5}.
Observable = str | Mapping[str, float]


class Layer(nn.Module):
    """Angles (..., circuit.inputs) in radians -> expectation values (..., outputs).

    Its one parameter is `weight` (circuit.weights,), drawn from [0, 2 pi) with torch's generator. Everything in torch
    that asks for first derivatives works, torch.func.vmap and grad too. Second derivatives and forward mode need the
    simulator 'default.qubit'.

    circuit: what is evaluated; a circuit without inputs is called without an argument.
    observables: one for each output: a Pauli word with a letter for every wire, such as 'ZI', or a weighted sum of
        words, such as {'ZZ': 1.0, 'XI': 0.5}. None is Z on each wire in turn.
    simulator: an object, a usual name such as 'default.qubit', or None for fused.
    device, dtype: of `weight`, as for torch's own layers; circuits take torch.float32 and torch.float64.

    Raises:
        UserError: there is no such simulator, a word does not fit the circuit, or a coefficient is not finite; when
            called, the inputs have another width, dtype or device than the layer, or a derivative is asked for that
            the simulator does not have.
    """

    def __init__(
        self,
        circuit: Circuit,
        observables: Sequence[Observable] | None = None,
        *,
        simulator: Simulator | str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.circuit = circuit
        self._columns = circuit.inputs  # torch's compiler cannot read what is cached
        self.simulator = resolve_simulator(simulator)
        self.words, self._sums = read_observables(observables, circuit.qubits)
        self.outputs = len(self.words) if self._sums is None else self._sums.shape[1]
        self.weight = nn.Parameter(torch.empty(circuit.weights, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weights anew, uniformly from [0, 2 pi), with torch's generator or another."""
        nn.init.uniform_(self.weight, 0, 2 * math.pi, generator=generator)

    def forward(
        self, inputs: Float[torch.Tensor, "*rows {self.circuit.inputs}"] | None = None
    ) -> Float[torch.Tensor, "*rows {self.outputs}"]:
        """Expectation values (..., outputs) of inputs (..., circuit.inputs), in the weight's dtype.

        Under torch.autocast inputs of another precision are converted; otherwise they are refused.
        """
        return self._evaluate(inputs)

    def extra_repr(self) -> str:
        """What print(layer) says about it."""
        circuit = self.circuit
        return f"qubits={circuit.qubits}, inputs={circuit.inputs}, weights={circuit.weights}, outputs={self.outputs}"

    def _evaluate(self, inputs: torch.Tensor | None) -> torch.Tensor:
        weight, columns = self.weight, self._columns
        if inputs is None and columns == 0:
            inputs = weight.new_empty(0)
        kind = weight.device.type
        mixed = torch.is_autocast_enabled(kind)
        inputs = self._checked(inputs, mixed)
        leading = inputs.shape[:-1]
        # A view of the same shape would cost autograd two more steps.
        rows = inputs if len(leading) == 1 else inputs.reshape(math.prod(leading), columns)
        angles = Angles(rows, weight)
        # What is compiled is no transform of its own.
        compiling = torch.compiler.is_compiling()
        expval = transforms.expval if not compiling and transforms.transformed(*angles) else _expval
        with torch.autocast(kind, enabled=False) if mixed else nullcontext():
            values = expval(self.simulator, self.circuit, angles, self.words)
            if self._sums is not None:
                values = values @ self._sums.to(values)
        return values if len(leading) == 1 else values.reshape(*leading, self.outputs)

    def _checked(self, inputs: Any, mixed: bool) -> torch.Tensor:
        """The inputs in the weight's dtype."""
        weight, columns = self.weight, self._columns
        if not isinstance(inputs, torch.Tensor):
            raise UserError(
                f"Layer takes a torch tensor (..., {columns}), not {type(inputs).__name__}: use torch.as_tensor"
            )
        if inputs.ndim == 0 or inputs.shape[-1] != columns:
            raise UserError(f"Layer takes inputs (..., {columns}), not {tuple(inputs.shape)}")
        if inputs.device != weight.device:
            raise UserError(
                f"Layer has its weight on {weight.device} and got inputs on {inputs.device}: "
                "move one of them with .to(device)"
            )
        if inputs.dtype != weight.dtype:
            if not (mixed and inputs.is_floating_point()):
                raise UserError(
                    f"Layer has a weight of {weight.dtype} and got inputs of {inputs.dtype}: "
                    "convert one of them with .to(dtype)"
                )
            inputs = inputs.to(weight.dtype)
        return inputs

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Layer:
        """As nn.Module's; the coefficients follow to the device but keep their 64 bits."""
        super()._apply(fn, recurse)
        if self._sums is not None and not self.weight.is_meta:
            self._sums = self._sums.to(self.weight.device)
        return self


def _expval(simulator: Simulator, circuit: Circuit, angles: Angles, words: Sequence[str]) -> torch.Tensor:
    return simulator.expval(circuit, angles, words)


def read_observables(
    observables: Sequence[Observable] | None, qubits: int
) -> tuple[tuple[str, ...], torch.Tensor | None]:
    """The words to measure, and the coefficients (words, outputs) of the outputs, None if each is one word."""
    if observables is None:
        return pauli_words(qubits), None
    if isinstance(observables, (str, Mapping)) or not observables:
        raise UserError(f"observables must be a list with one for each output, not {observables!r}")
    sums = [{item: 1.0} if isinstance(item, str) else dict(item) for item in observables]
    words = tuple(dict.fromkeys(word for terms in sums for word in terms))
    check_words(words, qubits)
    if all(isinstance(item, str) for item in observables) and len(words) == len(sums):
        return words, None
    # On the CPU and in 64 bits, whatever torch's defaults are.
    table = torch.zeros(len(words), len(sums), dtype=torch.float64, device="cpu")
    for output, terms in enumerate(sums):
        for word, coefficient in terms.items():
            if not math.isfinite(coefficient):
                raise UserError(f"the coefficient of Pauli word {word!r} is {coefficient}: it must be finite")
            table[words.index(word), output] = coefficient
    return words, table
