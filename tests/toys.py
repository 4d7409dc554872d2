"""Small problems whose right answers are known, for tests of the trainer and the backends."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ketscale.grid import Run, layout
from ketscale.measure.clock import Clock
from ketscale.parallel.single import Single
from ketscale.problems.classification import Classification
from ketscale.problems.images.vqc import VQC
from ketscale.problems.problem import Problem
from ketscale.problems.sentences.likelihood import ShiftedClosedForm
from ketscale.problems.sentences.next_word import NextWord, transitions
from ketscale.problems.sentences.sentences import Prepared, Sentences
from ketscale.problems.sentences.transformer import SuperpositionTransformer
from ketscale.training.loop import Trainer


def classification(
    seed: int = 0, samples: int = 37, dropout: float = 0.2, dtype=torch.float64
) -> Classification:
    """A 3-class vqc on random features whose label is the largest of the first three."""
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(samples + 40, 12, generator=generator)
    labels = inputs[:, :3].argmax(1)
    torch.manual_seed(seed)
    model = VQC(qubits=3, layers=2, inputs=12, outputs=3, dropout=dropout)
    rows = torch.randperm(samples + 40, generator=generator)
    splits = {
        "train": rows[:samples],
        "validation": rows[samples : samples + 20],
        "test": rows[samples + 20 :],
    }
    return Classification(model, inputs, labels, splits, seed).to(dtype)


class Overlap(nn.Module):
    """Two complex parameters for `Fidelity`."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor([0.3 + 0.1j, -0.2 + 0.4j], dtype=torch.complex128))


class Fidelity(Problem):
    """1 - |mean of overlaps|^2: complex sums and a nonlinear `combine`, as of a gate's fidelity."""

    linear = False

    def __init__(self, samples: int = 11) -> None:
        super().__init__()
        self.model = Overlap()
        self.samples = samples
        self.splits = {"validation": samples}
        generator = torch.Generator().manual_seed(1)
        self.register_buffer("x", torch.randn(samples, 2, generator=generator, dtype=torch.complex128))

    def sums(self, indices: torch.Tensor, step: int) -> torch.Tensor:
        return (self.get_buffer("x")[indices] @ self.model.a).tanh().sum().reshape(1)

    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        return 1 - (sums[0] / count).abs() ** 2

    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return (self.get_buffer("x")[indices] @ self.model.a).tanh()

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, float]:
        return {"loss": float(self.combine(outputs.sum().reshape(1), len(outputs)))}


TEXTS = (
    "one two",
    "the small dog sleeps all day long",
    "rain falls again",
    "stars fill the sky",
    "old ships cross cold water at night",
    "she paints doors",
    "a bird sings its song",
    "two friends walk home",
)


def next_word() -> NextWord:
    """Ragged sentences, seven to train on and one to validate with, differentiated by parameter-shift."""
    rows = {"train": np.arange(7), "validation": np.array([7]), "test": np.array([7])}
    data = Prepared(Sentences.of(TEXTS), rows, seed=4, hash="", data_hash="")
    torch.manual_seed(0)
    return NextWord(SuperpositionTransformer(1), ShiftedClosedForm(1, transitions(data)), data).double()


PROBLEMS = {"classification": classification, "fidelity": Fidelity, "sentences": next_word}

TRAINING = {"learning_rate": 3e-3, "weight_decay": 1e-4, "clip_norm": 1.0, "precision": "fp64"}
QUIETLY: dict[str, Any] = {
    "save": lambda state: None,
    "stop_requested": lambda: False,
    "save_requested": lambda: False,
    "report": lambda history: None,
    "progress": False,
}


def run_at(where: str, **axes: Any) -> Run:
    """A run at a place such as mpi-n1r2t1."""
    base = {
        "workload": "digits",
        "model": "vqc",
        "size": "q3-l2",
        "batch": 8,
        "simulator": "default.qubit",
        "protocol": "test",
        "seed": 0,
    }
    return Run.of({**base, **axes, **layout(where)})


def trainer(problem: Problem, protocol: dict[str, Any], batch: int = 8, **hooks: Any) -> Trainer:
    """A trainer on one CPU process."""
    clock = Clock(torch.device("cpu"), 2, frozenset())
    backend = Single(run_at("cpu-n1r1t1"))
    return Trainer(problem, backend, clock, {**TRAINING, **protocol}, batch, 0, **{**QUIETLY, **hooks})
