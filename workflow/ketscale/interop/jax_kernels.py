"""How the circuits of `jax_primitive` become calls of kernels: which columns samples share, and the foreign call."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.extend.core import Primitive
from jax.interpreters import mlir

from ketscale.engines.circuits.circuit import Circuit, Column
from ketscale.engines.circuits.fused.call import CompiledCall
from ketscale.engines.circuits.fused.hessians import Argument
from ketscale.engines.circuits.fused.listing import Call
from ketscale.engines.compiled.foreign import TARGET, Place, Table
from ketscale.engines.compiled.language import COUNTERS
from ketscale.engines.compiled.library import Library
from ketscale.engines.noise import density, sweep

kernel_p = Primitive("ketscale_kernel")
kernel_p.multiple_results = True


class Layout:
    """How the samples of operands with leading dimensions that broadcast become groups of samples.

    blocks: the shapes of the blocks of angles. Some that vary with a part of the dimensions are shared by the samples of a
    group, those of the widest such part. Without any samples that differ, all are.
    shared: whether each block is.
    """

    def __init__(self, leading: tuple[int, ...], blocks: Sequence[tuple[int, ...]]) -> None:
        self.leading = leading
        long = {axis for axis, size in enumerate(leading) if size > 1}
        varying = [{axis for axis in long if shape[axis] > 1} for shape in blocks]
        parts = [
            (len(axes), shape[-1], axes) for axes, shape in zip(varying, blocks, strict=True) if axes != long
        ]
        groups: set[int] = max(parts, key=lambda part: part[:2])[2] if parts else set()
        self.shared = tuple(not long or (axes <= groups and axes != long) for axes in varying)
        outer = [axis for axis in range(len(leading)) if axis in groups]
        self._order = [*outer, *(axis for axis in range(len(leading)) if axis not in groups)]
        self._outer = len(outer)
        self.groups = math.prod(leading[axis] for axis in outer)
        self.batch = math.prod(leading) // max(1, self.groups)

    def _sizes(self, by_group: bool) -> list[int]:
        """All dimensions: those that make groups first; the others are 1 for what does not vary within a group."""
        sizes = [self.leading[axis] for axis in self._order]
        return [*sizes[: self._outer], *[1] * (len(sizes) - self._outer)] if by_group else sizes

    def rows(self, array: Any, by_group: bool = False) -> Any:
        """(groups * batch, columns), or (groups, columns) of an array that does not vary within a group."""
        sizes, columns = self._sizes(by_group), array.shape[-1]
        ordered = array.transpose(*self._order, array.ndim - 1)
        return jnp.broadcast_to(ordered, (*sizes, columns)).reshape(math.prod(sizes), columns)

    def back(self, array: Any, shape: tuple[int, ...]) -> Any:
        """The sums of rows or of groups that belong to each entry of an array (*shape, columns)."""
        sizes = self._sizes(len(array) != math.prod(self.leading))
        full = array.reshape(*sizes, array.shape[-1])
        inverse = [self._order.index(axis) for axis in range(len(sizes))]
        return summed(full.transpose(*inverse, len(sizes)), shape)


def summed(array: Any, shape: tuple[int, ...]) -> Any:
    """The sum over the dimensions that a shape has not, or are 1 there."""
    over = tuple(axis for axis, size in enumerate(shape) if size < array.shape[axis])
    return array.sum(over, keepdims=True)


@lru_cache(maxsize=1024)
def divided(circuit: Circuit, sizes: tuple[int, ...], shared: tuple[bool, ...]) -> Circuit:
    """A circuit of inputs alone, blocks of so many, with the shared blocks as weights."""
    columns: list[Column] = []
    counts = {"input": 0, "weight": 0}
    for size, is_shared in zip(sizes, shared, strict=True):
        kind: Literal["input", "weight"] = "weight" if is_shared else "input"
        columns += [Column(kind, counts[kind] + number) for number in range(size)]
        counts[kind] += size
    gates = (
        replace(gate, columns=tuple(columns[c.index] if c.kind == "input" else c for c in gate.columns))
        for gate in circuit.gates
    )
    return Circuit(circuit.qubits, tuple(gates))


class _Operands:
    """The operands of a primitive as those of a kernel. kinds: what each is for the kernel."""

    def __init__(self, circuit: Circuit, operands: Sequence[Any], leading: tuple[int, ...]) -> None:
        self.operands = operands
        self.prepared = jnp.iscomplexobj(operands[-1])
        blocks = operands[: len(operands) - self.prepared]
        self.layout = Layout(leading, [block.shape for block in blocks])
        if circuit.noisy:  # its kernels are given all columns of each sample
            self.layout = Layout(leading, [(*leading, block.shape[-1]) for block in blocks])
            self.layout.shared = (False,) * len(blocks)
        self.circuit = divided(circuit, tuple(block.shape[-1] for block in blocks), self.layout.shared)
        self.kinds: list[Argument] = ["weight" if shared else "input" for shared in self.layout.shared]
        self.kinds += ["initial"] * self.prepared
        # Columns that no gate has are none of the kernel's.
        self.sizes = {
            "input": self.circuit.inputs,
            "weight": self.circuit.weights,
            "initial": 2**circuit.qubits,
        }

    def bind(self, words: tuple[str, ...] | None, kinds: tuple[Argument, ...] = (), *cotangent: Any) -> Any:
        """The kernel's values, or the gradients that are wanted."""
        point = [self._columns("input"), self._columns("weight")]
        if self.prepared:
            initial = self.operands[-1]
            # One state for all samples, or one for each.
            one = all(length == 1 for length in initial.shape[:-1])
            point.append(initial.reshape(1, -1) if one else self.layout.rows(initial))
        if self.circuit.noisy:
            point[0] = _checked(point[0], self.circuit)
        call = Call(
            self.circuit, words, getattr(torch, point[0].dtype.name), self.layout.batch, self.layout.groups,
            not self.prepared, kinds,
        )  # fmt: skip
        return kernel_p.bind(*point, *map(self.layout.rows, cotangent), call=call)

    def _columns(self, kind: Argument) -> Any:
        """The blocks of a kind, side by side."""
        shared = kind == "weight"
        pairs = zip(self.operands, self.kinds, strict=True)
        parts = [self.layout.rows(each, shared) for each, own in pairs if own == kind]
        none = self.layout.rows(
            jnp.zeros((1,) * len(self.layout.leading) + (0,), self.operands[0].dtype), shared
        )
        return jnp.concatenate([none, *parts], axis=1)[:, : self.sizes[kind]]

    def gradient(self, number: int, gradients: Mapping[Argument, Any]) -> Any:
        """The gradient by an operand, from the kernel's results."""
        kind, own = self.kinds[number], self.operands[number]
        if kind not in gradients:
            return jnp.zeros_like(own)
        pairs = zip(self.operands[:number], self.kinds, strict=False)
        first = sum(each.shape[-1] for each, other in pairs if other == kind)
        part = gradients[kind][:, first : first + own.shape[-1]]
        part = jnp.pad(part, ((0, 0), (0, own.shape[-1] - part.shape[1])))
        # JAX's gradients by complex numbers are the conjugates of torch's, which the kernels give.
        return jnp.conj(self.layout.back(part, own.shape[:-1]))


