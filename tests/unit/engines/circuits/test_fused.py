"""`fused` against default.qubit over random circuits, whatever the layout; threads, cache and what is refused."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from ketscale.engines.circuits import fused
from ketscale.engines.circuits.ansaetze import qlcu_ansatz, strongly_entangling_ansatz, vqc_ansatz
from ketscale.engines.circuits.circuit import GATES, Angles, Circuit, Column, Gate, pauli_words
from ketscale.engines.circuits.factory import build_simulator
from ketscale.engines.circuits.fused import Fused, routes_taken, sweeps
from ketscale.engines.circuits.fused.plan import Wanted
from ketscale.engines.circuits.placement import Placed
from ketscale.engines.circuits.settings import CircuitSimulator
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.circuits.spanned import Spanned
from ketscale.engines.compiled import library
from ketscale.engines.specialised import specialised_at_once
from ketscale.errors import UserError
from ketscale.files import alone
from tests.pairs import sampled

CPU = torch.device("cpu")
REFERENCE: Simulator = build_simulator(
    "default.qubit",
    CircuitSimulator.usual("default.qubit"),
    CPU,
)


@st.composite
def circuits(draw: st.DrawFn) -> Circuit:
    """Up to 5 qubits and 12 gates over three input and three weight columns."""
    qubits = draw(st.integers(1, 5))
    columns = [Column(kind, i) for kind in ("input", "weight") for i in range(3)]  # type: ignore[arg-type]
    columns += [Column("constant", value=0.7), Column("constant", value=-2.1)]
    names = [name for name, kind in GATES.items() if kind.wires <= qubits]
    gates = []
    for _ in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from(names))
        wires = draw(st.permutations(range(qubits)))[: GATES[name].wires]
        angles = [draw(st.sampled_from(columns)) for _ in range(GATES[name].angles)]
        gates.append(Gate(name, tuple(wires), tuple(angles)))
        if draw(st.booleans()) and qubits > GATES[name].wires:
            controls = draw(st.integers(1, qubits - GATES[name].wires))
            wires = draw(st.permutations(range(qubits)))[: controls + GATES[name].wires]
            gates[-1] = Gate(f"C({name})", tuple(wires), tuple(angles))
        elif draw(st.integers(0, 3)) == 0:
            order = tuple(draw(st.permutations(range(2 ** len(wires)))))
            gates.append(Gate("Permutation", tuple(wires), order=order))
    return Circuit(qubits, tuple(gates))


def angles_of(circuit: Circuit, batch: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Angles:
    generator = torch.Generator().manual_seed(seed)
    inputs, weights = (
        (3 * torch.randn(*shape, dtype=torch.float64, generator=generator)).to(dtype).requires_grad_()
        for shape in ((batch, circuit.inputs), (circuit.weights,))
    )
    return Angles(inputs, weights)


def states(batch: int, size: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(batch, size, dtype=torch.complex128, generator=generator)
    return (rows / rows.norm(dim=1, keepdim=True)).requires_grad_()


def evaluated(
    simulator: Simulator,
    circuit: Circuit,
    angles: Angles,
    words: tuple[str, ...],
    initial: torch.Tensor | None,
) -> list[torch.Tensor]:
    """Expectation values and state, and the gradients of a scalar of each."""
    leaves = [tensor for tensor in (*angles, initial) if tensor is not None]
    results = []
    for rows in (
        simulator.expval(circuit, angles, words, initial),
        simulator.state(circuit, angles, initial),
    ):
        generator = torch.Generator().manual_seed(1)
        weights = torch.randn(rows.shape, dtype=rows.dtype, generator=generator)
        # No leaf counts in a circuit without angles, and then there may be nothing to differentiate.
        scalar = (rows * weights).sum().real + 0 * sum(leaf.sum() for leaf in leaves).real
        gradients = torch.autograd.grad(scalar, leaves, allow_unused=True, materialize_grads=True)
        results += [rows.detach(), *gradients]
    return results


@pytest.mark.usefixtures("read_from_tables")  # whose numbers are those of circuits' own code: test_universal
@pytest.mark.parametrize("examples", [25, pytest.param(60, marks=pytest.mark.nightly)])
def test_random_circuits_agree_with_default_qubit(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(circuits(), st.integers(1, 9), st.booleans(), st.integers(0, 2**20), st.data())
    def agrees(circuit: Circuit, batch: int, given_state: bool, seed: int, data: st.DataObject) -> None:
        letters = st.text("IXYZ", min_size=circuit.qubits, max_size=circuit.qubits)
        words = tuple(data.draw(st.lists(letters, min_size=1, max_size=4)))
        angles = angles_of(circuit, batch, seed=seed)
        initial = states(batch, 2**circuit.qubits, seed) if given_state else None
        found = evaluated(Fused(), circuit, angles, words, initial)
        expected = evaluated(REFERENCE, circuit, angles, words, initial)
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)

    agrees()


ANSAETZE = [
    (vqc_ansatz(5, 1), "Z"),
    (strongly_entangling_ansatz(4, 1), "XYZ"),
    (qlcu_ansatz(5, 1), "XYZ"),
]


# The vectors that this processor has, in bytes.
WIDTHS = [width for width in (16, 32, 64) if width <= library.vector_bytes()]


@pytest.mark.parametrize(("ansatz", "width", "batch"), sampled(ANSAETZE, WIDTHS, (1, 3, 21)))
def test_every_layout_gives_the_same_numbers(
    ansatz: tuple[Circuit, str], width: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors of any width, with any number of amplitudes in them: batches from one sample to several tiles."""
    circuit, letters = ansatz
    monkeypatch.setattr(sweeps, "vector_bytes", lambda: width)
    sweeps.kernel.cache_clear()
    words, angles = pauli_words(circuit.qubits, letters), angles_of(circuit, batch)
    found = evaluated(Fused(), circuit, angles, words, None)
    expected = evaluated(REFERENCE, circuit, angles, words, None)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    sweeps.kernel.cache_clear()


