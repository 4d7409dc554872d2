"""Training steps without autograd: the same bits as with it, for one run and for several, and only where they may."""

import pytest
import torch
from torch import nn

from ketscale.engines.vjp import VJP, offered, vjp_of
from ketscale.parallel.single import Single
from ketscale.problems.supervised import Classification
from ketscale.problems.vectors.mlp import MLP
from ketscale.problems.vectors.vqc import VQC
from ketscale.training import direct
from ketscale.training.stack import Stack
from ketscale.training.step import Stepper
from tests.toys import protocol_of, run_at

WORLD = Single(run_at("cpu-n1r1t1"))
MODELS = {
    "vqc": lambda: VQC(qubits=3, layers=2, inputs=12, outputs=3),
    "vqc without dropout": lambda: VQC(qubits=2, layers=1, inputs=12, outputs=3, dropout=0.0),
    "mlp": lambda: MLP(inputs=12, outputs=3, width=5),
}
SAMPLES = 40


def of(kind):
    """A model of a class, with the same weights each time."""
    torch.manual_seed(0)
    return kind(qubits=3, layers=2, inputs=12, outputs=3)


def problem_of(model="vqc", seed=0, dtype=torch.float64):
    """A classification of random features by a model."""
    inputs = torch.randn(SAMPLES, 12, generator=torch.Generator().manual_seed(5))
    torch.manual_seed(seed)
    result = MODELS[model]() if isinstance(model, str) else model
    splits = {name: torch.arange(SAMPLES) for name in ("train", "validation", "test")}
    return Classification(result, inputs, inputs[:, :3].argmax(1), splits, seed).to(dtype)


def stepper(problem, **settings):
    return Stepper(problem.train(), WORLD, protocol_of({"steps": 9, **settings}))


def steps(taking, batches):
    """The sums of steps with these batches, and the weights that they lead to."""
    sums = [taking.take(batch, number).sums for number, batch in enumerate(batches)]
    return sums, taking.flat.values.clone()


def batches(count, samples):
    generator = torch.Generator().manual_seed(2)
    return [torch.randperm(SAMPLES, generator=generator)[:samples] for _ in range(count)]


def no_offers(monkeypatch):
    """No step is offered without autograd."""
    monkeypatch.setattr(direct.Direct, "sums", lambda self, indices, step, pull: None)


@pytest.fixture
def counted(monkeypatch):
    """The number of samples of each step that was taken without autograd."""
    steps, own = [], direct.Direct.sums

    def sums(self, indices, step, pull):
        result = own(self, indices, step, pull)
        if result is not None:
            steps.append(indices.shape[-1])
        return result

    monkeypatch.setattr(direct.Direct, "sums", sums)
    return steps


