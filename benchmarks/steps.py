"""The trainer's own training steps, to be timed: of a model on fixed data, by each of its simulators."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

import torch

from ketscale import spans
from ketscale.config import Data, Model, Protocol, Settings, Simulator
from ketscale.config.circuits import CircuitSimulator
from ketscale.engines.randomness import DeviceStep, Step
from ketscale.grid import Run, encode, layout
from ketscale.parallel.single import Single
from ketscale.problems.control.workloads import DynamicsSimulator, QubitSpectrum
from ketscale.problems.library import construct
from ketscale.problems.problem import Problem
from ketscale.problems.registry import FAMILIES
from ketscale.problems.sentences.next_word import NextWord, build_likelihood, transitions
from ketscale.problems.sentences.sentences import BUILT_IN, PreparedSentences
from ketscale.problems.sentences.specification import LikelihoodSimulator
from ketscale.problems.sentences.transformer import QUBITS, SuperpositionTransformer
from ketscale.problems.supervised import Classification
from ketscale.simulators.factory import build_simulator
from ketscale.training.step import Stepper

SEED = 20240229
CPU = torch.device("cpu")


class Labelled(NamedTuple):
    """What the models of a family classify: samples of a shape, normally distributed; and the layers of its circuits."""

    inputs: int | tuple[int, int]
    classes: int
    layers: int
    deviation: float


# Models that classify trials (channels, steps) or the embeddings of images.
CHANNELS, STEPS, FEATURES = 64, 249, 512
LABELLED = {
    "eeg": Labelled((CHANNELS, STEPS), 2, 2, 0.03),
    "images": Labelled(FEATURES, 10, 3, 1.0),
}
# What is fitted has no steps.
ON_TRIALS, ON_IMAGES, ON_SENTENCES = (
    {name: kind for name, kind in FAMILIES[family].models.items() if not kind.fitted}
    for family in ("eeg", "images", "sentences")
)
# Both protocols leave out how long to train: the stopwatch decides.
LABELLED_PROTOCOL = Protocol(precision="fp32", timed=True, learning_rate=1e-3, clip_norm=1.0, dropout=0.1)


# The simulators of a model on trials or images, all rows in one call. `default.qubit` is the baseline.
ARMS = ("fused", "default.qubit")

SENTENCES = len(BUILT_IN)  # of one layer, an epoch of gradient descent a step
SENTENCES_PROTOCOL = Protocol(precision="fp64", timed=True, learning_rate=0.01, optimiser="gradient-descent")
# `literal` is the published Qiskit circuit, built anew in every evaluation.
LIKELIHOODS: dict[str, Simulator] = {
    "fused": CircuitSimulator.of_name("fused"),
    "closed-form": LikelihoodSimulator(device="closed-form", gradient="backprop", batching="broadcast"),
    "closed-form-shift": LikelihoodSimulator(
        device="closed-form", gradient="parameter-shift", batching="broadcast"
    ),
    "literal-bound": LikelihoodSimulator(device="literal-bound", gradient="parameter-shift", batching="loop"),
    "literal": LikelihoodSimulator(device="literal", gradient="parameter-shift", batching="loop"),
}
# A literal step is 97 equal evaluations of each sentence, of seconds each: one of each is timed, and the step projected.
PROJECTED = {"literal": 97, "literal-bound": 97}

MODELS: dict[str, type[Model]] = {**ON_TRIALS, **ON_IMAGES, **ON_SENTENCES}

# Models on the tasks of a qubit with the published pulse, which have one way to be evaluated here.
ON_TASKS = {name: kind for name, kind in FAMILIES["control"].models.items() if kind.stacks}
EXACT = DynamicsSimulator(device="exact")
SEGMENTS = 20
TASKS_PROTOCOL = Protocol(precision="fp64", timed=True, learning_rate=1e-4, clip_norm=1.0)
CLASSICAL = "none"
# The whole step of `vqc`, written in JAX.
JAX = "jax"
# The arms of every kind of model, in the order of figures.
ALL_ARMS = tuple(dict.fromkeys((*ARMS, *LIKELIHOODS, JAX, CLASSICAL)))
# The arms that do not pass through the host on a GPU.
GPU_ARMS = ("fused", "closed-form", CLASSICAL)
# The steps of the others copy from the host, which a CUDA graph cannot repeat.
CAPTURABLE = ("fused", CLASSICAL)


class ModelCase(NamedTuple):
    """One model and size, to be timed by every arm; 0 qubits for a classical model, 8 sentences as a batch."""

    model: str
    qubits: int
    batch: int

    def __str__(self) -> str:
        return f"{self.model} {self.qubits}q x {self.batch}"


def cases(models: Iterable[str], qubits: Sequence[int], batches: Sequence[int]) -> Iterator[ModelCase]:
    """All cases; a model that is classical or on tasks has no qubits to vary, the one on sentences one size."""
    for model in models:
        if model in ON_SENTENCES:
            yield ModelCase(model, QUBITS, SENTENCES)
            continue
        one = 1 if model in ON_TASKS else 0 if MODELS[model].classical else None
        for number in qubits if one is None else (one,):
            for batch in batches:
                yield ModelCase(model, number, batch)


def arms(model: str) -> tuple[str, ...]:
    """The arms that a model is timed by."""
    if model in ON_SENTENCES:
        return tuple(LIKELIHOODS)
    if model in ON_TASKS:
        return (EXACT.device,)
    if MODELS[model].classical:
        return (CLASSICAL,)
    return (*ARMS, JAX) if model == "vqc" else ARMS


def evaluations(case: ModelCase, arm: str) -> int:
    """How many times as long as a timed call a whole training step is; above 1 its times are projections."""
    return PROJECTED.get(arm, 1) if case.model in ON_SENTENCES else 1


def step(
    case: ModelCase, arm: str, device: torch.device = CPU, dropout: float | None = None
) -> Callable[[], torch.Tensor]:
    """The trainer's step on all samples of a case, which gives the loss; of a projected arm the loss alone.

    Weights and data are the same for every arm, so that their first losses can be compared. dropout: the protocol's if
    none is given.
    """
    if arm == JAX:
        from benchmarks.peers import jax_step

        return jax_step.step(case, dropout)
    if evaluations(case, arm) > 1:
        return _loss_alone(case, arm, device)
    take, numbers = step_of(case, arm, device, dropout=dropout), itertools.count()
    return lambda: take(next(numbers))


class Replayable(NamedTuple):
    """A step to be captured in a CUDA graph: always the same call, and what renews the step's number before it."""

    call: Callable[[], torch.Tensor]
    before: Callable[[], None]


