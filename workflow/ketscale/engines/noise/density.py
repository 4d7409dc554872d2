"""Calls the kernels of noisy circuits from torch, with all of torch's derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.circuits.checks import check_words, no_rows, one_gradient
from ketscale.engines.circuits.circuit import PROBABILITIES, READOUT, Angles, Circuit, check
from ketscale.engines.circuits.fused.hessians import Result, Values, recorded_gradients
from ketscale.engines.circuits.transforms import grouped, side_by_side
from ketscale.engines.compiled.kernel import Kernel, lanes_of, threads_for
from ketscale.engines.derivatives import transformed, uncompiled
from ketscale.engines.noise import pauli_vectors, sweep
from ketscale.engines.noise.channels import Transfer
from ketscale.engines.noise.passes import Chain, FeatureTables, Noisy, factor_tables, feature_tables, noisy
from ketscale.errors import UserError
from ketscale.private_torch import transforms_active
from ketscale.shapes import Complex, Float

# Vectors that the sweep back reads are kept up to so many bytes in all, and else made again for each tile.
MOST_KEPT = 2**28
# And a tile's are at most so many: 8 samples of 10 qubits take 64 MiB in each pass.
MOST_BYTES = 2**33
# A thread's multiply-adds, at least.
LEAST_WORK = 1_000_000


# Pages of new memory cost more than a sweep over 8 qubits, so the last memory is used again.
_SPARE: list[torch.Tensor] = []


def _memory(numbers: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory for so many numbers, or more."""
    try:
        spare = _SPARE.pop()
    except IndexError:
        spare = None
    if spare is None or len(spare) < numbers or spare.dtype != dtype:
        return torch.empty(numbers, dtype=dtype, device="cpu")
    return spare


def _free(memory: torch.Tensor) -> None:
    if not _SPARE and memory.nbytes <= MOST_KEPT:
        _SPARE.append(memory)


def expval(circuit: Circuit, angles: Angles, words: tuple[str, ...]) -> Float[torch.Tensor, "batch words"]:
    """Expectation values of Pauli words in the density matrix after a noisy circuit, (batch, words).

    Raises:
        UserError: the shapes do not fit, a strength is outside of [0, 1], or the memory would not suffice.
    """
    check_words(words, circuit.qubits)
    return _values(circuit, angles, words)


def density_matrix(
    circuit: Circuit, angles: Angles, readout: bool = False
) -> Complex[torch.Tensor, "batch {2**circuit.qubits} {2**circuit.qubits}"]:
    """The density matrices after a noisy circuit, (batch, 2**n, 2**n).

    readout: with readout errors they have the right outcomes, and are no states.

    Raises:
        UserError: as for `expval`.
    """
    if not readout and any(gate.name == READOUT for gate in circuit.gates):
        raise UserError("a density matrix has no readout errors: leave out Readout")
    made: torch.Tensor = pauli_vectors.matrices(_values(circuit, angles, None), circuit.qubits)
    return made


@uncompiled  # strengths are read
def _values(circuit: Circuit, angles: Angles, words: tuple[str, ...] | None) -> torch.Tensor:
    check(circuit, angles)
    if torch.compiler.is_exporting() or (angles.inputs.is_cuda and torch.cuda.is_current_stream_capturing()):
        raise UserError(
            "a noisy circuit reads its strengths, which torch.export and CUDA graphs cannot: export a layer's expectation values or "
            "probabilities, or leave the circuit out"
        )
    call = call_of(circuit, words)
    inputs, weights = angles.inputs[:, : circuit.inputs], angles.weights[: circuit.weights]
    if len(inputs) == 0:
        return no_rows(angles, None, len(call.program.places), inputs.dtype)
    if transformed(inputs, weights):
        return grouped(call.values, Values(call.result), inputs, weights)
    return call.values(inputs, weights)


@lru_cache(maxsize=256)
def _strengths(circuit: Circuit) -> dict[tuple[float, tuple[int, ...], float], None]:
    """What must be from 0 to 1, or to a little more: a constant, and the columns of strengths to add to it."""
    result: dict[tuple[float, tuple[int, ...], float], None] = {}
    for gate in (gate for gate in circuit.gates if gate.is_channel):
        constant = sum(column.value for column in gate.columns if column.kind == "constant")
        trained = [column for column in gate.columns if column.kind != "constant"]
        places = [each.index + circuit.inputs * (each.kind == "weight") for each in trained]
        result |= {(0.0, (place,), 1.0): None for place in places}
        if places and gate.name in PROBABILITIES:
            result[constant, tuple(places), 1 + 1e-6] = None
    return result