def _checked(rows: Any, circuit: Circuit) -> Any:
    """Rows whose strengths are from 0 to 1; with others the program stops in words. Else it does not call Python."""

    def refuse(rows: Any) -> Any:
        density.check_strengths(circuit, torch.from_numpy(np.array(rows)), "column")
        return rows

    wrong = [each.any() for each, _, _ in density.faults(circuit, rows)]
    if not wrong:
        return rows
    return jax.lax.cond(jnp.stack(wrong).any(), lambda x: jax.pure_callback(refuse, x, x), lambda x: x, rows)


def outputs(circuit: Circuit, words: tuple[str, ...] | None, real: Any) -> tuple[int, Any]:
    """How many numbers a sample's result has, and their type: words, a state, or with channels a Pauli vector."""
    if words is not None or circuit.noisy:
        return 4**circuit.qubits if words is None else len(words), real
    return 2**circuit.qubits, jnp.result_type(real, jnp.complex64)


def values(*operands: Any, circuit: Circuit, words: tuple[str, ...] | None) -> Any:
    """Values around one call of a kernel; see `jax_primitive`."""
    leading = jnp.broadcast_shapes(*(each.shape[:-1] for each in operands))
    if math.prod(leading) == 0:
        columns, dtype = outputs(circuit, words, operands[0].dtype)
        return jnp.zeros((*leading, columns), dtype)
    point = _Operands(circuit, operands, leading)
    value, *_ = point.bind(words)
    return point.layout.back(value, leading)


def gradients(
    *operands: Any, circuit: Circuit, words: tuple[str, ...] | None, which: tuple[int, ...]
) -> list[Any]:
    """Gradients around one call of a kernel; see `jax_primitive`."""
    *blocks, cotangent = operands
    leading = jnp.broadcast_shapes(*(each.shape[:-1] for each in operands))
    if math.prod(leading) == 0:
        return [jnp.zeros_like(blocks[number]) for number in which]
    point = _Operands(circuit, blocks, leading)
    wanted = {point.kinds[number] for number in which}
    kinds = tuple(kind for kind, size in point.sizes.items() if size and kind in wanted)
    results = point.bind(words, kinds, jnp.conj(cotangent)) if kinds else ()
    by_kind = dict(zip(kinds, results, strict=False))
    return [point.gradient(number, by_kind) for number in which]


# --- the kernel ---


class Compiled(NamedTuple):
    """A foreign call and the types of its results, with its scratch after them."""

    table: Table
    results: tuple[jax.core.ShapedArray, ...]