def replayable(case: ModelCase, arm: str, device: torch.device) -> Replayable:
    """The step of `step`, with weights of its own. Only for arms that are not projected."""
    take, number, numbers = step_of(case, arm, device), DeviceStep(device), itertools.count()
    return Replayable(lambda: take(number), lambda: number.set(next(numbers)))


def step_of(
    case: ModelCase,
    arm: str,
    device: torch.device,
    samples_on: torch.device | None = None,
    dropout: float | None = None,
) -> Callable[[Step], torch.Tensor]:
    """The trainer's step by its number, never as a CUDA graph; the indices of its samples are on the same device, or on another."""
    problem, protocol, world = _in_a_world(case, arm, device, dropout)
    stepper = Stepper(problem, world, protocol, replays=False)
    samples = torch.arange(case.batch, device=samples_on or world.device)

    def take(number: Step) -> torch.Tensor:
        figures = stepper.take(samples, number)
        return problem.combine(figures.sums, figures.count)

    return take


def _loss_alone(case: ModelCase, arm: str, device: torch.device) -> Callable[[], torch.Tensor]:
    problem, _, world = _in_a_world(case, arm, device)
    samples = torch.arange(case.batch, device=world.device)

    def loss_alone() -> torch.Tensor:
        with torch.no_grad():
            return problem.combine(problem(samples, 0), len(samples))

    return loss_alone


def built(case: ModelCase, arm: str, device: torch.device) -> Problem:
    """The problem of a case, in training mode, in its precision on the device."""
    return problem_of(case, arm, device)[0]


