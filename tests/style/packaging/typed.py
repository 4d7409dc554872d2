"""What mypy makes of public names, as a program that uses them would see it: `make lint` checks it, and nothing runs it."""

from __future__ import annotations

from typing import Any, assert_type

import jax
import torch
from numpy.typing import NDArray
from torch import nn

import ketscale
import ketscale.jax
from ketscale.interop.qnode import Converted

circuit = assert_type(ketscale.Circuit(2).ry(0, "x0").cnot(0, 1).rx(1, "w0"), ketscale.Circuit)
assert_type(circuit.inputs, int)
layer = ketscale.Layer(circuit, ["ZI", {"ZZ": 0.5}])
assert_type(layer(torch.zeros(3, 1)), torch.Tensor)
assert_type(layer.weight, nn.Parameter)
assert_type(ketscale.jax.expval(circuit)(jax.numpy.zeros(1), 0.5), jax.Array)
assert_type(ketscale.CircuitClassifier().fit([[0.0]], [1]), ketscale.CircuitClassifier)
assert_type(ketscale.CircuitClassifier().predict([[0.0]]), NDArray[Any])
assert_type(ketscale.CircuitRegressor().predict([[0.0]]), NDArray[Any])
assert_type(ketscale.construct("vqc", qubits=2), nn.Module)
assert_type(ketscale.load("run", simulator="fused").classes, tuple[str, ...])
qnode: Any = None
assert_type(ketscale.from_qnode(qnode), Converted)
ketscale.from_qnode(qnode, trace="sometimes")  # type: ignore[arg-type]
