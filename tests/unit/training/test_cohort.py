"""Runs that are trained together: each as if it were alone, in its losses and in what follows from them."""

import copy
import time
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import steps
from ketscale.engines.dynamics.propagators import propagator
from ketscale.layers.dropout import SampleDropout
from ketscale.measure.clock import Clock
from ketscale.parallel.single import Single
from ketscale.problems.control.meta_learning import Inner, MetaLearning
from ketscale.problems.control.policy import Policy, RobustPulse
from ketscale.problems.control.problem import Objective
from ketscale.problems.control.workloads import QubitSpectrum
from ketscale.problems.sentences.next_word import NextWord, build_likelihood, transitions
from ketscale.problems.sentences.sentences import PreparedSentences, Sentences
from ketscale.problems.sentences.transformer import SuperpositionTransformer
from ketscale.problems.supervised import Classification
from ketscale.training import cohort
from ketscale.training.loop import Diverged, Trainer
from ketscale.training.pace import Pace
from ketscale.training.stack import Stack, fits
from tests.toys import QUIETLY, Rows, classification, protocol_of, regression, run_at

WORLD = Single(run_at("cpu-n1r1t1"))


def perceptron(seed, dtype=torch.float64):
    """The toy classification with a small perceptron, with dropout."""
    problem = classification(seed, dtype=dtype)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(12, 9), nn.ReLU(), SampleDropout(0.2), nn.Linear(9, 3)).to(dtype)
    splits = {name: problem.get_buffer(f"rows_{name}") for name in problem.splits}
    return Classification(model, problem.get_buffer("inputs"), problem.get_buffer("targets"), splits, seed)


def sentences(seed, dtype=torch.float64, arm="fused"):
    """Sentences of three to six words."""
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
    lines = [" ".join(words[start : start + 3 + start % 4]) for start in range(5)]
    lines += [" ".join(reversed(line.split())) for line in lines] + [f"{line} {line}" for line in lines]
    rows = np.arange(len(lines))
    splits = {"train": rows[:10], "validation": rows[10:13], "test": rows[13:]}
    data = PreparedSentences(Sentences.of(lines), splits, seed=4)
    torch.manual_seed(seed)
    likelihood = build_likelihood(arm, steps.LIKELIHOODS[arm], 1, transitions(data), torch.device("cpu"))
    return NextWord(SuperpositionTransformer(1), likelihood, data).convert(torch.device("cpu"), dtype)


def control(seed, dtype=torch.float64, kind="fomaml", loop=False):
    """Meta-learning of a policy, or of one pulse for all tasks."""
    workload = QubitSpectrum(detuning=(-2.0, 2.0), validation=4, test=3, epoch_steps=3)
    torch.manual_seed(seed)
    if kind == "robust":
        network = RobustPulse(segments=4)
    else:
        low, high = zip(*((each.low, each.high) for each in workload.varied), strict=True)
        network = Policy(4, "normalised", low, high, width=6, depth=1)
    adaptation = "multi-task" if kind == "robust" else kind
    objective, inner = Objective(workload, propagator("exact", strict=False)), Inner(2, 0.05)
    problem = MetaLearning(network, objective, adaptation, inner, seed, {}, loop)
    return problem.convert(torch.device("cpu"), dtype)


def trainer(problem, seed, protocol, **more):
    """A trainer of one run of a batch of 8."""
    clock = Clock(torch.device("cpu"), 2, frozenset())
    return Trainer(problem, WORLD, clock, protocol, 8, seed, **{**QUIETLY, "history": Rows(), **more})


class Together:
    """A cohort of problems made by `make` for seeds 0, 1, ... or those given, one for each of the protocols."""

    def __init__(self, make, protocols, seeds=None, **settings):
        protocols = [protocol_of({**settings, **own}) for own in protocols]
        seeds = range(len(protocols)) if seeds is None else seeds
        problems = [make(seed) for seed in seeds]
        self.pace = Pace(protocols[0], WORLD, lambda: False, members=len(protocols))
        # The states that each saved, and how each ended.
        self.saved, self.ends = {seed: [] for seed in seeds}, {}
        self.trainers = {
            seed: trainer(
                problem,
                seed,
                protocol,
                pace=self.pace,
                save=lambda state, seed=seed: self.saved[seed].append(copy.deepcopy(state)),
            )
            for seed, problem, protocol in zip(seeds, problems, protocols, strict=True)
        }

    def restore(self, states):
        """Let runs go on from a state; those that have none begin."""
        for seed, state in states.items():
            self.trainers[seed].restore(copy.deepcopy(state))
        return self

    def train(self):
        self.pace.begin(min(each.step for each in self.trainers.values()))
        cohort.train(self.trainers, self.ends.__setitem__)
        return self