@pytest.mark.parametrize(("circuit", "letters"), ANSAETZE[1:])
def test_single_precision_is_close_to_double(circuit: Circuit, letters: str) -> None:
    words = pauli_words(circuit.qubits, letters)
    exact = angles_of(circuit, 40)
    single = Angles(*(tensor.detach().float().requires_grad_() for tensor in exact))
    exact = Angles(*(tensor.detach().double().requires_grad_() for tensor in single))
    values = [Fused().expval(circuit, angles, words) for angles in (single, exact)]
    torch.testing.assert_close(values[0].double(), values[1], atol=1e-5, rtol=0)
    for found, expected in zip(
        *(
            torch.autograd.grad((v**2).sum(), list(a), allow_unused=True, materialize_grads=True)
            for v, a in zip(values, (single, exact), strict=True)
        ),
        strict=True,
    ):
        assert (found - expected).norm() <= 1e-4 * expected.norm()


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "WORK_PER_THREAD", 1)
    sweeps.kernel.cache_clear()
    circuit, words = strongly_entangling_ansatz(5, 2), pauli_words(5)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            angles = angles_of(circuit, 200, torch.float32)
            values = Fused().expval(circuit, angles, words)
            results.append([values.detach(), *torch.autograd.grad((values**3).sum(), list(angles))])
    finally:
        torch.set_num_threads(before)
        sweeps.kernel.cache_clear()
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize(
    "ansatz, letters, qubits, batch", [(strongly_entangling_ansatz, "Z", 10, 64), (qlcu_ansatz, "XYZ", 8, 32)]
)
def test_a_call_needs_at_most_four_times_the_batch_of_states(
    ansatz: Callable[[int, int], Circuit], letters: str, qubits: int, batch: int
) -> None:
    """All that a call forward and back allocates beside its results, with two threads.

    Below 8 qubits the angles of a tile may be larger than its states; they are a few KiB of each thread.
    """
    circuit, words = ansatz(qubits, 2), pauli_words(qubits, letters)
    wanted: tuple[Wanted, ...] = ("input", "weight") if circuit.weights else ("input",)
    kernel = sweeps.kernel(
        sweeps.Request(circuit, words, torch.float32, batch, True, wanted, False)
    ).specialised()
    workspace = sweeps.Workspace(kernel, threads=2)
    kept = workspace._scratch.nbytes + workspace._weight_rows.nbytes + workspace.unsaved.nbytes
    assert kept + 4 * kernel.saved_floats <= 4 * batch * 2**qubits * 8


