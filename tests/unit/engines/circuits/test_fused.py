"""`fused`: threads and groups, memory, tensors of two GPUs, and the cache of its machine code."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from torch._subclasses.fake_tensor import FakeTensorMode

from ketscale.engines.circuits import fused
from ketscale.engines.circuits.ansaetze import qlcu_ansatz, strongly_entangling_ansatz, vqc_ansatz
from ketscale.engines.circuits.circuit import Angles, Circuit, pauli_words
from ketscale.engines.circuits.fused import Fused, call
from ketscale.engines.circuits.fused.hessians import Argument
from ketscale.engines.circuits.fused.listing import Call
from ketscale.engines.compiled import library
from ketscale.errors import UserError
from tests.unit.engines.circuits.test_simulators import random_angles


@pytest.mark.parametrize(("ansatz", "letters", "qubits", "batch", "times"), [
    (strongly_entangling_ansatz, "Z", 10, 64, 4), (qlcu_ansatz, "XYZ", 9, 32, 4), (qlcu_ansatz, "XYZ", 8, 32, 4.1),
])  # fmt: skip
def test_a_call_needs_about_four_times_the_batch_of_states(
    ansatz: Callable[[int, int], Circuit], letters: str, qubits: int, batch: int, times: float
) -> None:
    """All that a call forward and back allocates beside its results, with two threads: 4.05 times at 8 qubits."""
    circuit, words = ansatz(qubits, 2), pauli_words(qubits, letters)
    expected: tuple[Argument, ...] = ("input", "weight") if circuit.weights else ("input",)
    kernel = call.compiled(Call(circuit, words, torch.float32, batch, kinds=expected))
    workspace = call.Workspace(kernel, threads=2)
    bytes_held = workspace._scratch.nbytes + workspace._weight_rows.nbytes + workspace.unsaved.nbytes
    assert bytes_held + 4 * kernel.saved_floats <= times * batch * 2**qubits * 8


def test_a_backward_pass_may_be_repeated() -> None:
    circuit = strongly_entangling_ansatz(3, 1)
    angles = random_angles(circuit, 2)
    scalar = Fused().expval(circuit, angles, ("ZII",)).sum()
    first = torch.autograd.grad(scalar, list(angles), retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(scalar, list(angles))))


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
    angles = Angles(torch.tensor([[torch.nan, 0.0], [0.0, 0.0]]), torch.zeros(2))
    values = Fused().expval(vqc_ansatz(2, 1), angles, ("ZI",))
    assert values[0].isnan().all() and values[1].isfinite().all()


# --- the cache of compiled code ---


RECIPE = library.Recipe("tested", (), lambda: None, ())


def test_a_change_of_any_file_that_writes_code_compiles_it_anew() -> None:
    folder, result, waiting = Path(call.__file__).parent, set(), ["kernels"]
    while waiting:
        name = waiting.pop()
        result.add(name)
        imports = re.findall(rf"from {fused.__name__}\.(\w+) import", (folder / f"{name}.py").read_text())
        waiting += set(imports) - result
    assert result == {"kernels", *(Path(str(module.__file__)).stem for module in call.SOURCES)}


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
    with pytest.warns(UserWarning, match=reason):
        assert library.ensure(RECIPE) == b"own"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert library.ensure(RECIPE) == b"own"


def test_code_is_compiled_although_its_lock_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KETSCALE_CACHE", str(tmp_path))
    monkeypatch.setattr(library, "compile_", lambda recipe: b"own")
    monkeypatch.setattr(library, "_PATIENCE_S", 0.1)
    with FileLock(library._file(RECIPE).with_suffix(".lock")):
        assert library.ensure(RECIPE) == b"own"
