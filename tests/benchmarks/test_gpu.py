"""The benchmarks on a GPU, as far as a CPU can tell: what is imported, graphs with a stand-in for their capture, ceilings."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ketscale import cli
from ketscale.bench import models, output, rows, selection, simulators, steps, stopwatch, subjects, traffic
from ketscale.bench.captured import WARM_CALLS, Refused, nothing
from ketscale.bench.cases import Call, Case, case_of
from ketscale.bench.kronecker import Kronecker
from ketscale.bench.rows import CircuitRow, best_s
from ketscale.bench.selection import Cell, Selection
from ketscale.bench.steps import ModelCell
from ketscale.engines.circuits.circuit import Circuit, Column, Gate
from ketscale.engines.circuits.fused import gpu
from ketscale.errors import UserError
from ketscale.layers import randomness
from ketscale.layers.dropout import MASKS
from tests.engines.circuits.test_fused_gpu import Hopper

CPU = torch.device("cpu")
CELL = Cell("qlcu", 3, 4, 1)

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed: make triton-extra"
)


# --- without other packages ---

SCRIPT = """
import json, sys
ABSENT = {absent}
for name in ABSENT:
    sys.modules[name] = None
from ketscale.bench import selection, simulators
chosen = selection.Selection(
    ansaetze=("qlcu",), qubits=(3,), batches=(4,), simulators={names}, asked=True, repeats=5, threads=1
)
result = simulators.measure(chosen)
print(json.dumps(dict(rows=[(r["simulator"], r["status"], r["reason"]) for r in result["rows"]],
                      reference=result["reference"])))
"""
ABSENT = (
    "msgspec", "yaml", "pennylane", "qiskit", "pandas", "matplotlib", "scipy", "sklearn", "psutil", "jax", "transformers",
)  # fmt: skip


@pytest.mark.parametrize(
    ("names", "absent"), [(("kronecker",), (*ABSENT, "llvmlite")), (("fused", "kronecker"), ABSENT)]
)
def test_torch_and_numpy_are_enough(names: tuple[str, ...], absent: tuple[str, ...]) -> None:
    script = SCRIPT.format(absent=absent, names=names)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result == {"rows": [[name, "timed", None] for name in names], "reference": "kronecker"}


MODELS_SCRIPT = """
import sys
for name in {absent}:
    sys.modules[name] = None
from ketscale.bench import models
names = ("hydra", "superposition_transformer")
chosen = models.ModelSelection(
    models=names, qubits=(2,), batches=(2,), simulators=("fused",), repeats=5, threads=1
)
print(*(row["status"] for row in models.measure(chosen)["rows"]))
"""


def test_models_need_only_the_package_of_their_settings_too() -> None:
    absent = tuple(name for name in ABSENT if name != "msgspec")
    script = MODELS_SCRIPT.format(absent=absent)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "timed timed\n"), done.stderr[-3000:]


def test_a_jax_that_is_not_there_is_said_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    found = subjects.installed(Selection(simulators=("jax",)), CPU)
    (row,) = simulators.Bench(Selection(), found, Kronecker(CPU), CPU).measure(CELL)
    assert row.status == "not installed"
    assert "simulator jax needs jax" in str(row.reason)


# --- the device ---


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("benchmark", ["simulators", "models"])
def test_cuda_without_a_gpu_is_an_error_of_one_line(benchmark: str, capsys: Any) -> None:
    assert cli.main(["bench", benchmark, "--device", "cuda"]) == 2
    error = capsys.readouterr().err
    assert "--device cuda: torch sees no CUDA GPU" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "tpu"}, "--device: no 'tpu'; choose of cpu, cuda"),
        ({"device": "cpu,cuda"}, "--device: one of cpu, cuda, not cpu,cuda"),
        ({"device": "cuda", "simulators": "floor"}, "--simulators: floor runs on cpu only, not on cuda"),
        ({"simulators": "lightning.gpu"}, "--simulators: lightning.gpu runs on cuda only, not on cpu"),
    ],
)
def test_devices_that_do_not_fit(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        selection.parse(**arguments)
    assert str(caught.value) == message


def test_each_device_has_its_own_simulators() -> None:
    cpu, cuda = (set(Selection(device=device).names) for device in selection.DEVICES)
    assert cpu - cuda == {"fused-literal", "lightning.qubit", "floor"}
    assert cuda - cpu == {"lightning.gpu"}


@pytest.mark.parametrize(
    "message", ["CUDA out of memory. Tried to allocate 2 GiB", "RESOURCE_EXHAUSTED: Out of memory"]
)
def test_a_gpu_out_of_memory_has_a_status_of_its_own(message: str) -> None:
    class Large:
        uncapturable = None

        def prepare(self, case: Case) -> Call:
            raise torch.OutOfMemoryError(message)

    (row,) = simulators.Bench(Selection(), {"fused": Large()}, Kronecker(CPU), CPU).measure(CELL)
    assert (row.status, row.median_s) == (rows.OUT_OF_MEMORY, None)
    assert message in str(row.reason)


# --- graphs, with a stand-in for their capture ---


def pretended(
    call: Callable[[], Any], device: torch.device, needed: int | None, before: Callable[[], None] = nothing
) -> Callable[[], Any]:
    """What `captured` does, without a GPU: the replay is the call."""
    for _ in range(WARM_CALLS):
        before()
        call()

    def replay() -> Any:
        before()
        return call()

    return replay


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs take one second, everything else three."""

    def steady(calls: dict[str, Any], repeats: int) -> dict[str, stopwatch.Timing]:
        return {
            name: stopwatch.Timing(1.0 if name.endswith(" graph") else 3.0, 0.5, repeats) for name in calls
        }

    monkeypatch.setattr(stopwatch, "steady", steady)


