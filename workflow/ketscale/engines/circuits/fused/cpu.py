"""Calling compiled kernels from torch: buffers, threads, and the autograd function.

A small circuit's arithmetic takes a few microseconds, so every Python call matters here. What does not change
between calls (`CompiledCall`, `Workspace`) is kept.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import torch

from ketscale.engines.circuits import transforms
from ketscale.engines.circuits.checks import one_gradient
from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused import gpu
from ketscale.engines.circuits.fused.call import CompiledCall, Workspace, compiled
from ketscale.engines.circuits.fused.hessians import Result, differentiated, recorded_gradients
from ketscale.engines.circuits.fused.kernels import CALL_ARGUMENTS
from ketscale.engines.circuits.fused.listing import Call
from ketscale.engines.circuits.fused.program import reduce
from ketscale.engines.circuits.simulator import CircuitPullBack
from ketscale.engines.circuits.superposition import reversal
from ketscale.engines.compiled.language import COUNTERS, NEXT_TASK, NEXT_WORKER
from ketscale.private_torch import transforms_active

# The places of the arguments that a call sets, in a workspace.
(
    INPUTS, INPUT_STRIDE, WEIGHTS, SHARED, STATES, OUT, INITIAL, INITIAL_STRIDE, MIX, COTANGENT, INPUT_GRADIENT,
    INPUT_GRADIENT_STRIDE, WEIGHT_ROWS, WEIGHT_GRADIENT, INITIAL_GRADIENT, MIX_ROWS, MIX_GRADIENT,
) = range(COUNTERS, COUNTERS + len(CALL_ARGUMENTS))  # fmt: skip


# The tensors of a call: inputs, weights, initial states and a superposition's `mix`; see `evaluate`.
Point: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]


def evaluate(
    circuit: Circuit,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    paulis: tuple[str, ...] | None,
    initial: torch.Tensor | None,
    mix: torch.Tensor | None = None,
    partners: tuple[int, ...] | None = None,
) -> torch.Tensor:
    """Expectation values of `paulis`, or the state without any, differentiable in all tensors.

    Shapes and errors are those of `Simulator`; inputs are (batch, columns) with a batch of at least 1. mix: real
    (mix_size,); `partners` goes with it, see `Call`. Or there are groups with weights of their own, (groups, batch,
    columns) and (groups, ...) for the rest: each gets the same bits as from a call of its own.
    """
    groups = inputs.ndim == 3
    if groups and inputs.shape[1] == 1 and mix is None:
        # A tile of a single sample would be mostly empty.
        shared, rows, initial = transforms.as_rows(circuit, inputs, weights, initial)
        return evaluate(shared, rows, rows.new_empty(0), paulis, initial).unflatten(0, inputs.shape[:2])
    if groups:
        weights, mix = weights[:, : circuit.weights], None if mix is None else mix.contiguous()
    if groups and initial is not None and initial.ndim == 2:
        initial = initial[:, None].expand(-1, inputs.shape[1], -1)
    point = inputs, weights, initial, mix
    values = run(compiled_for(circuit, paulis, point, partners), *point)
    return values.unflatten(0, inputs.shape[:2]) if groups else values


def compiled_for(
    circuit: Circuit, paulis: tuple[str, ...] | None, point: Point, partners: tuple[int, ...] | None = None
) -> CompiledCall:
    """The call for tensors of these shapes that want these gradients."""
    inputs, weights, initial, mix = point
    kinds = differentiated(initial=initial, input=inputs, weight=weights, mix=mix)
    batch, groups = inputs.shape[-2], len(inputs) if inputs.ndim == 3 else 1
    return compiled(Call(circuit, paulis, inputs.dtype, batch, groups, initial is None, kinds, partners))


def run(
    compiled: CompiledCall,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    initial: torch.Tensor | None,
    mix: torch.Tensor | None = None,
) -> torch.Tensor:
    """The result of a call (rows, ...), with a gradient if it wants one."""
    if compiled.call.kinds:
        result: torch.Tensor = _Sweep.apply(compiled, inputs, weights, initial, mix)
        return result
    return _forward(compiled, (inputs, weights, initial, mix), None)


class _Sweep(torch.autograd.Function):
    """A kernel's values, with gradients by its backward sweep."""

    @staticmethod
    def forward(ctx: Any, compiled: CompiledCall, *point: Any) -> torch.Tensor:
        saved = torch.empty(compiled.saved_floats, dtype=compiled.call.dtype)
        ctx.save_for_backward(*point, saved)
        ctx.compiled = compiled
        return _forward(compiled, point, saved)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        one_gradient("simulator 'fused'", cotangent)
        *point, saved = ctx.saved_tensors
        gradients = None
        if not transforms_active():
            gradients = _gradients(ctx.compiled, point, saved, cotangent)
            if not torch.is_grad_enabled():
                return None, *gradients
        cotangent = cotangent.unflatten(0, point[0].shape[:-1])
        call = ctx.compiled.call
        result = result_of(call.circuit, call.words, call.partners)
        return None, *recorded_gradients(result, ctx.needs_input_grad[1:], point, cotangent, gradients)


def result_of(circuit: Circuit, paulis: tuple[str, ...] | None, partners: tuple[int, ...] | None) -> Result:
    """What calls give, as a function of their tensors; of groups too."""
    if partners is None:
        return gpu.result(lambda i, w, s=None: evaluate(circuit, i, w, paulis, s), circuit, paulis)
    assert paulis is not None
    return Result(
        lambda i, w, m: evaluate(circuit, i, w, paulis, None, m, partners),
        partial(plain_sums, circuit, paulis),
        {},
    )


