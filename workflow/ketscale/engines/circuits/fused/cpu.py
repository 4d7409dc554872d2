"""Calling compiled kernels from torch: buffers, threads, and the autograd function.

A small circuit's arithmetic takes a few microseconds, so every Python call matters here. What does not change
between calls (`CompiledSweep`, `Workspace`) is kept.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Any

import torch

from ketscale.engines.circuits.checks import one_gradient
from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused import gpu
from ketscale.engines.circuits.fused.hessians import Result, recorded_gradients, shifts, wanted_of
from ketscale.engines.circuits.fused.kernels import CALL_ARGUMENTS
from ketscale.engines.circuits.fused.program import reduce
from ketscale.engines.circuits.fused.sweeps import CompiledSweep, Request, sweep
from ketscale.engines.circuits.simulator import CircuitPullBack
from ketscale.engines.circuits.superposition import reversal
from ketscale.engines.compiled.language import COUNTERS
from ketscale.private_torch import transforms_active

# Pack the counters, which begin at 0, and the arguments that each call sets, as 64-bit integers.
pack_forward = struct.Struct(f"{COUNTERS + list(CALL_ARGUMENTS).index('cotangent')}q").pack_into
pack_backward = struct.Struct(f"{COUNTERS + len(CALL_ARGUMENTS)}q").pack_into


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
    (mix_size,). Or there are groups with weights of their own, (groups, batch, columns) and (groups, ...) for the rest:
    each gets the same bits as from a call of its own.
    """
    *several, batch, _ = inputs.shape
    if not several:
        return call(
            kernel_for(circuit, inputs, weights, paulis, initial, mix, partners),
            inputs,
            weights,
            initial,
            mix,
        )
    (groups,) = several
    rows, own = inputs.flatten(0, 1), weights[:, : circuit.weights].flatten()
    if initial is not None:
        each = initial if initial.ndim == 3 else initial[:, None].expand(-1, batch, -1)
        initial = each.flatten(0, 1)
    mixes = None if mix is None else mix.flatten()
    compiled = kernel_for(circuit, rows, own, paulis, initial, mixes, partners, groups)
    return call(compiled, rows, own, initial, mixes).unflatten(0, (groups, batch))


def kernel_for(
    circuit: Circuit,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    paulis: tuple[str, ...] | None,
    initial: torch.Tensor | None,
    mix: torch.Tensor | None = None,
    partners: tuple[int, ...] | None = None,
    groups: int = 1,
) -> CompiledSweep:
    """The table and kernels for tensors of these shapes that want these gradients; `mix` and `partners` go together.

    Each of several groups has as many rows of the inputs, and as much of `weights` and `mix`.
    """
    wanted = wanted_of(initial=initial, input=inputs, weight=weights, mix=mix)
    batch = inputs.shape[0] // groups
    return sweep(Request(circuit, paulis, inputs.dtype, batch, initial is None, wanted, partners, groups))


def call(
    compiled: CompiledSweep,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    initial: torch.Tensor | None,
    mix: torch.Tensor | None = None,
) -> torch.Tensor:
    """The result of kernels, with a gradient if their table was made for one."""
    if compiled.plan.wanted:
        result: torch.Tensor = _Sweep.apply(inputs, weights, initial, mix, compiled)
        return result
    return _forward(compiled, inputs, weights, initial, mix, None)