def single_run(make, seed, settings):
    """The same run by itself, trained as far as it goes."""
    single = trainer(make(seed), seed, protocol_of(settings))
    try:
        single.run()
    except Diverged as error:
        return single, error
    return single, None


def weights(trainer):
    return torch.cat([p.detach().reshape(-1) for p in trainer.problem.parameters()])


MADE = {
    "mlp": perceptron,
    "vqc": classification,
    "regression": regression,
    "weighted hinge": partial(classification, loss="hinge", class_weights=[1.0, 2.0, 0.5]),
    "sentences": sentences,
    "sentences, closed form": partial(sentences, arm="closed-form"),
    **{kind: partial(control, kind=kind) for kind in ("fomaml", "maml", "reptile", "multi-task", "robust")},
    "loop": partial(control, loop=True),
}


@pytest.mark.parametrize(
    "kind, dtype, tolerance",
    [*((kind, torch.float64, 1e-10) for kind in MADE), ("mlp", torch.float32, 1e-3)],
)
def test_each_run_of_a_cohort_has_the_losses_that_it_has_alone(kind, dtype, tolerance):
    make = partial(MADE[kind], dtype=dtype)
    protocols = [{}, {"learning_rate": 1e-3}, {"weight_decay": 0.0, "clip_norm": None}, {"clip_norm": 0.1}]
    result = Together(make, protocols, steps=6).train()
    for seed, own in enumerate(protocols):
        single, _ = single_run(make, seed, {"steps": 6, **own})
        assert result.trainers[seed].losses == pytest.approx(single.losses, rel=tolerance)
        torch.testing.assert_close(
            weights(result.trainers[seed]), weights(single), rtol=tolerance, atol=tolerance
        )
    losses = [result.trainers[seed].losses[0] for seed in range(4)]
    assert len(set(losses)) == 4


@pytest.mark.parametrize("kind", ["mlp", "sentences", "fomaml", "robust"])
def test_each_run_stops_early_by_its_own_numbers_and_keeps_its_own_best_weights(kind):
    make = MADE[kind]
    rates = [{"learning_rate": rate} for rate in (0.3, 3e-3, 0.1)]
    stopping = {"monitor": "loss", "patience": 2}
    settings = {"epochs": 8, "early_stopping": stopping, "plateau": {"factor": 0.5, "patience": 0}}
    result = Together(make, rates, **settings).train()
    lengths = set()
    for seed, own in enumerate(rates):
        joint, (single, _) = result.trainers[seed], single_run(make, seed, {**settings, **own})
        assert joint.step == single.step
        assert joint.best["epoch"] == single.best["epoch"]
        torch.testing.assert_close(weights(joint), weights(single), rtol=0, atol=1e-9)
        for mine, expected in zip(joint.history, single.history, strict=True):
            assert mine["epoch_s"] > 0 and mine.keys() == expected.keys()
            assert mine["learning_rate"] == expected["learning_rate"]
            for name in (name for name in expected if name.startswith("validation_")):
                assert mine[name] == pytest.approx(expected[name], rel=1e-9)
        lengths.add(single.step)
    assert len(lengths) > 1


def fold(problem, number, train=None):
    """The problem with another fold: its samples are dealt anew to parts of the same sizes, or to fewer of training."""
    rows = torch.cat([problem.get_buffer(f"rows_{name}") for name in problem.splits])
    dealt = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(number))]
    parts = dealt.split(list(problem.splits.values()))
    splits = dict(zip(problem.splits, parts, strict=True))
    splits["train"] = splits["train"][:train]
    inputs, labels = problem.get_buffer("inputs"), problem.get_buffer("targets")
    return Classification(problem.model, inputs, labels, splits, problem.seed)


def by_fold(make, folds):
    """As `make`, where seed s has fold s modulo `folds`."""
    return lambda seed: fold(make(seed), seed % folds)