def test_sixteen_qubits_are_evaluated() -> None:
    circuit = vqc_ansatz(16, 1)
    angles = angles_of(circuit, 2)
    expected = REFERENCE.expval(circuit, angles, pauli_words(16))
    torch.testing.assert_close(Fused().expval(circuit, angles, pauli_words(16)), expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    ("width", "dtype", "tolerance"),
    [
        *((width, torch.float64, 1e-12) for width in WIDTHS),
        # Only the widest have a number of lanes that double precision has not.
        *(
            pytest.param(width, torch.float32, 1e-5, marks=[pytest.mark.nightly] * (width < max(WIDTHS)))
            for width in WIDTHS
        ),
    ],
)
def test_states_enter_and_leave_every_layout(
    width: int, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few amplitudes and many, in order and permuted; batches smaller than a vector, larger, and in between."""
    monkeypatch.setattr(sweeps, "vector_bytes", lambda: width)
    sweeps.kernel.cache_clear()
    simulator = Fused()
    for qubits, moved in ((1, False), (4, False), (4, True)):
        gates = [Gate("RX", (w,), (Column("input", w),)) for w in range(qubits)]
        if moved:
            gates += [Gate("S", (0,)), *(Gate("CNOT", (w, w + 1)) for w in range(qubits - 1)), *gates]
        circuit = Circuit(qubits, tuple(gates))
        for batch in (1, 3, 17):
            results = []
            for simulated, kind in ((simulator, dtype), (REFERENCE, torch.float64)):
                angles = angles_of(circuit, batch, kind)
                initial = states(batch, 2**qubits, 1).detach().to(kind.to_complex()).requires_grad_()
                final = simulated.state(circuit, angles, initial)
                cotangent = states(batch, 2**qubits, 2).detach().to(kind.to_complex())
                results.append((final, *torch.autograd.grad(final, [initial, angles.inputs], cotangent)))
            for got, expected in zip(*results, strict=True):
                torch.testing.assert_close(
                    got, expected, atol=5 * tolerance, rtol=tolerance, check_dtype=False
                )
    sweeps.kernel.cache_clear()


class Holding(nn.Module):
    """A module with simulators in its parts, as a problem has."""

    def __init__(self, *simulators: Simulator) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Module() for _ in simulators)
        for part, held in zip(self.parts, simulators, strict=True):
            part.simulator = held


@pytest.mark.usefixtures("read_from_tables")
def test_the_cheaper_route_is_taken_and_noted() -> None:
    auto = Fused()
    for layers, expected in ((2, "sweep"), (40, "matrix")):
        circuit = strongly_entangling_ansatz(3, layers)
        angles = angles_of(circuit, 4096)
        values = [way.expval(circuit, angles, ("ZII", "IXY")) for way in (auto, Fused("sweep"))]
        gradients = [torch.autograd.grad(value.exp().sum(), angles) for value in values]
        torch.testing.assert_close(
            [values[0], *gradients[0]], [values[1], *gradients[1]], atol=1e-9, rtol=1e-9
        )
        assert routes_taken(Holding(auto))[-1]["route"] == expected
    auto.expval(circuit, angles_of(circuit, 8), ("ZII",))
    assert [(r["gates"], r["batch"]) for r in routes_taken(Holding(auto))] == [(15, 4096), (243, 4096)]


@pytest.mark.usefixtures("read_from_tables")
def test_the_routes_of_a_run_are_those_of_its_own_simulators_each_once() -> None:
    circuit, inner = strongly_entangling_ansatz(3, 2), Fused()
    Fused().state(circuit, angles_of(circuit, 4096))  # of another run in this process
    placed = Placed(Spanned(inner), CPU)
    placed.expval(circuit, angles_of(circuit, 4096), ("ZII",))
    (noted,) = routes_taken(Holding(placed, inner, REFERENCE))
    assert noted["sweep_s"] < noted["matrix_s"]


def test_a_backward_pass_may_be_repeated() -> None:
    circuit = strongly_entangling_ansatz(3, 1)
    angles = angles_of(circuit, 2)
    scalar = Fused().expval(circuit, angles, ("ZII",)).sum()
    first = torch.autograd.grad(scalar, list(angles), retain_graph=True)
    second = torch.autograd.grad(scalar, list(angles))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_tensors_of_two_gpus_are_refused_after_a_call_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator, circuit = Fused(), Circuit(1).ry(0, "x0").ry(0, "w0")
    computed = torch.zeros(1, 2, dtype=torch.complex64)
    monkeypatch.setattr(simulator, "_way", lambda *request: lambda *tensors: computed)
    with FakeTensorMode():  # whose tensors are on GPUs that no machine needs to have
        (x, w, s), (_, v, t) = (
            [torch.empty(1, 1, device=gpu), torch.empty(1, device=gpu), torch.empty(2, device=gpu).cfloat()]
            for gpu in ("cuda:0", "cuda:1")
        )
    assert simulator.state(circuit, Angles(x, w), s) is computed
    for request in ((Angles(x, v), s), (Angles(x, w), t)):
        with pytest.raises(UserError, match="use one device"):
            simulator.state(circuit, *request)


def test_an_angle_that_is_not_a_number_gives_no_number() -> None:
    circuit = vqc_ansatz(2, 1)
    angles = Angles(torch.tensor([[torch.nan, 0.0], [0.0, 0.0]]), torch.zeros(2))
    values = Fused().expval(circuit, angles, ("ZI",))
    assert values[0].isnan().all() and values[1].isfinite().all()


# --- the cache of compiled code ---


def test_a_change_of_any_file_that_writes_code_compiles_it_anew() -> None:
    folder, found, waiting = Path(sweeps.__file__).parent, set(), ["kernels", "once"]
    while waiting:
        name = waiting.pop()
        found.add(name)
        imports = re.findall(rf"from {fused.__name__}\.(\w+) import", (folder / f"{name}.py").read_text())
        waiting += set(imports) - found
    assert found == {"kernels", "once", *sweeps.WRITERS}


def test_a_damaged_file_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KETSCALE_CACHE", str(tmp_path))
    circuit, angles = vqc_ansatz(2, 1), Angles(torch.zeros(1, 2), torch.zeros(2))
    sweeps.kernel.cache_clear()
    Fused().expval(circuit, angles, ("ZI",))
    (file,) = tmp_path.glob("*.o")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    sweeps.kernel.cache_clear()
    assert Fused().expval(circuit, angles, ("ZI",)).tolist() == [[1.0]]
    assert file.read_bytes()[:32] == library.hashlib.sha256(file.read_bytes()[32:]).digest()
    sweeps.kernel.cache_clear()


def test_code_that_others_may_have_written_is_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KETSCALE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(library, "compile_", lambda recipe: b"own")
    recipe = library.Recipe("trust", (), lambda: None, ())
    library.ensure(recipe)
    (file,) = (tmp_path / "cache").glob("*.o")
    assert [path.stat().st_mode & 0o777 for path in (file.parent, file)] == [0o700, 0o600]
    file.write_bytes(hashlib.sha256(b"theirs").digest() + b"theirs")
    file.chmod(0o620)
    assert library.ensure(recipe) == b"own" and file.read_bytes()[32:] == b"own"


def test_who_asks_for_code_that_is_being_compiled_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KETSCALE_CACHE", str(tmp_path))
    compiled, reads, read, asked = [], [], library._read, threading.Event()

    def counted(file: Path) -> bytes | None:
        reads.append(found := read(file))
        if len(reads) == 3:  # two of the first, and one of the second before it waits
            asked.set()
        return found

    monkeypatch.setattr(library, "_read", counted)
    monkeypatch.setattr(library, "compile_", lambda recipe: compiled.append(asked.wait(60)) or b"code")
    recipe = library.Recipe("shared", (), lambda: None, ())
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(library.ensure, [recipe] * 2)] == [b"code"] * 2
    assert compiled == [True]


@pytest.mark.parametrize("reason", ["there is a file", "others may write to it"])
def test_a_cache_that_takes_no_code_is_an_error_in_commands_and_one_warning_elsewhere(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    folder.touch() if reason == "there is a file" else folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("KETSCALE_CACHE", str(folder))
    monkeypatch.setattr(library, "_in_memory", {})
    library._warn_unkept.cache_clear()

    def evaluate() -> list[list[float]]:
        sweeps.kernel.cache_clear()
        angles = Angles(torch.zeros(1, 2), torch.zeros(2))
        found: list[list[float]] = Fused().expval(vqc_ansatz(2, 1), angles, ("ZI",)).tolist()
        return found

    with (
        specialised_at_once(must_keep=True),
        pytest.raises(UserError, match=r"\): set KETSCALE_CACHE to a folder of your own"),
    ):
        evaluate()
    with pytest.warns(UserWarning, match="every process compiles its circuits again"):
        assert evaluate() == [[1.0]]
    # From now on it is in memory.
    monkeypatch.setattr(library, "compile_", None)
    assert evaluate() == [[1.0]]
    sweeps.kernel.cache_clear()


def test_the_cache_throws_out_what_was_unused_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KETSCALE_CACHE", str(tmp_path))
    monkeypatch.setenv("KETSCALE_CACHE_MB", "1")
    for age, name in enumerate(("new", "used", "old")):
        (tmp_path / f"{name}.o").write_bytes(bytes(400_000))
        (tmp_path / f"{name}.lock").touch()
        os.utime(tmp_path / f"{name}.o", times=(1e9 - age, 1e9 - age))
    library._mark_used(tmp_path / "used.o")
    library._make_room(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"new.o", "new.lock", "used.o", "used.lock"}
    monkeypatch.setenv("KETSCALE_CACHE_MB", "0")
    library._make_room(tmp_path)
    assert not list(tmp_path.iterdir())


def test_code_is_compiled_although_another_process_that_compiles_it_hangs(tmp_path):
    lock = tmp_path / "code.lock"
    with lock.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with alone(lock, patience_s=0.1):
            pass
