"""Meta-gradients are those of plain copies of the weights, whoever shares the tasks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.func import functional_call

from ketscale.engines.dynamics.literal import PublishedLoop
from ketscale.engines.dynamics.methods import Creation
from ketscale.engines.dynamics.propagators import Propagator, propagator
from ketscale.problems.control.meta_learning import Inner, MetaLearning
from ketscale.problems.control.policy import Policy, RobustPulse
from ketscale.problems.control.problem import Batch, Objective, Outputs
from ketscale.problems.control.workloads import QubitSpectrum, Rates
from tests.toys import trainer

KINDS = ("fomaml", "maml", "reptile", "multi-task")
INNER = Inner(3, 0.5)
TASKS = 5
EXACT = propagator("exact")


def policy(**settings: Any) -> Policy:
    return Policy(
        segments=4, low=(0.5, -2.0), high=(2.0, 2.0), width=6, depth=2, inputs="normalised", **settings
    )


NETWORKS = {"policy": policy, "pulse": lambda: RobustPulse(segments=4)}


def learning(
    kind: str,
    network: str = "policy",
    simulator: Propagator = EXACT,
    creation: Creation = "batch",
    loop: bool = False,
    **settings: Any,
) -> MetaLearning:
    workload = QubitSpectrum(
        detuning=(-2.0, 2.0),
        strength=(3.0, 3.0),
        cutoff=(20.0, 20.0),
        validation=7,
        epoch_steps=3,
        **settings,
    )
    torch.manual_seed(1)
    model = NETWORKS[network]()
    objective = Objective(workload, simulator, creation)
    problem = MetaLearning(model, objective, kind, INNER, seed=3, arguments={}, loop=loop)
    return problem.convert(torch.device("cpu"), torch.float64)


def tasks_of(problem: MetaLearning, numbers: torch.Tensor, step: int) -> Batch:
    """The training tasks of a step."""
    return problem.distribution.fresh([problem.seed], step, numbers, torch.float64)


def reference(problem: MetaLearning, kind: str, step: int) -> tuple[float, list[torch.Tensor]]:
    """The mean query loss after adaptation and its meta-gradient, task after task on copies of all weights."""
    weights = {name: p.detach().clone().requires_grad_() for name, p in problem.model.named_parameters()}
    tasks = tasks_of(problem, torch.arange(TASKS), step)
    total, gradients = 0.0, [torch.zeros_like(p) for p in weights.values()]
    for number in range(TASKS):

        def loss(adapted: dict[str, torch.Tensor], one: slice = slice(number, number + 1)) -> torch.Tensor:
            controls = functional_call(problem.model, adapted, (tasks.inputs[one],))
            rates = Rates(*(part[one] for part in tasks.environment))
            return problem.objective.losses(controls, rates)[0]

        adapted, inner = weights, [torch.zeros_like(p) for p in weights.values()]
        for _ in range(0 if kind == "multi-task" else INNER.steps):
            slopes = torch.autograd.grad(loss(adapted), list(adapted.values()), create_graph=kind == "maml")
            inner = [total + slope for total, slope in zip(inner, slopes, strict=True)]
            adapted = {
                name: p - INNER.rate * slope for (name, p), slope in zip(adapted.items(), slopes, strict=True)
            }
            if kind != "maml":
                adapted = {name: p.detach().requires_grad_() for name, p in adapted.items()}
        query = loss(adapted)
        by = weights if kind == "maml" else adapted
        result = inner if kind == "reptile" else torch.autograd.grad(query, list(by.values()))
        gradients = [each + one for each, one in zip(gradients, result, strict=True)]
        total += query.item()
    return total / TASKS, [each / TASKS for each in gradients]


def gradients(
    problem: MetaLearning, step: int = 2, shards: tuple[int, ...] = (TASKS,)
) -> tuple[float, list[torch.Tensor]]:
    problem.zero_grad()
    parts = torch.arange(TASKS).split(list(shards))
    losses = [problem.combine(problem(part, step), TASKS) for part in parts]
    for loss in losses:
        loss.backward()
    return sum(loss.item() for loss in losses), [p.grad.clone() for p in problem.parameters()]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kind", KINDS)
def test_meta_gradients_are_those_of_copies_of_the_weights(kind: str, network: str) -> None:
    problem = learning(kind, network)
    loss, result = gradients(problem)
    expected_loss, expected = reference(problem, kind, 2)
    assert loss == pytest.approx(expected_loss, rel=1e-12)
    for mine, peer in zip(result, expected, strict=True):
        torch.testing.assert_close(mine, peer, rtol=0, atol=1e-10)
    assert max(each.abs().max() for each in expected) > 1e-4


@pytest.mark.parametrize("kind", ["maml", "reptile"])
def test_a_loop_over_tasks_has_the_same_gradients(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = set()
    features = Policy.features
    monkeypatch.setattr(
        Policy, "features", lambda self, tasks: (sizes.add(len(tasks)), features(self, tasks))[1]
    )
    joint, separate = (gradients(learning(kind, loop=loop)) for loop in (False, True))
    assert sizes == {TASKS, 1}
    assert separate[0] == pytest.approx(joint[0], rel=1e-13)
    for mine, expected in zip(separate[1], joint[1], strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "given", "tolerance"),
    [
        ("rk4", {"dt": 0.002}, 1e-10),
        ("euler", {"dt": 0.0005}, 1e-2),
        ("literal", {"dt": 0.05}, 1e-4),
    ],
)
def test_every_propagator_gives_the_same_meta_gradients(
    name: str, given: dict[str, Any], tolerance: float
) -> None:
    loss, result = gradients(learning("maml", simulator=propagator(name, **given)))
    expected_loss, expected = gradients(learning("maml"))
    assert loss == pytest.approx(expected_loss, rel=tolerance)
    scale = max(each.abs().max() for each in expected)
    for mine, reference in zip(result, expected, strict=True):
        torch.testing.assert_close(mine, reference, rtol=0, atol=float(tolerance * scale))


@pytest.mark.parametrize("kind", KINDS)
def test_shards_add_up_whatever_their_sizes(kind: str) -> None:
    problem = learning(kind)
    complete, parts = gradients(problem), gradients(problem, shards=(0, 1, 4))
    assert parts[0] == pytest.approx(complete[0], rel=1e-12)
    for mine, expected in zip(parts[1], complete[1], strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-12)


def test_the_cache_changes_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it environments are created once for each task, without it in each evaluation."""
    created: list[int] = []
    of = QubitSpectrum.environment
    monkeypatch.setattr(
        QubitSpectrum, "environment", lambda self, values: created.append(len(values)) or of(self, values)
    )
    result = {}
    for creation in ("once", "again"):
        loop = PublishedLoop("rk4", 0.125, cache=creation == "once")
        problem = learning("fomaml", simulator=loop, creation=creation)  # type: ignore[arg-type]
        created.clear()
        loss, slopes = gradients(problem)
        times = INNER.steps + 1 if creation == "again" else 1
        assert len([tasks for tasks in created if tasks == 1]) == TASKS * times
        result[creation] = [torch.tensor(loss), *slopes, problem.outputs("test", torch.arange(1))]
    assert all(torch.equal(*pair) for pair in zip(*result.values(), strict=True))


