"""`fused` against default.qubit over random circuits, whatever the layout; threads, cache and what is refused."""

from __future__ import annotations

import fcntl
import hashlib
import re
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from ketscale.engines.circuits import fused
from ketscale.engines.circuits.ansaetze import qlcu_ansatz, strongly_entangling_ansatz, vqc_ansatz
from ketscale.engines.circuits.circuit import Angles, Circuit, pauli_words
from ketscale.engines.circuits.fused import Fused, call, routes_taken
from ketscale.engines.circuits.fused.listing import Wanted
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.compiled import library
from ketscale.errors import UserError
from ketscale.files import alone
from ketscale.simulators.factory import named_simulator
from ketscale.simulators.placement import Placed
from ketscale.simulators.spanned import Spanned

CPU = torch.device("cpu")
REFERENCE = named_simulator("default.qubit")


def angles_of(circuit: Circuit, batch: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Angles:
    generator = torch.Generator().manual_seed(seed)
    inputs, weights = (
        (3 * torch.randn(*shape, dtype=torch.float64, generator=generator)).to(dtype).requires_grad_()
        for shape in ((batch, circuit.inputs), (circuit.weights,))
    )
    return Angles(inputs, weights)


def test_neither_threads_nor_groups_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "WORK_PER_THREAD", 1)
    call.compiled.cache_clear()
    circuit, words = strongly_entangling_ansatz(5, 2), pauli_words(5)
    groups = [angles_of(circuit, 200, torch.float32, seed) for seed in range(3)]
    leaves = [tensor for angles in groups for tensor in angles]
    together = Angles(*map(torch.stack, zip(*groups, strict=True)))
    before, results = torch.get_num_threads(), []

    def one(inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return Fused().expval(circuit, Angles(inputs, weights), words)

    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            for values in (torch.stack([one(*angles) for angles in groups]), torch.func.vmap(one)(*together)):
                gradients = torch.autograd.grad((values**3).sum(), leaves, retain_graph=True)
                results.append([values.detach(), *gradients])
    finally:
        torch.set_num_threads(before)
        call.compiled.cache_clear()
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize(("ansatz", "letters", "qubits", "batch", "times"), [
    (strongly_entangling_ansatz, "Z", 10, 64, 4), (qlcu_ansatz, "XYZ", 9, 32, 4), (qlcu_ansatz, "XYZ", 8, 32, 4.1),
])  # fmt: skip
def test_a_call_needs_about_four_times_the_batch_of_states(
    ansatz: Callable[[int, int], Circuit], letters: str, qubits: int, batch: int, times: float
) -> None:
    """All that a call forward and back allocates beside its results, with two threads: 4.05 times at 8 qubits."""
    circuit, words = ansatz(qubits, 2), pauli_words(qubits, letters)
    wanted: tuple[Wanted, ...] = ("input", "weight") if circuit.weights else ("input",)
    kernel = call.compiled(call.Call(circuit, words, torch.float32, batch, wanted=wanted))
    workspace = call.Workspace(kernel, threads=2)
    kept = workspace._scratch.nbytes + workspace._weight_rows.nbytes + workspace.unsaved.nbytes
    assert kept + 4 * kernel.saved_floats <= times * batch * 2**qubits * 8


def test_sixteen_qubits_are_evaluated() -> None:
    circuit = vqc_ansatz(16, 1)
    angles = angles_of(circuit, 2)
    expected = REFERENCE.expval(circuit, angles, pauli_words(16))
    torch.testing.assert_close(Fused().expval(circuit, angles, pauli_words(16)), expected, atol=1e-10, rtol=0)


class Holding(nn.Module):
    """A module with simulators in its parts, as a problem has."""

    def __init__(self, *simulators: Simulator) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Module() for _ in simulators)
        for part, held in zip(self.parts, simulators, strict=True):
            part.simulator = held


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


RECIPE = library.Recipe("tested", (), lambda: None, ())


def test_a_change_of_any_file_that_writes_code_compiles_it_anew() -> None:
    folder, found, waiting = Path(call.__file__).parent, set(), ["kernels"]
    while waiting:
        name = waiting.pop()
        found.add(name)
        imports = re.findall(rf"from {fused.__name__}\.(\w+) import", (folder / f"{name}.py").read_text())
        waiting += set(imports) - found
    assert found == {"kernels", *(Path(str(module.__file__)).stem for module in call.SOURCES)}


@pytest.mark.parametrize(
    "code, checksum, mode",
    [(b"ow", b"own", 0o600), (b"theirs", b"theirs", 0o620)],
    ids=["damaged", "others'"],
)
def test_code_that_is_damaged_or_that_others_may_have_written_is_compiled_anew(
    code: bytes, checksum: bytes, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KETSCALE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(library, "compile_", lambda recipe: b"own")
    library.ensure(RECIPE)
    (file,) = (tmp_path / "cache").glob("*.o")
    assert [path.stat().st_mode & 0o777 for path in (file.parent, file)] == [0o700, 0o600]
    file.write_bytes(hashlib.sha256(checksum).digest() + code)
    file.chmod(mode)
    assert library.ensure(RECIPE) == b"own" and file.read_bytes()[32:] == b"own"


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
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(library.ensure, [RECIPE] * 2)] == [b"code"] * 2
    assert compiled == [True]


@pytest.mark.parametrize("reason", ["File exists", "others may write to it"])
def test_a_cache_that_takes_no_code_is_one_warning(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    folder.touch() if reason == "File exists" else folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("KETSCALE_CACHE", str(folder))
    monkeypatch.setattr(library, "compile_", lambda recipe: b"own")
    library._warn_unkept.cache_clear()
    with pytest.warns(UserWarning, match=f"{reason}.*compiles it again, unless KETSCALE_CACHE is a folder"):
        assert library.ensure(RECIPE) == b"own"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert library.ensure(RECIPE) == b"own"


def test_code_is_compiled_although_another_process_that_compiles_it_hangs(tmp_path):
    lock = tmp_path / "code.lock"
    with lock.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with alone(lock, patience_s=0.1):
            pass
