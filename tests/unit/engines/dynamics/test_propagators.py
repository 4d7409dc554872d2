"""All propagators agree, in values and derivatives of any order, whatever shares the batch; exact is exact."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch

from ketscale.config import parse
from ketscale.dynamics import qubit
from ketscale.engines.dynamics.generators import substeps
from ketscale.engines.dynamics.literal import PublishedLoop
from ketscale.engines.dynamics.methods import SIMULATORS
from ketscale.engines.dynamics.propagators import Batched, Propagator, of_method, propagator
from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.tasks import Tasks
from ketscale.errors import UserError
from ketscale.problems.control.workloads import DynamicsSimulator
from tests.unit.engines.dynamics.test_dynamics import SYSTEMS, random_tasks, real

NAMES = {"exact": None, "rk4": 0.01, "euler": 0.01}


def leaves(tasks: Tasks) -> tuple[torch.Tensor, ...]:
    """The tasks' tensors: controls, rates, parameters, initial."""
    return tuple(part for part in tasks if isinstance(part, torch.Tensor))


def differentiable(tasks: Tasks, dtype: torch.dtype = torch.float64) -> Tasks:
    controls, duration, *rest = tasks
    controls, *rest = (
        part.detach().to(dtype.to_complex() if part.is_complex() else dtype).requires_grad_()
        for part in (controls, *rest)
    )
    return Tasks(controls, duration, *rest)


def first_gradients(simulator: Propagator, system: System, tasks: Tasks) -> tuple[torch.Tensor, ...]:
    rho = simulator.state(system, tasks)
    weights = torch.linspace(-1, 1, rho.numel(), dtype=rho.real.dtype).reshape(rho.shape)
    return rho, *torch.autograd.grad((rho.real * weights + rho.imag * weights.flip(-1)).sum(), leaves(tasks))