@pytest.mark.parametrize(
    "model, dtype, samples, tolerance",
    [
        ("vqc", torch.float64, 8, 0),
        ("vqc", torch.float32, 5, 0),
        ("vqc without dropout", torch.float32, 8, 0),
        ("mlp", torch.float64, 1, 1e-12),  # the matrix between its two parts is torch's with autograd
    ],
)
def test_a_run_has_the_numbers_that_autograd_gives_it(model, dtype, samples, tolerance, counted, monkeypatch):
    order = batches(7, samples)
    mine = steps(stepper(problem_of(model, dtype=dtype)), order)
    assert counted == [samples] * 7
    no_offers(monkeypatch)
    expected = steps(stepper(problem_of(model, dtype=dtype)), order)
    for a, b in zip((*mine[0], mine[1]), (*expected[0], expected[1]), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def protocol(seed):
    return protocol_of({"steps": 9, "learning_rate": 1e-3 * (1 + seed)})


def stack(model, count, dtype=torch.float64):
    problems = [problem_of(model, seed, dtype).train() for seed in range(count)]
    return Stack(problems, [*map(protocol, range(count))])


def left(former, members):
    """A stack of some members of another one, who go on from where they are."""
    result = Stack([former._problems[member] for member in members], [*map(protocol, members)])
    for place, member in enumerate(members):
        result.optimiser.load_state_dict(former.optimiser.state_dict(member), place)
    return result


@pytest.mark.parametrize(
    "model, dtype, tolerance", [("vqc", torch.float32, 1e-4), ("mlp", torch.float64, 1e-12)]
)
def test_members_of_a_stack_have_their_own_numbers(model, dtype, tolerance, counted):
    """After two steps the second of them leaves."""
    count, order = 3, batches(5 * 3, 8)
    joint = stack(model, count, dtype)
    single = [Stepper(problem_of(model, seed, dtype).train(), WORLD, protocol(seed)) for seed in range(count)]
    members = [0, 1, 2]
    for number in range(5):
        if number == 2:
            members = [0, 2]
            joint = left(joint, members)
        own = [order[number * 3 + member] for member in members]
        result = joint.take(own, number)
        for member, batch, figures in zip(members, own, result, strict=True):
            expected = single[member].take(batch, number)
            torch.testing.assert_close(figures.sums, expected.sums, rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(figures.norm, expected.norm[0], rtol=tolerance, atol=tolerance)
    assert len(counted) == 5 + 2 * 3 + 3 * 2 and set(counted) == {8}


def test_the_last_member_of_a_stack_has_the_bits_of_a_run_alone(counted):
    joint, order = left(stack("vqc", 2), [1]), batches(4, 8)
    single = Stepper(problem_of("vqc", 1).train(), WORLD, protocol(1))
    for number, batch in enumerate(order):
        assert torch.equal(joint.take([batch], number)[0].sums, single.take(batch, number).sums)
    assert counted == [8] * 8


def doubled(module, given, made):
    return 2 * made


class Doubled(nn.Module):
    def forward(self, weights):
        return 2 * weights


class Shifted(VQC):
    """A subclass with arithmetic of its own, which `vjp` does not know."""

    def forward(self, x):
        return 2 * VQC.forward(self, x)


def another_forward(problem):
    """As a notebook changes a class."""
    problem.model.__class__ = type("Changed", (VQC,), {"vjp": VQC.vjp, "forward": Shifted.forward})


# Each makes the model another one: some between steps, some beyond what a vjp knows, some are both.
BOTH = {
    "inner hook": lambda problem: problem.model.head[3].register_forward_hook(doubled),
    "exchanged": lambda problem: problem.model.head.__setitem__(1, nn.GELU()),
    "another forward": another_forward,
}
LATER = {
    **BOTH,
    "less dropout": lambda problem: setattr(problem.model.head[2], "p", 0.9),
    "another seed": lambda problem: setattr(problem, "seed", 99),
    "other samples": lambda problem: setattr(problem, "inputs", 2 * problem.inputs),
    "evaluated": lambda problem: problem.eval(),
}
UNKNOWN = {
    **BOTH,
    "frozen": lambda problem: problem.model.head[0].weight.requires_grad_(False),
    "hook": lambda problem: problem.model.register_forward_hook(doubled),
    "hook of the head": lambda problem: problem.model.head.register_forward_hook(doubled),
    "hook of a weight": lambda problem: problem.model.weights.register_hook(lambda gradient: 0 * gradient),
    "parametrised": lambda problem: nn.utils.parametrize.register_parametrization(
        problem.model, "weights", Doubled()
    ),
    "another head": lambda problem: setattr(problem.model, "head", nn.Linear(12, 3, dtype=torch.float64)),
}


@pytest.mark.parametrize("change", LATER)
def test_what_changes_between_steps_counts_as_with_autograd(change, counted, monkeypatch):
    """And it counts: the losses differ from those of a model that stays as it is."""

    def losses(change=None):
        problem = problem_of()
        taking = stepper(problem)
        sums = [taking.take(batch, number).sums for number, batch in enumerate(order[:3])]
        if change is not None:
            LATER[change](problem)
        return sums + [taking.take(batch, number).sums for number, batch in enumerate(order[3:], 3)]

    order = batches(5, 8)
    mine, plain = losses(change), losses()
    assert len(counted) >= 3 + 5
    assert not any(map(torch.equal, mine[3:], plain[3:]))
    no_offers(monkeypatch)
    assert all(map(torch.equal, mine, losses(change)))


class Ours(Classification):
    def sums(self, indices, step):
        return 2 * super().sums(indices, step)


@pytest.mark.parametrize("change", UNKNOWN)
def test_what_a_vjp_does_not_know_is_trained_by_autograd(change, counted):
    """And it counts: the losses differ from those of the plain model."""
    order, problem = batches(3, 8), problem_of()
    UNKNOWN[change](problem)
    sums, _ = steps(stepper(problem), order)
    plain, _ = steps(stepper(problem_of()), order)
    assert counted == [8] * 3
    assert not torch.equal(sums[-1], plain[-1])


def test_a_subclass_of_one_method_and_protocols_that_need_autograd_have_it(counted):
    assert offered(of(Shifted)) is None and offered(of(VQC)) is not None
    steps(stepper(problem_of(of(Shifted))), batches(2, 8))
    problem = problem_of()
    problem.__class__ = Ours
    steps(stepper(problem), batches(2, 8))
    for settings in ({"precision": "amp"}, {"mistake": "unsharded"}):
        steps(stepper(problem_of(dtype=torch.float32), **settings), batches(2, 8))
    assert counted == []


def test_a_gradient_that_is_left_out_is_an_error():
    """It would be the one of the step before."""

    class Forgetful(VQC):
        def forward(self, x):
            return super().forward(x)

        @vjp_of(forward)
        def vjp(self, x):
            result = super().vjp(x)
            return VJP(result.value, lambda cotangent, slots: None)

    taking = stepper(problem_of(of(Forgetful)))
    with pytest.raises(RuntimeError, match="wrote 0 gradients of 11 parameters"):
        taking.take(torch.arange(8), 0)
