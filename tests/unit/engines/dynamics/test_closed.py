"""Kets of closed systems and density matrices of many levels, by linear systems of paired coordinates, against dense exponentials."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import expm

from ketscale.dynamics import System
from ketscale.engines.dynamics import basis, costs, plain
from ketscale.engines.dynamics.generators import EXACT, Evolution
from ketscale.engines.dynamics.methods import Route
from ketscale.engines.dynamics.propagators import Batched
from ketscale.engines.dynamics.tasks import Tasks

Tensors = list[torch.Tensor]


def matrices(rng: np.random.Generator, dimension: int, names: str, hermitian: bool = True) -> dict[str, Any]:
    result = {name: rng.normal(size=(dimension, dimension, 2)) @ [1, 1j] for name in names}
    return {name: (each + each.conj().T) / 2 for name, each in result.items()} if hermitian else result


def system_of(dimension: int) -> System:
    rng = np.random.default_rng(dimension)
    drift, controls = matrices(rng, dimension, "ab"), matrices(rng, dimension, "xyz")
    return System(drift, {"a": 1.0, "b": -0.5}, controls, matrices(rng, dimension, "l", hermitian=False))


def tensors(dimension: int, segments: int = 5, count: int = 2, dtype: torch.dtype = torch.float64) -> Tensors:
    """Parameters, controls and columns of two tasks."""
    generator = torch.Generator().manual_seed(dimension)
    shapes = ((2, 2), (2, segments, 3))
    values = [torch.randn(*shape, generator=generator, dtype=dtype) for shape in shapes]
    return [*values, torch.randn(2, dimension, count, generator=generator, dtype=dtype.to_complex())]


@pytest.mark.parametrize("route", ["compiled", "torch"])
@pytest.mark.parametrize("trajectory", [True, False])
def test_derivatives_are_those_of_finite_differences(trajectory: bool, route: Route) -> None:
    system, propagator = system_of(3), Batched(route=route)

    def evolve(parameters: torch.Tensor, controls: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        tasks = Tasks(controls, 0.4, parameters=parameters, initial=columns)
        return propagator.columns(system, tasks, trajectory)

    arguments = [each.requires_grad_() for each in tensors(3, segments=2, count=1)]
    assert torch.autograd.gradcheck(evolve, arguments, fast_mode=True)
    assert torch.autograd.gradgradcheck(evolve, arguments, fast_mode=True)


@pytest.mark.parametrize("route", ["compiled", "torch"])
def test_density_matrices_of_many_levels_are_the_same_in_all_entries(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters, controls, columns = tensors(4, segments=3, count=4)
    rates = torch.tensor([0.3], dtype=torch.float64)
    tasks = Tasks(controls, 0.5, rates, parameters, columns)
    observables = np.array(list(matrices(np.random.default_rng(0), 4, "ab").values()))

    def found() -> Tensors:
        system, propagator = system_of(4), Batched(route=route)
        arguments = (propagator.state(system, tasks), propagator.state(system, tasks, trajectory=True))
        hermitian = tasks._replace(initial=columns + columns.mH)
        return [*arguments, propagator.expval(system, hermitian, observables)]

    few = found()
    monkeypatch.setattr(basis, "MOST_LEVELS", 3)
    for one, other in zip(few, found(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("route", ["compiled", "torch"])
def test_transformations_of_torch_func_agree_with_autograd(route: Route) -> None:
    system, (parameters, _, columns) = system_of(3), tensors(3, segments=2, count=1)
    controls = torch.randn(4, 2, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)

    def loss(controls: torch.Tensor) -> torch.Tensor:
        tasks = Tasks(controls, 0.4, parameters=parameters, initial=columns)
        return (weights * Batched(route=route).columns(system, tasks)[..., 0].abs() ** 4).sum()

    one = controls[0]
    gradient = torch.autograd.functional.jacobian(loss, one)
    hessian = torch.autograd.functional.hessian(loss, one)
    func = torch.func
    torch.testing.assert_close(func.grad(loss)(one), gradient)
    torch.testing.assert_close(func.jacfwd(loss)(one), gradient)
    torch.testing.assert_close(func.hessian(loss)(one), hessian)
    torch.testing.assert_close(func.jacrev(func.grad(loss))(one), hessian)
    torch.testing.assert_close(func.jvp(func.grad(loss), (one,), (one,))[1], torch.tensordot(hessian, one, 3))
    every = func.vmap(func.grad(loss))(controls)
    torch.testing.assert_close(every[0], gradient)
    torch.testing.assert_close(func.vmap(loss)(controls)[1], loss(controls[1]))
    leaves = controls.clone().requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(func.vmap(loss)(leaves).sum(), leaves)[0], every)


def test_products_of_matrices_take_over_where_they_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    sparse = System({}, {}, {"x": np.eye(16)[::-1], "z": np.diag(np.arange(16.0))})

    def faster(system: System, states: int = 16, strength: float = 1.0) -> bool:
        generators = system.ket_generators
        fixed = torch.ones(1, len(generators.fixed))
        controls = torch.full((1, 40, len(generators.controlled)), strength)
        initial = torch.zeros(1, states, generators.size)
        evolution = Evolution(generators, 0.02, EXACT[torch.float64], kets=True)
        return costs.fastest(fixed, controls, initial, evolution) == "products"

    # Eigenvectors are not taken where they would need too much memory.
    monkeypatch.setattr(costs, "SAVED_BYTES", 0)
    assert faster(system_of(32), 32) and not faster(sparse)
    # A long segment has many terms, but few squares.
    assert faster(sparse, strength=1e3)
    assert not faster(system_of(6))
    evolution = Evolution(sparse.ket_generators, 0.1, EXACT[torch.float64], kets=True)
    assert costs.fastest(*(torch.ones(0, 1, 32),) * 3, evolution) == "entries"
    few = system_of(4).generators
    tensors = torch.ones(1, len(few.fixed)), torch.ones(1, 1, len(few.controlled)), torch.ones(1, 16)
    for tau, way in ((0.1, "entries"), (1e6, "products")):
        assert costs.fastest(*tensors, Evolution(few, tau, EXACT[torch.float64])) == way


@pytest.mark.parametrize("strength", [0.01, 1.0, 300.0])
@pytest.mark.parametrize("dtype", [torch.complex128, torch.complex64])
def test_exponentials_by_products_have_the_error_of_rounding(strength: float, dtype: torch.dtype) -> None:
    hermitian = torch.tensor(np.array(list(matrices(np.random.default_rng(0), 8, "abc").values())))
    arguments = -1j * strength * hermitian * torch.tensor([1.0, 0.1, 0.0])[:, None, None]
    expected = np.array([expm(each) for each in arguments.numpy()])
    result = plain._by_products(arguments.to(dtype), 1e5)
    tolerance = torch.finfo(dtype).eps * 20 * max(1.0, 10 * strength)
    np.testing.assert_allclose(result.numpy(), expected, atol=tolerance)
    # Each as if it was alone.
    assert torch.equal(result[1], plain._by_products(arguments.to(dtype)[1:2], 1e5)[0])
    assert not plain._by_products(arguments.to(dtype), strength)[0].isfinite().any()
    assert plain._by_products(arguments.to(dtype), strength)[2].isfinite().all()


@pytest.mark.parametrize("is_open", [False, True])
def test_long_pulses_of_dense_systems_keep_parts(monkeypatch: pytest.MonkeyPatch, is_open: bool) -> None:
    system, (parameters, controls, columns) = system_of(3), tensors(3, segments=5)
    controls.requires_grad_()

    def evolve(controls: torch.Tensor) -> torch.Tensor:
        tasks = Tasks(controls, 1.5, parameters=parameters)
        if is_open:
            return Batched(route="torch").state(
                system, tasks._replace(rates=torch.full((2, 1), 0.1).double())
            )
        return Batched(route="torch").columns(system, tasks._replace(initial=columns))

    def found() -> Tensors:
        result = evolve(controls)
        return [result, *torch.autograd.grad((result**2).real.sum(), controls)]

    complete, calls = found(), []
    name, bytes_of_a_map = ("_in_turn", 81 * 8) if is_open else ("_all_at_once", 9 * 16)
    one_part = getattr(plain, name)
    monkeypatch.setattr(plain, "SAVED_BYTES", 2 * plain.MATRICES * 2 * bytes_of_a_map + 1000)
    monkeypatch.setattr(plain, name, lambda *inputs: calls.append(inputs[1].shape[1]) or one_part(*inputs))
    for one, other in zip(complete, found(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert calls == [2, 2, 1, 1, 2, 2]
    of_func = torch.func.grad(lambda inputs: (evolve(inputs) ** 2).real.sum())(controls.detach())
    torch.testing.assert_close(of_func, complete[1], rtol=1e-12, atol=1e-12)
