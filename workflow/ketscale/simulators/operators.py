"""Circuits as operators of torch, which torch.compile and torch.export take whole: circuit and simulator travel as text.

Only compiled and exported programs call them, since each call takes longer than that of a simulator. A process that
loads an exported program imports this module first, as it does with `ketscale.Layer`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from ketscale.engines import registered
from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.simulator import Simulator, vjp
from ketscale.engines.circuits.transforms import weights_as_inputs
from ketscale.engines.derivatives import paired
from ketscale.engines.members import leading
from ketscale.errors import UserError
from ketscale.private_torch import constant_when_traced, differentiates

if TYPE_CHECKING:
    from ketscale.config.circuits import CircuitSimulator

EVALUATE, GRADIENTS = "ketscale::evaluate", "ketscale::gradients"
_REQUEST = "Tensor inputs, Tensor weights, Tensor? initial, str circuit, str paulis, str simulator"


def evaluate(
    settings: CircuitSimulator,
    circuit: Circuit,
    angles: Angles,
    paulis: tuple[str, ...],
    initial: torch.Tensor | None,
) -> torch.Tensor:
    """`Simulator.expval`, or `Simulator.state` without words, as an operator; to call while torch traces.

    Raises:
        UserError: the program has torch.func's derivatives of it.
    """
    _check_transforms()
    value: torch.Tensor = torch.ops.ketscale.evaluate(
        *angles, initial, encoded(circuit), " ".join(paulis), encoded(settings)
    )
    return value


@constant_when_traced
def _check_transforms() -> None:
    """Torch's operators know no derivatives of torch.func's."""
    if differentiates():
        raise UserError(
            "torch.compile takes no circuit under torch.func.grad, jvp or the like: call torch.autograd.grad in the compiled "
            "function, or torch.func outside of it"
        )


@constant_when_traced
def encoded(described: Circuit | CircuitSimulator) -> str:
    """A circuit or a simulator's settings as a text of JSON; a complex number is a list of two."""
    import msgspec  # only programs that are compiled need it

    return msgspec.json.encode(described, enc_hook=lambda number: [number.real, number.imag]).decode()


@lru_cache(maxsize=256)
def read(text: str) -> Circuit:
    """The circuit of a text of `written`."""
    import msgspec

    return msgspec.json.decode(text, type=Circuit, dec_hook=lambda _, pair: complex(*pair))


@lru_cache(maxsize=16)
def _simulator(text: str) -> Simulator:
    import msgspec

    from ketscale.config.circuits import CircuitSimulator

    return of_settings(msgspec.json.decode(text, type=CircuitSimulator))


def of_settings(settings: CircuitSimulator) -> Simulator:
    """The simulator of settings that are checked."""
    assert settings.method is not None
    built: Simulator = registered.build(settings.method.implementation, settings.content())
    if settings.noise is None:
        return built
    from ketscale.engines.noise.model import NoiseModel, WithNoise

    if settings.trajectories is not None:
        from ketscale.engines.noise.trajectories import Trajectories

        built = Trajectories(built, settings.trajectories)
    noise = settings.noise
    model = NoiseModel(noise.one_qubit, noise.two_qubits, noise.damping, noise.readout)
    return WithNoise(built, model, settings.noise_in_training)


@lru_cache(maxsize=256)
def _words(paulis: str) -> tuple[str, ...]:
    return tuple(paulis.split())


def _evaluate(
    inputs: torch.Tensor,
    weights: torch.Tensor,
    initial: torch.Tensor | None,
    circuit: str,
    paulis: str,
    simulator: str,
) -> torch.Tensor:
    backend, request = _simulator(simulator), (read(circuit), Angles(inputs, weights))
    values = backend.expval(*request, _words(paulis), initial) if paulis else backend.state(*request, initial)
    return values.contiguous()  # equal rows may be one row in memory


def _evaluate_meta(
    inputs: torch.Tensor, weights: torch.Tensor, initial: Any, circuit: str, paulis: str, simulator: str
) -> torch.Tensor:
    if paulis:
        return inputs.new_empty(inputs.shape[0], len(_words(paulis)))
    return inputs.new_empty(inputs.shape[0], 2 ** read(circuit).qubits, dtype=inputs.dtype.to_complex())


def _gradients(
    cotangent: torch.Tensor,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    initial: torch.Tensor | None,
    *described: str,
) -> list[torch.Tensor]:
    """The gradients by inputs, weights and, where there is one, the initial state."""
    circuit, paulis, simulator = described
    if paulis and initial is None:
        direct = vjp(_simulator(simulator), read(circuit), Angles(inputs, weights), _words(paulis))
        if direct is not None:
            return list(direct[1](cotangent))
    leaves = [each.detach().requires_grad_() for each in (inputs, weights, initial) if each is not None]
    with torch.enable_grad():
        values = _evaluate(leaves[0], leaves[1], leaves[2] if leaves[2:] else None, *described)
        gradients = torch.autograd.grad(paired(values, cotangent), leaves, materialize_grads=True)
    return [each.clone(memory_format=torch.contiguous_format) for each in gradients]


def _gradients_meta(
    cotangent: Any, inputs: torch.Tensor, weights: torch.Tensor, initial: Any, *described: str
) -> list[torch.Tensor]:
    tensors = (inputs, weights) if initial is None else (inputs, weights, initial)
    return [torch.empty_like(each, memory_format=torch.contiguous_format) for each in tensors]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.described = inputs[3:]


def _backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    gradients = torch.ops.ketscale.gradients(cotangent, *ctx.saved_tensors, *ctx.described)
    return *gradients, *[None] * (6 - len(gradients))


def _evaluate_copies(
    info: Any,
    in_dims: tuple[int | None, ...],
    inputs: torch.Tensor,
    weights: torch.Tensor,
    initial: torch.Tensor | None,
    circuit: str,
    *described: str,
) -> tuple[torch.Tensor, int]:
    """The rows of all copies are one batch, in which weights are inputs."""
    inputs, weights = leading(info, inputs, in_dims[0]), leading(info, weights, in_dims[1])
    alone, rows = weights_as_inputs(read(circuit), inputs, weights)
    copies, batch, _ = rows.shape
    if initial is not None:
        states = leading(info, initial, in_dims[2])
        initial = (states if states.ndim == 3 else states[:, None].expand(-1, batch, -1)).flatten(0, 1)
    values = torch.ops.ketscale.evaluate(
        rows.flatten(0, 1), rows.new_empty(0), initial, encoded(alone), *described
    )
    return values.unflatten(0, (copies, batch)), 0


torch.library.define(EVALUATE, f"({_REQUEST}) -> Tensor")
torch.library.define(GRADIENTS, f"(Tensor cotangent, {_REQUEST}) -> Tensor[]")
torch.library.impl(EVALUATE, "default", _evaluate)
torch.library.impl(GRADIENTS, "default", _gradients)
torch.library.register_fake(EVALUATE, _evaluate_meta)
torch.library.register_fake(GRADIENTS, _gradients_meta)
torch.library.register_autograd(EVALUATE, _backward, setup_context=_keep)
torch.library.register_vmap(EVALUATE, _evaluate_copies)
