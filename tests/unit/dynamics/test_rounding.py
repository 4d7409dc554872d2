"""The rounding of `exact` and its estimate: segments of one to a hundred thousand radians, against exponentials in 34 digits."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
import torch

from ketscale import dynamics as kd
from ketscale.engines.dynamics.propagators import propagator
from ketscale.engines.dynamics.tasks import Tasks
from ketscale.errors import UserError
from tests.pairs import sampled

DURATION, SEGMENTS, RATE = 0.7, 2, 0.0625
KINDS: dict[str, dict[str, Any]] = {
    "ket": {"kind": "ket"},
    "unitary": {"kind": "unitary"},
    "density": {"kind": "density", "rates": [RATE]},
    "trajectory": {"kind": "ket", "trajectory": True},
}


def system(levels: int) -> kd.System:
    rng = np.random.default_rng(levels)
    values = [rng.normal(size=(levels, levels, 2)) @ [1, 1j] for _ in range(3)]
    drift, x, y = ((each + each.conj().T) / 2 for each in values)
    lowers = np.diag(np.sqrt(np.arange(1, levels)), 1)
    return kd.System({"a": drift}, {"a": 1.0}, {"x": x, "y": y}, {"r": lowers})


def inputs_of(levels: int, angle: float, dtype: torch.dtype) -> tuple[kd.System, torch.Tensor, torch.Tensor]:
    """A system, and controls and parameters whose largest energy times the time of a segment is this angle."""
    one, controls = system(levels), np.random.default_rng(7).normal(size=(SEGMENTS, 2))
    energies = np.linalg.eigvalsh(
        [one.drift["a"] + u * one.controls["x"] + v * one.controls["y"] for u, v in controls]
    )
    scale = angle * SEGMENTS / DURATION / abs(energies).max()
    return one, torch.tensor(scale * controls, dtype=dtype), torch.tensor([scale], dtype=dtype)


def exponential(matrix: Any) -> Any:
    squares = max(0, int(mpmath.log(mpmath.mnorm(matrix, 1) + 1, 2))) + 4
    term = result = mpmath.eye(matrix.rows)
    for number in range(1, 28):
        term = term * matrix / (number * mpmath.mpf(2) ** squares)
        result += term
    for _ in range(squares):
        result = result * result
    return result


def in_34_digits(what: str, one: kd.System, controls: torch.Tensor, parameters: torch.Tensor) -> Any:
    """The state at the end."""
    identity, open_ = np.eye(one.dimension), what == "density"
    terms = [one.drift["a"], *one.controls.values()]
    if open_:
        terms = [np.kron(each, identity) - np.kron(identity, each.T) for each in terms]
    jump = one.jumps["r"]
    square = jump.conj().T @ jump / 2
    decay = np.kron(jump, jump.conj()) - np.kron(square, identity) - np.kron(identity, square.T)
    with mpmath.workdps(34):
        result = mpmath.eye(len(terms[0]))
        for row in controls.tolist():
            generator = mpmath.zeros(len(terms[0]))
            for value, term in zip([*parameters.tolist(), *row], terms, strict=True):
                generator += -1j * value * mpmath.matrix(np.asarray(term).tolist())
            if open_:
                generator += RATE * mpmath.matrix(decay.tolist())
            result = exponential(generator * mpmath.mpf(DURATION) / SEGMENTS) * result
        complete = np.array(result.tolist(), dtype=complex)
    return complete if what == "unitary" else complete[:, 0].reshape((one.dimension,) * (1 + open_))


@pytest.mark.parametrize(
    "what, levels, angle, dtype",
    sampled(KINDS, [2, 3], [1.0, 30.0, 1e3, 6e4, 1e5], [torch.float64, torch.float32]),
)
def test_the_estimate_is_the_error(what: str, levels: int, angle: float, dtype: torch.dtype) -> None:
    one, controls, parameters = inputs_of(levels, angle, dtype)
    options = {**KINDS[what], "parameters": parameters}
    final = kd.evolve(one, controls, DURATION, **options)
    estimate = kd.error_estimate(one, controls, DURATION, **options)
    assert final.dtype == dtype.to_complex()
    if what == "trajectory":
        final, estimate = final[-1], estimate[-1]
    error = np.linalg.norm(final.numpy() - in_34_digits(what, one, controls, parameters))
    # The estimate of a rounding by another rounding, in fp64; in fp32 it is the error.
    assert (
        (error / 10 < estimate.item() < 100 * error)
        if dtype == torch.float64
        else estimate == pytest.approx(error, 0.01)
    )
    # Only the result is rounded to fp32.
    phase = angle if dtype == torch.float64 else 1.0
    assert error < 10 * phase * torch.finfo(dtype).eps


@pytest.mark.parametrize(
    "way", ["compiled", "torch", "batch", "list", "durations", "vmap", "operators", "channel"]
)
def test_long_segments_in_single_precision_lose_no_digits_by_any_way(way: str) -> None:
    one, controls, parameters = inputs_of(3, 8e4, torch.float32)
    options: dict[str, Any] = {"kind": "unitary", "parameters": parameters}
    expected = kd.evolve(one, controls.double(), DURATION, kind="unitary", parameters=parameters.double())
    result: Any
    if way in ("compiled", "torch"):
        result = kd.evolve(one, controls, DURATION, route=way, **options)  # type: ignore[arg-type]
    elif way == "batch":
        result = kd.evolve(one, controls.expand(2, -1, -1), DURATION, **options)[1]
    elif way == "list":
        result = kd.evolve([one, one], controls, DURATION, **options)[1]
    elif way == "durations":
        result = kd.evolve(one, controls, torch.tensor([0.5, 0.75]), **options)[1]
        expected = kd.evolve(one, controls.double(), 0.75, kind="unitary", parameters=parameters.double())
    elif way == "vmap":
        result = torch.func.vmap(lambda each: kd.evolve(one, each, DURATION, **options))(controls[None])[0]
    elif way == "operators":
        drift = torch.tensor(one.drift["a"], requires_grad=True)
        other = kd.System({"a": drift}, {"a": 1.0}, one.controls)
        result = kd.evolve(other, controls, DURATION, **options).detach()
    else:
        images = kd.evolve(
            one, controls, DURATION, kind="channel", initial=np.eye(3)[:, :1], parameters=parameters
        )
        result, column = images[0, 0], expected[:, 0]
        expected = torch.outer(column, column.conj())
    assert result.dtype == torch.complex64
    torch.testing.assert_close(result.to(torch.complex128), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("trajectory", [False, True])
def test_gradients_of_long_segments_in_single_precision_are_those_in_double(trajectory: bool) -> None:
    one, controls, parameters = inputs_of(3, 8e4, torch.float32)
    values = []
    for dtype in (torch.float32, torch.float64):
        leaves = [each.to(dtype).requires_grad_() for each in (controls, parameters)]
        final = kd.evolve(one, leaves[0], DURATION, parameters=leaves[1], trajectory=trajectory)
        gradients = torch.autograd.grad(final.real.sum(), leaves)
        assert all(each.dtype == dtype for each in gradients)
        values.append(torch.cat([each.flatten().double() for each in gradients]))
    torch.testing.assert_close(*values, rtol=1e-6, atol=1e-7)


def test_a_number_is_not_rounded_to_single_precision_where_a_segment_is_long() -> None:
    one = kd.System({"z": [[1, 0], [0, -1]]}, {"z": 1.0}, {}, {})
    for value in ({"parameters": [1e5 / 3]}, {"parameters": {"z": 1e5 / 3}}):
        state = kd.evolve(one, torch.zeros(1, 0), 1.0, **value)[0]
        assert state.item() == pytest.approx(np.exp(-1j * 1e5 / 3), abs=1e-7)


@pytest.mark.parametrize(
    ("route", "dtype", "size", "most"),
    [
        ("compiled", torch.float64, 1.0, "350,000"), ("compiled", torch.float32, 1.0, "220,000"),
        ("torch", torch.float32, 1.0, "220,000"), ("auto", torch.float64, 1e4, r"1e\+09"),
    ],
)  # fmt: skip
def test_a_refusal_has_the_norm_and_the_largest(
    route: Any, dtype: torch.dtype, size: float, most: str
) -> None:
    """The second task's Bloch vector turns by 6e5 and 8e5 about two axes: the sizes in a row add up to 14e5."""
    one = kd.System({"z": [[1, 0], [0, -1]]}, {"z": 1.0}, {"x": [[0, 1], [1, 0]]})
    controls, parameters = (size * torch.tensor([[1.0], [each]], dtype=dtype) for each in (4e5, 3e5))
    tasks = Tasks(controls[:, None], 1.0, parameters=parameters)
    message = rf"in a segment of 1, .* norm 1.4e\+{6 if size == 1 else 10:02d} .* largest is {most}"
    with pytest.raises(UserError, match=message):
        propagator("exact", route=route).state(one, tasks)


