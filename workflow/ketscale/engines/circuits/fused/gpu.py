"""Running a program on a GPU: launches of its two kernels, and the autograd function.

Up to MOST_QUBITS a call is one forward and one backward launch for the whole circuit, and a few small torch operations
that add up gradients. Larger circuits run rotation by rotation in torch operations (`stepwise`). Tables are uploaded
at a circuit's first call and kept. Moves of amplitudes are torch operations between calls. Afterwards nothing waits for the
GPU, and nothing depends on the values in tensors, so a whole training step can be captured in a CUDA graph after one
warm-up step. There are no atomic additions, so results do not depend on the order of execution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from types import ModuleType
from typing import Any, NamedTuple

import torch

from ketscale.engines.circuits import transforms
from ketscale.engines.circuits.checks import one_gradient
from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused import stepwise
from ketscale.engines.circuits.fused.hessians import (
    Argument,
    Result,
    differentiated,
    recorded_gradients,
    shifts,
)
from ketscale.engines.circuits.fused.program import Move, Program, reduce
from ketscale.engines.circuits.fused.schedule import between_moves
from ketscale.engines.circuits.fused.tables import Tables, tabulate
from ketscale.optional import needed_for
from ketscale.private_torch import transforms_active

# What the kernels take. At this size a state and its adjoint in fp64 fill half of a processor's registers; the other
# half is for working.
MOST_QUBITS = 12


def evaluate(
    circuit: Circuit,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    paulis: tuple[str, ...] | None,
    initial: torch.Tensor | None,
    plain: bool = False,
) -> torch.Tensor:
    """Expectation values of `paulis`, or the state without any, differentiable in all tensors; also of groups in front.

    The tensors are on one GPU, or on the CPU if Triton interprets its kernels (TRITON_INTERPRET=1) or has none to
    run, beyond MOST_QUBITS. plain: by torch's operators, on any device, and differentiable to any order.

    Raises:
        UserError: Triton is needed and not installed.
    """
    for number in range(len(_programs(circuit, paulis))):
        if number and initial is not None:
            places, factors = _move(circuit, paulis, number, initial.dtype, inputs.device)
            initial = initial.index_select(-1, places) * factors
        initial = _Part(circuit, paulis, number).evaluate(plain, inputs, weights, initial)
    assert initial is not None
    return initial


def plain(circuit: Circuit, paulis: tuple[str, ...] | None) -> Callable[..., torch.Tensor]:
    """`evaluate` by torch's operators, as a function of inputs, weights and perhaps initial states."""
    return lambda i, w, s=None: evaluate(circuit, i, w, paulis, s, plain=True)


def result(values: Callable[..., torch.Tensor], circuit: Circuit, paulis: tuple[str, ...] | None) -> Result:
    """What is known of a circuit's result, of whole circuits without a superposition. values: see `Result`."""
    return Result(values, plain(circuit, paulis), shifts(circuit, paulis))


