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