def rows_of(capture: Any, subject: Any = None) -> CircuitRow:
    bench = simulators.Bench(
        Selection(repeats=5), {"kronecker": subject or Kronecker(CPU)}, Kronecker(CPU), CPU
    )
    bench.capture = capture
    (row,) = bench.measure(CELL)
    return row


@pytest.mark.usefixtures("instant")
def test_a_graph_is_timed_beside_the_call_and_counts_where_it_is_faster() -> None:
    row = rows_of(pretended)
    assert (row.median_s, row.graph_median_s, row.graph_iqr_s, row.graph_reason) == (3.0, 1.0, 0.5, None)
    assert best_s(vars(row)) == 1.0
    without = rows_of(None)
    assert row.gflops == pytest.approx(3 * without.gflops)  # type: ignore[operator]
    assert "kronecker 1 s" in output.line(CELL, [row])


@pytest.mark.usefixtures("instant")
def test_a_graph_with_other_results_is_not_timed() -> None:
    def wrong(call: Call, *_: Any) -> Call:
        return lambda: tuple(1.001 * part for part in call())

    row = rows_of(wrong)
    assert (row.status, row.median_s, row.graph_median_s) == ("timed", 3.0, None)
    assert row.graph_reason == "the replay is off by 1.0e-03 of the norm"


@pytest.mark.usefixtures("instant")
def test_why_there_is_no_graph() -> None:
    class Host(Kronecker):
        uncapturable = "it runs on the host"

    assert rows_of(pretended, Host(CPU)).graph_reason == "it runs on the host"
    assert rows_of(lambda *_: Refused("RuntimeError: no")).graph_reason == "RuntimeError: no"


# --- training steps as graphs ---


def test_a_device_step_has_the_keys_of_the_step_that_it_is_set_to() -> None:
    step, samples = randomness.DeviceStep(CPU), torch.arange(5)
    tensors = set()
    for number in (0, 3, 4, 2**40):
        step.set(number)
        key = MASKS.key(7, step, 11)
        tensors.add(id(key))
        expected = randomness.kept(MASKS.key(7, number, 11), samples, 6, 0.5)
        assert torch.equal(randomness.kept(key, samples, 6, 0.5), expected)
        assert torch.equal(
            randomness.uniform(key, samples, 3), randomness.uniform(MASKS.key(7, number, 11), samples, 3)
        )
        assert int(step) == number
    assert len(tensors) == 1


MODEL_CELLS = [
    ModelCell("hydra", 2, 3),
    ModelCell("mamba_hybrid", 2, 3),
    ModelCell("superposition_transformer", 4, steps.SENTENCES),
]


@pytest.mark.parametrize("cell", MODEL_CELLS, ids=lambda cell: cell.model)
def test_a_replayable_step_trains_as_the_step_does(cell: ModelCell) -> None:
    eager, (call, before) = steps.step(cell, "fused"), steps.replayable(cell, "fused", CPU)
    for _ in range(4):
        before()
        assert float(call()) == float(eager())


META = torch.device("meta")


class OnDevice(TorchDispatchMode):
    """Fails at an operator that touches the CPU's memory, or that has to wait for a result."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
        assert all(tensor.device == META for tensor in tensors), f"{func} touches the CPU"
        assert func not in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default), func
        return result


class NotFromTheHost(TorchFunctionMode):
    """Fails where Python's numbers become a tensor on the device: by `torch.tensor`, or as indices."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func not in (torch.tensor, torch.as_tensor, torch.from_numpy), func
        if func is torch.Tensor.__getitem__:
            assert not any(isinstance(index, (tuple, list)) for index in parts_of(args[1])), args[1]
        return func(*args, **(kwargs or {}))


