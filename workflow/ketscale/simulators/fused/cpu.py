"""Calling compiled kernels from torch: buffers, threads, and the autograd function.

A small circuit's arithmetic takes a few microseconds, so every call of Python counts here: what does not
change between calls (`Kernel`, `Workspace`) is kept.
"""

from __future__ import annotations

import array
from functools import lru_cache
from typing import Any

import torch

from ketscale.circuits import Circuit
from ketscale.errors import UserError
from ketscale.simulators.fused.library import Library, vector_bytes
from ketscale.simulators.fused.plan import ARGUMENTS, Plan, Wanted
from ketscale.simulators.fused.program import Program, reduce

# A tile's state and adjoint together take at most this many bytes, half of a core's second-level cache.
TILE_BYTES = 512 * 1024

# Below this many multiply-adds of a thread a call is over before another thread has woken up.
WORK_PER_THREAD = 100_000

SLOTS = {name: slot for slot, name in enumerate(ARGUMENTS)}
ALIGNMENT = 64


class Kernel:
    """Compiled functions for one circuit, one set of wanted gradients and one batch size."""

    def __init__(self, plan: Plan, batch: int) -> None:
        self.plan = plan
        self.batch = batch
        self.tiles = -(-batch // plan.samples)
        self.library = Library(plan)
        self.real = torch.float64 if plan.double else torch.float32
        self.complex = self.real.to_complex()
        words, size = plan.program.words, 2**plan.program.qubits
        self.shape = (batch, size if words is None else len(words))
        self.dtype = self.complex if words is None else self.real
        order, powers = plan.program.order, plan.program.powers
        self.order = torch.arange(size) if order is None else torch.tensor(order)
        self.powers = (
            torch.zeros(size, dtype=torch.int8) if powers is None else torch.tensor(powers, dtype=torch.int8)
        )
        # The tables of shared angles lie in front of the tiles' states, so that the way back need not make them again.
        self.states_offset = -(-plan.shared_size // plan.lanes) * plan.lanes
        self.saved_size = self.states_offset + self.tiles * plan.state_vectors * plan.lanes + self.padding
        work = 14 * len(plan.steps) * plan.state_vectors * plan.lanes * self.tiles
        self._most_threads = max(1, min(self.tiles, work // WORK_PER_THREAD))
        self._free: list[Workspace] = []

    @property
    def padding(self) -> int:
        """Floats more than needed, so that a buffer can be aligned."""
        return ALIGNMENT // self.bytes

    @property
    def bytes(self) -> int:
        """Size of a float."""
        return 8 if self.plan.double else 4

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
    """The memory of one call: scratch for each thread, tables of shared angles, and the arguments."""

    def __init__(self, kernel: Kernel, threads: int) -> None:
        plan = kernel.plan
        self.threads = threads
        floats = {
            "scratch": threads * plan.scratch["end"] * plan.lanes,
            "weight_rows": kernel.tiles * plan.weights if "weight" in plan.wanted else 0,
            "shared": 0 if plan.wanted else kernel.states_offset + threads * plan.state_vectors * plan.lanes,
        }
        self._buffers = {
            name: torch.empty(size + kernel.padding, dtype=kernel.real) for name, size in floats.items()
        }
        self.counters = array.array("q", (0, 0))
        first = self.counters.buffer_info()[0]
        fixed = {
            "batch": kernel.batch,
            "tiles": kernel.tiles,
            "next_tile": first,
            "next_worker": first + 8,
            "scratch_vectors": plan.scratch["end"],
            "states_per_tile": plan.state_vectors if plan.wanted else 0,
            "states_per_worker": 0 if plan.wanted else plan.state_vectors,
            "order": kernel.order.data_ptr(),
            "powers": kernel.powers.data_ptr(),
            **{name: aligned(buffer) for name, buffer in self._buffers.items()},
        }
        fixed["states"] = fixed["shared"] + kernel.states_offset * kernel.bytes
        self.arguments = array.array("q", [fixed.get(name, 0) for name in ARGUMENTS])
        self.address = self.arguments.buffer_info()[0]


def aligned(buffer: torch.Tensor) -> int:
    """The first address in a buffer at which a vector may lie."""
    return -(-buffer.data_ptr() // ALIGNMENT) * ALIGNMENT


@lru_cache(maxsize=4096)
def kernel(
    circuit: Circuit,
    paulis: tuple[str, ...] | None,
    dtype: torch.dtype,
    batch: int,
    from_zero: bool,
    wanted: tuple[Wanted, ...],
    literal: bool,
) -> Kernel:
    """The compiled kernel for a circuit and what is asked of it."""
    program = reduced(circuit, paulis, literal)
    double = dtype == torch.float64
    real = from_zero and program.real and not literal
    plan = Plan(
        program=program,
        inputs=circuit.inputs,
        weights=circuit.weights,
        double=double,
        lanes=vector_bytes() // (8 if double else 4),
        lane_bits=lane_bits(circuit.qubits, batch, double, real),
        widths=block_widths(real),
        from_zero=from_zero,
        wanted=wanted,
        literal=literal,
    )
    return Kernel(plan, batch)


@lru_cache(maxsize=256)
def reduced(circuit: Circuit, paulis: tuple[str, ...] | None, literal: bool) -> Program:
    """`program.reduce`, kept."""
    return reduce(circuit, paulis, literal)


def block_widths(real: bool) -> tuple[int, int]:
    """Dimensions of blocks that fill the vector registers, forward and backward."""
    return (4, 3) if real else (3, 2)


def lane_bits(qubits: int, batch: int, double: bool, real: bool) -> int:
    """How many bits of a basis index to put into a vector's lanes: few, as samples there cost no shuffles.

    More where a batch is smaller than a vector, or where so many samples' states would not fit the cache.
    """
    lanes = vector_bytes() // (8 if double else 4)
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
    wanted: tuple[Wanted, ...] = ()
    if torch.is_grad_enabled():
        if initial is not None and initial.requires_grad:
            wanted += ("initial",)
        if inputs.requires_grad:
            wanted += ("input",)
        if weights.requires_grad:
            wanted += ("weight",)
    compiled = kernel(circuit, paulis, inputs.dtype, inputs.shape[0], initial is None, wanted, literal)
    if wanted:
        result: torch.Tensor = _Evaluate.apply(inputs, weights, initial, compiled)
        return result
    return _forward(compiled, inputs, weights, initial, None)


class _Evaluate(torch.autograd.Function):
    """A kernel's values, with gradients by its backward sweep."""

    @staticmethod
    def forward(
        ctx: Any, inputs: torch.Tensor, weights: torch.Tensor, initial: torch.Tensor | None, compiled: Kernel
    ) -> torch.Tensor:
        saved = torch.empty(compiled.saved_size, dtype=compiled.real)
        ctx.save_for_backward(inputs, weights, saved)
        ctx.compiled = compiled
        ctx.one_initial = initial is not None and initial.ndim == 1
        return _forward(compiled, inputs, weights, initial, saved)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # Cheaper than torch's once_differentiable, and for a caller who wants more, clearer.
        if torch.is_grad_enabled():
            raise UserError(
                "simulator 'fused' has first derivatives only: for create_graph=True use default.qubit"
            )
        inputs, weights, saved = ctx.saved_tensors
        to_inputs, to_weights, to_initial = _backward(ctx.compiled, inputs, weights, saved, cotangent)
        if to_initial is not None and ctx.one_initial:
            to_initial = to_initial.sum(0)
        return to_inputs, to_weights, to_initial, None


def _forward(
    compiled: Kernel,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    initial: torch.Tensor | None,
    saved: torch.Tensor | None,
) -> torch.Tensor:
    """The result; what a backward pass needs is left in `saved`."""
    inputs, weights = inputs.contiguous(), weights.contiguous()
    out = torch.empty(compiled.shape, dtype=compiled.dtype)
    workspace = compiled.borrow()
    arguments = workspace.arguments
    arguments[SLOTS["inputs"]] = inputs.data_ptr()
    arguments[SLOTS["input_stride"]] = inputs.shape[1]
    arguments[SLOTS["weights"]] = weights.data_ptr()
    arguments[SLOTS["out"]] = out.data_ptr()
    if saved is not None:
        _point_at(compiled, arguments, saved)
    if initial is not None:
        initial = initial.resolve_conj().contiguous()
        arguments[SLOTS["initial"]] = initial.data_ptr()
        arguments[SLOTS["initial_stride"]] = 2 * initial.shape[-1] * (initial.ndim - 1)
    workspace.counters[0] = workspace.counters[1] = 0
    compiled.library.run("prepare", workspace.address)
    compiled.library.run("forward", workspace.address, workspace.threads)
    compiled.give_back(workspace)
    return out


def _backward(
    compiled: Kernel,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    saved: torch.Tensor,
    cotangent: torch.Tensor,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Gradients of inputs, weights and initial states, None where not wanted."""
    plan = compiled.plan
    inputs, weights = inputs.contiguous(), weights.contiguous()
    cotangent = cotangent.resolve_conj().contiguous()
    workspace = compiled.borrow()
    arguments = workspace.arguments
    arguments[SLOTS["inputs"]] = inputs.data_ptr()
    arguments[SLOTS["input_stride"]] = inputs.shape[1]
    arguments[SLOTS["weights"]] = weights.data_ptr()
    _point_at(compiled, arguments, saved)
    arguments[SLOTS["cotangent"]] = cotangent.data_ptr()
    to_inputs = to_weights = to_initial = None
    if "input" in plan.wanted:
        columns = inputs.shape[1]
        to_inputs = torch.empty_like(inputs) if columns == plan.inputs else torch.zeros_like(inputs)
        arguments[SLOTS["input_gradient"]] = to_inputs.data_ptr()
        arguments[SLOTS["input_gradient_stride"]] = columns
    if "weight" in plan.wanted:
        exact = weights.shape[0] == plan.weights
        to_weights = torch.empty_like(weights) if exact else torch.zeros_like(weights)
        arguments[SLOTS["weight_gradient"]] = to_weights.data_ptr()
        if compiled.tiles == 1:  # its row is the sum
            arguments[SLOTS["weight_rows"]] = to_weights.data_ptr()
    if "initial" in plan.wanted:
        to_initial = torch.empty(compiled.batch, 2**plan.program.qubits, dtype=compiled.complex)
        arguments[SLOTS["initial_gradient"]] = to_initial.data_ptr()
    workspace.counters[0] = workspace.counters[1] = 0
    compiled.library.run("backward", workspace.address, workspace.threads)
    if compiled.tiles > 1:
        compiled.library.run("collect", workspace.address)
    compiled.give_back(workspace)
    return to_inputs, to_weights, to_initial


def _point_at(compiled: Kernel, arguments: array.array[int], saved: torch.Tensor) -> None:
    start = aligned(saved)
    arguments[SLOTS["shared"]] = start
    arguments[SLOTS["states"]] = start + compiled.states_offset * compiled.bytes
