"""How the circuits of `jax_primitive` become calls of kernels: which columns samples share, and the foreign call."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.extend.core import Primitive
from jax.interpreters import mlir

from ketscale.engines.circuits.circuit import Circuit, Column
from ketscale.engines.circuits.fused import sweeps
from ketscale.engines.circuits.fused.higher import MOST, Wanted
from ketscale.engines.circuits.fused.kernels import ARGUMENTS
from ketscale.engines.compiled.foreign import TARGET, Place, Table
from ketscale.engines.compiled.kernel import WORK_PER_THREAD
from ketscale.engines.compiled.language import COUNTERS
from ketscale.errors import UserError

kernel_p = Primitive("ketscale_kernel")
kernel_p.multiple_results = True


class Layout:
    """How the samples of operands with leading dimensions that broadcast become groups of samples.

    blocks: the shapes of the blocks of angles. Some that vary with a part of the dimensions are the weights of groups,
    those of the widest such part; all others are inputs. Without any samples that differ, all are weights.
    """

    def __init__(self, leading: tuple[int, ...], blocks: Sequence[tuple[int, ...]]) -> None:
        self.leading = leading
        long = {axis for axis, size in enumerate(leading) if size > 1}
        varying = [{axis for axis in long if shape[axis] > 1} for shape in blocks]
        parts = [
            (len(axes), shape[-1], axes) for axes, shape in zip(varying, blocks, strict=True) if axes != long
        ]
        groups: set[int] = max(parts, key=lambda part: part[:2])[2] if parts else set()
        self.weights = tuple(not long or (axes <= groups and axes != long) for axes in varying)
        outer = [axis for axis in range(len(leading)) if axis in groups]
        self._order = [*outer, *(axis for axis in range(len(leading)) if axis not in groups)]
        self._outer = len(outer)
        self.groups = math.prod(leading[axis] for axis in outer)
        self.batch = math.prod(leading) // max(1, self.groups)

    def rows(self, array: Any) -> Any:
        """(groups * batch, columns)."""
        whole = jnp.broadcast_to(array, (*self.leading, array.shape[-1]))
        return whole.transpose(*self._order, whole.ndim - 1).reshape(
            self.groups * self.batch, array.shape[-1]
        )

    def by_group(self, array: Any) -> Any:
        """(groups, columns) of an array that does not vary within a group."""
        shape = [self.leading[axis] for axis in self._order[: self._outer]]
        moved = array.transpose(*self._order, array.ndim - 1)
        whole = jnp.broadcast_to(moved, (*shape, *moved.shape[self._outer :]))
        return whole.reshape(self.groups, array.shape[-1])

    def back(self, array: Any, shape: tuple[int, ...]) -> Any:
        """The sums of rows or of groups that belong to each entry of an array (*shape, columns)."""
        sizes = [self.leading[axis] for axis in self._order]
        if len(array) != math.prod(sizes):
            sizes[self._outer :] = [1] * (len(sizes) - self._outer)
        whole = array.reshape(*sizes, array.shape[-1])
        inverse = [self._order.index(axis) for axis in range(len(sizes))]
        whole = whole.transpose(*inverse, len(sizes))
        over = tuple(axis for axis, size in enumerate(shape) if size < whole.shape[axis])
        return whole.sum(over, keepdims=True)


@lru_cache(maxsize=1024)
def divided(circuit: Circuit, sizes: tuple[int, ...], weights: tuple[bool, ...]) -> Circuit:
    """A circuit of inputs alone, blocks of so many, with some blocks as weights."""
    columns: list[Column] = []
    counts = {"input": 0, "weight": 0}
    for size, weight in zip(sizes, weights, strict=True):
        kind = "weight" if weight else "input"
        columns += [Column("weight" if weight else "input", counts[kind] + number) for number in range(size)]
        counts[kind] += size
    gates = (
        replace(gate, columns=tuple(columns[c.index] if c.kind == "input" else c for c in gate.columns))
        for gate in circuit.gates
    )
    return Circuit(circuit.qubits, tuple(gates))


def arranged(
    circuit: Circuit, words: tuple[str, ...] | None, terms: Any, wanted: Sequence[bool] | None
) -> list[Any]:
    """The results of the primitive in JAX's functions, around one call of a kernel; see `jax_primitive`."""
    primals, tangents, cotangent = terms
    if len(tangents) > MOST - (wanted is not None):
        raise UserError(
            "ketscale.jax has first and second derivatives, and no third ones: use default.qubit for these"
        )
    every = (*primals, *(t for tangent in tangents for t in tangent), cotangent)
    arrays = [each for each in every if each is not None]
    leading = jnp.broadcast_shapes(*(each.shape[:-1] for each in arrays))
    if math.prod(leading) == 0:
        if wanted is not None:
            return [jnp.zeros_like(primal) for primal, there in zip(primals, wanted, strict=True) if there]
        real = primals[0].dtype
        if words is None:
            return [jnp.zeros((*leading, 2**circuit.qubits), jnp.result_type(real, jnp.complex64))]
        return [jnp.zeros((*leading, len(words)), real)]
    prepared = jnp.iscomplexobj(primals[-1])
    if tangents and not prepared:
        # Kernels along tangents start from a given state.
        zero = jnp.zeros(2**circuit.qubits, jnp.result_type(primals[0].dtype, jnp.complex64)).at[0].set(1)
        primals = [*primals, zero.reshape((1,) * len(leading) + zero.shape)]
        tangents = [[*tangent, None] for tangent in tangents]
        wanted = None if wanted is None else (*wanted, False)
        prepared = True
    operands = [primals, *tangents]
    count = len(primals) - prepared
    shapes = [
        (*jnp.broadcast_shapes(*(o[number].shape[:-1] for o in operands if o[number] is not None)), size)
        for number, size in enumerate(primal.shape[-1] for primal in primals)
    ]
    layout = Layout(leading, shapes[:count])
    sizes = tuple(shape[-1] for shape in shapes[:count])
    swept = divided(circuit, sizes, layout.weights)
    rows, real = layout.groups * layout.batch, primals[0].dtype
    size = 2**circuit.qubits
    # One state for all samples, or one for each.
    one = not prepared or all(length == 1 for length in shapes[-1][:-1])

    def columns(operand: Sequence[Any]) -> list[Any]:
        """The kernel's inputs, weights and initial state, of the point or a tangent."""
        found = []
        for weight, most in ((False, swept.inputs), (True, swept.weights)):
            parts = [jnp.zeros((layout.groups if weight else rows, 0), real)]
            for number in range(count):
                if layout.weights[number] == weight:
                    part = (
                        jnp.zeros(primals[number].shape, real) if operand[number] is None else operand[number]
                    )
                    parts.append(layout.by_group(part) if weight else layout.rows(part))
            found.append(jnp.concatenate(parts, axis=1)[:, :most])
        if prepared:
            state = jnp.zeros_like(primals[-1]) if operand[-1] is None else operand[-1]
            found.append(state.reshape(1, size) if one else layout.rows(state))
        return found

    given = [each for operand in operands for each in columns(operand)]
    settings = {"circuit": swept, "words": words, "groups": layout.groups, "order": len(tangents)}
    if wanted is None:
        value, *_ = kernel_p.bind(*given, **settings, prepared=prepared, wanted=None)
        return [layout.back(value, leading)]
    kinds = [
        "weight" if number < count and layout.weights[number] else "input" if number < count else "initial"
        for number in range(len(primals))
    ]
    asked = tuple(
        kind
        for kind, most in (("input", swept.inputs), ("weight", swept.weights), ("initial", size))
        if most and any(w and k == kind for w, k in zip(wanted, kinds, strict=True))
    )
    if not asked:
        return [jnp.zeros_like(primal) for primal, there in zip(primals, wanted, strict=True) if there]
    # JAX's cotangents of complex numbers are the conjugates of torch's, which the kernels take.
    given.append(layout.rows(jnp.conj(cotangent)))
    found = dict(zip(asked, kernel_p.bind(*given, **settings, prepared=prepared, wanted=asked), strict=False))
    results, ends = [], {"input": 0, "weight": 0, "initial": 0}
    for primal, kind, there in zip(primals, kinds, wanted, strict=True):
        first = ends[kind]
        ends[kind] = last = first + primal.shape[-1]
        if not there:
            continue
        gradient = found.get(kind)
        if gradient is None:
            results.append(jnp.zeros_like(primal))
            continue
        part = gradient[:, first:last]
        part = jnp.pad(part, ((0, 0), (0, primal.shape[-1] - part.shape[1])))
        results.append(jnp.conj(layout.back(part, primal.shape[:-1])))
    return results


