"""The integrators of `engines.pulses`: their orders, unitarity, gradients, and what is refused."""

from __future__ import annotations

import itertools
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import torch
from torch.autograd import forward_ad

from ketscale import dynamics as kd
from ketscale.engines.dynamics.system import System
from ketscale.engines.operators import Term
from ketscale.engines.pulses import Pulses, Segments, cpu, plain
from ketscale.engines.pulses.chain import Chain, with_operators
from ketscale.engines.pulses.integrators import Integrator, step_count
from ketscale.engines.pulses.schemes import SIMULATORS, Scheme
from ketscale.engines.pulses.splitting import Gates, sequence
from ketscale.errors import UserError
from tests.pairs import pairs

DURATION = 1.5
CHAIN3 = ((0, 1), (1, 2))
SPLITTINGS = [name for name, scheme in SIMULATORS.items() if isinstance(scheme, Scheme)]
Pairs = tuple[tuple[int, int], ...]

# torch says so when forward mode or a nested transformation is first used.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.complex(*torch.randn(2, *shape, generator=generator, dtype=torch.float64))


def hermitian(*shape: int, seed: int = 0) -> torch.Tensor:
    matrices = normal(*shape, seed=seed)
    return (matrices + matrices.mH) / 2


def lattice(
    sites: int, levels: int, pairs: Pairs, drive_sites: tuple[int, ...], scale: float = 1.0
) -> System:
    """A random one, with couplings of the given scale."""
    energies = normal(sites, levels, seed=1).real
    couplings = scale * hermitian(len(pairs), levels**2, levels**2, seed=2)
    drives = hermitian(len(drive_sites), levels, levels, seed=3)
    drift = {f"energies_{site}": Term((site,), each) for site, each in enumerate(energies)}
    drift |= {f"coupling_{pair}": Term(pair, each) for pair, each in zip(pairs, couplings, strict=True)}
    driven = enumerate(zip(drive_sites, drives, strict=True))
    controls = {f"drive_{number}": Term((site,), each) for number, (site, each) in driven}
    return System(drift, dict.fromkeys(drift, 1.0), controls, levels=(levels,) * sites)


