"""Evolution by eigenvectors: segments of ten to tens of thousands of radians, against exponentials and derivatives in fifty digits."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
import torch

from ketscale import dynamics as kd
from ketscale.engines.dynamics import costs, spectral
from ketscale.engines.dynamics.generators import EXACT, Evolution
from ketscale.engines.dynamics.methods import Route
from ketscale.errors import UserError

DURATION = 2.0
# The relative rounding error of fp64: a phase of x radians has an absolute error of about x times this.
ROUNDING = 2.2e-16


def system(levels: int, rng: np.random.Generator) -> kd.System:
    def hermitian() -> np.ndarray[Any, Any]:
        result = rng.normal(size=(levels, levels, 2)) @ [1, 1j]
        return (result + result.conj().T) / 2

    drift, controls = {"a": hermitian(), "b": hermitian()}, {"x": hermitian(), "y": hermitian()}
    return kd.System(drift, {"a": 1.0, "b": 0.5}, controls)


def in_fifty_digits(system: kd.System, parameters: Any, controls: Any) -> Any:
    """The unitary (d, d) of controls (segments, K)."""
    result = mpmath.eye(system.dimension)
    for amplitudes in controls:
        terms = [
            (value, matrix)
            for values, matrices in ((parameters, system.drift), (amplitudes, system.controls))
            for value, matrix in zip(values, matrices.values(), strict=True)
        ]
        hamiltonian = mpmath.zeros(system.dimension)
        for value, matrix in terms:
            hamiltonian += value * mpmath.matrix(np.asarray(matrix).tolist())
        energies, vectors = mpmath.eighe(hamiltonian)
        step = mpmath.mpf(DURATION) / len(controls)
        phases = mpmath.diag([mpmath.expj(-step * energy) for energy in energies])
        result = vectors * phases * vectors.H * result
    return result


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("levels", "segments", "strength"), [(2, 1, 1e4), (5, 3, 5e2), (8, 1, 2e2)])
def test_values_and_gradients_have_the_error_of_rounding(
    levels: int, segments: int, strength: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    called = spectral.Exponential.__call__

    def counted(self: spectral.Exponential, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        steps.append(1)
        return called(self, *given)

    monkeypatch.setattr(spectral.Exponential, "__call__", counted)
    rng = np.random.default_rng(levels)
    one = system(levels, rng)
    parameters = torch.tensor(strength * rng.normal(size=2), dtype=dtype, requires_grad=True)
    controls = torch.tensor(strength * rng.normal(size=(segments, 2)), dtype=dtype, requires_grad=True)
    weights = rng.normal(size=(levels, levels, 2)) @ [1, 1j]
    final = kd.evolve(one, controls, DURATION, kind="unitary", parameters=parameters)
    (final.to(torch.complex128) * torch.tensor(weights)).real.sum().backward()
    assert steps
    inputs = [*map(mpmath.mpf, parameters.tolist())], [[*map(mpmath.mpf, each)] for each in controls.tolist()]
    with mpmath.workdps(50):
        expected = in_fifty_digits(one, *inputs)
        angle = DURATION * strength * levels
        # All is computed in fp64, whatever is given.
        rounding = ROUNDING if dtype == torch.float64 else 1e-7 / angle
        error = max(
            abs(complex(expected[row, column]) - final[row, column].item())
            for row in range(levels) for column in range(levels)
        )  # fmt: skip
        assert error < 10 * angle * rounding

        def loss(place: int, number: int, change: float) -> Any:
            new_parameters, new_controls = [*inputs[0]], [[*each] for each in inputs[1]]
            (new_parameters if place < 0 else new_controls[place])[number] += change
            result = in_fifty_digits(one, new_parameters, new_controls)
            return sum(
                mpmath.re(mpmath.mpmathify(complex(weights[row, column])) * result[row, column])
                for row in range(levels) for column in range(levels)
            )  # fmt: skip

        step = mpmath.mpf(10) ** -15
        assert parameters.grad is not None and controls.grad is not None
        for place, gradients in enumerate([parameters.grad, *controls.grad], -1):
            for number, value in enumerate(gradients.tolist()):
                exact = (loss(place, number, step) - loss(place, number, -step)) / (2 * step)
                # A gradient by a coefficient is of the size of the duration.
                assert abs(exact - value) < 100 * DURATION * levels * angle * rounding


def test_eigenvectors_are_taken_where_they_are_faster() -> None:
    many, few = (system(levels, np.random.default_rng(1)) for levels in (32, 2))
    sparse = kd.System({}, {}, {"x": np.eye(32)[::-1], "z": np.diag(np.linspace(-1, 1, 32))})

    def faster(of: kd.System, size: float, states: int) -> bool:
        controls, fixed = torch.full((1, 1, 2), size), torch.zeros(1, len(of.drift))
        initial = torch.zeros(1, states, 2 * of.dimension)
        evolution = Evolution(of.ket_generators, 1.0, EXACT[torch.float64], kets=True)
        return costs.fastest(fixed, controls, initial, evolution) == "eigenvectors"

    assert faster(many, 10.0, 32) and faster(many, 10.0, 1) and not faster(many, 1e-3, 32)
    # Steps of one state are cheap if there are few entries.
    assert faster(sparse, 1e3, 1) and not faster(sparse, 1.0, 1)
    assert faster(few, 1e3, 2) and not faster(few, 10.0, 2)


def test_equal_energies_have_gradients_too() -> None:
    """H is 500 times the identity, and its derivative by x is -i t exp(-i 500 t) X."""
    one = kd.System({"i": np.eye(2)}, {"i": 500.0}, {"x": [[0, 1], [1, 0]]})
    controls = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    final = kd.evolve(one, controls, 1.0, kind="unitary")
    parts = torch.view_as_real(final[0, 1]).unbind()
    result = torch.stack([torch.autograd.grad(part, controls, retain_graph=True)[0] for part in parts])
    target = -1j * np.exp(-500j)
    torch.testing.assert_close(result.flatten(), torch.tensor([target.real, target.imag]), rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's forward mode itself
def test_second_derivatives_and_torch_func() -> None:
    rng = np.random.default_rng(7)
    one = system(2, rng)
    controls = torch.tensor(300 * rng.normal(size=(1, 2)))

    def loss(controls: torch.Tensor) -> torch.Tensor:
        return kd.evolve(one, controls, DURATION).abs().square()[0]

    leaf = controls.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    (second,) = torch.autograd.grad(gradient[0, 0], leaf)
    torch.testing.assert_close(torch.func.grad(loss)(controls), gradient.detach(), rtol=0, atol=1e-9)
    torch.testing.assert_close(torch.func.hessian(loss)(controls)[0, 0], second, rtol=0, atol=1e-8)
    torch.testing.assert_close(torch.func.vmap(loss)(controls[None])[0], loss(controls), rtol=0, atol=1e-11)


FLIP = kd.System({}, {}, {"x": [[0, 1], [1, 0]]})
LONG = torch.full((1, 1), 300.0, dtype=torch.float64)


def test_gradients_by_initial_states_are_plain_tensors() -> None:
    ket = torch.tensor([1, 0], dtype=torch.complex128, requires_grad=True)
    kd.evolve(FLIP, LONG, 1.0, initial=ket)[0].real.backward()
    assert ket.grad is not None and ket.grad.numpy() == pytest.approx([np.cos(300), 1j * np.sin(300)])


def test_what_is_kept_does_not_depend_on_the_mode_of_the_first_call() -> None:
    one = kd.System({}, {}, {"x": [[0, 1.5], [1.5, 0]]})  # not known from other tests
    with torch.inference_mode():
        kd.evolve(one, LONG, 1.0)
    leaf = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
    for route in ("torch", "auto"):
        (result,) = torch.autograd.grad(kd.evolve(one, leaf, 1.0, route=route)[0].real, leaf)
        assert result.item() == pytest.approx(-1.5 * np.sin(1.5))
    other, ket = kd.System({}, {}, {"x": [[0, 2.5], [2.5, 0]]}), torch.tensor([1, 0], dtype=torch.complex128)
    with torch.device("meta"):
        kd.evolve(other, LONG, 1.0, initial=ket)
    assert kd.evolve(other, LONG, 1.0, initial=ket)[0].item() == pytest.approx(np.cos(750))


@pytest.mark.parametrize("route", ["torch", "auto"])
def test_what_is_kept_belongs_to_no_transformation(route: Route) -> None:
    """The first call of a system, which no other test has, is in a gradient of a gradient."""
    size = 0.3 + (route == "auto")
    one, at = kd.System({}, {}, {"x": [[0, size], [size, 0]]}), torch.ones(1, 1, dtype=torch.float64)

    def excited(controls: torch.Tensor) -> torch.Tensor:
        return kd.evolve(one, controls, 1.0, kind="density", route=route)[1, 1].real

    torch.func.grad(lambda each: torch.func.grad(excited)(each).sum())(at)
    assert torch.func.grad(excited)(at).item() == pytest.approx(size * np.sin(2 * size))
    assert excited(at).item() == pytest.approx(np.sin(size) ** 2)


def test_a_result_that_is_too_large_for_single_precision_is_refused() -> None:
    one = kd.System({}, {}, {"h": [[0.5**0.5, 0.5**0.5], [0.5**0.5, -(0.5**0.5)]]})
    ket = torch.tensor([3e38, 3e38], dtype=torch.complex64)
    with pytest.raises(UserError, match=r"initial: too large for torch\.float32"):
        kd.evolve(one, torch.full((1, 1), np.pi * 100.5, dtype=torch.float32), 1.0, initial=ket)


@pytest.mark.parametrize("trajectory", [False, True])
@pytest.mark.parametrize("size", [0.5, 300.0])
def test_several_gradients_at_once_are_refused(size: float, trajectory: bool) -> None:
    controls = torch.full((1, 1), size, dtype=torch.float64, requires_grad=True)
    final = torch.view_as_real(kd.evolve(FLIP, controls, 1.0, trajectory=trajectory)).flatten()
    with pytest.raises(UserError, match="one gradient at a time: leave out is_grads_batched=True"):
        torch.autograd.grad(
            final, controls, torch.eye(len(final), dtype=torch.float64), is_grads_batched=True
        )