@pytest.mark.parametrize("time", [1e2, 1e5, 1e7])
def test_idle_times_are_exact_whatever_their_angle(time: float) -> None:
    one, plus = kd.transmon(0.3, levels=2, t1=2e8, t2=1e8), torch.full((2,), 0.5**0.5, dtype=torch.float64)
    ket = kd.evolve(one, None, time, kind="ket", initial=plus)
    assert (ket[0] * ket[1].conj()).item() == pytest.approx(0.5 * np.exp(0.3j * time), abs=1e-8)
    rho = kd.evolve(one, np.zeros((2, 2)), time, initial=plus, trajectory=True)[:, 0, 1]
    expected = 0.5 * np.exp((0.3j - 1e-8) * time * np.array([0, 0.5, 1]))
    np.testing.assert_allclose(rho, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("trajectory", [False, True])
def test_decays_are_exact_whatever_their_rate(trajectory: bool) -> None:
    one = kd.System({}, {}, {}, {"decay": [[0, 1], [0, 0]]})
    rates = torch.tensor([[0.1], [3e5], [2.0], [3e8]], dtype=torch.float64, requires_grad=True)
    state = kd.evolve(one, None, 1.0, rates=rates, initial=[0, 1], trajectory=trajectory)
    excited = (state[:, -1] if trajectory else state)[:, 1, 1].real
    torch.testing.assert_close(excited, torch.exp(-rates[:, 0]), rtol=0, atol=1e-12)
    (gradient,) = torch.autograd.grad(excited.sum(), rates)
    torch.testing.assert_close(gradient, -torch.exp(-rates.detach()), rtol=0, atol=1e-12)