def assert_equal(
    found: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...], tolerance: float
) -> None:
    for mine, reference in zip(found, expected, strict=True):
        scale = max(1.0, reference.abs().max().item())
        torch.testing.assert_close(mine, reference, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("system", SYSTEMS)
def test_compiled_code_and_torch_agree(system: str, name: str) -> None:
    result, duration = SYSTEMS[system]
    tasks = differentiable(random_tasks(result, duration, tasks=21))
    dt = NAMES[name] and NAMES[name] * duration
    value, expected = (
        first_gradients(propagator(name, dt, route, strict=False), result, tasks)
        for route in ("compiled", "torch")
    )
    assert_equal(value, expected, 1e-12)


@pytest.mark.parametrize("scheme", ["rk4", "euler"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_published_loop_gives_the_same_numbers(system: str, scheme: str) -> None:
    result, duration = SYSTEMS[system][0], 2.0  # short: where an integrator diverges, so does rounding
    tasks = differentiable(random_tasks(result, duration, tasks=2, segments=2))
    dt = duration / 16
    loop = propagator({"rk4": "literal", "euler": "literal-euler"}[scheme], dt, strict=False)
    *value, _ = first_gradients(propagator(scheme, dt, strict=False), result, tasks)
    *expected, _ = first_gradients(
        loop, result, tasks
    )  # a general matrix has other derivatives than a Hermitian one
    assert_equal(tuple(value), tuple(expected), 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_expectations_are_traces_with_the_states(name: str) -> None:
    system, duration = SYSTEMS["coupled qubits"]
    tasks, target = random_tasks(system, duration), system.projector("bell")
    simulator = propagator(name, NAMES[name] and NAMES[name] * duration, strict=False)
    expected = torch.einsum("tij,ji->t", simulator.state(system, tasks), torch.from_numpy(target)).real
    torch.testing.assert_close(simulator.expval(system, tasks, target[None])[:, 0], expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("system", ["relaxing qubit", "transmon"])
def test_first_and_second_derivatives(system: str, name: str) -> None:
    result, duration = SYSTEMS[system]
    tasks = differentiable(random_tasks(result, duration, tasks=2, segments=2))
    simulator = propagator(name, NAMES[name] and duration / 4, strict=False)

    def expectation(controls: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return simulator.expval(result, Tasks(controls, duration, *rest), result.projector("hadamard")[None])

    fast = system == "transmon"  # in one random direction
    assert torch.autograd.gradcheck(expectation, leaves(tasks), fast_mode=fast)
    assert torch.autograd.gradgradcheck(expectation, leaves(tasks), fast_mode=fast)


@pytest.mark.parametrize("name", SIMULATORS)
@pytest.mark.parametrize("system", ["relaxing qubit", "coupled qubits"])
def test_every_propagator_agrees_with_exact(system: str, name: str) -> None:
    """Also one that is added (docs/adding.md); random systems are tests of ours alone."""
    result, duration = SYSTEMS[system][0], 0.5  # short: where an integrator diverges, nothing agrees
    tasks = differentiable(random_tasks(result, duration, tasks=1, segments=2))
    exact = SIMULATORS[name].exact
    *value, _ = first_gradients(propagator(name, None if exact else duration / 400), result, tasks)
    *expected, _ = first_gradients(propagator("exact"), result, tasks)
    assert_equal(tuple(value), tuple(expected), 1e-11 if exact else 0.05)


def test_derivatives_of_any_order() -> None:
    system, tasks = qubit(), random_tasks(qubit(), 1.0, tasks=1, segments=2)

    def fourth(route: str) -> torch.Tensor:
        scale = torch.ones((), dtype=torch.float64, requires_grad=True)
        value = (
            propagator("exact", route=route)
            .state(system, tasks._replace(controls=scale * tasks.controls))
            .real[0, 0, 0]
        )  # type: ignore[arg-type]
        for _ in range(4):
            (value,) = torch.autograd.grad(value, scale, create_graph=True)
        return value

    torch.testing.assert_close(fourth("compiled"), fourth("torch"), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_task_has_the_same_bits_in_every_batch(
    name: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ketscale.engines.compiled import kernel

    monkeypatch.setattr(kernel, "WORK_PER_THREAD", 1)
    system, duration = SYSTEMS[name]
    tasks = random_tasks(system, duration, tasks=37)
    # From one step of the lowest degree to many steps of the highest.
    strengths = torch.logspace(-3, 2, 37, dtype=torch.float64)
    tasks = differentiable(tasks._replace(controls=strengths[:, None, None] * tasks.controls))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        batch = evaluated(system, tasks)
    finally:
        torch.set_num_threads(before)
    for task in range(37):
        part = Tasks(tasks.controls[[task]], duration, *(each[[task]] for each in leaves(tasks)[1:]))
        single = evaluated(system, differentiable(part))
        assert all(torch.equal(a[0], b[task]) for a, b in zip(single, batch, strict=True))


def evaluated(system: System, tasks: Tasks) -> tuple[torch.Tensor, ...]:
    """Overlaps and states, and the gradients of an overlap."""
    projector = system.projector("x")[None]
    overlaps, rho = (
        propagator("exact").expval(system, tasks, projector),
        propagator("exact").state(system, tasks),
    )
    gradients = torch.autograd.grad(overlaps.sum(), (tasks.controls, tasks.rates, tasks.parameters))  # type: ignore[arg-type]
    return overlaps, rho, *gradients


@pytest.mark.parametrize("angle", [1e-3, 1.0, 30.0, 300.0])
def test_long_segments_are_exact_too(angle: float) -> None:
    """The angle of a segment; the longest ones take more steps than are kept at once."""
    controls = real(angle / 2, 0.0).repeat(1, 2, 1).requires_grad_()
    overlap = propagator("exact").expval(
        qubit(detuning=0.0), Tasks(controls, 2.0), qubit().projector("x")[None]
    )
    assert overlap.item() == pytest.approx((1 - math.cos(2 * angle)) / 2, abs=1e-12)
    (gradient,) = torch.autograd.grad(overlap, controls)
    expected = torch.stack(
        [torch.full((2,), math.sin(2 * angle), dtype=torch.float64), torch.zeros(2, dtype=torch.float64)], 1
    )
    torch.testing.assert_close(gradient[0], expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["exact", "rk4"])
def test_what_is_kept_does_not_grow_with_the_steps(name: str) -> None:
    def kept(strength: float, dt: float | None) -> int:
        sizes = []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            sizes.append(tensor.untyped_storage().nbytes())
            return tensor

        tasks = random_tasks(qubit(), 1.0)
        controls = (strength * tasks.controls).requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            propagator(name, dt).state(qubit(), tasks._replace(controls=controls))
        return sum(sizes)

    assert kept(1.0, None if name == "exact" else 0.1) == kept(100.0, None if name == "exact" else 1e-4)


@pytest.mark.parametrize(
    "simulator", [propagator(name, dt) for name, dt in {**NAMES, "literal": 0.1}.items()], ids=str
)
def test_a_batch_of_zero_tasks_has_gradients(simulator: Propagator) -> None:
    controls = torch.zeros(0, 20, 2, dtype=torch.float64, requires_grad=True)
    rho = simulator.state(qubit(), Tasks(controls, 20.0, torch.zeros(3, dtype=torch.float64)))
    assert rho.shape == (0, 2, 2)
    assert torch.autograd.grad(rho.real.sum(), controls)[0].shape == controls.shape


@pytest.mark.parametrize("name", [*NAMES, "literal"])
def test_strides_and_lazy_signs_do_not_matter(name: str) -> None:
    simulator = propagator(name, {**NAMES, "literal": 0.1}[name])
    plain = torch.randn(3, 5, 2, dtype=torch.float64)
    conjugated = torch.complex(plain, -plain).conj()  # its imaginary part is `plain`, negated when it is read
    shared = plain[:1].expand(3, -1, -1)
    for controls in (
        conjugated.imag,
        plain.mT.contiguous().mT,
        torch.cat([plain, plain], -1)[..., :2],
        shared,
    ):
        torch.testing.assert_close(
            simulator.state(qubit(), Tasks(controls, 1.0)),
            simulator.state(qubit(), Tasks(controls.resolve_neg().contiguous(), 1.0)),
        )


def test_a_segment_of_any_length_is_exact_or_refused() -> None:
    """Four microseconds of a qubit of 5 GHz in the laboratory frame, and a rate that leaves nothing."""
    system, plus = qubit(detuning=2 * math.pi * 5), torch.full((2, 2), 0.5, dtype=torch.complex128)
    zero, rates = torch.zeros(1, 1, 2, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    result = propagator("exact").state(system, Tasks(zero, 4_000.01, initial=plus))
    phase = np.exp(-2j * system.parameters["detuning"] * 4_000.01)
    assert result[0, 0, 1].item() == pytest.approx(0.5 * phase, abs=1e-9)
    rates[0] = 9_000.0
    result = propagator("exact").state(qubit(detuning=0.0), Tasks(zero, 10.0, rates))
    torch.testing.assert_close(result[0].real.diagonal(), torch.full((2,), 0.5, dtype=torch.float64))
    with pytest.raises(UserError, match="too large for exact in a segment of 1, "):
        propagator("exact").state(system, Tasks(zero + 1e9, 1.0))
    with pytest.raises(UserError, match=r"dt: 1.0 is too long a step of rk4"):
        propagator("rk4", 1.0).state(system, Tasks((zero + 1e3).repeat(1, 4, 1), 4.0))
    assert (
        propagator("exact")
        .expval(system, Tasks(zero + 1e4, 1.0), system.projector("x")[None])
        .isfinite()
        .all()
    )


def test_what_is_not_a_number_stays_in_its_task() -> None:
    tasks = random_tasks(qubit(), 1.0, tasks=4)
    for task, value in ((1, math.nan), (2, math.inf), (3, 1e11)):
        tasks.controls[task, 2, 0] = value
    finite = torch.isfinite(Batched(strict=False).state(qubit(), tasks).real).all(-1).all(-1)
    assert finite.tolist() == [True, False, False, False]


def test_propagators_are_copied_and_pickled() -> None:
    for simulator in (propagator("exact"), propagator("rk4", 0.1), propagator("literal", 0.1)):
        assert copy.deepcopy(simulator) == pickle.loads(pickle.dumps(simulator)) == simulator


@pytest.mark.parametrize(
    "segment, dt, steps",
    [(0.05, 0.01, 5), (0.05, 0.001, 50), (0.05, 0.02, 3), (2.1, 0.3, 7), (0.05, 0.05, 1), (0.05, 1.0, 1)],
)
def test_no_step_is_longer_than_dt(segment: float, dt: float, steps: int) -> None:
    assert substeps(segment, dt) == steps


@pytest.mark.parametrize(
    "name, dt, route, message",
    [
        ("exakt", None, "auto", "did you mean exact"),
        ("exact", 0.1, "auto", "dt: exact has no step"),
        ("literal", math.inf, "auto", "dt: rk4 needs a positive step, and this is inf"),
    ],
)
def test_names_and_steps_are_checked(name: str, dt: float | None, route: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        propagator(name, dt, route)  # type: ignore[arg-type]


def test_settings_make_propagators() -> None:
    rk4 = {"device": "rk4", "dt": 0.01, "tolerance": 1e-6}
    for arguments, result in (
        ({"device": "exact"}, Batched(strict=False)),
        ({**rk4, "route": "torch"}, Batched("rk4", 0.01, "torch", strict=False)),
        ({**rk4, "batching": "loop", "cache": True}, PublishedLoop("rk4", 0.01, cache=True)),
    ):
        settings = parse(DynamicsSimulator, arguments, "simulators.mine")
        assert settings.method is not None
        assert of_method(settings.method, settings.content()) == result


@pytest.mark.parametrize(
    "given, message",
    [
        ({"device": "exact", "dt": 0.1}, "dt: exact does not support it"),
        ({"device": "exact", "cache": True}, "cache: only a loop creates something for each task"),
        ({"device": "rk4", "dt": 0.1}, "tolerance: rk4 needs one"),
        ({"device": "euler", "dt": 0.0, "tolerance": 0.1}, r"dt: 0\.0"),
    ],
)
def test_settings_are_checked(given: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=rf"^simulators\.mine\.{message}"):
        parse(DynamicsSimulator, given, "simulators.mine")


@pytest.mark.parametrize(
    "change",
    [
        lambda system, tasks: (qubit(jumps=("y", "x", "z")), tasks),
        lambda system, tasks: (system, tasks._replace(rates=tasks.rates + 1e-15)),
        lambda system, tasks: (system, tasks._replace(rates=None)),
        lambda system, tasks: (system, tasks._replace(parameters=-tasks.parameters)),
        lambda system, tasks: (system, tasks._replace(initial=tasks.initial.flip(0))),
        lambda system, tasks: (system, differentiable(tasks, torch.float32)),
    ],
)
def test_a_cache_takes_no_task_for_another(change: Callable[..., tuple[System, Tasks]]) -> None:
    loop, system = PublishedLoop("rk4", 0.1, cache=True), qubit()
    tasks = random_tasks(system, 1.0)
    loop.state(system, tasks)
    system, tasks = change(system, tasks)
    assert torch.equal(loop.state(system, tasks), PublishedLoop("rk4", 0.1).state(system, tasks))


def test_what_has_gradients_is_created_again() -> None:
    system, loop = qubit(), PublishedLoop("rk4", 0.1, cache=True)
    tasks = random_tasks(system, 1.0)
    loop.state(system, tasks)
    for _ in range(2):
        result, expected = (
            first_gradients(each, system, differentiable(tasks)) for each in (loop, PublishedLoop("rk4", 0.1))
        )
        assert all(torch.equal(mine, reference) for mine, reference in zip(result, expected, strict=True))


def test_what_is_kept_does_not_change_with_the_callers_tensors() -> None:
    system, loop = qubit(), PublishedLoop("rk4", 0.1, cache=True)
    tasks = random_tasks(system, 1.0)
    first = loop.state(system, tasks)
    repeat = tasks._replace(initial=tasks.initial.clone())  # type: ignore[union-attr]
    tasks.initial.zero_()  # type: ignore[union-attr]
    assert torch.equal(loop.state(system, repeat), first)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"controls": torch.zeros(3, 5, 3)}, r"controls must be \(tasks, segments, 2\)"),
        ({"duration": math.nan}, "duration: nan"),
        ({"rates": torch.zeros(3, 2, dtype=torch.float64)}, r"rates must be \(3,\) or \(3, 3\)"),
        ({"rates": real(0.1, -0.1, 0.1)}, "rates: some are negative"),
        ({"rates": torch.zeros(3)}, "rates: torch.float32"),
        ({"parameters": real(1.0, 1.0)}, "parameters must be"),
    ],
)
def test_tasks_are_checked(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        propagator("exact").state(qubit(), random_tasks(qubit(), 1.0)._replace(**changes))


@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize("name", ["controls", "rates", "parameters", "initial"])
def test_what_is_not_a_number_is_refused_where_users_give_it(name: str, value: float) -> None:
    """But not in training, whose divergence is a result."""
    simulator = propagator("exact")
    tasks = random_tasks(qubit(), 1.0)
    getattr(tasks, name).view(-1)[1] = value
    with pytest.raises(UserError, match=f"^{name}: some are not finite"):
        simulator.state(qubit(), tasks)
    diverged = dataclasses.replace(simulator, strict=False).state(qubit(), tasks)  # type: ignore[type-var]
    assert not diverged.isfinite().all()


@pytest.mark.parametrize("observable", [[[0, 1], [0, 0]], [[math.nan, 0], [0, 1]]])
def test_what_is_not_observable_is_refused(observable: list[list[float]]) -> None:
    with pytest.raises(UserError, match=r"^observables: is not Hermitian"):
        propagator("exact").expval(qubit(), random_tasks(qubit(), 1.0), [observable])


def test_steps_that_do_not_fit_and_rates_of_segments_are_refused() -> None:
    tasks = random_tasks(qubit(), 1.0)
    with pytest.raises(UserError, match=r"dt: 0\.3 is longer than a segment of 0\.2"):
        propagator("literal", 0.3).state(qubit(), tasks)
    with pytest.raises(UserError, match=r"makes more than 1,000,000 steps of a segment of length 0\.2"):
        propagator("rk4", 1e-9).state(qubit(), tasks)
    with pytest.raises(UserError, match="needs a numeric duration, constant rates"):
        propagator("literal", 0.1).state(qubit(), tasks._replace(rates=torch.ones(3, 5, 3).double()))


@pytest.mark.parametrize("name", ["rk4", "euler"])
def test_a_step_that_blows_states_up_is_refused(name: str) -> None:
    """But not a mixed state's growth as it becomes pure."""
    system, mixed = qubit(jumps=("relaxation",)), torch.eye(2, dtype=torch.complex128) / 2
    tasks = Tasks(torch.zeros(1, 10, 2, dtype=torch.float64), 30.0, real(1.0), initial=mixed)
    assert propagator(name, 0.01).state(system, tasks)[0, 0, 0].real > 0.999
    with pytest.raises(UserError, match=rf"dt: 0\.5 is too long a step of {name}"):
        propagator(name, 0.5).state(system, tasks._replace(controls=tasks.controls + 30.0))