def faults(circuit: Circuit, columns: Any) -> Iterator[tuple[Any, Any, tuple[int, ...]]]:
    """For each strength, or sum of a channel's probabilities: where it is not from 0 to 1; its values (batch,); and its columns.

    columns: inputs and weights side by side (batch, columns), of torch or JAX.
    """
    for constant, places, most in _strengths(circuit):
        total = columns[:, np.array(places)].sum(1) + constant
        yield ~((total >= 0) & (total <= most)), total, places


def check_strengths(circuit: Circuit, columns: torch.Tensor, kind: str = "input") -> None:
    """Raise UserError if a strength, or the sum of a channel's probabilities, is not from 0 to 1.

    kind: how columns before those of weights are called.
    """
    first = circuit.inputs
    for wrong, total, places in faults(circuit, columns):
        if wrong.any():
            names = [f"{kind} {place}" if place < first else f"weight {place - first}" for place in places]
            raise UserError(
                f"{' and '.join(names)}: the strength of a channel, or the sum of its probabilities, must be from 0 to 1, not "
                f"{float(total[wrong][0]):g}"
            )


@lru_cache(maxsize=256)
def call_of(circuit: Circuit, words: tuple[str, ...] | None) -> Call:
    """The values of words after a noisy circuit, or its Pauli vector.

    Raises:
        UserError: it does not fit into memory, or has a gate on too many wires.
    """
    if 8 * 4**circuit.qubits > MOST_BYTES:
        raise UserError(f"a noisy circuit of {circuit.qubits} qubits does not fit into memory: use fewer")
    return Call(circuit, noisy(circuit, words))


