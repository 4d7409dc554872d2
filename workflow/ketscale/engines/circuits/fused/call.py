"""A call of a circuit: what is asked, the table and kernels that answer it, and their memory. torch and JAX bind it."""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused import kernels, mixing, moves, rows
from ketscale.engines.circuits.fused.hessians import Wanted
from ketscale.engines.circuits.fused.listing import TILE_BYTES, Listing
from ketscale.engines.circuits.fused.program import Move, reduce
from ketscale.engines.compiled.kernel import WORK_PER_THREAD, Kernel
from ketscale.engines.compiled.language import COUNTERS
from ketscale.engines.compiled.library import vector_bytes

# A tile's state and adjoint take at most this many bytes in circuits with moves, whose samples should not share vectors.
MOVED_BYTES = 512 * 1024

# Up to this many amplitudes vectors have 256 bits: in a training step, between torch's kernels, wider ones took 20 us more.
FEW_AMPLITUDES = 512

# The modules that take part in writing, besides that of the functions.
SOURCES = (mixing, moves, rows)


class Call(NamedTuple):
    """What is asked of a circuit.

    words: whose expectation values; None asks for the state. batch: samples of each group; groups: each has weights of its
    own. from_zero: the initial state is |0...0> instead of a given one. wanted: the gradients. partners: see `Listing`.
    """

    circuit: Circuit
    words: tuple[str, ...] | None
    dtype: torch.dtype
    batch: int
    groups: int = 1
    from_zero: bool = True
    wanted: tuple[Wanted, ...] = ()
    partners: tuple[int, ...] | None = None

    def listing(self) -> Listing:
        """The circuit as a table."""
        program = reduce(self.circuit, self.words, self.partners is not None)
        real = self.from_zero and program.real and not self.partners
        lanes = _lanes(self.batch << program.qubits, self.dtype.itemsize)
        moves = any(isinstance(step, Move) for step in program.rotations)
        most = MOVED_BYTES if moves else TILE_BYTES
        amplitude_bytes, bits = self.dtype.itemsize * (2 - real), 0
        if not self.partners:
            bits = _lane_bits(lanes, program.qubits, self.batch, amplitude_bytes, most)
        columns = self.circuit.inputs, self.circuit.weights
        return Listing(program, columns, self.dtype, lanes, bits, self.from_zero, self.wanted, self.partners)


class CompiledCall:
    """A call's table `plan`, the kernels that read it, and the arguments of these that do not change, `fixed`."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.plan = plan = call.listing()
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
            "states_per_tile": plan.state_vectors if plan.wanted else 0,
            "states_per_worker": 0 if plan.wanted else plan.state_vectors,
        }  # fmt: skip
        self.fixed |= {name: table.data_ptr() for name, table in self._tables.items()}
        run = self.library.on_one_thread
        self.prepare, self.prepare_and_forward = run["prepare"], run["prepare_and_forward"]
        if plan.wanted:
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
        unsaved = 0 if plan.wanted else compiled.shared_floats + threads * plan.state_vectors * plan.lanes
        self.unsaved = torch.empty(unsaved, dtype=dtype)
        fixed = compiled.fixed | {"scratch": self._scratch.data_ptr()}
        self.arguments = array("q", [0] * COUNTERS + [fixed.get(name, 0) for name in compiled.names])
        self.address = self.arguments.buffer_info()[0]


@lru_cache(maxsize=32)
def _kernel(dtype: torch.dtype, lanes: int, real: bool) -> Kernel:
    """The code for one precision. real: the amplitudes."""
    functions = (
        kernels.prepare, kernels.forward, kernels.prepare_and_forward, kernels.backward, kernels.collect, kernels.pull,
    )  # fmt: skip
    return Kernel(functions, kernels.ARGUMENTS, dtype, lanes, real, SOURCES)


@lru_cache(maxsize=4096)
def compiled(call: Call) -> CompiledCall:
    """The table and kernels of a call."""
    return CompiledCall(call)


def _lanes(amplitudes: int, float_bytes: int) -> int:
    """Floats in a vector, for a batch with this many amplitudes."""
    width = min(vector_bytes(), 32) if amplitudes <= FEW_AMPLITUDES else vector_bytes()
    return width // float_bytes


def _lane_bits(lanes: int, qubits: int, batch: int, amplitude_bytes: int, most: int) -> int:
    """How many bits of a basis index to put into a vector's lanes.

    Few, since samples in lanes need no shuffles; more if the batch is smaller than a vector, or if the states and adjoints
    of so many samples would take more than `most` bytes.
    """
    bits = 0
    while (
        bits < qubits
        and lanes >> bits > 1
        and (lanes >> (bits + 1) >= batch or (lanes >> bits) * 2 * amplitude_bytes << qubits > most)
    ):
        bits += 1
    return bits