def same_as_alone(made, make, seeds, settings, tolerance=1e-10):
    """Assert that the runs of a cohort have the losses, steps, metrics and test outputs that they have alone."""
    for seed in seeds:
        joint, (single, _) = made.trainers[seed], single_run(make, seed, settings)
        assert joint.losses == pytest.approx(single.losses, rel=tolerance)
        assert (joint.step, joint.best["epoch"]) == (single.step, single.best["epoch"])
        for name, size in single.problem.splits.items():
            rows = torch.arange(size)
            mine, its = (each.problem.outputs(name, rows) for each in (joint, single))
            torch.testing.assert_close(mine, its, rtol=0, atol=1e-8)
            saved, expected = (each.problem.predictions(name, its) for each in (joint, single))
            for part in ("samples", "labels"):
                assert torch.equal(saved[part], expected[part])


def test_those_that_are_left_end_bitwise_as_when_they_resume_from_their_checkpoint():
    """Two equal folds are left of 0, 1, 0, whose steps are taken as those of equal data are; and then one."""
    make, protocols = by_fold(classification, 2), [{"epochs": 5}, {"epochs": 1}, {"epochs": 3}]
    result = Together(make, protocols, checkpoint_steps=5).train()
    steps = {seed: [state["step"] for state in states] for seed, states in result.saved.items()}
    assert steps == {0: [5, 15], 1: [], 2: [5]}
    two = Together(make, [protocols[0], protocols[2]], seeds=(0, 2))
    two.restore({seed: result.saved[seed][0] for seed in (0, 2)}).train()
    for seed in (0, 2):
        assert torch.equal(weights(two.trainers[seed]), weights(result.trainers[seed]))
    last = trainer(make(0), 0, protocol_of(protocols[0]))
    last.restore(copy.deepcopy(result.saved[0][1]))
    last.run()
    assert torch.equal(weights(last), weights(result.trainers[0]))


def test_each_second_is_one_runs_whatever_the_groups(monkeypatch):
    """By a clock by which a step of so many runs takes so many seconds. One run leaves in an epoch."""
    now, take, sizes = [0.0], Stack.take, []

    def taken(self, batches, step):
        now[0] += len(batches)
        sizes.append(len(batches))
        return take(self, batches, step)

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(Stack, "take", taken)
    protocols = [{}, {}, {"learning_rate": 1e308, "clip_norm": None}]
    result = Together(perceptron, protocols, epochs=4).train()
    assert isinstance(result.ends[2], Diverged) and set(sizes) == {3, 2}
    assert [result.trainers[seed].share_s for seed in range(2)] == [20, 20]
    assert {row["epoch_s"] for seed in range(2) for row in result.trainers[seed].history} == {5.0}


def test_each_run_trains_on_its_own_fold():
    make = by_fold(perceptron, 2)
    result = Together(make, [{}, {}], steps=3).train()
    same_as_alone(result, make, range(2), {"steps": 3})


def test_problems_with_other_numbers_of_samples_are_not_stacked():
    one, other = perceptron(0), fold(perceptron(1), 1, train=-1)
    assert fits(fold(perceptron(1), 1), one) and not fits(other, one)
    with pytest.raises(ValueError, match="other shapes cannot be stacked"):
        Together(lambda seed: [one, other][seed], [{}, {}], steps=3).train()


@pytest.mark.parametrize("kind", ["mlp", "reptile"])
def test_a_run_that_diverges_leaves_the_others_which_are_validated_and_then_saved(kind):
    # So large that Adam's first step, which corrects it, is infinite.
    make, protocols = MADE[kind], [{}, {}, {"learning_rate": 1e308, "clip_norm": None}]
    result = Together(make, protocols, epochs=4, checkpoint_steps=2).train()
    assert isinstance(result.ends[2], Diverged) and result.ends[0] is result.ends[1] is None
    assert str(result.ends[2]) == str(single_run(make, 2, {"epochs": 4, **protocols[2]})[1])
    saved = {seed: result.saved[seed][0] for seed in range(2)}
    repeat = Together(make, [{}, {}], epochs=4).restore(saved).train()
    for seed, trained in repeat.trainers.items():
        single, _ = single_run(make, seed, {"epochs": 4})
        assert [row["epoch"] for row in trained.history] == list(range(4))
        assert trained.best["epoch"] == single.best["epoch"] >= 0
        assert torch.equal(weights(trained), weights(result.trainers[seed]))
        torch.testing.assert_close(weights(trained), weights(single), rtol=0, atol=1e-10)
