"""A small study whose protocol has a search."""

from __future__ import annotations

from typing import Any

RATE: dict[str, Any] = {"learning_rate": {"low": 1e-4, "high": 0.1, "scale": "log"}}
SEARCH: dict[str, Any] = {
    "trials": 4,
    "settings": {**RATE, "weight_decay": [0.0, 1e-4]},
    "models": {"mlp": {"width": [4, 6, 8]}},
}
AXES: dict[str, Any] = {
    "workload": "digits", "model": "vqc", "qubits": 2, "layers": 1, "batch": 64, "simulator": "fused",
    "backend": "cpu-n1r1t1", "protocol": "tuned", "seed": [0, 1, 2],
}  # fmt: skip
GIVEN: dict[str, Any] = {
    "title": "A search",
    "workloads": {
        "digits": {"split_seed": 0, "weights": "selfsupervised", "image_size": 8, "pretrain_steps": 2}
    },
    "simulators": {
        "fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast", "placement": "model"}
    },
    "protocols": {"tuned": {"precision": "fp32", "timed": False, "epochs": 2, "search": SEARCH}},
    "studies": {
        "accuracy": {
            "kind": "accuracy",
            "question": "Is the circuit as good as its control?",
            "axes": AXES,
            "points": [{}, {"model": "mlp", "qubits": 0, "layers": 0, "simulator": "none"}],
        }
    },
}
