"""The kernels' values and derivatives against dense matrices, for random circuits in every layout of their states."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product

import pytest
import torch
from scipy.stats import unitary_group

from ketscale.engines.circuits.circuit import GATES, Angles, Circuit, Column, Gate, given
from ketscale.engines.circuits.fused import Fused, call, listing
from ketscale.engines.circuits.superposition import Superposition, superposed
from ketscale.engines.compiled import library
from tests.unit.engines.circuits.dense import final_states, means, mixed

# Bytes of a tile, of a state that is one block, and of a block. Lanes hold samples; but if tiles must be small, amplitudes.
LAYOUTS = {
    "one block": (2**20, 2**20, 2**14),
    "blocks": (2**20, 0, 1024),
    "amplitudes in lanes": (0, 2**20, 2**14),
    "blocks of amplitudes in lanes": (0, 0, 512),
}
KINDS = {
    "all gates": f"{' '.join(GATES)} C C C QFT Toffoli unitary permutation",
    "real": "RY RY CNOT",
    "phases": "RZ RZ CZ IsingZZ CRZ PhaseShift ControlledPhaseShift RX CNOT Hadamard permutation",
}


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """No table of another layout is used again."""
    call.compiled.cache_clear()
    yield
    call.compiled.cache_clear()


def laid_out(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tile, complete, block = LAYOUTS[layout]
    monkeypatch.setattr(listing, "TILE_BYTES", tile)
    monkeypatch.setattr(listing, "PERMUTATION_BYTES", tile)
    monkeypatch.setattr(listing, "STATE_BYTES", complete)
    monkeypatch.setattr(listing, "BLOCK_BYTES", block)


def random_gates(rng: random.Random, kind: str, qubits: int, gates: int) -> Circuit:
    """Random gates; columns of angles are used again, and some are not used at all."""

    def angle(name: str) -> Column:
        drawn = rng.choice(["input", "weight", "weight", "constant"])
        if kind == "phases" and name != "RX":
            drawn = "weight"
        if drawn == "constant":
            return Column("constant", 0, rng.uniform(-3, 3))
        return Column("input" if drawn == "input" else "weight", rng.randrange(5))

    def some(least: int) -> tuple[int, ...]:
        return tuple(rng.sample(range(qubits), rng.randint(least, min(qubits, least + 2))))

    circuit = Circuit(qubits)
    for name in rng.choices(KINDS[kind].split(), k=gates):
        if name == "QFT":
            circuit = circuit.qft(*some(1))
        elif name == "permutation":
            wires = some(1)
            circuit = circuit.permuted(rng.sample(range(2 ** len(wires)), 2 ** len(wires)), *wires)
        elif name == "unitary":
            wires = some(1)[:2]
            matrix = unitary_group.rvs(2 ** len(wires), random_state=rng.randrange(2**20))
            circuit = circuit.then(given(matrix, *wires))
        elif name == "Toffoli" and qubits > 2:
            circuit = circuit.toffoli(*rng.sample(range(qubits), 3))
        elif name == "C" and qubits > 1:
            base = rng.choice([name for name, kind in GATES.items() if kind.wires < qubits])
            wires = some(GATES[base].wires + 1)
            circuit = circuit.then(
                Gate(f"C({base})", wires, tuple(angle(base) for _ in range(GATES[base].angles)))
            )
        elif name in GATES and GATES[name].wires <= qubits:
            wires, angles = rng.sample(range(qubits), GATES[name].wires), GATES[name].angles
            circuit = circuit.then(Gate(name, tuple(wires), tuple(angle(name) for _ in range(angles))))
    return circuit


def words_of(rng: random.Random, qubits: int) -> tuple[str, ...]:
    """Words of any letters, added several at a time if many, and some of the same flips, measured together."""
    words = ["".join(rng.choices("IXYZ", k=qubits)) for _ in range(rng.choice([3, 16]))]
    flips = rng.choices([True, False], k=qubits)
    words += [
        "".join(rng.choice("XY" if flip else "IZ") for flip in flips) for _ in range(rng.choice([0, 8]))
    ]
    return tuple(rng.sample(words, len(words)))


# What a circuit starts from: |0...0>, one state, or one for each sample; or its result is a superposition.
STARTS = ("zero", "one", "each", "superposed")


def leaves_of(circuit: Circuit, batch: int, dtype: torch.dtype, start: str, seed: int) -> list[torch.Tensor]:
    """Inputs and weights, a column of each without a gate, and initial states, or what a superposition has."""
    generator, kind, size = torch.Generator().manual_seed(seed), dtype.to_complex(), 2**circuit.qubits
    shapes = {"zero": [], "one": [(size,)], "each": [(batch, size)], "superposed": [(2,), (size,)]}[start]
    values = [
        torch.randn(*shape, dtype=dtype, generator=generator)
        for shape in ((batch, circuit.inputs + 1), (circuit.weights + 1,))
    ]
    states = (torch.randn(*shape, dtype=kind, generator=generator) for shape in shapes)
    return [*values, *(state / state.norm(dim=-1, keepdim=True) for state in states)]


# A circuit, words or None for states, its angles, and what it starts from or mixes.
Evaluate = Callable[[Circuit, tuple[str, ...] | None, Angles, list[torch.Tensor]], torch.Tensor]


def by_matrices(
    circuit: Circuit, words: tuple[str, ...] | None, angles: Angles, start: list[torch.Tensor]
) -> torch.Tensor:
    states = final_states(circuit, *angles, start[0] if len(start) == 1 else None)
    states = mixed(states, *start) if len(start) == 2 else states
    return states if words is None else means(states, words)


def by_kernels(
    circuit: Circuit, words: tuple[str, ...] | None, angles: Angles, start: list[torch.Tensor]
) -> torch.Tensor:
    fused, initial = Fused(), start[0] if len(start) == 1 else None
    if words is None:
        return fused.state(circuit, angles, initial)
    if len(start) == 2:
        return superposed(fused, circuit, angles, words, Superposition(*start))
    return fused.expval(circuit, angles, words, initial)


def compare(
    evaluate: Evaluate,
    circuit: Circuit,
    words: tuple[str, ...] | None,
    leaves: list[torch.Tensor],
    only: int | None = None,
) -> None:
    """Values, and gradients by all leaves or by one alone, with those of dense matrices in double precision."""
    exact = [leaf.to(torch.complex128 if leaf.is_complex() else torch.float64) for leaf in leaves]
    results, generator = [], torch.Generator().manual_seed(0)
    for each, point in ((evaluate, leaves), (by_matrices, exact)):
        arguments = [x.clone().requires_grad_(only in (None, number)) for number, x in enumerate(point)]
        values, needs = (
            each(circuit, words, Angles(*arguments[:2]), arguments[2:]),
            [x for x in arguments if x.requires_grad],
        )
        if each is evaluate:
            assert values.dtype == (leaves[0].dtype.to_complex() if words is None else leaves[0].dtype)
            cotangent = torch.randn(*values.shape, dtype=values.dtype, generator=generator)
        gradients = [torch.zeros_like(x) for x in needs]
        if values.requires_grad:  # unless they depend on nothing
            gradients = torch.autograd.grad(
                values, needs, cotangent.to(values.dtype), allow_unused=True, materialize_grads=True
            )
        results.append([values.detach(), *gradients])
    tolerance = 1e-12 if leaves[0].dtype == torch.float64 else 1e-5
    for number, (one, other) in enumerate(zip(*results, strict=True)):
        # A sum over the batch may be smaller than its terms, which are about 1.
        largest = max([1.0, *other.abs().flatten().tolist()])
        torch.testing.assert_close(
            one, other, rtol=0, atol=tolerance * largest, check_dtype=False,
            msg=lambda text, number=number: f"result {number} by {only} of {circuit}, {words}, {leaves}: {text}",  # type: ignore[misc]
        )  # fmt: skip


# The vectors that this processor has, in bytes; the others are the usual ones.
WIDTHS = [width for width in (16, 32, 64) if width <= library.vector_bytes()]


@pytest.mark.parametrize("seeds", [1, pytest.param(8, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    ("dtype", "kind", "layout", "width"),
    [
        *((torch.float64, *each, WIDTHS[-1]) for each in product(KINDS, LAYOUTS)),
        *((torch.float64, *each) for each in zip(["all gates", "real"], LAYOUTS, WIDTHS[:-1], strict=False)),
        *((torch.float32, *each) for each in zip(KINDS, LAYOUTS, reversed(WIDTHS), strict=False)),
    ],
)
def test_random_circuits_agree_with_dense_matrices(
    dtype: torch.dtype, kind: str, layout: str, width: int, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values, states, and the gradients by all that there is, or by one of them alone, or by none."""
    laid_out(layout, monkeypatch)
    monkeypatch.setattr(listing, "vector_bytes", lambda: width)
    monkeypatch.setattr(listing, "FEW_AMPLITUDES", 0)  # or small batches would have vectors of 32 bytes
    rng = random.Random(f"{dtype} {kind} {layout} {seeds}")
    for qubits, batch, _ in product(range(1, 8), (1, 2, 7, 17, 33), range(seeds)):
        if rng.random() < 0.5 and seeds == 1:
            continue
        circuit = random_gates(rng, kind, qubits, rng.randint(0, 6 * qubits))
        start, seed = rng.choice(("zero", "superposed") if kind == "real" else STARTS), rng.randrange(2**20)
        words = words_of(rng, qubits) if start == "superposed" or rng.random() < 0.7 else None
        leaves = leaves_of(circuit, batch, dtype, start, seed)
        only = rng.choice([None, None, None, 0, 1, 2, 3])
        compare(by_kernels, circuit, words, leaves, only)