def test_a_task_is_a_function_of_seed_step_and_number() -> None:
    problem = learning("fomaml")
    every = tasks_of(problem, torch.arange(6), 4).inputs
    assert torch.equal(tasks_of(problem, torch.tensor([5, 2]), 4).inputs, every[[5, 2]])
    others = [
        tasks_of(problem, torch.arange(6), 5),
        problem.distribution.fixed("test", torch.arange(6), torch.float64),
    ]
    assert not any(torch.isclose(other.inputs, every).any() for other in others)


def test_adaptation_lowers_the_loss_and_its_course_begins_at_the_unadapted_policy() -> None:
    problem = learning("fomaml")
    rows = problem.outputs("validation", torch.arange(7))
    course, pulses = Outputs.of_rows(rows, problem.model.shape)
    assert (course.shape, pulses.shape) == ((7, 21), (7, 4, 2))
    tasks = problem.distribution.fixed("validation", torch.arange(7), torch.float64)
    unadapted = problem.objective.overlaps(problem.model(tasks.inputs), tasks.environment)
    torch.testing.assert_close(course[:, 0], unadapted.detach(), rtol=0, atol=1e-14)
    assert (course[:, 20] > course[:, 5]).all() and (course[:, 5] > course[:, 0]).all()
    own = problem.objective.overlaps(pulses, tasks.environment)
    torch.testing.assert_close(own, course[:, INNER.steps], rtol=0, atol=1e-14)
    torch.testing.assert_close(
        problem.outputs("validation", torch.tensor([6, 1])), rows[[6, 1]], rtol=0, atol=1e-12
    )
    assert problem.outputs("validation", torch.arange(0)).shape == (0, 29)


def test_metrics_are_taken_after_the_models_own_steps() -> None:
    problem = learning("fomaml", fidelity="squared")
    outputs = problem.outputs("validation", torch.arange(7))
    metrics = problem.metrics("validation", outputs, full=True)
    assert metrics["infidelity"] == pytest.approx(float(1 - outputs[:, INNER.steps].mean()))
    assert metrics["loss"] == pytest.approx(float(1 - outputs[:, INNER.steps].square().mean()))
    assert metrics["infidelity_5"] == pytest.approx(float(1 - outputs[:, 5].mean()))
    assert metrics["chance"] == 0.5
    assert metrics["simulator_error"] is None
    assert 0 < problem.metrics("test", outputs, full=True)["simulator_error"] < 1e-13
    assert "simulator_error" not in problem.metrics("test", outputs, full=False)


def test_it_trains_on_fresh_tasks() -> None:
    result = trainer(learning("fomaml"), {"epochs": 15, "learning_rate": 0.02}, batch=4)
    result.run()
    losses = [row["validation_loss"] for row in result.history]
    assert losses[-1] < 0.5 * losses[0] and result.step == 15 * 3


@pytest.mark.parametrize("inputs", ["raw", "normalised"])
def test_the_published_network_and_its_inputs(inputs: str) -> None:
    network = Policy(inputs=inputs)
    assert sum(p.numel() for p in network.parameters()) == 38_696
    tasks = torch.tensor([[2.0, 1e-3, 550.0]])
    torch.testing.assert_close(
        network.features(tasks), tasks if inputs == "raw" else torch.tensor([[1.0, -1.0, 0.0]])
    )
    assert network(tasks).shape == (1, 20, 2)
    for weight, bias in network.layers():
        short = min(weight.shape)
        square = weight @ weight.T if len(weight) == short else weight.T @ weight
        torch.testing.assert_close(square, 0.25 * torch.eye(short), rtol=0, atol=1e-6)
        assert not bias.any()
