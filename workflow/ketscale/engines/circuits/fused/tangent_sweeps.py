"""Sweeps with tangents: the kernels of `tangents`, as torch calls them."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import Any

import torch

from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused.higher import Terms
from ketscale.engines.circuits.fused.once import collect, prepare
from ketscale.engines.circuits.fused.plan import Wanted
from ketscale.engines.circuits.fused.sweeps import SOURCES, Request
from ketscale.engines.circuits.fused.tangents import (
    TANGENTS,
    bend,
    bend_at_once,
    prepare_tangents,
    push,
    push_at_once,
    tangent_plan,
)
from ketscale.engines.compiled.kernel import Kernel, threads_for


def along(
    circuit: Circuit,
    paulis: tuple[str, ...] | None,
    literal: bool,
    terms: Terms,
    wanted: tuple[bool, ...] | None,
    valued: bool,
) -> tuple[torch.Tensor, ...]:
    """D_k of terms with tangents; or P_k by the wanted operands, followed by D_k if `valued`; see `higher`."""
    inputs, weights, *given = terms.point
    groups, batch, columns = inputs.shape
    kinds = tuple(kind for kind, there in zip(KINDS, wanted or (), strict=False) if there)
    sweep = kernel(circuit, paulis, inputs.dtype, batch, groups, len(terms.tangents), kinds, literal, valued)
    size, rows = 2**circuit.qubits, groups * batch
    # One state for all samples, or one for each.
    one = not given or (given[0].ndim == 2 and groups == 1)
    arguments = sweep.fixed | {
        "input_stride": columns, "input_gradient_stride": columns, "initial_stride": 0 if one else 2 * size,
    }  # fmt: skip
    for suffix, (angles, own, *state) in zip(("", "0", "1"), (terms.point, *terms.tangents), strict=False):
        arguments[f"inputs{suffix}"] = angles.contiguous()
        arguments[f"weights{suffix}"] = own[:, : circuit.weights].contiguous()
        first = state[0] if state else sweep.nothing if suffix else sweep.zero
        if not one and first.ndim == 2:
            first = first[:, None].expand(groups, batch, size)
        arguments[f"initial{suffix}"] = first.resolve_conj().contiguous()
    results = []
    if "input" in kinds:
        to_inputs = torch.empty_like(arguments["inputs"])
        arguments["input_gradient"] = to_inputs if columns == circuit.inputs else to_inputs.zero_()
        results.append(to_inputs)
    if "weight" in kinds:
        sums = arguments["weight_gradient"] = inputs.new_empty(groups, circuit.weights)
        # With a single tile its row is the sum.
        several = sweep.group_tiles > 1
        arguments["weight_rows"] = inputs.new_empty(sweep.tiles, circuit.weights) if several else sums
        results.append(sums)
    if "initial" in kinds:
        arguments["initial_gradient"] = given[0].new_empty(groups, batch, size)
        results.append(arguments["initial_gradient"])
    if terms.cotangent is not None:
        arguments["cotangent"] = terms.cotangent.resolve_conj().contiguous()
    if not kinds or valued:
        columns = size if paulis is None else len(paulis)
        dtype = inputs.dtype.to_complex() if paulis is None else inputs.dtype
        arguments["out"] = torch.empty(groups, batch, columns, dtype=dtype)
        results.append(arguments["out"])
    if rows:
        sweep.run(arguments)
    for place, kind in enumerate(kinds):
        # A sum over the samples that share a tensor; columns that no gate has.
        if kind == "initial" and given[0].ndim == 2:
            results[place] = results[place].sum(1)
        elif kind == "weight" and weights.shape[1] > circuit.weights:
            results[place] = torch.nn.functional.pad(sums, (0, weights.shape[1] - circuit.weights))
    return tuple(results)


KINDS: tuple[Wanted, ...] = ("input", "weight", "initial")


class TangentSweep:
    """A kernel with tangents, for one batch size and one number of groups.

    zero, nothing: |0...0>, and a tangent of 0, (1, 2**n).
    """

    def __init__(self, request: Request, order: int, valued: bool) -> None:
        plan = self.plan = tangent_plan(request.plan(), order, valued)
        functions = (
            (prepare, prepare_tangents, bend, collect, bend_at_once)
            if plan.wanted
            else (prepare, prepare_tangents, push, push_at_once)
        )
        self.names = [function.__name__ for function in functions]
        self.kernel = Kernel(functions, TANGENTS, request.dtype, plan.lanes, plan, SOURCES)
        self.group_tiles = -(-request.batch // plan.samples)
        self.tiles = request.groups * self.group_tiles
        self._sources = torch.tensor(plan.program.order or (), dtype=torch.int64).argsort()
        self._powers = torch.tensor(plan.program.powers or (), dtype=torch.int8)[self._sources]
        self.fixed: dict[str, Any] = {
            "batch": request.batch, "groups": request.groups, "group_tiles": self.group_tiles, "tiles": self.tiles,
            "sources": self._sources, "powers": self._powers,
        }  # fmt: skip
        self.zero = torch.zeros(1, 2**plan.program.qubits, dtype=request.dtype.to_complex())
        self.nothing = self.zero.clone()
        self.zero[0, 0] = 1
        self._dtype = request.dtype
        # What groups share comes first, and then each thread's scratch.
        sizes = (plan.shared_stride, *[plan.moved_stride] * plan.order)
        starts = accumulate((request.groups * size for size in sizes), initial=0)
        self._starts = dict(zip(("shared", "moved0", "moved1")[: len(sizes)], starts, strict=False))
        self._shared = request.groups * sum(sizes)

    def run(self, arguments: dict[str, Any]) -> None:
        """Fill the results among a kernel's arguments."""
        plan = self.plan
        work = 14 * len(plan.steps) * len(plan.states) // 2 * plan.state_vectors * plan.lanes * self.tiles
        threads = threads_for(self.tiles, work)
        own = torch.empty(self._shared + threads * plan.scratch_vectors * plan.lanes, dtype=self._dtype)
        address, size = own.data_ptr(), self._dtype.itemsize
        arguments |= {name: address + size * start for name, start in self._starts.items()}
        arguments["scratch"] = address + size * self._shared
        if threads == 1:
            self.kernel.run(self.names[-1], **arguments)
            return
        for name in self.names[:2]:
            self.kernel.run(name, **arguments)
        self.kernel.run(self.names[2], threads, **arguments)
        if "collect" in self.names and self.group_tiles > 1:
            self.kernel.run("collect", **arguments)


@lru_cache(maxsize=1024)
def kernel(
    circuit: Circuit,
    paulis: tuple[str, ...] | None,
    dtype: torch.dtype,
    batch: int,
    groups: int,
    order: int,
    wanted: tuple[Wanted, ...],
    literal: bool,
    valued: bool,
) -> TangentSweep:
    """The kernel for a circuit, the wanted result and the wanted gradients, along `order` tangents."""
    request = Request(circuit, paulis, dtype, batch, False, wanted, literal, None, groups)
    return TangentSweep(request, order, valued)
