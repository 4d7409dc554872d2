"""A call of a circuit: the table and kernels that answer it, and their memory. torch and JAX bind it."""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import Any

import torch

from ketscale.engines.circuits.fused import kernels, mixing, moves, rows
from ketscale.engines.circuits.fused.listing import Call, Listing
from ketscale.engines.compiled.kernel import WORK_PER_THREAD, Kernel
from ketscale.engines.compiled.language import COUNTERS

# The modules that take part in writing, besides that of the functions.
SOURCES = (mixing, moves, rows)


class CompiledCall:
    """A call's table `plan`, the kernels that read it, and the arguments of these that do not change, `fixed`."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.plan = plan = Listing(call)
        self.library = _kernel(call.dtype, plan.lanes, plan.real).library
        self.rows = call.groups * call.batch
        self.group_tiles = -(-call.batch // plan.samples)
        self.tiles = call.groups * self.group_tiles
        # Multiply-adds of the sweep there and back.
        work = 14 * len(plan.steps) * plan.state_vectors * plan.lanes * self.tiles
        self.most_threads = max(1, min(self.tiles, work // WORK_PER_THREAD))
        words, size = call.words, 2**call.circuit.qubits
        self.shape = (self.rows, size if words is None else len(words))
        self.dtype = call.dtype.to_complex() if words is None else call.dtype
        self.names = " ".join(kernels.ARGUMENTS).split()
        order, powers = plan.program.order or (), plan.program.powers or ()
        if words is None and not order:
            order, powers = tuple(range(size)), (0,) * size
        sources = torch.tensor(order, dtype=torch.int64).argsort()
        self._tables = plan.tables | {
            "sources": sources,
            "powers": torch.tensor(powers, dtype=torch.int8)[sources],
        }
        self.fixed: dict[str, Any] = plan.sizes | {
            "batch": call.batch, "groups": call.groups, "group_tiles": self.group_tiles, "tiles": self.tiles,
            "states_per_tile": plan.state_vectors if plan.kinds else 0,
            "states_per_worker": 0 if plan.kinds else plan.state_vectors,
        }  # fmt: skip
        self.fixed |= {name: table.data_ptr() for name, table in self._tables.items()}
        run = self.library.on_one_thread
        self.prepare, self.forward = run["prepare"], run["forward"]
        if plan.kinds:
            self.backward, self.collect = run["backward"], run["collect"]
        # The tables of shared angles come before the tiles' states, so that the backward pass can reuse them.
        self.shared_floats = call.groups * plan.sizes["shared_stride"]
        self.shared_bytes = self.shared_floats * call.dtype.itemsize
        self.saved_floats = self.shared_floats + self.tiles * plan.state_vectors * plan.lanes
        self._free: list[Workspace] = []

    def borrow(self) -> Workspace:
        """A workspace that no other call is using; give it back with `give_back`."""
        threads = min(torch.get_num_threads(), self.most_threads)
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

    def __init__(self, compiled: CompiledCall, threads: int) -> None:
        plan, dtype = compiled.plan, compiled.call.dtype
        self.threads = threads
        # torch aligns what it allocates to 64 bytes, the widest vector.
        self._scratch = torch.empty(threads * plan.sizes["scratch_vectors"] * plan.lanes, dtype=dtype)
        rows = compiled.tiles if compiled.group_tiles > 1 else 0
        self._weight_rows = torch.empty(rows * plan.sizes["weight_columns"], dtype=dtype)
        self._mix_rows = torch.empty(rows * plan.sizes["mix_size"], dtype=dtype)
        self.weight_rows, self.mix_rows = self._weight_rows.data_ptr(), self._mix_rows.data_ptr()
        # Without a backward pass, there is one state for each thread instead of each tile.
        unsaved = 0 if plan.kinds else compiled.shared_floats + threads * plan.state_vectors * plan.lanes
        self.unsaved = torch.empty(unsaved, dtype=dtype)
        fixed = compiled.fixed | {"scratch": self._scratch.data_ptr()}
        self.arguments = array("q", [0] * COUNTERS + [fixed.get(name, 0) for name in compiled.names])
        self.address = self.arguments.buffer_info()[0]


@lru_cache(maxsize=32)
def _kernel(dtype: torch.dtype, lanes: int, real: bool) -> Kernel:
    """The code for one precision. real: the amplitudes."""
    functions = (kernels.prepare, kernels.forward, kernels.backward, kernels.collect, kernels.pull)
    return Kernel(functions, kernels.ARGUMENTS, dtype, lanes, real, SOURCES)


@lru_cache(maxsize=4096)
def compiled(call: Call) -> CompiledCall:
    """The table and kernels of a call."""
    return CompiledCall(call)
