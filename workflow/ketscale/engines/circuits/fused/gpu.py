"""Running a program on a GPU: launches of its two kernels, and the autograd function.

A call is one forward and one backward launch for the whole circuit, and a few small torch operations that add up
gradients. Tables are uploaded at a circuit's first call and kept. Afterwards nothing waits for the GPU, and nothing
depends on the values in tensors, so a whole training step can be captured in a CUDA graph after one warm-up step.
There are no atomic additions, so results do not depend on the order of execution.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused.plan import Wanted
from ketscale.engines.circuits.fused.program import reduce
from ketscale.engines.circuits.fused.tables import Tables, tabulate
from ketscale.errors import UserError
from ketscale.optional import needed_for

# At this size a state and its adjoint in fp64 fill half of a processor's registers; the other half is for working.
MOST_QUBITS = 12


def evaluate(
    circuit: Circuit,
    inputs: torch.Tensor,
    weights: torch.Tensor,
    paulis: tuple[str, ...] | None,
    initial: torch.Tensor | None,
    literal: bool = False,
) -> torch.Tensor:
    """Expectation values of `paulis`, or the state without any, differentiable in all tensors.

    The tensors are on one GPU, or on the CPU if Triton interprets its kernels (TRITON_INTERPRET=1).

    Raises:
        UserError: the circuit is too large, the route is `literal`, or Triton is not installed.
    """
    if circuit.qubits > MOST_QUBITS:
        raise UserError(
            f"simulator 'fused' takes at most {MOST_QUBITS} qubits on a GPU, not {circuit.qubits}: "
            "set placement: cpu"
        )
    if literal:
        raise UserError("simulator 'fused' takes the route 'literal' on the CPU only: set placement: cpu")
    wanted: tuple[Wanted, ...] = ()
    if torch.is_grad_enabled():
        tensors: tuple[tuple[Wanted, torch.Tensor | None], ...] = (
            ("initial", initial),
            ("input", inputs),
            ("weight", weights),
        )
        wanted = tuple(kind for kind, tensor in tensors if tensor is not None and tensor.requires_grad)
    tables = _tables(circuit, paulis, initial is None, wanted, inputs.dtype, inputs.device)
    if not wanted:
        return _forward(tables, inputs, weights, initial)[0]
    result: torch.Tensor = _Evaluate.apply(inputs, weights, initial, tables)
    return result


# Unbounded, as a captured CUDA graph holds addresses of these tables.
@cache
def _tables(
    circuit: Circuit,
    paulis: tuple[str, ...] | None,
    from_zero: bool,
    wanted: tuple[Wanted, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> Tables:
    program = reduce(circuit, paulis)
    real = from_zero and program.real and paulis is not None
    return tabulate(program, real, wanted, dtype, device)


@cache
def _kernels() -> ModuleType:
    with needed_for("simulator fused on a GPU"):
        from ketscale.engines.circuits.fused import triton_kernels
    return triton_kernels


def block(bits: int) -> tuple[int, int]:
    """(samples, warps) of a block of the kernels, where a sample has 2**bits numbers."""
    # Up to 64 numbers: one warp, in which an exchange is a few shuffles without a barrier, and as many samples as
    # give each thread four numbers. More samples would share a rotation's masks, but at batches of some hundreds
    # they would leave most of a large GPU's 132 processors without work.
    samples = max(1, 128 >> bits)
    if samples > 1:
        return samples, 1
    # Above: one sample, and eight numbers a thread. With their adjoints and the exchanged numbers they fit the 64
    # registers that each of 1024 threads has at 12 qubits, in fp64 all but a few. At least two warps, since a
    # single one would gather by shuffles again, and by too many.
    return 1, max(2, 2**bits // 256)


def _launch(name: str, tables: Tables, batch: int, arguments: dict[str, Any]) -> None:
    samples, warps = block(tables.bits)
    shared = {
        "rotation_table": tables.rotation_table,
        "rotations": len(tables.factors),
        "word_table": tables.word_table,
        "signs": tables.signs,
        "words": len(tables.signs),
        "places": tables.places,
        "place_signs": tables.place_signs,
        "batch": batch,
        "BITS": tables.bits,
        "SAMPLES": samples,
    }
    kernel = getattr(_kernels(), name)
    with torch.cuda.device_of(tables.factors):
        # The option is explicit, since its default is about to change.
        kernel[(-(-batch // samples),)](**arguments, **shared, num_warps=warps, enable_fp_fusion=True)


class _Evaluate(torch.autograd.Function):
    """A program's values, with gradients by the backward kernel."""

    @staticmethod
    def forward(
        ctx: Any, inputs: torch.Tensor, weights: torch.Tensor, initial: torch.Tensor | None, tables: Tables
    ) -> torch.Tensor:
        out, cosines, sines, final = _forward(tables, inputs, weights, initial)
        ctx.save_for_backward(cosines, sines, final)
        ctx.tables = tables
        ctx.columns = inputs.shape[1], len(weights)
        ctx.one_initial = initial is not None and initial.ndim == 1
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        tables: Tables = ctx.tables
        cosines, sines, final = ctx.saved_tensors
        derivatives = final.new_empty(len(final), tables.slots)
        to_inputs = to_weights = to_initial = None
        if "initial" in tables.wanted:
            to_initial = torch.empty_like(final)
        arguments = {
            "cotangent": _reals(cotangent),
            "first": tables.first,
            "cosines": cosines,
            "sines": sines,
            "final": final,
            "gradients": derivatives,
            "slots": tables.slots,
            "initial_gradient": to_initial,
        }
        _launch("backward", tables, len(final), arguments)
        if "input" in tables.wanted:
            to_inputs = tables.inputs.sums(derivatives, ctx.columns[0])
        if "weight" in tables.wanted:
            to_weights = tables.weights.sums(derivatives.sum(0, keepdim=True), ctx.columns[1])[0]
        if to_initial is not None:
            to_initial = torch.view_as_complex(to_initial.unflatten(1, (-1, 2)))
            to_initial = to_initial.sum(0) if ctx.one_initial else to_initial
        return to_inputs, to_weights, to_initial, None


def _forward(
    tables: Tables, inputs: torch.Tensor, weights: torch.Tensor, initial: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The result, and what the backward pass needs: cosines, sines, and the final state if a gradient is wanted."""
    batch, size = len(inputs), 2**tables.bits
    inputs = _reals(inputs)
    cosines, sines = (inputs.new_empty(batch, len(tables.factors)) for _ in range(2))
    final = inputs.new_empty(batch, size) if tables.wanted else None
    out = inputs.new_empty(batch, len(tables.signs) if tables.places is None else size)
    arguments = {
        "inputs": inputs,
        "input_stride": inputs.shape[1],
        "weights": _reals(weights),
        "initial": None if initial is None else _reals(initial),
        "initial_stride": 0 if initial is None or initial.ndim == 1 else size,
        "factors": tables.factors,
        "cosines": cosines,
        "sines": sines,
        "final": final,
        "out": out,
    }
    _launch("forward", tables, batch, arguments)
    if tables.places is not None:
        out = torch.view_as_complex(out.unflatten(1, (-1, 2)))
    return out, cosines, sines, final


def _reals(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's numbers as contiguous reals, complex ones as pairs."""
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    return torch.view_as_real(plain) if plain.is_complex() else plain
