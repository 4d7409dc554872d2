"""What a notebook does first: a model with a circuit, forward and backward, and a simulator that is not installed."""

import torch

import ketscale
from ketscale.errors import UserError
from ketscale.problems.images.vqc import VQC

model = VQC(qubits=4, layers=3)
logits = model(torch.randn(8, 512))
logits.square().sum().backward()
assert logits.shape == (8, 10)
assert all(torch.isfinite(p.grad).all() for p in model.parameters())
print(f"forward and backward of VQC with {ketscale.__file__}")

said = ""
try:
    VQC(qubits=4, layers=3, simulator="default.qubit")
except UserError as error:
    said = str(error)
assert "pip install 'ketscale[simulators]'" in said, said or "PennyLane is here: this is not the base alone"
print(said)

# What needs no extra: a circuit as a layer, and an estimator.
circuit = ketscale.Circuit(2).ry(0, "x0").ry(1, "w0").cnot(0, 1)
values = ketscale.Layer(circuit)(torch.zeros(3, 1))
assert values.shape == (3, 2)
features = torch.linspace(-1, 1, 20).reshape(-1, 1).double().numpy()
fitted = ketscale.CircuitRegressor(epochs=2, random_state=0).fit(features, features[:, 0])
assert fitted.predict(features).shape == (20,)

said = ""
try:
    ketscale.from_qnode(None)
except UserError as error:
    said = str(error)
assert said.startswith("ketscale.from_qnode needs pennylane: pip install 'ketscale[simulators]'"), said
