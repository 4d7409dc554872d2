"""Small problems whose right answers are known, for tests of the trainer and the backends."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import numpy as np
import torch
from torch import nn

from ketscale.config import Protocol
from ketscale.engines import randomness
from ketscale.engines.dynamics.propagators import propagator
from ketscale.grid import Run, layout
from ketscale.measure.clock import Clock
from ketscale.parallel.single import Single
from ketscale.problems.control.grape import Grape, TaskPulses
from ketscale.problems.control.meta_learning import Inner, MetaLearning
from ketscale.problems.control.policy import Policy
from ketscale.problems.control.problem import Objective
from ketscale.problems.control.workloads import QubitSpectrum
from ketscale.problems.images.specification import FAMILY
from ketscale.problems.problem import Problem
from ketscale.problems.samplers import All, Shuffled, Stream
from ketscale.problems.sentences.likelihood import ShiftedClosedForm
from ketscale.problems.sentences.next_word import NextWord, transitions
from ketscale.problems.sentences.sentences import PreparedSentences, Sentences
from ketscale.problems.sentences.transformer import SuperpositionTransformer
from ketscale.problems.supervised import Classification, Regression
from ketscale.problems.vectors.vqc import VQC
from ketscale.training.loop import Trainer


def classification(
    seed: int = 0, samples: int = 37, dropout: float = 0.2, dtype=torch.float64, **how: Any
) -> Classification:
    """A 3-class vqc on random features whose label is the largest of the first three."""
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(samples + 40, 12, generator=generator)
    labels = inputs[:, :3].argmax(1)
    torch.manual_seed(seed)
    model = VQC(qubits=3, layers=2, inputs=12, outputs=3, dropout=dropout)
    rows = torch.randperm(samples + 40, generator=generator)
    train, validation, test = rows.split((samples, 20, 20))
    splits = {"train": train, "validation": validation, "test": test}
    return Classification(model, inputs, labels, splits, seed, **how).to(dtype)


def regression(seed: int = 0, dtype: torch.dtype = torch.float64, **how: Any) -> Regression:
    """A vqc on random features, two functions of which are its targets, in units far apart."""
    generator = torch.Generator().manual_seed(6)
    inputs = torch.randn(77, 12, generator=generator, dtype=torch.float64)
    targets = torch.stack([inputs[:, 0].sin() - 7, 1e4 * inputs[:, 1] * inputs[:, 2]], dim=1)
    torch.manual_seed(seed)
    model = VQC(qubits=3, layers=2, inputs=12, outputs=2, dropout=0.2)
    splits = {"train": torch.arange(37), "validation": torch.arange(37, 57), "test": torch.arange(57, 77)}
    return Regression(model, inputs, targets, splits, seed, **how).to(dtype)


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
        self.sampler = Shuffled(samples)
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


class Pulse(nn.Module):
    """Two real controls for `Columns`, and a parameter that only its penalty knows."""

    def __init__(self) -> None:
        super().__init__()
        self.controls = nn.Parameter(torch.tensor([0.3, -0.7], dtype=torch.float64))
        self.spare = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))


class Columns(Problem):
    """1 - |mean overlap of the columns of a unitary with those of a target|^2, and a penalty on the controls."""

    linear = False

    def __init__(self) -> None:
        super().__init__()
        self.model = Pulse()
        self.sampler = All(4)
        self.splits = {"validation": 4}
        generator = torch.Generator().manual_seed(3)
        parts = torch.randn(3, 4, 4, generator=generator, dtype=torch.complex128)
        hermitian = parts + parts.mH
        self.register_buffer("drift", hermitian[0])
        self.register_buffer("control", hermitian[1])
        self.register_buffer("target", torch.linalg.matrix_exp(1j * hermitian[2]))

    def overlaps(self) -> torch.Tensor:
        unitary = torch.eye(4, dtype=self.get_buffer("drift").dtype)
        for control in self.model.controls:
            unitary = (
                torch.linalg.matrix_exp(
                    -1j * (self.get_buffer("drift") + control * self.get_buffer("control"))
                )
                @ unitary
            )
        return (self.get_buffer("target").conj() * unitary).sum(0)

    def sums(self, indices: torch.Tensor, step: int) -> torch.Tensor:
        return self.overlaps()[indices].sum().reshape(1)

    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        return 1 - (sums[0] / count).abs() ** 2

    def penalty(self) -> torch.Tensor:
        return 0.1 * self.model.controls.square().sum() + (self.model.spare - 1) ** 2

    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.overlaps()[indices]

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, float]:
        return {"loss": float(self.combine(outputs.sum().reshape(1), len(outputs)))}


TASKS = randomness.RandomStream("test tasks")


class Tasks(Problem):
    """Mean squared distance of a parameter to targets drawn afresh in each step, and a penalty: linear in its sums."""

    linear = True

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(3, 1, bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.model.weight.copy_(torch.tensor([[0.2, -0.4, 1.0]]))
        self.sampler = Stream(6)
        self.splits = {"validation": 5}

    def losses(self, seed: int, step: int, indices: torch.Tensor) -> torch.Tensor:
        targets = randomness.uniform(TASKS.key(seed, step), indices, 3)
        return (targets - self.model.weight.tanh()).square().sum(1)

    def sums(self, indices: torch.Tensor, step: int) -> torch.Tensor:
        return self.losses(0, step, indices).sum().reshape(1)

    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        return sums[0] / count

    def penalty(self) -> torch.Tensor:
        return 0.3 * self.model.weight.square().sum()

    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.losses(1, 0, indices) if len(indices) else torch.zeros(0, dtype=torch.float64)

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, float]:
        return {"loss": float(outputs.mean())}


def without_dropout() -> Classification:
    """`classification` with the same loss in every evaluation."""
    return classification(dropout=0.0)


def large() -> Classification:
    """`classification` by a model with more than 1 MiB of gradients, some of them complex."""

    class Large(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(12, 300), nn.Tanh(), nn.Linear(300, 500), nn.Tanh(), nn.Linear(500, 3))
            self.phases = nn.Parameter(torch.exp(1j * torch.arange(3)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.phases.real + self.phases.imag

    problem = classification()
    torch.manual_seed(0)
    problem.model = Large()
    return problem.convert(torch.device("cpu"), torch.float64)


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
    data = PreparedSentences(Sentences.of(TEXTS), rows, seed=4)
    torch.manual_seed(0)
    return NextWord(SuperpositionTransformer(1), ShiftedClosedForm(1, transitions(data)), data).double()


OBJECTIVE = Objective(
    QubitSpectrum(detuning=(-2.0, 2.0), validation=2, test=3, epoch_steps=6),
    propagator("exact"),
)


def meta_learning() -> MetaLearning:
    """A policy with all derivatives of its adaptation, whose tasks are drawn afresh in each step."""
    torch.manual_seed(0)
    model = Policy(segments=4, low=(0.5, 1e-3, 100.0, -2.0), high=(2.0, 1e-2, 1000.0, 2.0), width=6, depth=1)
    return MetaLearning(model, OBJECTIVE, "maml", Inner(2, 0.1), seed=0, arguments={}).double()


def grape() -> Grape:
    """Five tasks, each of whose starts is minimised by itself."""
    return Grape(TaskPulses(tasks=5, starts=3, segments=4), OBJECTIVE, seed=0, arguments={}).double()


PROBLEMS = {
    "classification": classification,
    "without dropout": without_dropout,
    "regression": regression,
    "weighted": partial(classification, class_weights="balanced"),
    "weighted hinge": partial(classification, loss="hinge", class_weights=[1.0, 2.0, 0.5]),
    "large": large,
    "fidelity": Fidelity,
    "columns": Columns,
    "tasks": Tasks,
    "sentences": next_word,
    "meta-learning": meta_learning,
    "grape": grape,
}

TRAINING = {
    "learning_rate": 3e-3, "weight_decay": 1e-4, "clip_norm": 1.0, "precision": "fp64", "timed": False,
}  # fmt: skip
QUIETLY: dict[str, Any] = {
    "save": lambda state: None,
    "stop_requested": lambda: False,
    "metrics": FAMILY.metrics,
}


class Rows(list[dict[str, Any]]):
    """A history whose rows a test can read."""

    def state(self) -> dict[str, Any]:
        return {"rows": list(self)}

    def restore(self, state: dict[str, Any]) -> None:
        self[:] = state["rows"]


def protocol_of(settings: dict[str, Any]) -> Protocol:
    """A protocol of these settings and the toys' own."""
    return msgspec.convert({**TRAINING, **settings}, Protocol)


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
    world = Single(run_at("cpu-n1r1t1"))
    return Trainer(
        problem, world, clock, protocol_of(protocol), batch, 0, **{**QUIETLY, "history": Rows(), **hooks}
    )