# --- the kernel ---


class Compiled(NamedTuple):
    """A kernel and the types of its results, with its scratch after them."""

    table: Table
    results: tuple[jax.core.ShapedArray, ...]


@lru_cache(maxsize=256)
def compiled(
    shapes: tuple[tuple[int, ...], ...],
    dtype: str,
    *,
    circuit: Circuit,
    words: tuple[str, ...] | None,
    groups: int,
    order: int,
    prepared: bool,
    wanted: tuple[Wanted, ...] | None,
) -> Compiled:
    """The kernel for operands of these shapes; see `arranged`."""
    real, rows = np.dtype(dtype), shapes[0][0]
    batch = rows // groups
    kind = getattr(torch, dtype)
    made = sweeps.Compiled(
        sweeps.Request(circuit, words, kind, batch, not prepared, wanted or (), None, groups, order)
    )
    plan = made.plan
    slots = {name: COUNTERS + number for number, name in enumerate(" ".join(ARGUMENTS).split())}
    if order:
        functions = {"bend" if wanted else f"push{order}": True}
    else:
        functions = {"prepare": False, "pull" if wanted else "forward": True}
    several = made.group_tiles > 1
    # macOS binds no process to cores.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = max(1, min(cores, made.tiles, made.work // WORK_PER_THREAD))
    point = ["inputs", "weights"] + ["initial"] * prepared
    names = point + [f"{name}{number}" for number in range(order) for name in point]
    results: dict[str, tuple[int, ...]] = {}
    if wanted is None:
        results["out"] = (rows, plan.columns)
        results["states"] = (threads * plan.state_vectors * plan.lanes,)
    else:
        names.append("cotangent")
        sizes = {
            "input": (rows, circuit.inputs),
            "weight": (groups, circuit.weights),
            "initial": (rows, plan.amplitude_floats),
        }
        results |= {f"{kind}_gradient": sizes[kind] for kind in wanted}
        if several and "weight" in wanted:
            results["weight_rows"] = (made.tiles, plan.weight_columns)
    results["scratch"] = (threads * plan.scratch_vectors * plan.lanes,)
    results["shared"] = (groups * plan.shared_stride,)
    # The functions, and whether threads share them.
    functions |= {"collect": False} if wanted and several else {}
    fixed = made.fixed | {
        "input_stride": circuit.inputs,
        "input_gradient_stride": circuit.inputs,
        "initial_stride": plan.amplitude_floats if prepared and shapes[2][0] > 1 else 0,
        "states_per_worker": plan.state_vectors,
    }
    places = [Place(number, slots[name]) for number, name in enumerate([*names, *results])]
    if "weight_gradient" in results and "weight_rows" not in results:
        # With a single tile its row is the sum.
        at = len(names) + list(results).index("weight_gradient")
        places.append(Place(at, slots["weight_rows"]))
    table = Table(
        [(made.library.address(name), shared) for name, shared in functions.items()],
        threads,
        [0] * COUNTERS + [fixed.get(name, 0) for name in slots],
        places,
        made,
    )
    complex_ = np.result_type(real, np.complex64)
    amplitudes = {"initial_gradient"} | ({"out"} if words is None else set())
    typed = (
        jax.core.ShapedArray((*shape[:-1], shape[-1] // 2), complex_)
        if name in amplitudes
        else jax.core.ShapedArray(shape, real)
        for name, shape in results.items()
    )
    return Compiled(table, tuple(typed))


def _compiled(avals: Any, settings: Any) -> Compiled:
    return compiled(tuple(aval.shape for aval in avals), avals[0].dtype.name, **settings)


@kernel_p.def_abstract_eval
def _results(*avals: Any, **settings: Any) -> Any:
    return list(_compiled(avals, settings).results)


def _lower(ctx: Any, *operands: Any, **settings: Any) -> Any:
    table = _compiled(ctx.avals_in, settings).table
    # The executable keeps the table, and so the code.
    ctx.module_context.add_keepalive(table)
    attributes = {name: np.int64(value) for name, value in table.attributes().items()}
    return jax.ffi.ffi_lowering(TARGET)(ctx, *operands, **attributes)


mlir.register_lowering(kernel_p, _lower, platform="cpu")


def refuse(ctx: Any, *operands: Any, **settings: Any) -> Any:
    """The rule of a primitive for every platform but CPUs.

    Raises:
        UserError: always.
    """
    raise UserError(
        f"ketscale.jax computes on CPUs, and this is compiled for {', '.join(ctx.module_context.platforms)}; put it under "
        "jax.default_device(jax.devices('cpu')[0]), with arrays that are there"
    )


mlir.register_lowering(kernel_p, refuse)