def _in_a_world(
    case: ModelCase, arm: str, device: torch.device, dropout: float | None = None
) -> tuple[Problem, Protocol, Single]:
    backend = "cpu" if device == CPU else "gpu"
    world = Single(run_at(case, arm, f"{backend}-n1r1t{torch.get_num_threads()}"))
    return *problem_of(case, arm, world.device, dropout), world


def problem_of(
    case: ModelCase, arm: str, device: torch.device, dropout: float | None = None
) -> tuple[Problem, Protocol]:
    """The problem of a case, in training mode, in its precision on the device, and its protocol."""
    torch.manual_seed(SEED)
    problem: Problem
    if case.model in ON_SENTENCES:
        problem, protocol = _sentences(arm, device), SENTENCES_PROTOCOL
    elif case.model in ON_TASKS:
        problem, protocol = _tasks(case, arm), TASKS_PROTOCOL
    else:
        rate = LABELLED_PROTOCOL.dropout if dropout is None else dropout
        problem, protocol = _labelled(case, arm, device, rate), LABELLED_PROTOCOL
    problem.convert(device, torch.float64 if protocol.precision == "fp64" else torch.float32).train()
    return problem, protocol


def run_at(case: ModelCase, arm: str, where: str) -> Run:
    """A run of the case in a layout such as mpi-n1r2t1."""
    family = next(family for family in FAMILIES.values() if case.model in family.models)
    size = {"qubits": case.qubits}
    if case.model in ON_TASKS:
        size["segments"] = SEGMENTS
    else:
        layers = LABELLED[family.name].layers if family.name in LABELLED else 1
        size["layers"] = 0 if MODELS[case.model].classical else layers
    axes = {
        "workload": "bench",
        "model": case.model,
        "size": encode(family.sizes, size),
        "batch": case.batch,
        "simulator": arm,
        "protocol": "bench",
        "seed": SEED,
    }
    return Run.of({**axes, **layout(where)})


def _labelled(case: ModelCase, arm: str, device: torch.device, dropout: float) -> Problem:
    """Classification of fixed random samples."""
    kind = LABELLED["images" if case.model in ON_IMAGES else "eeg"]
    shape = (kind.inputs,) if isinstance(kind.inputs, int) else kind.inputs
    samples = kind.deviation * torch.randn(case.batch, *shape)
    arguments: dict[str, object] = {"inputs": kind.inputs, "outputs": kind.classes}
    if not MODELS[case.model].classical:
        simulator = build_simulator(arm, CircuitSimulator.of_name(arm), device)
        arguments |= {"qubits": case.qubits, "layers": kind.layers, "simulator": simulator}
    model = construct(case.model, **arguments, dropout=dropout)
    everything = torch.arange(case.batch)
    return Classification(model, samples, everything % kind.classes, {"train": everything}, SEED)


def _sentences(arm: str, device: torch.device) -> Problem:
    """Prediction of the next words of the built-in sentences."""
    data = PreparedSentences.of(BUILT_IN, SEED)
    likelihood = build_likelihood(arm, LIKELIHOODS[arm], 1, transitions(data), device)
    return NextWord(SuperpositionTransformer(1), likelihood, data)


def _tasks(case: ModelCase, arm: str) -> Problem:
    """Control of a qubit, with the model's own settings."""
    run, kind = run_at(case, arm, "cpu-n1r1t1"), ON_TASKS[case.model]
    workload = ("qubit-spectrum", QubitSpectrum())
    family = FAMILIES["control"]
    settings = Settings(run, family, *workload, case.model, kind(), EXACT, TASKS_PROTOCOL)
    built: Problem = family.build(settings, Data(), CPU)
    return built


def spans_of(call: Callable[[], torch.Tensor], repeats: int, device: torch.device) -> dict[str, float]:
    """Exclusive seconds of a call by span, medians of several."""
    result: dict[str, list[float]] = {}
    for _ in range(repeats):
        recorder = spans.Recorder(device)
        with spans.recording(recorder):
            call()
        for name, seconds in recorder.exclusive_s.items():
            result.setdefault(name, []).append(seconds)
    return {name: median(seconds) for name, seconds in result.items()}
