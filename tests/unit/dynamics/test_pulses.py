"""Pulses ready-made: their shapes, limits and derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ketscale import dynamics as kd
from ketscale.errors import UserError

LIMITS = kd.Limits(amplitude=(0.3, 0.2), slope=0.1, bandwidth=0.08)
PULSES: list[kd.Pulse] = [
    kd.Gaussian(segments=12, drives=2, quadratures=False, amplitude=0.4),
    kd.Gaussian(segments=12, drives=2),
    kd.Drag(segments=12, drives=2),
    kd.Piecewise(segments=12, pieces=4),
    kd.Piecewise(segments=40, pieces=10, drives=2, limits=LIMITS),
    kd.Fourier(segments=12, terms=3, limits=kd.Limits(amplitude=0.1)),
    kd.Drag(segments=40, drives=2, limits=LIMITS),
]


def samples_of(pulse: kd.Pulse, count: int) -> torch.Tensor:
    return pulse.start(count, torch.Generator().manual_seed(1))


@pytest.mark.parametrize("pulse", PULSES)
def test_a_batch_of_pulses_and_durations_is_one_after_another(pulse: kd.Pulse) -> None:
    parameters, durations = samples_of(pulse, 3), torch.tensor([20.0, 30.0, 41.0], dtype=torch.float64)
    controls = pulse(parameters, durations)
    assert controls.shape == (3, pulse.segments, pulse.columns)
    for row, duration, single in zip(parameters, durations, controls, strict=True):
        torch.testing.assert_close(pulse(row, float(duration)), single, rtol=1e-12, atol=1e-15)
    assert all(values.shape[0] == 3 for values in pulse.named(parameters, durations).values())


@pytest.mark.parametrize("pulse", PULSES)
def test_controls_have_the_derivatives_of_finite_differences(pulse: kd.Pulse) -> None:
    arguments = (
        samples_of(pulse, 2).requires_grad_(),
        torch.tensor([20.0, 31.0], dtype=torch.float64, requires_grad=True),
    )
    assert torch.autograd.gradcheck(pulse, arguments, fast_mode=pulse.segments > 12)
    gradient = torch.func.grad(lambda p: pulse(p, 20.0).square().sum())(arguments[0].detach()[0])
    assert gradient.isfinite().all() and gradient.any()


def test_shapes_are_what_they_are_called() -> None:
    middles = (torch.arange(200, dtype=torch.float64) + 0.5) / 200
    one = torch.tensor([1.0], dtype=torch.float64)
    defaults: dict[str, Any] = {"segments": 200, "quadratures": False, "amplitude": 0.5}
    bell = kd.Gaussian(**defaults, width=0.2)(one, 20.0)[:, 0]
    raw = (-((middles - 0.5) ** 2) / 0.08).exp()
    edge = torch.tensor(-0.25 / 0.08, dtype=torch.float64).exp()
    torch.testing.assert_close(bell, 0.5 * (raw - edge) / (1 - edge))
    sines = kd.Fourier(**defaults, terms=2)(torch.tensor([1.0, -2.0], dtype=torch.float64), 20.0)[:, 0]
    torch.testing.assert_close(sines, 0.5 * ((torch.pi * middles).sin() - 2 * (2 * torch.pi * middles).sin()))
    pieces = kd.Piecewise(**defaults, pieces=2)(torch.tensor([1.0, -2.0], dtype=torch.float64), 20.0)[:, 0]
    assert pieces.tolist() == [0.5] * 100 + [-1.0] * 100


def test_drag_has_the_derivative_in_quadrature_and_turns_with_its_detuning() -> None:
    pulse, duration = kd.Drag(segments=2000, amplitude=0.5), 20.0
    parameters = torch.tensor([0.8, 0.6, 0.1, 0.0], dtype=torch.float64)
    named = pulse.named(parameters, duration)
    assert named["amplitude"].item() == pytest.approx(0.4 + 0.3j)
    assert named["drag"].item() == pytest.approx(2.0)
    bell = kd.Gaussian(segments=2000, amplitude=0.5)(parameters[:2], duration)
    envelope, target = (torch.complex(each[:, 0], each[:, 1]) for each in (pulse(parameters, duration), bell))
    slope = (target[2:] - target[:-2]) / (2 * duration / 2000)
    torch.testing.assert_close(envelope[1:-1], target[1:-1] + 2j * slope, rtol=0, atol=1e-6)
    turned = pulse(parameters + torch.tensor([0, 0, 0, 0.3]), duration)
    time = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000 * duration
    detuning = pulse.named(parameters + torch.tensor([0, 0, 0, 0.3]), duration)["detuning"]
    torch.testing.assert_close(
        torch.complex(turned[:, 0], turned[:, 1]), envelope * torch.exp(1j * detuning * (time - duration / 2))
    )


def test_a_wide_gaussian_is_a_parabola() -> None:
    wide = kd.Gaussian(segments=8, width=1e4, amplitude=1.0, quadratures=False)
    middles = torch.arange(8) / 8 + 1 / 16
    torch.testing.assert_close(wide(torch.ones(1), 1.0)[:, 0], 1 - 4 * (middles - 0.5) ** 2)


def test_limits_hold_for_huge_parameters_an_empty_batch_and_mapped_durations() -> None:
    pulse = kd.Piecewise(segments=8, limits=kd.Limits(0.2, bandwidth=0.2))
    once = pulse(1e6 * torch.ones(16), 20.0)
    torch.testing.assert_close(pulse(1e15 * torch.ones(16), 20.0), once)
    assert pulse(torch.ones(0, 16), 20.0).shape == (0, 8, 2)
    parameters, durations = samples_of(pulse, 1)[0], torch.tensor([5.0, 20.0], dtype=torch.float64)
    mapped = torch.func.vmap(pulse, (None, 0))(parameters, durations)
    torch.testing.assert_close(mapped, pulse(parameters.expand(2, -1), durations))


@pytest.mark.parametrize("scale", [0.1, 1.0, 1e3])
@pytest.mark.parametrize("pulse", [pulse for pulse in PULSES if pulse.limits is LIMITS])
def test_limits_hold_whatever_the_parameters_are(pulse: kd.Pulse, scale: float) -> None:
    controls = pulse(scale * samples_of(pulse, 20), 20.0)
    envelopes = torch.complex(controls[..., 0::2], controls[..., 1::2])
    largest = torch.tensor(LIMITS.amplitudes, dtype=torch.float64)
    assert (envelopes.abs() <= largest * (1 + 1e-12)).all()
    ends = torch.zeros_like(envelopes[:, :1])
    steps = torch.cat([ends, envelopes, ends], 1).diff(dim=1).abs()
    assert (steps <= 0.1 * 20 / 40 * (1 + 1e-12)).all()
    assert scale < 1 or (steps > 0.02).any()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: kd.Drag(segments=4, quadratures=False), "quadratures: DRAG needs them"),
        (lambda: kd.Piecewise(segments=4, pieces=5), "pieces: 5 is not from 1 to the 4 segments"),
        (lambda: kd.Piecewise(segments=4, limits=LIMITS), "limits: are for 2 drives, and the pulse has 1"),
        (lambda: kd.Piecewise(segments=4)(torch.zeros(8), -1.0), "duration: must be positive, not -1.0"),
        (lambda: kd.Limits(amplitude=0.0), "amplitude: a limit must be positive, not 0.0"),
        (lambda: kd.Limits(amplitude=(1.0, -1.0)), "amplitude: a limit must be positive"),
        (lambda: kd.Drag(segments=4)(torch.zeros(3), 1.0), "parameters: the pulse has 4, and these are (3,)"),
        (lambda: kd.Limits(amplitude=torch.inf, slope=0.1), "amplitude: a limit must be positive, not inf"),
        (lambda: kd.Drag(segments=4, amplitude=torch.inf), "amplitude: must be positive, not inf"),
        (lambda: PULSES[4](torch.zeros(40), 5.0), "duration: the pulse's limits need at least 9.425"),
    ],
)  # fmt: skip
def test_what_makes_no_pulse_is_refused_in_words(made: Callable[[], Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        made()
    assert message in str(caught.value)
