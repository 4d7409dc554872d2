"""What the compiler reports of the GPU's kernels: registers, spills, shared memory and the occupancy these allow.

Compiling needs no GPU. Print the table of one type of GPU: python -m tests.nightly.gpu.kernels [80 | 90 | 100]
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from typing import Any, NamedTuple

import torch

from ketscale.engines.circuits.fused.gpu import MOST_QUBITS, BlockShape, block_shape, options

# Bytes of shared memory that all blocks on one processor have, by compute capability.
SHARED_BYTES = {80: 164 * 1024, 90: 228 * 1024, 100: 228 * 1024}
# What a processor of each of these has.
REGISTERS, WARPS, BLOCKS = 65_536, 64, 32
# Registers are given to a warp in this many, and each block takes this much shared memory for itself.
REGISTERS_AT_ONCE, SHARED_OF_A_BLOCK = 256, 1024

KERNELS = ("forward", "backward")
# Arguments that are not numbers of the circuit's precision, and those that may be missing.
_INDICES = ("rotation_table", "word_table", "places")
_SCALARS = ("input_stride", "initial_stride", "rotations", "first", "words", "slots", "batch")
_OF_STATES = ("initial", "initial_gradient", "places", "place_signs")


class Resources(NamedTuple):
    """One compiled kernel. spill_bytes: stored and loaded; occupancy: the share of a processor's warps."""

    kernel: str
    qubits: int
    dtype: str
    arch: int
    samples: int
    warps: int
    registers: int
    spill_bytes: int
    shared_bytes: int
    occupancy: float


def resources(kernel: str, qubits: int, dtype: torch.dtype, arch: int, states: bool = False) -> Resources:
    """Compile a kernel for complex amplitudes.

    states: with initial and final states and their gradients, instead of from |0...0> to expectation values.
    """
    shape = block_shape(qubits + 1)
    result, log = compiled(kernel, shape, dtype, arch, states)
    registers = _numbers(r"Used (\d+) registers", log)
    spills = _numbers(r"(\d+) bytes spill (?:stores|loads)", log)
    shared = result.metadata.shared
    return Resources(
        kernel, qubits, str(dtype).removeprefix("torch."), arch, shape.samples, shape.warps, max(registers),
        sum(spills), shared, occupancy(max(registers), shape.warps, shared, arch),
    )  # fmt: skip


def occupancy(registers: int, warps: int, shared: int, arch: int) -> float:
    """The share of a processor's warps that blocks of this kind can fill."""
    of_a_warp = -(-registers * 32 // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
    blocks = min(
        BLOCKS,
        WARPS // warps,
        REGISTERS // (of_a_warp * warps),
        SHARED_BYTES[arch] // (shared + SHARED_OF_A_BLOCK),
    )
    return blocks * warps / WARPS


def compiled(
    kernel: str, shape: BlockShape, dtype: torch.dtype, arch: int, states: bool = False
) -> tuple[Any, str]:
    """A kernel as Triton compiled it, and the assembler's log."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from ketscale.engines.circuits.fused import triton_kernels

    function = getattr(triton_kernels, kernel)
    constants: dict[str, Any] = {"ROWS": shape.rows, "LANES": shape.lanes, "SAMPLES": shape.samples}
    if not states:
        constants |= dict.fromkeys(name for name in _OF_STATES if name in function.arg_names)
    number = "*fp64" if dtype == torch.float64 else "*fp32"
    types = (
        dict.fromkeys(_INDICES, "*i32")
        | dict.fromkeys(_SCALARS, "i32")
        | dict.fromkeys(constants, "constexpr")
    )
    signature = {name: types.get(name, number) for name in function.arg_names}
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs={})
    log = io.StringIO()
    with triton.knobs.nvidia.scope(), triton.knobs.compilation.scope(), contextlib.redirect_stdout(log):
        # A kernel from the cache has no log.
        triton.knobs.compilation.always_compile = True
        triton.knobs.nvidia.dump_ptxas_log = True
        result = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options(shape))
    return result, log.getvalue()


def _numbers(pattern: str, text: str) -> list[int]:
    return [int(number) for number in re.findall(pattern, text)]


def main(arch: int = 90) -> None:
    """Print a row for each kernel, number of qubits and precision."""
    print(*Resources._fields, sep="\t")
    for dtype in (torch.float32, torch.float64):
        for qubits in range(2, MOST_QUBITS + 1):
            for kernel in KERNELS:
                print(*resources(kernel, qubits, dtype, arch), sep="\t", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
