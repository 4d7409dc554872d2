"""Files of a user's own, and what the workloads of their kinds read from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ketscale.config import Config, sources
from ketscale.problems.registry import FAMILIES

NETWORK = {"weights": "selfsupervised", "image_size": 8}
RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (40, 6, 5), np.uint8)
COLOUR = RNG.integers(0, 256, (40, 6, 5, 3), np.uint8)
VECTORS = RNG.normal(3, 2, (40, 7))
SIGNALS = RNG.normal(size=(40, 3, 12))
ANIMALS = np.array(["cat", "dog", "eel", "dog"] * 10)


def config(block: dict[str, Any], **protocol: Any) -> Config:
    """A config with the workload `mine` and one run."""
    return Config.of(study_settings(block, **protocol), FAMILIES)


def study_settings(block: dict[str, Any], **protocol: Any) -> dict[str, Any]:
    """The settings of `config`."""
    eeg = block.get("kind") == "series"
    return {
        "title": "Own data",
        "workloads": {"mine": block},
        "simulators": {"fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast"}},
        "protocols": {
            "p": {"precision": "fp64", "epochs": 1, "timed": False, "learning_rate": 0.01, **protocol}
        },
        "studies": {
            "s": {
                "kind": "accuracy",
                "question": "Does it learn?",
                "axes": {
                    "workload": "mine", "model": "hydra" if eeg else "vqc", "qubits": 2, "layers": 1, "batch": 8,
                    "simulator": "fused", "backend": "cpu-n1r1t1", "protocol": "p", "seed": 0,
                },
            }
        },
    }  # fmt: skip


def loaded(block: dict[str, Any]) -> Any:
    """What the workload `mine` reads, after its sources have been found."""
    result = config(block)
    sources(result, "mine")
    return result.workloads["mine"][1].load(None)


def npz(path: Path, **arrays: Any) -> str:
    np.savez(path / "mine.npz", **arrays)
    return str(path / "mine.npz")


def pictures(path: Path, mode: str = "RGB", size: tuple[int, int] = (12, 9)) -> Path:
    """Two classes of five files each, and what is no image beside them."""
    bands = len(Image.new(mode, (1, 1)).getbands())
    for name, level in (("night", 20), ("day", 200)):
        (path / name).mkdir(parents=True)
        for number in range(5):
            pixels = np.full((size[1], size[0], bands), level + number, np.uint8)
            Image.fromarray(pixels.squeeze()).save(path / name / f"{number}.png")
    (path / "README.txt").write_text("Photographs")
    (path / ".cache").mkdir()
    (path / "day" / ".DS_Store").write_text("")
    return path