class Call:
    """The values (batch, words) of inputs (batch, columns) and weights (columns,), or of groups of both."""

    def __init__(self, circuit: Circuit, program: Noisy) -> None:
        self.circuit, self.program = circuit, program
        self.result = Result(self.values, self._plain, {})
        self._features = feature_tables(program, circuit.inputs)
        self._tables: dict[torch.dtype, tuple[dict[str, int], int, list[torch.Tensor]]] = {}

    def values(self, inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """The values, of which autograd knows the first derivatives."""
        if inputs.ndim == 3:
            rows = side_by_side(inputs, weights).flatten(0, 1)
            return self.values(rows, weights[0, :0]).unflatten(0, inputs.shape[:2])
        if _strengths(self.circuit):
            check_strengths(self.circuit, side_by_side(inputs, weights).detach())
        if not inputs.is_cpu:
            return self._plain(inputs, weights)
        if torch.is_grad_enabled() and (inputs.requires_grad or weights.requires_grad):
            return cast(torch.Tensor, _Sweep.apply(self, inputs, weights))
        return self.run(inputs.contiguous(), weights.contiguous(), keep=False)[0]

    def _plain(self, inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """The values by torch's operators."""
        return cast(torch.Tensor, self.plain(side_by_side(inputs, weights)))

    def plain(self, columns: Any, library: Any = torch) -> Any:
        """The values of inputs and weights side by side (..., columns), by the operators of torch or jax.numpy."""
        rows = columns.reshape(-1, columns.shape[-1])
        features = pauli_vectors.features_of(self._features, rows, library)
        return pauli_vectors.values(self.program, features, library).reshape(*columns.shape[:-1], -1)

    def run(
        self, inputs: torch.Tensor, weights: torch.Tensor, keep: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The values, and the vectors that the sweep back reads; None if it is to make them again."""
        out = inputs.new_empty(len(inputs), len(self.program.places))
        lanes, threads = self.lanes(len(inputs), inputs.dtype)
        numbers = self._numbers(lanes) * -(-len(inputs) // lanes)
        kept = keep and numbers * inputs.element_size() <= MOST_KEPT
        memory = _memory(numbers if kept else 2 * threads * lanes * 4**self.program.qubits, inputs.dtype)
        self._run("forward", inputs, weights, lanes, threads, memory, kept, kept, out=out)
        if kept:
            return out, memory
        _free(memory)
        return out, None

    def gradients(
        self,
        inputs: torch.Tensor,
        weights: torch.Tensor,
        memory: torch.Tensor | None,
        cotangent: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients by inputs and weights. memory: what `run` gave, or None."""
        (lanes, threads), again = self.lanes(len(inputs), inputs.dtype), memory is None
        if memory is None:
            memory = _memory(threads * self._numbers(lanes), inputs.dtype)
        by_inputs = torch.empty_like(inputs)
        rows = inputs.new_empty(-(-len(inputs) // lanes), len(weights))
        self._run(
            "backward", inputs, weights, lanes, threads, memory, True, not again,
            again=int(again), cotangent=cotangent.contiguous(), input_gradient=by_inputs, weight_rows=rows,
        )  # fmt: skip
        _free(memory)
        return by_inputs, rows[0] if len(rows) == 1 else rows.sum(0)

    def _numbers(self, lanes: int) -> int:
        """How many numbers a tile's vectors before and after all passes have."""
        return (len(self.program.passes) + 1) * 4**self.program.qubits * lanes

    def lanes(self, batch: int, dtype: torch.dtype) -> tuple[int, int]:
        """Samples in a vector, as many as it has, or fewer, so that each thread has a tile; and threads."""
        lanes = lanes_of(dtype)
        threads = min(torch.get_num_threads(), batch)
        while lanes > 1 and -(-batch // lanes) < threads:
            lanes //= 2
        slots = (len(self.program.passes) + 1) * 4**self.program.qubits * dtype.itemsize
        while lanes > 1 and slots * lanes * threads > MOST_BYTES:
            lanes //= 2
        if slots * lanes > MOST_BYTES:
            raise UserError(
                f"a noisy circuit of {self.program.qubits} qubits and {len(self.program.passes)} passes takes "
                f"{slots * lanes / 2**30:.1f} GiB for a sample: use fewer qubits"
            )
        threads = min(threads, max(1, MOST_BYTES // (slots * lanes)))
        return lanes, min(threads, threads_for(-(-batch // lanes), 40 * slots * batch, LEAST_WORK))

    def _run(
        self, name: str, inputs: torch.Tensor, weights: torch.Tensor, lanes: int, threads: int, memory: torch.Tensor,
        kept: bool, by_tile: bool, **more: Any,
    ) -> None:  # fmt: skip
        columns = inputs.shape[1], len(weights)
        fixed = self.fixed(inputs.dtype, len(inputs), columns, lanes, kept, by_tile)
        scratch = inputs.new_empty(threads * fixed["scratch_vectors"] * lanes)
        kernel_of(inputs.dtype, lanes).run(
            name,
            threads=threads,
            inputs=inputs,
            weights=weights,
            states=memory,
            scratch=scratch,
            **fixed,
            **more,
        )

    def fixed(
        self, dtype: torch.dtype, batch: int, columns: tuple[int, int], lanes: int, kept: bool, by_tile: bool
    ) -> dict[str, int]:
        """The kernels' arguments that depend on shapes alone, and addresses of tables. columns: of inputs and of weights.

        kept, by_tile: whether a tile keeps the vectors of all passes, and whether each tile, not each thread, has memory.
        """
        if dtype not in self._tables:
            self._tables[dtype] = _tables(self.program, dtype, self._features)
        tables, vectors, _ = self._tables[dtype]
        slots = (len(self.program.passes) + 1 if kept else 2) * 4**self.program.qubits
        return {
            "input_columns": columns[0], "weight_columns": columns[1], "batch": batch, "tiles": -(-batch // lanes),
            "scratch_vectors": vectors + 2 * sum(columns), "states_per_tile": slots if by_tile else 0,
            "states_per_worker": 0 if by_tile else slots, "kept": int(kept), **tables,
        }  # fmt: skip


@lru_cache(maxsize=32)
def kernel_of(dtype: torch.dtype, lanes: int) -> Kernel:
    """The code of `sweep` for one precision and so many samples in a vector."""
    return Kernel((sweep.forward, sweep.backward), sweep.ARGUMENTS, dtype, lanes)


class _Sweep(torch.autograd.Function):
    """The values of a call, with gradients by the sweep back."""

    @staticmethod
    def forward(ctx: Any, call: Call, inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        values, memory = call.run(inputs.contiguous(), weights.contiguous(), keep=True)
        ctx.call, ctx.memory = call, memory
        ctx.save_for_backward(inputs, weights)
        return values

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        one_gradient("simulator 'fused'", cotangent)
        inputs, weights = ctx.saved_tensors
        known = None
        if not transforms_active():
            # Other calls may use the memory from now on; a second sweep back makes its vectors again.
            memory, ctx.memory = ctx.memory, None
            known = ctx.call.gradients(inputs.contiguous(), weights.contiguous(), memory, cotangent)
            if not torch.is_grad_enabled():
                return None, *known
        needed = ctx.needs_input_grad[1:]
        return None, *recorded_gradients(ctx.call.result, needed, (inputs, weights), cotangent, known)


def _tables(
    program: Noisy, dtype: torch.dtype, features: FeatureTables
) -> tuple[dict[str, int], int, list[torch.Tensor]]:
    """The kernels' arguments that do not change, how many vectors of scratch there are besides columns, and what to keep."""
    count, size = program.qubits, 4**program.qubits
    column = {feature: number for number, feature in enumerate(program.features)}
    chains: list[tuple[int, int]] = []
    passes: list[tuple[int, ...]] = []
    places: list[list[int]] = []
    pass_factors: list[list[float]] = []
    matrices: list[Transfer] = [np.zeros(0)]
    matrix_places: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]

    def listed(chain: Chain) -> int:
        chains.append((sum(chains[-1]) if chains else 0, len(chain)))
        return len(chains) - 1

    for each in program.passes:
        if each.matrix is not None:
            letters = np.arange(size).reshape((4,) * count)
            letters = np.moveaxis(letters, each.sites, range(len(each.sites))).reshape(len(each.matrix), -1)
            first, row = sum(map(len, matrices)), sum(map(len, matrix_places))
            passes.append((sweep.MATRIX, len(each.matrix), first, 0, 0, row, 0))
            matrices.append(each.matrix.flatten())
            matrix_places += [letters[:, 0], letters[0]]
            continue
        shifts = [2 * (count - 1 - site) for site in each.sites]
        both = [listed(chain) if chain else 0 for chain in each.chains]
        kind = sweep.TWO + bool(each.chains[0]) + 2 * bool(each.chains[1])
        if each.spread is not None:
            kind = sweep.SPREAD
        passes.append((kind, *both, *shifts, len(places), 0 if each.spread is None else column[each.spread]))
        plain = [(i << shifts[0]) + (j << shifts[1]) for i in range(4) for j in range(4)]
        places.append([plain[at] for at in each.order])
        pass_factors.append([each.factors[at] for at in each.order])
    factors, parts = factor_tables(program)
    fields = np.where(np.arange(sweep.FACTOR_FIELDS) > 0, factors - 1, (factors > 0).sum(1, keepdims=True))
    integers = {
        "pass_table": passes, "places": places, "chain_table": chains, "factor_table": fields,
        "matrix_places": np.concatenate(matrix_places), "word_places": program.places,
        "turn_columns": features.turn_columns, "other_table": features.others,
    }  # fmt: skip
    reals = {
        "pass_factors": pass_factors, "factor_parts": parts, "matrices": np.concatenate(matrices),
        "turn_factors": features.turn_factors,
    }  # fmt: skip
    arrays = {name: torch.from_numpy(np.array(value, np.int64)) for name, value in integers.items()}
    arrays |= {name: torch.from_numpy(np.array(value, np.float64)).to(dtype) for name, value in reals.items()}
    sizes = {
        "size": size, "words": len(program.places), "passes": len(passes), "chains": len(chains),
        "factors": len(factors), "features": len(program.features), "turns": len(features.turn_columns),
        "others": len(features.others),
    }  # fmt: skip
    vectors = (
        2 * len(program.features) + 32 * len(factors) + 16 * len(chains) + max(size, len(program.places))
    )
    return sizes | {name: each.data_ptr() for name, each in arrays.items()}, vectors, [*arrays.values()]
