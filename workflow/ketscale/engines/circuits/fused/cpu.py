"""Calling compiled kernels from torch: buffers, threads, and the autograd function.

A small circuit's arithmetic takes a few microseconds, so every Python call matters here. What does not change
between calls (`CompiledSweep`, `Workspace`) is kept.
"""

from __future__ import annotations

import struct
from array import array
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch

from ketscale.engines.circuits.checks import one_first_derivative
from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused.kernels import ARGUMENTS, CALL_ARGUMENTS, backward, forward
from ketscale.engines.circuits.fused.once import collect, prepare, prepare_and_forward
from ketscale.engines.circuits.fused.plan import SweepPlan, Wanted, wanted_of
from ketscale.engines.circuits.fused.program import Program, reduce
from ketscale.engines.circuits.simulator import CircuitPullBack
from ketscale.engines.compiled.kernel import WORK_PER_THREAD, Kernel
from ketscale.engines.compiled.language import COUNTERS
from ketscale.engines.compiled.library import vector_bytes

# A tile's state and adjoint together take at most this many bytes, half of a core's second-level cache.
TILE_BYTES = 512 * 1024

# Up to this many amplitudes a call takes a few microseconds with vectors of 256 bits. In a loop of such calls wider
# vectors save one or two microseconds, but in a training step, between torch's kernels, they took 20 more.
FEW_AMPLITUDES = 512

# Pack the counters, which begin at 0, and the arguments that each call sets, as 64-bit integers.
pack_forward = struct.Struct(f"{COUNTERS + list(CALL_ARGUMENTS).index('cotangent')}q").pack_into
pack_backward = struct.Struct(f"{COUNTERS + len(CALL_ARGUMENTS)}q").pack_into

# The modules that take part in writing, besides those of the functions.
WRITERS = ("block", "mixing", "plan", "program", "frame", "rows", "schedule", "words")
SOURCES = tuple(import_module(f"ketscale.engines.circuits.fused.{name}") for name in WRITERS)


