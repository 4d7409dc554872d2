"""Several sets of weights in one call, by torch.func.vmap, against one call for each; and any number of threads."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterator, Sequence
from unittest.mock import patch

import pytest
import torch
from torch.func import vmap

from ketscale import spans
from ketscale.engines.circuits.ansaetze import qlcu_ansatz, strongly_entangling_ansatz, vqc_ansatz
from ketscale.engines.circuits.circuit import Angles, Circuit, pauli_words
from ketscale.engines.circuits.fused import Fused, call, cpu, gpu
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.circuits.superposition import Superposition, superposed
from ketscale.engines.compiled import threads as pool
from ketscale.errors import UserError
from ketscale.simulators.placement import Placed
from ketscale.simulators.spanned import Spanned
from tests.pairs import pairs
from tests.unit.engines.circuits.test_simulators import CPU

GROUPS = 3
Calls = Callable[..., torch.Tensor]


def some(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Random numbers; complex ones are normalised states."""
    noise = torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))
    return (noise / noise.norm(dim=-1, keepdim=True) if dtype.is_complex else noise).requires_grad_()


def differentiated(values: torch.Tensor, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The values, and the gradients of a scalar of them."""
    weights = some(*values.shape).detach().to(values.dtype)
    scalar = (values * weights).sum().real
    gradients = torch.autograd.grad(scalar, leaves, allow_unused=True, materialize_grads=True)
    return [values.detach(), *gradients]


def same(found: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float = 0) -> None:
    """To the last bit, or to a tolerance."""
    if tolerance:
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    assert tolerance or all(map(torch.equal, found, expected))


def compared(
    function: Calls, *leaves: torch.Tensor, dims: tuple[int | None, ...] = (), tolerance: float = 0
) -> None:
    """One call against one call for each group; leaves have a first dimension of groups but where dims says None."""
    dims = dims or (0,) * len(leaves)
    every = [x.expand(GROUPS, *x.shape) if dim is None else x for x, dim in zip(leaves, dims, strict=True)]
    single = torch.stack([function(*tensors) for tensors in zip(*every, strict=True)])
    same(differentiated(vmap(function, dims)(*leaves), leaves), differentiated(single, leaves), tolerance)


def calls_of(simulator: Simulator, circuit: Circuit, kind: str) -> Calls:
    """What is asked of inputs, weights, and perhaps an initial state or a superposition."""
    words = pauli_words(circuit.qubits, "ZX")

    def evaluated(i: torch.Tensor, w: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        if kind == "state":
            return simulator.state(circuit, Angles(i, w))
        if kind == "superposed":
            return superposed(simulator, circuit, Angles(i, w), words, Superposition(*more))
        return simulator.expval(circuit, Angles(i, w), words, *more)

    return evaluated


def leaves_of(
    circuit: Circuit, kind: str, batch: int, dtype: torch.dtype = torch.float64
) -> list[torch.Tensor]:
    """The angles of groups, with a column that no gate has where the batch is odd."""
    size, spare = 2**circuit.qubits, batch % 2
    shapes = {"one": [(size,)], "each": [(batch, size)], "superposed": [(2,), (size,)]}.get(kind, [])
    angles = ((batch, circuit.inputs + spare), (circuit.weights + spare,))
    return [
        *(some(GROUPS, *shape, dtype=dtype) for shape in angles),
        *(some(GROUPS, *shape, dtype=dtype.to_complex()) for shape in shapes),
    ]


CIRCUITS = [
    *(vqc_ansatz(qubits, 2) for qubits in (1, 4)),
    *(strongly_entangling_ansatz(qubits, 2) for qubits in (1, 5)),
    strongly_entangling_ansatz(2, 20),
    qlcu_ansatz(3, 1),
    Circuit(2).ry(0, "w0").cnot(0, 1).ry(1, 0.3),
]


@pytest.mark.parametrize(
    ("circuit", "dtype", "batch", "kind"),
    [
        (vqc_ansatz(12, 2), torch.float64, 2, "words"),
        *pairs(
            CIRCUITS, (torch.float64, torch.float32), (0, 1, 2, 21), ("words", "state", "one", "each", "superposed"),
        ),
    ],
    ids=lambda each: f"{each.qubits} qubits, {len(each.gates)} gates" if isinstance(each, Circuit) else None,
)  # fmt: skip
def test_a_group_has_the_numbers_that_it_has_alone(
    circuit: Circuit, dtype: torch.dtype, batch: int, kind: str
) -> None:
    # Samples that are alone in their group share a tile.
    bits = batch > 1 and kind in ("words", "state") and circuit.inputs > 0
    tolerance = 0 if bits else 1e-11 if dtype == torch.float64 else 1e-3
    compared(calls_of(Fused(), circuit, kind), *leaves_of(circuit, kind, batch, dtype), tolerance=tolerance)


@pytest.mark.parametrize("dims", [(None, 0, 0), (0, None, 0), (0, 0, None)])
def test_inputs_weights_or_initial_states_may_be_shared(dims: tuple[int | None, ...]) -> None:
    circuit = strongly_entangling_ansatz(3, 2)
    leaves = leaves_of(circuit, "one", 6)
    arguments = [
        (x[0] if dim is None else x).detach().requires_grad_() for x, dim in zip(leaves, dims, strict=True)
    ]
    compared(calls_of(Fused(), circuit, "one"), *arguments, dims=dims, tolerance=1e-12)


@pytest.fixture
def many_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However little work there is, and torch has the threads of before."""
    before = torch.get_num_threads()
    monkeypatch.setattr(call, "WORK_PER_THREAD", 1)
    call.compiled.cache_clear()
    yield
    torch.set_num_threads(before)
    call.compiled.cache_clear()


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("kind", ["words", "superposed"])
def test_the_number_of_threads_changes_no_bit(kind: str) -> None:
    circuit, results = strongly_entangling_ansatz(5, 2), []
    leaves = leaves_of(circuit, kind, 200, torch.float32)
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        results.append(differentiated(vmap(calls_of(Fused(), circuit, kind))(*leaves), leaves))
    for other in results[1:]:
        same(results[0], other)


@pytest.mark.usefixtures("many_threads")
def test_without_torchs_pool_compiled_code_says_once_that_it_runs_on_one_thread_and_gives_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On macOS and Windows torch has another pool of threads than GNU OpenMP's."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    circuit = strongly_entangling_ansatz(4, 2)
    leaves = leaves_of(circuit, "words", 200, torch.float32)

    def evaluated() -> list[torch.Tensor]:
        return differentiated(vmap(calls_of(Fused(), circuit, "words"))(*leaves), leaves)

    expected = evaluated()
    assert pool.usable(3) == 3

    def refuse(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    try:
        with monkeypatch.context() as patched:
            patched.setattr(ctypes, "CDLL", refuse)
            pool._load.cache_clear()
            pool._warn.cache_clear()
            assert (pool.usable(3), pool.usable(1)) == (1, 1)
        with pytest.warns(UserWarning, match="compiled code runs on one thread"):
            result = evaluated()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            evaluated()
    finally:
        pool._load.cache_clear()
        pool._warn.cache_clear()
    same(expected, result)


def test_wrappers_let_groups_through_and_time_them_and_there_is_one_call() -> None:
    circuit, leaves, record = vqc_ansatz(3, 2), (some(2, GROUPS, 6, 3), some(GROUPS, 6)), spans.Recorder(CPU)
    result, expected = (calls_of(each, circuit, "words") for each in (Placed(Spanned(Fused()), CPU), Fused()))
    calls = patch.object(cpu, "evaluate", wraps=cpu.evaluate)
    spied = patch.object(record, "enter", wraps=record.enter)
    with calls as evaluate, spied as enter, spans.recording(record):
        # Within another vmap, too.
        results = differentiated(vmap(vmap(result), (0, None))(*leaves), leaves)
    assert evaluate.call_count == 1
    names = [call.args[0] for call in enter.mock_calls]
    assert names.count("circuit.forward") == names.count("circuit.backward") == 1 and "transfer" in names
    rows = [torch.stack([expected(i, w) for i, w in zip(each, leaves[1], strict=True)]) for each in leaves[0]]
    same(results, differentiated(torch.stack(rows), leaves), 1e-12)


@pytest.mark.parametrize("kind", ["one", "each"])
def test_a_gpu_takes_the_weights_of_groups_as_inputs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the operators that a GPU runs for large circuits, here on the CPU."""
    monkeypatch.setattr(gpu, "MOST_QUBITS", 0)
    circuit, words = strongly_entangling_ansatz(3, 2), pauli_words(3)
    i, w, s = leaves = leaves_of(circuit, kind, 4)
    result, expected = (each.evaluate(circuit, i, w, words, s) for each in (gpu, cpu))
    same(differentiated(result, leaves), differentiated(expected, leaves), 1e-12)


def test_a_group_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match=r"weights must be \(4,\), not \(3,\)"):
        vmap(calls_of(Fused(), vqc_ansatz(2, 2), "words"))(some(GROUPS, 6, 2), some(GROUPS, 3))
