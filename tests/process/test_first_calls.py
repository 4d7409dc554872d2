"""First calls of every door import nothing that takes seconds: neither torch's compiler nor SymPy."""

from __future__ import annotations

import subprocess
import sys

import pytest

CALLS = """
import sys, torch, pennylane as qml, ketscale
def function(x, w):
    qml.AngleEmbedding(torch.sin(x), wires=range(2))
    qml.StronglyEntanglingLayers(w, wires=range(2))
    return [qml.expval(qml.Z(wire)) for wire in range(2)]
x, w = torch.rand(4, 2), torch.rand(1, 2, 3, requires_grad=True)
fused = qml.device("ketscale.fused", wires=2)
def calls(qnode, count, x, w):
    for _ in range(count):
        torch.stack(list(qnode(x, w))).sum().backward()
if sys.argv[1] == "from_qnode":
    calls(ketscale.from_qnode(qml.QNode(function, qml.device("default.qubit", wires=2))), 3, x, w)
elif sys.argv[1] == "device":
    calls(qml.QNode(function, fused), 12, x, w)
elif sys.argv[1] == "adjoint":
    calls(qml.QNode(function, fused, diff_method="adjoint"), 12, x, w)
elif sys.argv[1] == "autograd":
    qnode = qml.QNode(lambda angle: [qml.RX(angle, wires=0), qml.expval(qml.Z(0))][1], fused)
    qml.grad(qnode)(qml.numpy.array(0.3, requires_grad=True))
else:
    layer = ketscale.Layer(ketscale.Circuit(2).ry(0, "x0").rx(1, "x1").rx(0, "w0").cnot(0, 1), ["ZI", "ZZ"])
    calls(lambda x, w: layer(x)[None], 3, x, w)
print(*(name for name in ("torch._dynamo", "torch._inductor", "sympy", "triton") if name in sys.modules))
"""


@pytest.mark.parametrize(
    "door",
    [
        "from_qnode",
        "device",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ("adjoint", "autograd", "layer")),
    ],
)
def test_no_call_imports_the_compiler(door: str) -> None:
    """The compiler and SymPy take seconds; which modules are imported does not depend on the machine."""
    result = subprocess.run([sys.executable, "-c", CALLS, door], capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout.strip() == "", result.stdout + result.stderr


TRAINS = """
import sys, types, torch, ketscale.interop.qiskit
from ketscale.training.loop import Trainer
from ketscale.training.optimiser import Adam
from ketscale.training.flat import Flat
flat = Flat([[torch.nn.Parameter(torch.ones(2))]])
flat.gradients.fill_(0.5)
protocol = types.SimpleNamespace(learning_rate=0.1, weight_decay=0.0, clip_norm=1.0, momentum=0.0)
Adam(flat, [protocol]).step(flat.norms())
heavy = "torch._dynamo", "pennylane", "qiskit", "sklearn", "pandas", "transformers", "mpi4py"
print(*(name for name in heavy if name in sys.modules))
"""


def test_training_imports_neither_the_compiler_nor_other_packages() -> None:
    result = subprocess.run([sys.executable, "-c", TRAINS], capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout.strip() == "", result.stdout + result.stderr
