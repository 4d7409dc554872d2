"""The GPU's kernels on a CPU: what they compute (interpreted), and that they compile for a GPU; its own answers are in `gpu`."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ketscale.engines.circuits import fused
from ketscale.engines.circuits.ansaetze import strongly_entangling_ansatz, vqc_ansatz
from ketscale.engines.circuits.circuit import pauli_words
from ketscale.engines.circuits.fused import gpu
from ketscale.errors import UserError
from tests import ROOT
from tests.nightly.gpu import kernels
from tests.nightly.gpu.kernels import KERNELS, REGISTERS, SHARED_BYTES, resources
from tests.unit.engines.circuits.test_simulators import (
    random_angles,
    random_circuit,
)

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed: make triton-extra"
)


@needs_triton
@pytest.mark.slow
def test_interpreted_kernels_agree_with_default_qubit() -> None:
    """In a process of its own: triton must know that it interprets before it is imported."""
    command = "-m pytest -q -p no:cacheprovider tests/unit/engines/circuits/fused_gpu_interpreted.py"
    variables = {**os.environ, "TRITON_INTERPRET": "1"}
    result = subprocess.run(
        [sys.executable, *command.split()],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]


# --- compiling, which needs no GPU ---


class Hopper:
    """What Triton asks of a driver in order to compile for a GPU that is not here."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[int, Any]:
    """A set of kernels: each launch compiles its kernel for a GPU, adds it here and computes nothing."""
    from triton.runtime import driver

    from ketscale.engines.circuits.fused import triton_kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(driver, "_active", Hopper())
    kernels: dict[int, Any] = {}

    class Compiler:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel
            monkeypatch.setattr(kernel, "device_caches", defaultdict(kernel.create_binder))

        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            def compile_(**arguments: Any) -> None:
                result = self.kernel.warmup(grid=grid, **arguments)
                kernels[id(result)] = result

            return compile_

    stand_in = SimpleNamespace(
        forward=Compiler(triton_kernels.forward), backward=Compiler(triton_kernels.backward)
    )
    monkeypatch.setattr(gpu, "_kernels", lambda: stand_in)
    return kernels


@needs_triton
@pytest.mark.parametrize("qubits, dtype", [(4, torch.float64), (8, torch.float32), (12, torch.float32)])
def test_one_kernel_each_way_serves_all_circuits_and_batches(
    qubits: int, dtype: torch.dtype, compiled: dict[int, Any]
) -> None:
    for circuit in (strongly_entangling_ansatz(qubits, 1), random_circuit(qubits, 1)):
        for batch in (1, 16, 33):
            angles = random_angles(circuit, batch, dtype)
            words = pauli_words(qubits)[: 1 + batch % 2]
            gpu.evaluate(circuit, *angles, words, None).sum().backward()
    forward, backward = sorted(compiled.values(), key=lambda kernel: kernel.name, reverse=True)
    assert (forward.name, backward.name) == ("forward", "backward")
    for kernel, exchanges in ((forward, 2), (backward, 3)):
        # The loops exchange each state once: Triton did not double the work to suit two layouts.
        assert kernel.asm["ttgir"].count("tt.gather") == exchanges
        assert ".approx" not in kernel.asm["ptx"]
        assert kernel.metadata.shared <= 64 * 1024


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each kernel is compiled once: that takes a second or two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.setattr(kernels, "compiled", functools.cache(kernels.compiled))
        yield


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("qubits", [2, 4, 6, 8])
@pytest.mark.parametrize("kernel, exchanges", [("forward", 2), ("backward", 3)])
def test_a_thread_holds_all_rows(
    kernel: str, exchanges: int, qubits: int, dtype: torch.dtype, once: None
) -> None:
    """Numbers are shuffled for an exchange of lanes, and for few sums; if rows were lanes, for each of their masks."""
    shape = gpu.block_shape(qubits + 1)
    result, _ = kernels.compiled(kernel, shape, dtype, 90, False)
    shuffles = result.asm["ptx"].count("shfl.sync")
    assert shuffles <= (exchanges * shape.rows + 8) * dtype.itemsize // 4
    assert result.metadata.shared == 0


# The largest states of several warps, and of one, for each kind of chip and precision.
@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(
    "arch, dtype, qubits",
    [
        *((arch, torch.float32, qubits) for arch in (80, 90, 100) for qubits in (8, gpu.MOST_QUBITS)),
        *((90, torch.float64, qubits) for qubits in (2, 8, 9, gpu.MOST_QUBITS)),
    ],
)
def test_compiled_kernels_fit_a_processor(arch: int, dtype: torch.dtype, qubits: int, once: None) -> None:
    for kernel in KERNELS:
        result = resources(kernel, qubits, dtype, arch)
        if (kernel, qubits, dtype) == ("backward", 12, torch.float64):
            # Two states of 16 numbers of 64 bits, one exchanged and sines are 128 registers, all that 512 threads have.
            assert result.registers == 128 and 0 < result.spill_bytes < 4096, result
        else:
            assert result.spill_bytes == 0, result
        assert result.registers * result.warps * 32 <= REGISTERS, result
        # Never more than the states of one block pass through shared memory.
        states = result.samples * 2 ** (qubits + 1) * dtype.itemsize
        assert result.shared_bytes <= states <= SHARED_BYTES[arch] - 1024, result
        assert result.occupancy >= (0.25 if dtype == torch.float32 else 0.125), result


@needs_triton
@pytest.mark.slow
def test_kernels_of_states_do_not_spill(once: None) -> None:
    for kernel in KERNELS:
        for qubits in (4, 8, 12):
            assert resources(kernel, qubits, torch.float32, 90, states=True).spill_bytes == 0


# --- what is refused ---


def test_without_triton_one_line_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "ketscale.engines.circuits.fused.triton_kernels", raising=False)
    monkeypatch.delattr(fused, "triton_kernels", raising=False)
    gpu._kernels.cache_clear()
    circuit = vqc_ansatz(2, 1)
    with pytest.raises(UserError, match=r"'ketscale\[gpu\]' \(in a checkout: make triton-extra\)$") as caught:
        gpu.evaluate(circuit, *random_angles(circuit, 1), ("ZZ",), None)
    assert "\n" not in str(caught.value)