def parts_of(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def assert_capturable(call: Callable[[], Any]) -> None:
    """The second call, after the first has made tables, computes on the device alone."""
    call()
    with OnDevice(), NotFromTheHost():
        call()


@pytest.fixture
def meta(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is no CPU and computes nothing, in the place of a GPU."""

    class World(steps.Single):
        def __init__(self, run: Any) -> None:
            self.device = META

    monkeypatch.setattr(steps, "Single", World)
    monkeypatch.setattr(gpu, "_launch", lambda *_: None)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())


STEPS = [(model, arm) for model in steps.MODELS for arm in steps.CAPTURABLE if arm in steps.arms(model)]


@pytest.mark.usefixtures("meta")
@pytest.mark.parametrize(("model", "arm"), STEPS)
def test_a_step_that_is_captured_takes_nothing_from_the_host(model: str, arm: str) -> None:
    qubits = 0 if steps.MODELS[model].classical else 4
    call, before = steps.replayable(ModelCell(model, qubits, steps.SENTENCES), arm, META)
    before()
    assert_capturable(call)


@pytest.mark.usefixtures("meta")
@pytest.mark.parametrize("ansatz", selection.LAYERS)
@pytest.mark.parametrize("name", ["fused", "kronecker"])
def test_a_simulator_that_is_captured_takes_nothing_from_the_host(name: str, ansatz: str) -> None:
    subject = subjects.create(name, META)
    assert subject.uncapturable is None
    assert_capturable(subject.prepare(case_of(Cell(ansatz, 5, 4, 2), np.float32)))


@pytest.mark.usefixtures("meta")
def test_a_step_that_takes_indices_from_the_host_is_found() -> None:
    call, before = steps.replayable(
        ModelCell("superposition_transformer", 4, steps.SENTENCES), "closed-form", META
    )
    before()
    with pytest.raises(AssertionError, match=r"\(0, 3, 2, 1\)"):
        assert_capturable(call)


def models_row(capture: Any) -> Any:
    chosen = models.parse(models="mamba", qubits="2", batch="8", simulators="fused")
    bench = models.Bench(chosen, CPU)
    bench.capture = capture
    (row,) = bench.measure(ModelCell("mamba", 2, 8))
    return row


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, instant: None) -> None:
    monkeypatch.setattr(models.memory, "peak_bytes", lambda *_: 1)


@pytest.mark.usefixtures("small")
def test_a_step_as_a_graph_has_the_losses_of_the_steps() -> None:
    row = models_row(pretended)
    assert (row.status, row.graph_reason) == ("timed", None)
    assert (row.median_s, row.graph_median_s) == (3.0, 1.0)
    (line,) = models.factors([vars(row)])
    assert "fused as a graph 3x" in line


@pytest.mark.usefixtures("small")
def test_a_graph_that_repeats_the_same_dropout_is_not_timed() -> None:
    def stale(call: Any, device: torch.device, needed: int | None, before: Callable[[], None]) -> Any:
        for _ in range(WARM_CALLS):
            before()
            call()
        return call

    row = models_row(stale)
    assert (row.status, row.graph_median_s) == ("timed", None)
    assert row.graph_reason.startswith("losses of replays [")


def test_no_cell_is_begun_after_the_time_limit() -> None:
    chosen = models.parse(models="mamba_hybrid", qubits="2", batch="2", simulators="fused")
    assert models.measure(chosen, limit_s=0.0)["cells"] == {"asked": 1, "measured": 0}
    small = Selection(ansaetze=("vqc",), qubits=(2,), batches=(1,), simulators=("kronecker",))
    assert simulators.measure(small, limit_s=0.0)["cells"] == {"asked": 1, "measured": 0}


# --- traffic and ceilings ---


def test_traffic_by_hand() -> None:
    gates = (Gate("RX", (0,), (Column("input", 0),)), Gate("RX", (0,), (Column("weight", 0),)))
    # Two rotations about X: complex amplitudes, so 4 numbers; 1 input, 2 cosines, 2 sines, 2 derivatives, 1 word.
    assert traffic.least_bytes(Circuit(1, gates), ("Z",), batch=10) == 2 * (1 + 4 + 4 + 2 + 1) * 10 * 4


@needs_triton
@pytest.mark.parametrize(
    ("name", "arguments", "instruction"),
    [("multiply_add", (0.999, 0.001), "fma.rn.f32"), ("exchange", (37,), "st.shared")],
)
def test_a_ceiling_compiles_to_what_it_measures(
    name: str, arguments: Any, instruction: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from triton.runtime import driver

    from ketscale.bench import gpu_ceiling

    kernel = getattr(gpu_ceiling, name)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(driver, "_active", Hopper())
    monkeypatch.setattr(kernel, "device_caches", defaultdict(kernel.create_binder))
    size, unrolled = gpu_ceiling.SIZE, gpu_ceiling.UNROLLED
    made = kernel.warmup(
        torch.zeros(2, size),
        *arguments,
        512,
        SIZE=size,
        UNROLLED=unrolled,
        grid=(2,),
        **gpu_ceiling.OPTIONS,
    )
    # Eight numbers a thread, in each of the unrolled rounds.
    assert made.asm["ptx"].count(instruction) >= unrolled
    if name == "multiply_add":
        assert made.asm["ptx"].count(instruction) == unrolled * size // 128