class _Sweep(torch.autograd.Function):
    """A kernel's values, with gradients by its backward sweep."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        weights: torch.Tensor,
        initial: torch.Tensor | None,
        mix: torch.Tensor | None,
        compiled: CompiledSweep,
    ) -> torch.Tensor:
        saved = torch.empty(compiled.saved_floats, dtype=compiled.real)
        ctx.save_for_backward(inputs, weights, initial, mix, saved)
        ctx.compiled = compiled
        return _forward(compiled, inputs, weights, initial, mix, saved)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        one_gradient("simulator 'fused'", cotangent)
        inputs, weights, initial, mix, saved = ctx.saved_tensors
        if torch.is_grad_enabled() or transforms_active():
            return *_differentiable(ctx, cotangent), None
        to_inputs, to_weights, to_initial, to_mix = _gradients(
            ctx.compiled, inputs, weights, mix, saved, cotangent
        )
        if to_initial is not None and initial.ndim == 1:
            to_initial = to_initial.sum(0)
        return to_inputs, to_weights, to_initial, to_mix, None


def _differentiable(ctx: Any, cotangent: torch.Tensor) -> list[torch.Tensor | None]:
    """The gradients by inputs, weights, initial state and superposition, in a graph of their own."""
    *tensors, saved = ctx.saved_tensors
    request, places = ctx.compiled.request, [n for n, each in enumerate(tensors) if each is not None]
    given = [tensors[place] for place in places]
    alone = request.groups == 1

    def grouped(tensor: torch.Tensor) -> torch.Tensor:
        if alone:
            return tensor
        return (
            tensor.unflatten(0, (request.groups, -1)) if tensor.ndim == 2 else tensor.view(request.groups, -1)
        )

    known = None
    if not transforms_active():
        inputs, weights, initial, mix = tensors
        found = list(_gradients(ctx.compiled, inputs, weights, mix, saved, cotangent))
        if found[2] is not None and initial.ndim == 1:
            found[2] = found[2].sum(0)
        known = [None if each is None else grouped(each) for each in map(found.__getitem__, places)]
    wanted = [ctx.needs_input_grad[place] for place in places]
    point = list(map(grouped, given))
    gradients = recorded_gradients(_result(request), wanted, point, grouped(cotangent), known)
    every: list[torch.Tensor | None] = [None] * len(tensors)
    for place, gradient, tensor in zip(places, gradients, given, strict=True):
        every[place] = gradient if gradient is None or alone else gradient.view_as(tensor)
    return every


def _result(request: Request) -> Result:
    """What a call gives, as a function of its tensors; of groups too."""
    circuit, paulis, partners = request.circuit, request.paulis, request.partners
    if partners is not None:
        assert paulis is not None
        return Result(
            lambda i, w, m: evaluate(circuit, i, w, paulis, None, m, partners),
            partial(plain_sums, circuit, paulis),
            {},
        )
    return Result(
        lambda i, w, s=None: evaluate(circuit, i, w, paulis, s),
        gpu.plain(circuit, paulis),
        shifts(circuit, paulis),
    )


def plain_sums(
    circuit: Circuit,
    words: tuple[str, ...],
    inputs: torch.Tensor,
    weights: torch.Tensor,
    mix: torch.Tensor,
) -> torch.Tensor:
    """A superposition's words by torch's operators, not normalised; mix: as for `evaluate`; also of groups in front."""
    qubits, order = circuit.qubits, reduce(circuit, None).order or range(2**circuit.qubits)
    states = gpu.plain(circuit, None)(inputs, weights)
    factors = torch.view_as_complex(mix.unflatten(-1, (-1, 2))).unsqueeze(-2)
    alpha, beta, constant = factors.split([1, 1, 2**qubits], dim=-1)
    constant = constant.index_select(-1, torch.tensor(order).argsort())
    mirrored = states.index_select(-1, torch.tensor(reversal(qubits)))
    states = alpha * states + beta * mirrored + constant
    nothing = weights.new_empty(*weights.shape[:-1], 0)
    return gpu.plain(Circuit(qubits, ()), words)(inputs[..., :0], nothing, states)


def vjp(
    compiled: CompiledSweep, inputs: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, CircuitPullBack]:
    """See `simulator.vjp`; by a kernel of which just the gradients by inputs and weights are wanted.

    inputs, weights: of one group, or (groups, batch, columns) and (groups, columns).
    """
    saved = torch.empty(compiled.saved_floats, dtype=compiled.real)
    rows, own = inputs, weights
    if compiled.groups > 1:
        rows, own = inputs.flatten(0, 1), weights.flatten()

    def back(cotangent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        to_rows, to_own, *_ = _gradients(compiled, rows, own, None, saved, cotangent)
        assert to_rows is not None and to_own is not None
        return to_rows.view_as(inputs), to_own.view_as(weights)

    values = _forward(compiled, rows, own, None, None, saved)
    return values.view(*inputs.shape[:-1], -1), back


def _gradients(
    compiled: CompiledSweep,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    mix: torch.Tensor | None,
    saved: torch.Tensor,
    cotangent: torch.Tensor,
) -> tuple[torch.Tensor | None, ...]:
    """The gradients by inputs, weights, each row's initial state, and `mix`; None where none is wanted."""
    plan = compiled.plan
    inputs, weights = inputs.contiguous(), weights.contiguous()
    cotangent = cotangent.resolve_conj().contiguous()
    columns = inputs.shape[1]
    to_inputs = to_weights = to_initial = to_mix = None
    input_gradient = rows = weight_gradient = initial_gradient = mix_rows = mix_gradient = 0
    workspace = compiled.borrow()
    if "input" in plan.wanted:
        to_inputs = torch.empty_like(inputs) if columns == plan.input_columns else torch.zeros_like(inputs)
        input_gradient = to_inputs.data_ptr()
    if "weight" in plan.wanted:
        exact = weights.shape[0] == compiled.groups * plan.weight_columns
        to_weights = torch.empty_like(weights) if exact else torch.zeros_like(weights)
        weight_gradient = to_weights.data_ptr()
        # With a single tile its row is the sum.
        rows = workspace.weight_rows if compiled.group_tiles > 1 else weight_gradient
    if "initial" in plan.wanted:
        to_initial = torch.empty(compiled.rows, 2**plan.program.qubits, dtype=compiled.complex)
        initial_gradient = to_initial.data_ptr()
    if mix is not None and "mix" in plan.wanted:
        to_mix = torch.empty_like(mix)
        mix_gradient = to_mix.data_ptr()
        mix_rows = workspace.mix_rows if compiled.group_tiles > 1 else mix_gradient
    shared = saved.data_ptr()
    pack_backward(
        workspace.arguments, 0,
        0, 0, inputs.data_ptr(), columns, weights.data_ptr(), shared, shared + compiled.shared_bytes,
        0, 0, 0, 0 if mix is None else mix.data_ptr(), cotangent.data_ptr(),
        input_gradient, columns, rows, weight_gradient, initial_gradient, mix_rows, mix_gradient,
    )  # fmt: skip
    if workspace.threads == 1:
        compiled.backward(workspace.address)
    else:
        compiled.library.on_threads("backward", workspace.address, workspace.threads)
    if compiled.group_tiles > 1:
        compiled.collect(workspace.address)
    compiled.give_back(workspace)
    return to_inputs, to_weights, to_initial, to_mix


def _forward(
    compiled: CompiledSweep,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    initial: torch.Tensor | None,
    mix: torch.Tensor | None,
    saved: torch.Tensor | None,
) -> torch.Tensor:
    """The result; `saved` is filled with what the backward pass needs."""
    inputs, weights = inputs.contiguous(), weights.contiguous()
    out = torch.empty(compiled.shape, dtype=compiled.dtype)
    first = stride = 0
    if initial is not None:
        initial = initial.resolve_conj().contiguous()
        first, stride = initial.data_ptr(), 2 * initial.shape[-1] * (initial.ndim - 1)
    workspace = compiled.borrow()
    shared = (workspace.unsaved if saved is None else saved).data_ptr()
    pack_forward(
        workspace.arguments, 0,
        0, 0, inputs.data_ptr(), inputs.shape[1], weights.data_ptr(), shared, shared + compiled.shared_bytes,
        out.data_ptr(), first, stride, 0 if mix is None else mix.data_ptr(),
    )  # fmt: skip
    if workspace.threads == 1:
        compiled.prepare_and_forward(workspace.address)
    else:
        compiled.prepare(workspace.address)
        compiled.library.on_threads("forward", workspace.address, workspace.threads)
    compiled.give_back(workspace)
    return out