def plain_sums(
    circuit: Circuit, words: tuple[str, ...], inputs: torch.Tensor, weights: torch.Tensor, mix: torch.Tensor
) -> torch.Tensor:
    """A superposition's words by torch's operators, not normalised; mix: as for `evaluate`; also of groups in front."""
    qubits, order = circuit.qubits, reduce(circuit, None).order or range(2**circuit.qubits)
    states = gpu.plain(circuit, None)(inputs, weights)
    factors = torch.view_as_complex(mix.unflatten(-1, (-1, 2))).unsqueeze(-2)
    alpha, beta, constant = factors.split([1, 1, 2**qubits], dim=-1)
    constant = constant.index_select(-1, torch.tensor(order).argsort())
    mirrored = states.index_select(-1, torch.tensor(reversal(qubits)))
    states = alpha * states + beta * mirrored + constant
    empty = weights.new_empty(*weights.shape[:-1], 0)
    return gpu.plain(Circuit(qubits, ()), words)(inputs[..., :0], empty, states)


def vjp(
    compiled: CompiledCall, inputs: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, CircuitPullBack]:
    """See `simulator.vjp`; by a kernel of which just the gradients by inputs and weights are wanted.

    inputs, weights: of one group, or (groups, batch, columns) and (groups, columns).
    """
    point: Point = inputs, weights, None, None
    saved = torch.empty(compiled.saved_floats, dtype=compiled.call.dtype)

    def back(cotangent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        to_inputs, to_weights, *_ = _gradients(compiled, point, saved, cotangent)
        assert to_inputs is not None and to_weights is not None
        return to_inputs, to_weights

    values = _forward(compiled, point, saved)
    return values.view(*inputs.shape[:-1], -1), back


def _gradients(
    compiled: CompiledCall, point: Point, saved: torch.Tensor, cotangent: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    """The gradients by the point's tensors; None where none is wanted."""
    plan, several = compiled.plan, compiled.group_tiles > 1
    inputs, weights, initial, mix = point
    inputs, weights = inputs.contiguous(), weights.contiguous()
    cotangent = cotangent.resolve_conj().contiguous()
    to_inputs = to_weights = to_initial = to_mix = None
    workspace = _set_arguments(compiled, inputs, weights, mix, saved)
    slots = workspace.arguments
    slots[COTANGENT] = cotangent.data_ptr()
    if "input" in plan.kinds:
        columns = inputs.shape[-1]
        to_inputs = (
            torch.empty_like(inputs) if columns == plan.sizes["input_columns"] else torch.zeros_like(inputs)
        )
        slots[INPUT_GRADIENT], slots[INPUT_GRADIENT_STRIDE] = to_inputs.data_ptr(), columns
    # With a single tile its row is the sum.
    if "weight" in plan.kinds:
        exact = weights.shape[-1] == plan.sizes["weight_columns"]
        to_weights = torch.empty_like(weights) if exact else torch.zeros_like(weights)
        slots[WEIGHT_GRADIENT] = to_weights.data_ptr()
        slots[WEIGHT_ROWS] = workspace.weight_rows if several else slots[WEIGHT_GRADIENT]
    if initial is not None and "initial" in plan.kinds:
        to_initial = torch.empty(
            *inputs.shape[:-1], 2**plan.program.qubits, dtype=compiled.call.dtype.to_complex()
        )
        slots[INITIAL_GRADIENT] = to_initial.data_ptr()
    if mix is not None and "mix" in plan.kinds:
        to_mix = torch.empty_like(mix)
        slots[MIX_GRADIENT] = to_mix.data_ptr()
        slots[MIX_ROWS] = workspace.mix_rows if several else slots[MIX_GRADIENT]
    if workspace.threads == 1:
        compiled.backward(workspace.address)
    else:
        compiled.library.on_threads("backward", workspace.address, workspace.threads)
    if several:
        compiled.collect(workspace.address)
    compiled.give_back(workspace)
    if to_initial is not None and initial is not None and initial.ndim == 1:
        to_initial = to_initial.sum(0)
    return to_inputs, to_weights, to_initial, to_mix


def _forward(compiled: CompiledCall, point: Point, saved: torch.Tensor | None) -> torch.Tensor:
    """The result (rows, ...); `saved` is filled with what the backward pass needs."""
    inputs, weights, initial, mix = point
    inputs, weights = inputs.contiguous(), weights.contiguous()
    out = torch.empty(compiled.shape, dtype=compiled.dtype)
    workspace = _set_arguments(compiled, inputs, weights, mix, saved)
    slots = workspace.arguments
    slots[OUT] = out.data_ptr()
    if initial is not None:
        initial = initial.resolve_conj().contiguous()
        slots[INITIAL] = initial.data_ptr()
        slots[INITIAL_STRIDE] = 0 if initial.ndim == 1 else 2 * initial.shape[-1]
    compiled.prepare(workspace.address)
    if workspace.threads == 1:
        compiled.forward(workspace.address)
    else:
        compiled.library.on_threads("forward", workspace.address, workspace.threads)
    compiled.give_back(workspace)
    return out


def _set_arguments(
    compiled: CompiledCall,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    mix: torch.Tensor | None,
    saved: torch.Tensor | None,
) -> Workspace:
    """A workspace with the arguments that both passes have."""
    workspace = compiled.borrow()
    slots, shared = workspace.arguments, (workspace.unsaved if saved is None else saved).data_ptr()
    slots[NEXT_TASK] = slots[NEXT_WORKER] = 0
    slots[INPUTS], slots[INPUT_STRIDE], slots[WEIGHTS] = (
        inputs.data_ptr(),
        inputs.shape[-1],
        weights.data_ptr(),
    )
    slots[SHARED], slots[STATES] = shared, shared + compiled.shared_bytes
    if mix is not None:
        slots[MIX] = mix.data_ptr()
    return workspace
