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

from benchmarks import circuits, memory, output, steps, stopwatch
from benchmarks.circuits import CircuitCase, Circuits, create, loss_of
from benchmarks.models import Models
from benchmarks.peers.kronecker import Kronecker
from benchmarks.runner import GRAPH, Call, Row, best_s
from benchmarks.steps import ModelCase
from ketscale.engines import randomness
from ketscale.engines.circuits.fused import gpu
from ketscale.engines.graphs import WARM_CALLS, Refused, nothing
from ketscale.layers.dropout import MASKS
from tests.nightly.engines.test_fused_gpu import Hopper

CPU = torch.device("cpu")
CASE = CircuitCase("qlcu", 3, 4, 1)

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed: make triton-extra"
)


# --- without other packages ---

SCRIPT = """
import json, sys
ABSENT = {absent}
for name in ABSENT:
    sys.modules[name] = None
from benchmarks.circuits import Circuits
result = Circuits(
    ansatz=("qlcu",), qubits=(3,), batch=(4,), simulators={names}, asked=True, repeats=5, threads=1
).run()
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
from benchmarks.models import Models
names = ("hydra", "superposition_transformer")
bench = Models(models=names, qubits=(2,), batch=(2,), simulators=("fused",), repeats=5, threads=1)
print(*(row["status"] for row in bench.run()["rows"]))
"""


def test_models_need_only_the_package_of_their_settings_too() -> None:
    absent = tuple(name for name in ABSENT if name != "msgspec")
    script = MODELS_SCRIPT.format(absent=absent)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "timed timed\n"), done.stderr[-3000:]


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

    def steady(calls: dict[Any, Any], repeats: int) -> dict[Any, stopwatch.Timing]:
        return {name: stopwatch.Timing(1.0 if GRAPH in name else 3.0, 0.5, repeats) for name in calls}

    monkeypatch.setattr(stopwatch, "steady", steady)


def row_of(capture: Any, uncapturable: str | None = None) -> Row:
    bench, kronecker = Circuits(repeats=5), Kronecker("kronecker", CPU)
    kronecker.uncapturable = uncapturable
    bench.found, bench.capture = {"kronecker": kronecker}, capture
    bench.refer_to("kronecker")
    (row,) = bench.measure(CASE)
    return row


@pytest.mark.usefixtures("instant")
def test_a_graph_is_timed_beside_the_call_and_counts_where_it_is_faster() -> None:
    row = row_of(pretended)
    assert (row["median_s"], row["graph_median_s"], row["graph_reason"]) == (3.0, 1.0, None)
    assert best_s(row) == 1.0
    assert row["gflops"] == pytest.approx(3 * row_of(None)["gflops"])
    assert "kronecker 1 s" in output.line(Circuits, CASE, [row])


@pytest.mark.usefixtures("instant")
def test_a_graph_with_other_results_is_not_timed() -> None:
    def wrong(call: Call, *_: Any) -> Call:
        return lambda: tuple(1.001 * part for part in call())

    row = row_of(wrong)
    assert (row["status"], row["median_s"], row["graph_median_s"]) == ("timed", 3.0, None)
    assert row["graph_reason"] == "the replay is off by 1.0e-03 of the norm"


@pytest.mark.usefixtures("instant")
def test_a_simulator_says_why_it_has_no_graph() -> None:
    assert row_of(pretended, "it runs on the host")["graph_reason"] == "it runs on the host"
    assert row_of(lambda *_: Refused("RuntimeError: no"))["graph_reason"] == "RuntimeError: no"


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


MODEL_CASES = [
    ModelCase("hydra", 2, 3),
    ModelCase("mamba_hybrid", 2, 3),
    ModelCase("superposition_transformer", 4, steps.SENTENCES),
]


@pytest.mark.parametrize("case", MODEL_CASES, ids=lambda case: case.model)
def test_a_replayable_step_trains_as_the_step_does(case: ModelCase) -> None:
    eager, (call, before) = steps.step(case, "fused"), steps.replayable(case, "fused", CPU)
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
    call, before = steps.replayable(ModelCase(model, qubits, steps.SENTENCES), arm, META)
    before()
    assert_capturable(call)


@pytest.mark.usefixtures("meta")
@pytest.mark.parametrize("ansatz", circuits.ANSAETZE)
@pytest.mark.parametrize("name", ["fused", "kronecker"])
def test_a_simulator_that_is_captured_takes_nothing_from_the_host(name: str, ansatz: str) -> None:
    subject = create(name, META)
    assert subject.uncapturable is None
    assert_capturable(subject.prepare(loss_of(CircuitCase(ansatz, 5, 4, 2), np.float32)))


@pytest.mark.usefixtures("meta")
def test_a_step_that_takes_indices_from_the_host_is_found() -> None:
    call, before = steps.replayable(
        ModelCase("superposition_transformer", 4, steps.SENTENCES), "closed-form", META
    )
    before()
    with pytest.raises(AssertionError, match=r"\(0, 3, 2, 1\)"):
        assert_capturable(call)


def models_row(capture: Any) -> Any:
    bench = Models(simulators=("fused",))
    bench.capture = capture
    (row,) = bench.measure(ModelCase("mamba", 2, 8))
    return row


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, instant: None) -> None:
    monkeypatch.setattr(memory, "peak_bytes", lambda *_: 1)
    # On a busy machine a step may take more than a second, which is too long for a graph.
    monkeypatch.setattr(stopwatch, "LONG_S", float("inf"))


@pytest.mark.usefixtures("small")
def test_a_step_as_a_graph_has_the_losses_of_the_steps() -> None:
    row = models_row(pretended)
    assert (row["status"], row["graph_reason"]) == ("timed", None)
    assert (row["median_s"], row["graph_median_s"]) == (3.0, 1.0)
    (line,) = Models.summary([row])
    assert "fused as a graph 3x" in line


@pytest.mark.usefixtures("small")
def test_a_graph_that_repeats_the_same_dropout_is_not_timed() -> None:
    def stale(call: Any, device: torch.device, needed: int | None, before: Callable[[], None]) -> Any:
        for _ in range(WARM_CALLS):
            before()
            call()
        return call

    row = models_row(stale)
    assert (row["status"], row["graph_median_s"]) == ("timed", None)
    assert row["graph_reason"].startswith("losses of replays [")


# --- ceilings ---


@needs_triton
@pytest.mark.parametrize(
    ("name", "arguments", "instruction"),
    [("multiply_add", (0.999, 0.001), "fma.rn.f32"), ("exchange", (37,), "st.shared")],
)
def test_a_ceiling_compiles_to_what_it_measures(
    name: str, arguments: Any, instruction: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from triton.runtime import driver

    from benchmarks import gpu_ceiling

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