@lru_cache(maxsize=256)
def compiled(call: Call, one_state: bool) -> Compiled:
    """The foreign call; see `_Operands`. one_state: all samples have the same initial state."""
    if call.circuit.noisy:
        return _noisy(call)
    kernel = CompiledCall(call)
    plan, circuit, groups = kernel.plan, call.circuit, call.groups
    # macOS binds no process to cores.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = min(cores, kernel.most_threads)
    names = ["inputs", "weights", *["initial"] * (not call.from_zero), *["cotangent"] * bool(call.kinds)]
    sizes = {
        "out": (kernel.rows, plan.sizes["columns"]),
        "states": (threads * plan.state_vectors * plan.lanes,),
        "input_gradient": (kernel.rows, circuit.inputs),
        "weight_gradient": (groups, circuit.weights),
        "initial_gradient": (kernel.rows, plan.sizes["amplitude_floats"]),
        "weight_rows": (kernel.tiles, plan.sizes["weight_columns"]),
        "scratch": (threads * plan.sizes["scratch_vectors"] * plan.lanes,),
        "shared": (kernel.shared_floats,),
    }
    results = [f"{kind}_gradient" for kind in call.kinds] or ["out", "states"]
    results += ["weight_rows"] * ("weight" in call.kinds) + ["scratch", "shared"]
    # The functions, and whether threads share them.
    functions = {"prepare": False, "pull" if call.kinds else "forward": True}
    functions |= {"collect": False} if call.kinds else {}
    fixed = kernel.fixed | {
        "input_stride": circuit.inputs,
        "input_gradient_stride": circuit.inputs,
        "initial_stride": 0 if one_state else plan.sizes["amplitude_floats"],
        "states_per_worker": plan.state_vectors,
    }
    real = np.dtype(str(call.dtype).removeprefix("torch."))
    amplitudes = {"initial_gradient"} | ({"out"} if call.words is None else set())
    typed = {
        name: jax.core.ShapedArray((*shape[:-1], shape[-1] // 2), np.result_type(real, np.complex64))
        if name in amplitudes
        else jax.core.ShapedArray(shape, real)
        for name, shape in ((name, sizes[name]) for name in results)
    }
    return _foreign(kernel, kernel.library, functions, threads, kernel.names, fixed, names, typed)


def _foreign(
    owner: Any, library: Library, functions: Mapping[str, bool], threads: int, arguments: Sequence[str],
    fixed: Mapping[str, Any], names: Sequence[str], results: Mapping[str, jax.core.ShapedArray],
) -> Compiled:  # fmt: skip
    """A foreign call of functions. owner: of memory that `fixed` has addresses in. names: of the arguments that are operands."""
    slots = {name: COUNTERS + number for number, name in enumerate(arguments)}
    table = Table(
        [(library.address(name), shared) for name, shared in functions.items()],
        threads,
        [0] * COUNTERS + [fixed.get(name, 0) for name in slots],
        [Place(number, slots[name]) for number, name in enumerate([*names, *results])],
        (owner, library),
    )
    return Compiled(table, tuple(results.values()))


def _noisy(call: Call) -> Compiled:
    """As `compiled`, with channels, and inputs alone. The sweep back makes all vectors again."""
    kernel, backward = density.call_of(call.circuit, call.words), bool(call.kinds)
    columns = call.circuit.inputs
    lanes, threads = kernel.lanes(call.batch, call.dtype)
    fixed = kernel.fixed(call.dtype, call.batch, (columns, 0), lanes, backward, by_tile=False) | {"again": 1}
    sizes = {"input_gradient": (call.batch, columns)} if backward else {"out": (call.batch, fixed["words"])}
    for name, size in (("states", "states_per_worker"), ("scratch", "scratch_vectors")):
        sizes[name] = threads * fixed[size], lanes
    real = np.dtype(str(call.dtype).removeprefix("torch."))
    return _foreign(
        kernel, density.kernel_of(call.dtype, lanes).library, {"backward" if backward else "forward": True}, threads,
        " ".join(sweep.ARGUMENTS).split(), fixed, ["inputs", "weights", *["cotangent"] * backward],
        {name: jax.core.ShapedArray(shape, real) for name, shape in sizes.items()},
    )  # fmt: skip


def _compiled(avals: Any, call: Call) -> Compiled:
    return compiled(call, call.from_zero or avals[2].shape[0] == 1)


@kernel_p.def_abstract_eval
def _results(*avals: Any, call: Call) -> Any:
    return list(_compiled(avals, call).results)


def _lower(ctx: Any, *operands: Any, call: Call) -> Any:
    table = _compiled(ctx.avals_in, call).table
    # The executable keeps the table, and so the code.
    ctx.module_context.add_keepalive(table)
    attributes = {name: np.int64(value) for name, value in table.attributes().items()}
    return jax.ffi.ffi_lowering(TARGET)(ctx, *operands, **attributes)


mlir.register_lowering(kernel_p, _lower, platform="cpu")