def operators(given: System) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Energies, couplings and drives."""
    sites, drift = len(given.levels), len(given.drift)
    size = given.levels[0] ** 2
    energies, couplings, drives = (
        given.operators[:sites],
        given.operators[sites:drift],
        given.operators[drift:],
    )
    none = torch.zeros(0, size, size, dtype=torch.complex128)
    return torch.stack(energies), torch.stack(couplings) if couplings else none, torch.stack(drives)


def sampled(times: torch.Tensor, drives: int) -> torch.Tensor:
    """Strong, smooth amplitudes of time."""
    return (1 + times[..., None] / 3) * torch.cos(2 * times[..., None] + torch.arange(drives))


def gates_of(made: Integrator, chain: Chain) -> Gates:
    assert isinstance(made.scheme, Scheme)
    return Gates.of(made.scheme, (chain.levels, chain.sites, chain.pairs))


def evolved(name: str, steps: int, given: System, route: str = "auto") -> torch.Tensor:
    """The unitary."""
    result = Integrator(name, steps, route)
    amplitudes = sampled(result.times(DURATION), len(given.controls))
    columns = torch.eye(given.dimension, dtype=torch.complex128)
    return result.evolve(given, amplitudes, DURATION, columns)


# The coupled pairs of some sites of two levels; none of their couplings commute where they share a site.
GRAPHS = {
    "chain of 2": ((0, 1),),
    "chain of 2 with three levels": ((0, 1),),
    "chain of 4": (*CHAIN3, (2, 3)),
    "ring of 3": (*CHAIN3, (2, 0)),
    "two pairs": ((0, 2), (1, 3)),
}
ORDERS = {"trotter2": 2, "suzuki4": 4, "interaction4": 2, "whole-space": 6}
# Couplings of one layer, which commute.
ONE_LAYER = ("chain of 2", "chain of 2 with three levels", "two pairs")


def by_scipy(given: System) -> np.ndarray[Any, Any]:
    """What `evolved` converges to."""
    undriven, drives = given.hamiltonian(), list(given.controls.values())

    def derivative(time: float, state: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        amplitudes = sampled(torch.tensor(time, dtype=torch.float64), len(drives)).tolist()
        hamiltonian = undriven + sum(u * each for u, each in zip(amplitudes, drives, strict=True))
        return (-1j * hamiltonian @ state.reshape(undriven.shape)).ravel()

    start = np.eye(len(undriven), dtype=complex).ravel()
    options = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-14}
    final = scipy.integrate.solve_ivp(derivative, (0, DURATION), start, **options).y[:, -1]
    return final.reshape(undriven.shape)


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_error_falls_with_the_order(graph: str) -> None:
    pairs = GRAPHS[graph]
    sites = 1 + max(map(max, pairs))
    # Two drives on the last of four sites.
    given = lattice(sites, 3 if "levels" in graph else 2, pairs, (*(sites - 1,) * (sites > 3), *range(sites)))
    exact = by_scipy(given)
    result = {}
    for name in SIMULATORS:
        coarse, fine = (np.abs(evolved(name, steps, given).numpy() - exact).max() for steps in (32, 64))
        result[name] = math.log2(coarse / fine)
    expected = ORDERS | ({"interaction4": 4} if graph in ONE_LAYER else {})
    assert result == pytest.approx(expected, abs=0.2)


def test_the_interaction_picture_leaves_an_error_of_the_couplings_alone() -> None:
    """It falls with the couplings, and is far below that of as many midpoints."""
    errors, others = [], []
    for scale in (0.02, 0.01):
        arguments = lattice(3, 2, CHAIN3, (0, 1, 2), scale)
        exact = evolved("whole-space", 200, arguments)
        errors.append(float((evolved("interaction4", 4, arguments) - exact).abs().max()))
        others.append(float((evolved("trotter2", 24, arguments) - exact).abs().max()))
    assert errors[0] / errors[1] > 1.9 > 1.5 > others[0] / others[1]
    assert errors[1] < 0.05 * others[1]


@pytest.mark.parametrize("name", SIMULATORS)
def test_steps_are_unitary(name: str) -> None:
    result = evolved(name, 20, lattice(3, 2, CHAIN3, (1, 0)))
    np.testing.assert_allclose(result @ result.mH, np.eye(8), rtol=0, atol=1e-13)


# --- gradients ---


Inputs = tuple[torch.Tensor, ...]


def inputs(made: Integrator, given: System, columns: int) -> Inputs:
    """Amplitudes, duration, columns, energies, couplings and drives."""
    amplitudes = sampled(made.times(DURATION), len(given.controls))
    return (
        amplitudes,
        torch.tensor(DURATION).double(),
        normal(columns, given.dimension, seed=4).T,
        *operators(given),
    )


WEIGHTS = normal(2**14, seed=5)


def value(made: Integrator, arguments: System, tensors: Inputs) -> torch.Tensor:
    """A real function of the final columns that depends on each of their phases."""
    amplitudes, duration, columns, energies, couplings, drives = tensors
    arguments = with_operators(arguments, [*energies, *couplings, *drives])
    final = made.evolve(arguments, amplitudes, duration, columns).T
    return (final.conj() * WEIGHTS[: final.numel()].view_as(final)).sum().abs().square() / len(final)


def gradients(made: Integrator, given: System, tensors: Inputs) -> Inputs:
    leaves = tuple(tensor.detach().clone().requires_grad_() for tensor in tensors)
    return torch.autograd.grad(value(made, given, leaves), leaves, materialize_grads=True)


LATTICES = {
    "chain": lattice(3, 2, CHAIN3, (0, 1, 2)),
    "ring": lattice(3, 2, ((0, 1), (1, 2), (2, 0)), (1, 1)),
    "far": lattice(4, 2, ((3, 1), (0, 2)), (0, 3)),
    "three levels": lattice(2, 3, ((1, 0),), (0, 1)),
    "five levels": lattice(2, 5, ((0, 1),), (0,)),
    "one site": lattice(1, 3, (), (0,)),
}


# What machine code alone computes on every lattice; splittings, which torch computes too (see below), on one each.
CELLS = [(name, where) for name in SIMULATORS if name not in SPLITTINGS for where in LATTICES]
CELLS += zip(SPLITTINGS, itertools.cycle(LATTICES), strict=False)


@pytest.mark.parametrize(("name", "where"), CELLS)
def test_gradients_agree_with_finite_differences(name: str, where: str) -> None:
    arguments = LATTICES[where]
    result = Integrator(name, 5)
    tensors = inputs(result, arguments, 3)
    actual = gradients(result, arguments, tensors)
    step = 1e-3
    for number, gradient in enumerate(actual):
        if gradient.numel() == 0:
            continue
        shape = tensors[number].shape
        direction = normal(*shape, seed=6) if gradient.is_complex() else normal(*shape, seed=6).real
        direction = hermitian(*shape, seed=6) if number > 3 else direction
        direction = direction / direction.norm()

        def moved(by: float, number: int = number, direction: torch.Tensor = direction) -> float:
            changed = [t + by * direction if k == number else t for k, t in enumerate(tensors)]
            return float(value(result, arguments, tuple(changed)))

        # The seventh-order central difference: its error is far below that of rounding.
        weights = {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}
        difference = sum(w * (moved(k * step) - moved(-k * step)) for k, w in weights.items()) / step
        assert float((gradient.conj() * direction).sum().real) == pytest.approx(
            difference, rel=1e-9, abs=1e-9
        )


# --- second derivatives, torch.func and batches ---


@pytest.mark.parametrize(
    ("name", "where"), [*zip(SIMULATORS, itertools.cycle(["ring", "three levels", "one site"]), strict=False)]
)
def test_second_derivatives_by_everything_are_those_of_differences(name: str, where: str) -> None:
    arguments = LATTICES[where]
    result = Integrator(name, 4)
    tensors = inputs(result, arguments, 3)
    ways = [normal(*each.shape, seed=6) for each in tensors]
    ways = [way if each.is_complex() else way.real for way, each in zip(ways, tensors, strict=True)]
    ways = [*ways[:4], *((way + way.mH) / 2 for way in ways[4:])]
    leaves = tuple(tensor.clone().requires_grad_() for tensor in tensors)
    given_value = value(result, arguments, leaves)
    slopes = torch.autograd.grad(given_value, leaves, create_graph=True, materialize_grads=True)
    along = sum((slope.conj() * way).sum().real for slope, way in zip(slopes, ways, strict=True))
    actual, along = torch.autograd.grad(along, leaves, materialize_grads=True), along.detach()
    differences = [
        gradients(result, arguments, tuple(each + by * way for each, way in zip(tensors, ways, strict=True)))
        for by in (1e-5, -1e-5)
    ]
    for ours, more, less in zip(actual, *differences, strict=True):
        scale = 1 + float(ours.abs().max()) if ours.numel() else 1
        np.testing.assert_allclose(ours, (more - less) / 2e-5, rtol=0, atol=1e-7 * scale)

    def function(*given_tensors: torch.Tensor) -> torch.Tensor:
        return value(result, arguments, given_tensors)

    # Forward mode by itself, and of the gradient.
    (slope,) = torch.func.grad(function, argnums=(0,))(*tensors)
    np.testing.assert_allclose(slope, slopes[0].detach(), rtol=0, atol=1e-12)
    tangents = torch.func.jvp(torch.func.grad(function), tensors, tuple(ways))[1]
    np.testing.assert_allclose(tangents, actual[0], rtol=0, atol=1e-9 * (1 + float(actual[0].abs().max())))
    if name == "interaction4":  # torch's own functions, as in an added one, lose the second tangent
        twice = torch.func.jvp(lambda *x: torch.func.jvp(function, x, tuple(ways))[1], tensors, tuple(ways))
        second = sum((each.conj() * way).sum().real.item() for each, way in zip(actual, ways, strict=True))
        assert twice[1].item() == pytest.approx(second, rel=1e-9, abs=1e-9)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(each, way) for each, way in zip(tensors, ways, strict=True)]
        tangent = forward_ad.unpack_dual(function(*duals)).tangent
    assert tangent.item() == pytest.approx(along.item(), rel=1e-9, abs=1e-9)


def test_what_torch_func_maps_has_what_it_has_by_itself() -> None:
    result, arguments = Integrator("interaction4", 4), LATTICES["chain"]
    amplitudes, _, columns, *_ = inputs(result, arguments, 3)
    several = torch.stack([amplitudes, -amplitudes])
    mapped = torch.func.vmap(lambda each: result.evolve(arguments, each, DURATION, columns))(several)
    for value, each in zip(mapped, several, strict=True):
        assert torch.equal(value, result.evolve(arguments, each, DURATION, columns))


def test_steps_meet_the_segments_and_are_no_longer_than_dt() -> None:
    values = torch.linspace(-1, 1, 14, dtype=torch.float64).reshape(1, 7, 2)
    one, arguments = torch.ones(1, dtype=torch.float64), LATTICES["one site"]
    pulses = Pulses(Segments(values), 2 * one, one, one[0] * DURATION)
    assert [step_count(pulses, dt) for dt in (2.0, 0.1, DURATION / 14)] == [7, 21, 14]
    columns = torch.eye(3, dtype=torch.complex128)
    options: Any = {"kind": "ket", "initial": columns, "method": "interaction4"}  # a batch of kets
    result = [kd.evolve(arguments, pulses, dt=dt, **options) for dt in (0.1, 0.02)]
    by = Integrator("interaction4", 21)
    single = by.evolve(arguments, pulses.sample(by.times(DURATION)), DURATION, columns)
    torch.testing.assert_close(result[0], single.T, rtol=0, atol=1e-14)
    estimate = kd.error_estimate(arguments, pulses, dt=0.1, **options)
    error = (result[0] - result[1]).norm(dim=1)
    assert ((estimate / error - 1).abs() < 0.1).all() and error.max() > 1e-10
    with pytest.raises(UserError, match="lengths: each segment of the pulses must end where a part ends"):
        kd.evolve(arguments, pulses, dt=0.1, lengths=[1.0, 6.5], **options)
    with pytest.raises(UserError, match="dt: interaction4 needs a positive step"):
        kd.evolve(arguments, pulses, dt=0.0, **options)
    with pytest.raises(UserError, match="dt: 1e-08 makes more than 1,000,000 steps"):
        step_count(pulses, 1e-8)


@pytest.mark.parametrize("name", SPLITTINGS)
def test_the_reversible_adjoint_is_autograd_of_the_steps(name: str) -> None:
    given = LATTICES["ring"]
    built = Integrator(name, 7, "torch")
    tensors = inputs(built, given, 5)
    leaves = tuple(tensor.clone().requires_grad_() for tensor in tensors)
    system = with_operators(given, [*leaves[3], *leaves[4], *leaves[5]])
    own = Chain.of(system, torch.device("cpu"))
    gates = gates_of(built, own)
    buffer = gates.buffer(own, leaves[0], leaves[1] / 7, plain.unitary)
    final = plain.leave(plain.forward(sequence(gates, 7), buffer, leaves[2]), 5)
    loss = (final.conj() * WEIGHTS[: final.numel()].view_as(final)).sum().abs().square() / len(final)
    for ours, peer in zip(gradients(built, given, tensors), torch.autograd.grad(loss, leaves), strict=True):
        np.testing.assert_allclose(
            ours, peer, rtol=0, atol=1e-11 * (1 + peer.abs().max().item() if peer.numel() else 1)
        )


@pytest.mark.parametrize(("name", "where", "columns"), pairs(list(SIMULATORS), LATTICES, [1, 19]))
def test_machine_code_agrees_with_torch(name: str, where: str, columns: int) -> None:
    arguments = LATTICES[where]
    routes = [Integrator(name, 5, route) for route in ("compiled", "torch")]
    tensors = inputs(routes[0], arguments, columns)
    for actual, peer in zip(*(gradients(result, arguments, tensors) for result in routes), strict=True):
        np.testing.assert_allclose(
            actual, peer, rtol=0, atol=1e-12 * (1 + peer.abs().max().item() if peer.numel() else 1)
        )


def test_chunks_and_threads_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    from ketscale.engines.compiled import kernel
    from ketscale.engines.pulses import splitting

    arguments = lattice(4, 2, tuple(pairwise(range(4))), (0, 1))
    result = Integrator("suzuki4", 23)
    tensors = inputs(result, arguments, 100)
    complete = gradients(result, arguments, tensors)
    monkeypatch.setattr(kernel, "WORK_PER_THREAD", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        divided = gradients(result, arguments, tensors)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(actual, peer) for actual, peer in zip(divided, complete, strict=True))
    monkeypatch.setattr(splitting, "CHUNK", 2000)
    assert 1 < gates_of(result, Chain.of(arguments, torch.device("cpu"))).chunk(100) < 23
    for actual, peer in zip(gradients(result, arguments, tensors), complete, strict=True):
        np.testing.assert_allclose(
            actual, peer, rtol=0, atol=1e-12 * (1 + peer.abs().max().item() if peer.numel() else 1)
        )


@pytest.mark.parametrize("name", SPLITTINGS)
def test_what_is_kept_for_the_backward_pass_does_not_grow_with_steps(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ketscale.engines.pulses import splitting

    arguments = LATTICES["chain"]
    states, chunks = [], []
    monkeypatch.setattr(splitting, "CHUNK", 500)
    for steps in (30, 90):
        result = Integrator(name, steps)
        leaves = tuple(tensor.requires_grad_() for tensor in inputs(result, arguments, 4))
        final = result.evolve(arguments, leaves[0], leaves[1], leaves[2])
        assert final.grad_fn is not None
        (by_rows, _), *_ = final.grad_fn.next_functions
        state, chunk = by_rows.function.saved
        states.append(state.numel())
        chunks.append(len(chunk.leaves[0]))
    assert states[0] == states[1]
    assert max(chunks) <= gates_of(result, Chain.of(arguments, torch.device("cpu"))).chunk(4) < 30


@pytest.mark.parametrize(("levels", "scale"), [(2, 0.01), (3, 1.0), (4, 30.0), (5, 0.0)])
def test_exponentials_by_machine_code_agree_with_torch(levels: int, scale: float) -> None:
    matrices, weights = scale * hermitian(13, levels, levels), normal(13, levels, levels, seed=1)
    values = []
    for function in (plain.unitary, cpu.unitary):
        leaf = matrices.clone().requires_grad_()
        result = function(leaf)
        values.append((result.detach(), *torch.autograd.grad(result, leaf, weights)))
    for actual, expected in zip(*values, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-13 * max(1.0, scale))