class _Part(NamedTuple):
    """One of a circuit's programs."""

    circuit: Circuit
    paulis: tuple[str, ...] | None
    number: int

    def evaluate(
        self, plain: bool, inputs: torch.Tensor, weights: torch.Tensor, initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """What it gives, also of groups in front."""
        if inputs.ndim == 3:
            circuit, rows, initial = transforms.as_rows(self.circuit, inputs, weights, initial)
            values = self._replace(circuit=circuit).evaluate(plain, rows, rows.new_empty(0), initial)
            return values.unflatten(0, inputs.shape[:2])
        kinds = () if plain else differentiated(initial=initial, input=inputs, weight=weights)
        tables = _tables(*self, initial is None, kinds, inputs.dtype, inputs.device)
        if plain:
            return stepwise.evaluate(tables, inputs, weights, initial)
        if not kinds:
            return _forward(tables, inputs, weights, initial)[0]
        result: torch.Tensor = _SweepOnGpu.apply(inputs, weights, initial, tables, self)
        return result


@cache
def _programs(circuit: Circuit, paulis: tuple[str, ...] | None) -> list[tuple[Move | None, Program]]:
    """A circuit's programs without moves, each after a move but for the first one; all but the last one give a state."""
    one = reduce(circuit, paulis)
    parts = [(move, Program(one.qubits, tuple(steps), None, True)) for move, steps in between_moves(one)]
    move, last = parts[-1]
    return [*parts[:-1], (move, replace(one, rotations=last.rotations))]


@cache
def _move(
    circuit: Circuit,
    paulis: tuple[str, ...] | None,
    number: int,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The place that each amplitude comes from in the move before a program, and its factor."""
    move, _ = _programs(circuit, paulis)[number]
    assert move is not None
    source, factors = map(torch.from_numpy, move.gathered())
    return source.to(device), factors.to(device, dtype)


# Unbounded, as a captured CUDA graph holds addresses of these tables.
@cache
def _tables(
    circuit: Circuit,
    paulis: tuple[str, ...] | None,
    number: int,
    from_zero: bool,
    kinds: tuple[Argument, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> Tables:
    _, program = _programs(circuit, paulis)[number]
    real = from_zero and program.real and program.words is not None
    lanes = block_shape(program.qubits + (not real)).lanes
    return tabulate(program, real, kinds, dtype, device, lanes)


@cache
def _kernels() -> ModuleType:
    with needed_for("simulator fused on a GPU"):
        from ketscale.engines.circuits.fused import triton_kernels
    return triton_kernels


class BlockShape(NamedTuple):
    """A block of the kernels: the shape of its state, and its warps."""

    rows: int
    samples: int
    lanes: int
    warps: int


def block_shape(bits: int) -> BlockShape:
    """The block for samples of 2**bits numbers."""
    # A thread holds all rows. More of them share a rotation's masks and signs, and keep a state within one warp, where
    # nothing waits for other warps. But state, adjoint and exchanged numbers must fit a thread's registers, and at 12
    # qubits 512 threads must fit a processor.
    rows = 16 if bits >= 9 else max(1, min(8, 2**bits // 2))
    lanes = 2**bits // rows
    return BlockShape(rows, max(1, 32 // lanes), lanes, max(1, lanes // 32))


def options(shape: BlockShape) -> dict[str, Any]:
    """How Triton compiles the kernels for such blocks."""
    # A block of 512 threads may have all of a processor's 65,536 registers, or the assembler would spill some for the
    # sake of a second block. Fusion is explicit, since its default is about to change.
    registers = 128 if shape.warps == 16 else None
    return {"num_warps": shape.warps, "maxnreg": registers, "enable_fp_fusion": True}


def _launch(kernel: Any, tables: Tables, batch: int, arguments: dict[str, Any], **own: Any) -> None:
    """Launch one of the kernels. own: the arguments that the other one and `stepwise` do not have."""
    shape = block_shape(tables.bits)
    kernel[(-(-batch // shape.samples),)](
        **arguments,
        **own,
        rotation_table=tables.rotation_table,
        rotations=len(tables.factors),
        word_table=tables.word_table,
        signs=tables.signs,
        words=len(tables.signs),
        places=tables.places,
        place_signs=tables.place_signs,
        batch=batch,
        ROWS=shape.rows,
        LANES=shape.lanes,
        SAMPLES=shape.samples,
        **options(shape),
    )


class _SweepOnGpu(torch.autograd.Function):
    """A program's values, with gradients by the backward kernel."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        weights: torch.Tensor,
        initial: torch.Tensor | None,
        tables: Tables,
        part: _Part,
    ) -> torch.Tensor:
        out, turns, final = _forward(tables, inputs, weights, initial)
        ctx.save_for_backward(inputs, weights, initial, turns, final)
        ctx.tables, ctx.part = tables, part
        return out

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        one_gradient("simulator 'fused'", cotangent)
        plain = None if transforms_active() else _gradients(ctx, cotangent)
        if plain is not None and not torch.is_grad_enabled():
            return *plain, None, None
        own = shifts(*ctx.part[:2]) if ctx.tables.places is None else {}
        result = Result(partial(ctx.part.evaluate, False), partial(ctx.part.evaluate, True), own)
        tensors = ctx.saved_tensors[:3]
        return *recorded_gradients(result, ctx.needs_input_grad[:3], tensors, cotangent, plain), None, None


def _gradients(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """The gradients by inputs, weights and initial state by the backward kernel; None where none is wanted."""
    tables: Tables = ctx.tables
    inputs, weights, initial, turns, final = ctx.saved_tensors
    derivatives = final.new_empty(len(final), tables.slots)
    to_inputs = to_weights = to_initial = None
    if "initial" in tables.kinds:
        to_initial = torch.empty_like(final)
    arguments: dict[str, Any] = {
        "cotangent": _reals(cotangent),
        "turns": turns,
        "final": final,
        "gradients": derivatives,
        "initial_gradient": to_initial,
    }
    with torch.cuda.device_of(final):
        if tables.qubits > MOST_QUBITS:
            stepwise.backward(tables, **arguments)
        else:
            slots = {"first": tables.first, "slots": tables.slots}
            _launch(_kernels().backward, tables, len(final), arguments, **slots)
    if "input" in tables.kinds:
        to_inputs = tables.inputs.sums(derivatives, inputs.shape[1])
    if "weight" in tables.kinds:
        to_weights = tables.weights.sums(derivatives.sum(0, keepdim=True), len(weights))[0]
    if to_initial is not None:
        to_initial = torch.view_as_complex(to_initial.unflatten(1, (-1, 2)))
        to_initial = to_initial.sum(0) if initial.ndim == 1 else to_initial
    return to_inputs, to_weights, to_initial


def _forward(
    tables: Tables, inputs: torch.Tensor, weights: torch.Tensor, initial: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The result, and what the backward pass needs: cosines and sines, and the final state if a gradient is wanted."""
    batch, size = len(inputs), 2**tables.bits
    inputs = _reals(inputs)
    turns = inputs.new_empty(batch, len(tables.factors), 2)
    final = inputs.new_empty(batch, size) if tables.kinds else None
    out = inputs.new_empty(batch, len(tables.signs) if tables.places is None else size)
    arguments: dict[str, Any] = {
        "inputs": inputs,
        "weights": _reals(weights),
        "initial": None if initial is None else _reals(initial),
        "turns": turns,
        "final": final,
        "out": out,
    }
    with torch.cuda.device_of(inputs):
        if tables.qubits > MOST_QUBITS:
            stepwise.forward(tables, **arguments)
        else:
            strides = {
                "input_stride": inputs.shape[1],
                "initial_stride": 0 if initial is None or initial.ndim == 1 else size,
            }
            _launch(_kernels().forward, tables, batch, arguments, factors=tables.factors, **strides)
    if tables.places is not None:
        out = torch.view_as_complex(out.unflatten(1, (-1, 2)))
    return out, turns, final


def _reals(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's numbers as contiguous reals, complex ones as pairs."""
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    return torch.view_as_real(plain) if plain.is_complex() else plain
