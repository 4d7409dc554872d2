"""The compiled code of circuits, and what it needs in memory: code written for one circuit, and code that reads it."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import torch

from ketscale.engines.choice import CodeChoice
from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused import kernels, tangents, universal
from ketscale.engines.circuits.fused.kernels import ARGUMENTS, backward, forward
from ketscale.engines.circuits.fused.listing import Listing
from ketscale.engines.circuits.fused.once import collect, prepare, prepare_and_forward
from ketscale.engines.circuits.fused.plan import SweepPlan, Wanted
from ketscale.engines.circuits.fused.program import Program, reduce
from ketscale.engines.circuits.fused.tangents import (
    TANGENTS,
    bend,
    bend_at_once,
    prepare_tangents,
    push,
    push_at_once,
    tangent_plan,
)
from ketscale.engines.compiled.kernel import WORK_PER_THREAD, Kernel
from ketscale.engines.compiled.language import COUNTERS
from ketscale.engines.compiled.library import vector_bytes

# A tile's state and adjoint together take at most this many bytes, half of a core's second-level cache.
TILE_BYTES = 512 * 1024

# Up to this many amplitudes a call takes a few microseconds with vectors of 256 bits. In a loop of such calls wider
# vectors save one or two microseconds, but in a training step, between torch's kernels, they took 20 more.
FEW_AMPLITUDES = 512

# The modules that take part in writing, besides those of the functions.
WRITERS = ("block", "mixing", "moves", "plan", "program", "frame", "rows", "schedule", "words")
SOURCES = tuple(import_module(f"ketscale.engines.circuits.fused.{name}") for name in WRITERS)


class Compiled:
    """Compiled functions for one circuit, one set of wanted gradients, one batch size and one number of groups.

    plan: of code that was written for the circuit, or the circuit that code reads. batch: samples in each group.
    fixed: the arguments that all calls have. work: multiply-adds of a state's sweep there and back.
    """

    def __init__(self, plan: SweepPlan, kernel: Kernel, batch: int, groups: int) -> None:
        self.plan = plan
        self.batch = batch
        self.groups = groups
        self.group_tiles = -(-batch // plan.samples)
        self.tiles = groups * self.group_tiles
        self.work = 14 * len(plan.steps) * plan.state_vectors * plan.lanes * self.tiles
        self.real = torch.float64 if plan.double else torch.float32
        self.reads = isinstance(plan, Listing)
        self._tables: dict[str, torch.Tensor] = {}
        self.fixed: dict[str, Any] = {}
        self.library = kernel.library
        if isinstance(plan, Listing):
            counts, self._tables = plan.listed()
            self.fixed = plan.sizes() | counts
        words, size = plan.program.words, 2**plan.program.qubits
        order, powers = plan.program.order or (), plan.program.powers or ()
        if self.reads and words is None and not order:
            order, powers = tuple(range(size)), (0,) * size
        sources = torch.tensor(order, dtype=torch.int64).argsort()
        self._tables |= {"sources": sources, "powers": torch.tensor(powers, dtype=torch.int8)[sources]}
        self.fixed |= {"batch": batch, "groups": groups, "group_tiles": self.group_tiles, "tiles": self.tiles}
        self.fixed |= {name: table.data_ptr() for name, table in self._tables.items()}


class CompiledSweep(Compiled):
    """The functions of `kernels` or `universal`."""

    def __init__(self, plan: SweepPlan, kernel: Kernel, batch: int, groups: int) -> None:
        super().__init__(plan, kernel, batch, groups)
        self.names = " ".join(universal.ARGUMENTS if self.reads else ARGUMENTS).split()
        run = self.library.on_one_thread
        self.prepare, self.prepare_and_forward = run["prepare"], run["prepare_and_forward"]
        if plan.wanted:
            self.backward, self.collect = run["backward"], run["collect"]
        self.complex = self.real.to_complex()
        words, size = plan.program.words, 2**plan.program.qubits
        self.rows = groups * batch
        self.shape = (self.rows, size if words is None else len(words))
        self.dtype = self.complex if words is None else self.real
        self.fixed |= {
            "states_per_tile": plan.state_vectors if plan.wanted else 0,
            "states_per_worker": 0 if plan.wanted else plan.state_vectors,
        }
        # The tables of shared angles come before the tiles' states, so that the backward pass can reuse them.
        self.shared_floats = groups * plan.shared_stride
        self.shared_bytes = self.shared_floats * (8 if plan.double else 4)
        self.saved_floats = self.shared_floats + self.tiles * plan.state_vectors * plan.lanes
        self._most_threads = max(1, min(self.tiles, self.work // WORK_PER_THREAD))
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
        fixed = kernel.fixed | {"scratch": self._scratch.data_ptr()}
        self.arguments = array("q", [0] * COUNTERS + [fixed.get(name, 0) for name in kernel.names])
        self.address = self.arguments.buffer_info()[0]


@lru_cache(maxsize=16)
def _reader(dtype: torch.dtype, lanes: int, order: int, bends: bool) -> Kernel:
    """The code that reads circuits, in one precision: without tangents, or with `order` of them."""
    functions: tuple[Callable[..., None], ...] = (
        universal.prepare, universal.forward, universal.prepare_and_forward, universal.backward, universal.collect,
    )  # fmt: skip
    if order:
        pushed = universal.push1 if order == 1 else universal.push2
        functions = (universal.bend, universal.collect) if bends else (pushed,)
    return Kernel(functions, universal.ARGUMENTS, dtype, lanes, sources=(*SOURCES, kernels, tangents))


C = TypeVar("C", bound=Compiled)
Plan = TypeVar("Plan", bound=SweepPlan)


class Request(NamedTuple):
    """What code is for: a circuit, the wanted result, and the wanted gradients; order, valued: see `TangentPlan`."""

    circuit: Circuit
    paulis: tuple[str, ...] | None
    dtype: torch.dtype
    batch: int
    from_zero: bool
    wanted: tuple[Wanted, ...]
    literal: bool = False
    partners: tuple[int, ...] | None = None
    groups: int = 1
    order: int = 0
    valued: bool = False

    def plan(self) -> SweepPlan:
        """The plan of code that is written for it."""
        real = self.from_zero and self._program.real and not self.literal and self.partners is None
        plan = self._laid_out(SweepPlan, _lanes(self.batch << self.circuit.qubits, self._double), real)
        return tangent_plan(plan, self.order, self.valued) if self.order else plan

    def listing(self) -> Listing:
        """The circuit as a table."""
        lanes = vector_bytes() // (8 if self._double else 4)
        return replace(self._laid_out(Listing, lanes, real=False), order=self.order)

    def kernel(self, plan: SweepPlan) -> Kernel:
        """The code that is written for a plan, or that reads it."""
        if isinstance(plan, Listing):
            return _reader(self.dtype, plan.lanes, self.order, bool(plan.wanted))
        functions: tuple[Callable[..., None], ...]
        if self.order:
            after = (bend, collect, bend_at_once) if plan.wanted else (push, push_at_once)
            functions = (prepare, prepare_tangents, *after)
        else:
            functions = (prepare, forward, prepare_and_forward, *((backward, collect) if plan.wanted else ()))
        arguments = TANGENTS if self.order else ARGUMENTS
        return Kernel(functions, arguments, self.dtype, plan.lanes, plan, SOURCES)

    def own_kernel(self) -> Kernel:
        """The code that is written for it."""
        return self.kernel(self.plan())

    @property
    def _double(self) -> bool:
        return self.dtype == torch.float64

    @property
    def _program(self) -> Program:
        return reduce(self.circuit, self.paulis, self.literal, self.partners is not None)

    def _laid_out(self, kind: type[Plan], lanes: int, real: bool) -> Plan:
        bits = lane_bits(lanes, self.circuit.qubits, self.batch, self._double, real)
        return kind(
            program=self._program,
            input_columns=self.circuit.inputs,
            weight_columns=self.circuit.weights,
            double=self._double,
            lanes=lanes,
            lane_bits=bits if self.partners is None else 0,
            # They fill the vector registers, in the forward and in the backward pass.
            widths=(4, 3) if real else (3, 2),
            from_zero=self.from_zero,
            wanted=self.wanted,
            literal=self.literal,
            partners=self.partners,
        )


class Sweep(CodeChoice[C]):
    """The code of one kind of calls. kind: what is made of a plan, its kernel, a batch size and a number of groups."""

    def __init__(self, request: Request, kind: Callable[[SweepPlan, Kernel, int, int], C]) -> None:
        self.request = request

        def made(plan: SweepPlan) -> C:
            return kind(plan, request.kernel(plan), request.batch, request.groups)

        super().__init__(
            f"a circuit of {request.circuit.qubits} qubits and {len(request.circuit.gates)} gates",
            request.own_kernel,
            lambda: made(request.plan()),
            cache(lambda: made(request.listing())),
        )


@lru_cache(maxsize=4096)
def kernel(request: Request) -> Sweep[CompiledSweep]:
    """The code for a circuit, the wanted result and the wanted gradients, without tangents."""
    return Sweep(request, CompiledSweep)


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
