"""Circuits are evaluated where Linux's locks, memory allocator and threads are missing, as on macOS and Windows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

# Torch, PennyLane and filelock come first: what they need on other systems is theirs.
TAKEN_AWAY = """
import ctypes, json, os, sys, warnings
import filelock, pennylane as qml, sklearn.utils.validation, torch

for module in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[module] = None
for name in ("getuid", "sched_getaffinity", "sysconf"):
    delattr(os, name)

class Library(ctypes.CDLL):
    def __getattr__(self, name):
        if name in ("GOMP_parallel", "mallopt", "prctl"):
            raise AttributeError(name)
        return super().__getattr__(name)

ctypes.CDLL = Library
"""
EVALUATED = """
import ketscale
from ketscale.process import keep_freed_memory

keep_freed_memory()
torch.set_num_threads(2)
circuit = ketscale.Circuit(2).ry(0, "x0").ry(1, "w0").cnot(0, 1)
layer = ketscale.Layer(circuit, dtype=torch.float64)
inputs = torch.rand(200_000, 1, dtype=torch.float64)

@qml.qnode(qml.device("default.qubit", wires=2), interface="torch")
def reference(x, w):
    qml.RY(x, 0)
    qml.RY(w, 1)
    qml.CNOT([0, 1])
    return qml.expval(qml.Z(0)), qml.expval(qml.Z(1))

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        values = layer(inputs)
        (slope,) = torch.autograd.grad(values.square().sum(), layer.weight)
    replayed = torch.stack(ketscale.from_qnode(reference)(inputs[:, 0], layer.weight[0]), 1)
w = layer.weight.detach().clone().requires_grad_()
expected = torch.stack(reference(inputs[:, 0], w[0]), 1)
(expected_slope,) = torch.autograd.grad(expected.square().sum(), w)
fitted = ketscale.CircuitClassifier(epochs=1, random_state=0).fit(inputs[:20].numpy(), [0, 1] * 10)
print(json.dumps({
    "warned": [str(one.message) for one in caught],
    "apart": [float((found - expected).detach().abs().max()) for found in (values, replayed)],
    "slope apart": float((slope / expected_slope - 1).abs()),
    "classes": len(fitted.classes_),
}))
"""


def test_circuits_run_where_linuxs_locks_allocator_and_threads_are_missing(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", TAKEN_AWAY + EVALUATED],
        env={**os.environ, "KETSCALE_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    message = json.loads(result.stdout)
    assert [text.partition(":")[0] for text in message["warned"]] == ["compiled code runs on one thread"]
    assert max(message["apart"]) < 1e-12 and message["slope apart"] < 1e-9
    assert message["classes"] == 2
    assert list(tmp_path.glob("*.o"))