class CompiledSweep:
    """Compiled functions for one circuit, one set of wanted gradients, one batch size and one number of groups.

    batch: samples in each group.
    """

    def __init__(self, plan: SweepPlan, batch: int, groups: int) -> None:
        self.plan = plan
        self.batch = batch
        self.groups = groups
        self.group_tiles = -(-batch // plan.samples)
        self.tiles = groups * self.group_tiles
        functions = (prepare, forward, prepare_and_forward, *((backward, collect) if plan.wanted else ()))
        self.real = torch.float64 if plan.double else torch.float32
        self.library = Kernel(functions, ARGUMENTS, self.real, plan.lanes, plan, SOURCES).library
        run = self.library.on_one_thread
        self.prepare, self.prepare_and_forward = run["prepare"], run["prepare_and_forward"]
        if plan.wanted:
            self.backward, self.collect = run["backward"], run["collect"]
        self.complex = self.real.to_complex()
        words, size = plan.program.words, 2**plan.program.qubits
        self.rows = groups * batch
        self.shape = (self.rows, size if words is None else len(words))
        self.dtype = self.complex if words is None else self.real
        self.sources = torch.tensor(plan.program.order or (), dtype=torch.int64).argsort()
        self.powers = torch.tensor(plan.program.powers or (), dtype=torch.int8)[self.sources]
        # The tables of shared angles come before the tiles' states, so that the backward pass can reuse them.
        self.shared_floats = groups * plan.shared_stride
        self.shared_bytes = self.shared_floats * (8 if plan.double else 4)
        self.saved_floats = self.shared_floats + self.tiles * plan.state_vectors * plan.lanes
        work = 14 * len(plan.steps) * plan.state_vectors * plan.lanes * self.tiles
        self._most_threads = max(1, min(self.tiles, work // WORK_PER_THREAD))
        self._free: list[Workspace] = []

    def borrow(self) -> Workspace:
        """A workspace that no other call is using; give it back with `give_back`."""
        threads = min(torch.get_num_threads(), self._most_threads)
        try:
            workspace = self._free.pop()
        except IndexError:
            return Workspace(self, threads)
        return workspace if workspace.threads == threads else Workspace(self, threads)

    def give_back(self, workspace: Workspace) -> None:
        """Let the next call use a workspace."""
        self._free.append(workspace)


class Workspace:
    """The memory of one call: scratch for each thread, sums of tiles, and the arguments."""

    def __init__(self, kernel: CompiledSweep, threads: int) -> None:
        plan = kernel.plan
        self.threads = threads
        # torch aligns what it allocates to 64 bytes, the widest vector.
        self._scratch = torch.empty(threads * plan.scratch_vectors * plan.lanes, dtype=kernel.real)
        several = kernel.tiles if kernel.group_tiles > 1 else 0
        self._weight_rows = torch.empty(several * plan.weight_columns, dtype=kernel.real)
        self._mix_rows = torch.empty(several * plan.mix_size, dtype=kernel.real)
        self.weight_rows, self.mix_rows = self._weight_rows.data_ptr(), self._mix_rows.data_ptr()
        # Without a backward pass, there is one state for each thread instead of each tile.
        unsaved = 0 if plan.wanted else kernel.shared_floats + threads * plan.state_vectors * plan.lanes
        self.unsaved = torch.empty(unsaved, dtype=kernel.real)
        fixed = {
            "batch": kernel.batch,
            "groups": kernel.groups,
            "group_tiles": kernel.group_tiles,
            "tiles": kernel.tiles,
            "scratch": self._scratch.data_ptr(),
            "states_per_tile": plan.state_vectors if plan.wanted else 0,
            "states_per_worker": 0 if plan.wanted else plan.state_vectors,
            "sources": kernel.sources.data_ptr(),
            "powers": kernel.powers.data_ptr(),
        }
        self.arguments = array(
            "q", [0] * COUNTERS + [fixed.get(name, 0) for name in " ".join(ARGUMENTS).split()]
        )
        self.address = self.arguments.buffer_info()[0]


@lru_cache(maxsize=4096)
def kernel(
    circuit: Circuit,
    paulis: tuple[str, ...] | None,
    dtype: torch.dtype,
    batch: int,
    from_zero: bool,
    wanted: tuple[Wanted, ...],
    literal: bool,
    partners: tuple[int, ...] | None = None,
    groups: int = 1,
) -> CompiledSweep:
    """The compiled kernel for a circuit, the wanted result and the wanted gradients."""
    plan = plan_for(circuit, paulis, dtype, batch, from_zero, wanted, literal, partners)
    return CompiledSweep(plan, batch, groups)


def plan_for(
    circuit: Circuit,
    paulis: tuple[str, ...] | None,
    dtype: torch.dtype,
    batch: int,
    from_zero: bool,
    wanted: tuple[Wanted, ...],
    literal: bool = False,
    partners: tuple[int, ...] | None = None,
) -> SweepPlan:
    """The plan of a kernel for groups of `batch` samples on this processor."""
    program = reduced(circuit, paulis, literal)
    double = dtype == torch.float64
    real = from_zero and program.real and not literal and partners is None
    lanes = _lanes(batch << circuit.qubits, double)
    bits = lane_bits(lanes, circuit.qubits, batch, double, real) if partners is None else 0
    return SweepPlan(
        program=program,
        input_columns=circuit.inputs,
        weight_columns=circuit.weights,
        double=double,
        lanes=lanes,
        lane_bits=bits,
        widths=block_widths(real),
        from_zero=from_zero,
        wanted=wanted,
        literal=literal,
        partners=partners,
    )


@lru_cache(maxsize=256)
def reduced(circuit: Circuit, paulis: tuple[str, ...] | None, literal: bool) -> Program:
    """`program.reduce`, cached."""
    return reduce(circuit, paulis, literal)


def block_widths(real: bool) -> tuple[int, int]:
    """The dimensions of blocks that fill the vector registers, for the forward and the backward pass."""
    return (4, 3) if real else (3, 2)


def _lanes(amplitudes: int, double: bool) -> int:
    """Floats in a vector, for a batch with this many amplitudes."""
    width = min(vector_bytes(), 32) if amplitudes <= FEW_AMPLITUDES else vector_bytes()
    return width // (8 if double else 4)


def lane_bits(lanes: int, qubits: int, batch: int, double: bool, real: bool) -> int:
    """How many bits of a basis index to put into a vector's lanes.

    Few, since samples in lanes need no shuffles; more if the batch is smaller than a vector, or if the states of so
    many samples would not fit the cache.
    """
    size = (8 if double else 4) * (1 if real else 2) * 2
    bits = 0
    while (
        bits < qubits
        and lanes >> bits > 1
        and (lanes >> (bits + 1) >= batch or (lanes >> bits) * size << qubits > TILE_BYTES)
    ):
        bits += 1
    return bits


def evaluate(
    circuit: Circuit,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    paulis: tuple[str, ...] | None,
    initial: torch.Tensor | None,
    literal: bool = False,
) -> torch.Tensor:
    """Expectation values of `paulis`, or the state without any, differentiable in all tensors.

    Shapes and errors are those of `Simulator`; inputs are (batch, columns) with a batch of at least 1.
    """
    compiled = kernel_for(circuit, inputs, weights, paulis, initial, literal)
    return call(compiled, inputs, weights, initial)


def evaluate_groups(
    circuit: Circuit,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    paulis: tuple[str, ...] | None,
    initial: torch.Tensor | None,
    literal: bool = False,
    mix: torch.Tensor | None = None,
    partners: tuple[int, ...] | None = None,
) -> torch.Tensor:
    """`evaluate` for groups with weights of their own, in one call, (groups, batch, columns).

    Each group gets the same bits as from a call of its own. inputs: (groups, batch, columns), both at least 1.
    weights: (groups, columns). initial: complex (groups, 2**n) or (groups, batch, 2**n). mix: real (groups, mix_size).
    """
    groups, batch, _ = inputs.shape
    rows, own = inputs.flatten(0, 1), weights[:, : circuit.weights].flatten()
    if initial is not None:
        each = initial if initial.ndim == 3 else initial[:, None].expand(-1, batch, -1)
        initial = each.flatten(0, 1)
    mixes = None if mix is None else mix.flatten()
    compiled = kernel_for(circuit, rows, own, paulis, initial, literal, mixes, partners, groups)
    return call(compiled, rows, own, initial, mixes).unflatten(0, (groups, batch))


def kernel_for(
    circuit: Circuit,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    paulis: tuple[str, ...] | None,
    initial: torch.Tensor | None,
    literal: bool,
    mix: torch.Tensor | None = None,
    partners: tuple[int, ...] | None = None,
    groups: int = 1,
) -> CompiledSweep:
    """The kernel for tensors of these shapes that want these gradients; `mix` and `partners` go together.

    Each of several groups has as many rows of the inputs, and as much of `weights` and `mix`.
    """
    wanted = wanted_of(initial=initial, input=inputs, weight=weights, mix=mix)
    batch = inputs.shape[0] // groups
    return kernel(circuit, paulis, inputs.dtype, batch, initial is None, wanted, literal, partners, groups)


def call(
    compiled: CompiledSweep,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    initial: torch.Tensor | None,
    mix: torch.Tensor | None = None,
) -> torch.Tensor:
    """The result of a kernel, with a gradient where it was made for one."""
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
        ctx.save_for_backward(inputs, weights, mix, saved)
        ctx.compiled = compiled
        ctx.one_initial = initial is not None and initial.ndim == 1
        return _forward(compiled, inputs, weights, initial, mix, saved)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        one_first_derivative("simulator 'fused'", cotangent)
        inputs, weights, mix, saved = ctx.saved_tensors
        to_inputs, to_weights, to_initial, to_mix = _gradients(
            ctx.compiled, inputs, weights, mix, saved, cotangent
        )
        if to_initial is not None and ctx.one_initial:
            to_initial = to_initial.sum(0)
        return to_inputs, to_weights, to_initial, to_mix, None


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
