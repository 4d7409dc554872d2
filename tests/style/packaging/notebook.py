"""What a notebook does first with the base alone: models and layers with a circuit, and what names its extra."""

from collections.abc import Callable

import torch

import ketscale
from ketscale.errors import UserError
from ketscale.problems.images.specification import Digits
from ketscale.problems.vectors.vqc import VQC

model = VQC(qubits=4, layers=3)
logits = model(torch.randn(8, 512))
logits.square().sum().backward()
assert logits.shape == (8, 10)
assert all(torch.isfinite(p.grad).all() for p in model.parameters())
print(f"forward and backward of VQC with {ketscale.__file__}")

circuit = ketscale.Circuit(2).ry(0, "x0").ry(1, "w0").cnot(0, 1)
assert ketscale.Layer(circuit)(torch.zeros(3, 1)).shape == (3, 2)


def error_of(call: Callable[[], object]) -> str:
    """What a call says about the package that it needs."""
    try:
        call()
    except UserError as error:
        print(error)
        return str(error)
    raise AssertionError("nothing is missing: this is not the base alone")


assert "pip install 'ketscale[simulators]'" in error_of(
    lambda: VQC(qubits=4, layers=3, simulator="default.qubit")
)
assert error_of(lambda: ketscale.from_qnode(None)).startswith(
    "ketscale.from_qnode needs pennylane: pip install 'ketscale[simulators]'"
)
assert error_of(lambda: ketscale.CircuitRegressor).startswith(
    "an estimator needs scikit-learn: pip install 'ketscale[estimators]'"
)
assert error_of(lambda: ketscale.construct("svm")).startswith(
    "a support vector machine needs scikit-learn: pip install 'ketscale[estimators]'"
)
assert error_of(lambda: Digits(split_seed=0, weights="imagenet", image_size=8).load(None)).startswith(
    "workload digits needs scikit-learn: pip install 'ketscale[images]'"
)
