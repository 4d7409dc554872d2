"""Pulses, their targets and what is read from evolved states: closed forms, dense exponentials, derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import torch

from ketscale import dynamics as kd
from ketscale.dynamics import Frame, bare_frame, dressed_frame
from ketscale.engines.pulses import (
    Cosine,
    Device,
    Pulses,
    Segments,
    Transmons,
    cross_resonance,
    fluxonium_chain,
    rotations,
    segmented,
    together,
    transmon_chain,
)
from ketscale.engines.pulses.chain import with_operators
from ketscale.engines.pulses.circuits import TWO_PI
from ketscale.engines.pulses.drives import filtered
from ketscale.errors import UserError

# torch says so when forward mode or a nested transformation is first used.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def cosine(**given: torch.Tensor) -> Pulses:
    """Two pulses of different lengths."""
    defaults = {
        "amplitude": numbers(0.3, -0.2),
        "frequency": numbers(3.0, 4.0),
        "phase": numbers(0.5, -1.0),
        "length": numbers(40.0, 50.0),
    }
    amplitude, *rest = {**defaults, **given}.values()
    return Pulses(Cosine(amplitude), *rest)


def pulse_parameters(pulses: Pulses) -> tuple[torch.Tensor, ...]:
    assert isinstance(pulses.envelope, Cosine)
    return pulses.envelope.amplitude, pulses.frequency, pulses.phase, pulses.length


def in_segments(length: torch.Tensor | None = None, amplitude: torch.Tensor | None = None) -> Pulses:
    values = torch.linspace(-0.3, 0.4, 20, dtype=torch.float64).reshape(2, 5, 2)
    return Pulses(
        Segments(values if amplitude is None else amplitude),
        numbers(3.0, 4.0),
        numbers(0.5, -1.0),
        torch.tensor(50.0, dtype=torch.float64) if length is None else length,
    )


def test_the_cosine_envelope_is_the_published_one() -> None:
    amplitude, tau = 0.7, 50.0
    times = torch.linspace(-5, 60, 131, dtype=torch.float64)
    inside = (times >= 0) & (times <= tau)
    expected = amplitude * (1 + (TWO_PI * (times - tau / 2) / tau).cos()) / 2 * inside
    torch.testing.assert_close(Cosine(numbers(amplitude)).at(times[:, None] / tau)[:, 0].real, expected)


def test_a_shorter_ramp_leaves_a_plateau() -> None:
    values = Cosine(numbers(2.0), ramp=0.25).at(numbers(0, 0.125, 0.25, 0.6, 0.75, 0.875, 1)[:, None])
    torch.testing.assert_close(values[:, 0].real, numbers(0, 1, 2, 2, 2, 1, 0))


def test_segments_are_constant_in_between() -> None:
    amplitude = numbers(1, 0, 2, 5, 3, 0, 4, 0).reshape(1, 4, 2)
    values = Segments(amplitude).at(numbers(-0.1, 0.1, 0.2, 0.3, 0.6, 0.99, 1.1)[:, None])[:, 0]
    assert values.tolist() == [0, 1, 1, 2 + 5j, 3, 4, 0]


def test_a_segment_begins_with_its_first_time_despite_rounding() -> None:
    values = torch.arange(1.0, 51.0, dtype=torch.float64)
    envelope = Segments(torch.stack([values, values], -1)[None])
    length = torch.tensor(47.3, dtype=torch.float64)
    times = torch.linspace(0, 1, 501, dtype=torch.float64) * length
    result = envelope.at((times / length)[:, None]).real[:-1, 0]
    assert torch.equal(result, values.repeat_interleave(10))


def test_segments_begin_in_the_middle_of_a_cosine() -> None:
    start = cosine()
    assert isinstance(start.envelope, Cosine)
    middles = (torch.arange(50, dtype=torch.float64) + 0.5) / 50
    expected = start.envelope.at(middles[:, None].expand(50, 2)).T
    assert torch.equal(torch.view_as_complex(segmented(start.envelope, 50).amplitude), expected)


def test_a_carrier_has_two_quadratures() -> None:
    times = torch.linspace(0, 49, 50, dtype=torch.float64)
    pulses = in_segments()
    angles = times[:, None] * pulses.frequency + pulses.phase
    values = pulses.envelope.at(times[:, None].expand(50, 2) / 50)
    expected = values.real * angles.cos() - values.imag * angles.sin()
    torch.testing.assert_close(pulses.sample(times), expected)
    assert pulses.sample(times[:12].reshape(3, 4)).shape == (3, 4, 2)


@pytest.mark.parametrize("name", ["amplitude", "frequency", "phase", "length"])
def test_samples_have_the_derivatives_of_finite_differences(name: str) -> None:
    times = numbers(3.0, 17.0, 29.0, 38.0, 45.0)
    usual = dict(zip(("amplitude", "frequency", "phase", "length"), pulse_parameters(cosine()), strict=True))[
        name
    ]
    assert torch.autograd.gradcheck(
        lambda arguments: cosine(**{name: arguments}).sample(times), usual.clone().requires_grad_()
    )


def test_segments_have_derivatives_by_amplitude_and_by_length_at_fractions_of_it() -> None:
    fractions = numbers(0.05, 0.3, 0.55, 0.92)
    assert torch.autograd.gradcheck(
        lambda length, amplitude: in_segments(length, amplitude).sample(fractions * length),
        (torch.tensor(50.0, dtype=torch.float64, requires_grad=True), torch.randn(2, 5, 2, dtype=torch.float64, requires_grad=True)),
    )  # fmt: skip


def test_a_filter_has_half_its_power_at_the_bandwidth_and_less_above() -> None:
    bandwidth, length = 0.08, 200.0
    # The slope of the rise is the filter's response.
    times = torch.arange(0, 100, 0.01, dtype=torch.float64)
    ramp = numbers(kd.Limits(bandwidth=bandwidth).ramp / length)[:, None]
    response = filtered(torch.ones(1, 1, dtype=torch.float64), times[None] / length, ramp)[0].diff()
    assert response.min() > -1e-15 and response.sum().item() == pytest.approx(1)
    frequency = torch.tensor([0.999, 1.001, 1.5, 3.0, 6.0], dtype=torch.float64) * bandwidth
    power = (response * torch.exp(-2j * torch.pi * frequency[:, None] * times[1:])).sum(1).abs().square()
    assert power[0] > 0.5 > power[1] and (power[2:] < 0.25).all()


def test_published_start_of_rotations() -> None:
    # Without couplings, dressed levels are those of the circuits.
    chain = fluxonium_chain(2)
    device = Device(chain.circuits, chain.pairs, 0 * chain.capacitive, 0 * chain.capacitive)
    levels = device.circuits.levels(2)
    assert levels.phase is not None
    for sites, start in (([0, 1], rotations(device, 0.25, 40.0)), ([1], rotations(device, 0.25, 40.0, [1]))):
        expected = 0.25 * 2 * TWO_PI / (40 * levels.phase[sites, 0, 1].abs())
        torch.testing.assert_close(start.envelope.modulus(), expected)
        torch.testing.assert_close(start.frequency, levels.energies[sites, 1])
        assert start.phase.tolist() == [0] * len(sites) and start.length.tolist() == [40] * len(sites)


def test_published_start_of_cross_resonance() -> None:
    # The couplings are weak, so that dressed states are almost bare.
    chain = fluxonium_chain(4)
    assert chain.inductive is not None
    device = Device(chain.circuits, chain.pairs, 1e-3 * chain.capacitive, 1e-3 * chain.inductive)
    start = cross_resonance(device, [(0, 1), (3, 2)])
    energies, charge, phase = device.circuits.levels(2)
    assert phase is not None
    for drive, (control, target, pair) in enumerate([(0, 1, 0), (3, 2, 2)]):
        coupling = TWO_PI * 1e-3 * (
            chain.capacitive[pair] * charge[control, 0, 1] * charge[target, 0, 1]
            + chain.inductive[pair] * phase[control, 0, 1] * phase[target, 0, 1]
        )  # fmt: skip
        detuning = (energies[target, 1] - energies[control, 1]).abs()
        expected = math.pi / 2 * detuning / coupling.abs() / 100
        assert start.envelope.modulus()[drive].item() == pytest.approx(expected.item(), rel=1e-3)
        assert start.frequency[drive].item() == pytest.approx(energies[target, 1].item(), rel=1e-6)
    both = together(start, rotations(device, sites=[1, 2]))
    assert both.length.tolist() == [100, 100, 50, 50] and both.duration == 100


@pytest.mark.parametrize("device", [fluxonium_chain(2), transmon_chain(2)], ids=["fluxonium", "transmon"])
def test_an_undriven_device_is_at_rest_in_the_dressed_rotating_frame(device: Device) -> None:
    system = device.system(3)
    propagator = torch.linalg.matrix_exp(-30j * torch.from_numpy(system.hamiltonian()))
    frame, bare = dressed_frame(system), bare_frame(system)
    at_rest = frame.amplitudes(propagator @ frame.states, 30.0)
    torch.testing.assert_close(at_rest, torch.eye(4, dtype=torch.complex128), rtol=0, atol=1e-10)
    # Bare product states in the laboratory do move.
    places = system.computational
    torch.testing.assert_close(bare.amplitudes(propagator @ bare.states, 30.0), propagator[places][:, places])


@pytest.mark.parametrize(
    "target, device, turn, levels, error",
    [
        ("x", fluxonium_chain(1), 0.5, 3, 1e-4),
        ("x", fluxonium_chain(2), 0.5, 3, 1e-3),
        ("x", transmon_chain(1), 0.5, 3, 1e-2),
        ("hadamard", fluxonium_chain(1), 0.25, 3, 1e-4),
        ("hadamard", fluxonium_chain(2), 0.25, 3, 1e-4),
    ],
)
def test_published_starts_are_close_to_their_gates(
    target: str, device: Device, turn: float, levels: int, error: float
) -> None:
    pulses, system = rotations(device, turn), device.system(levels)
    frame = dressed_frame(system)
    final = kd.evolve(system, pulses, kind="unitary", initial=frame.states, method="interaction4", dt=0.05)
    amplitudes = frame.amplitudes(final, pulses.duration)
    assert 1 - kd.process_fidelity(amplitudes, kd.gate(target, device.sites), virtual_z=True).item() < error
    assert 2**device.sites * kd.leakage(amplitudes).item() < error


def test_a_trained_sequence_is_a_cnot() -> None:
    # Trained elsewhere, from the published start and a rotation by a quarter turn of the target.
    device, pairs = fluxonium_chain(2), [(0, 1)]
    trained = Pulses(
        Cosine(numbers(0.1322, 0.01495)),
        numbers(3.63515, 3.6401),
        numbers(1.5538, 1.3068),
        numbers(100.04, 99.82),
    )
    start = together(cross_resonance(device, pairs), rotations(device, 0.25, 100.0, [1]))
    torch.testing.assert_close(start.envelope.modulus(), trained.envelope.modulus(), rtol=0.2, atol=0)
    system = device.system(2, (0, 1))
    frame = dressed_frame(system)
    final = kd.evolve(system, trained, kind="unitary", initial=frame.states, method="interaction4", dt=0.05)
    amplitudes = frame.amplitudes(final, trained.duration)
    assert 1 - kd.process_fidelity(amplitudes, kd.gate("cnot", 2, pairs), virtual_z=True).item() < 1e-4


@pytest.mark.parametrize("levels", [2, 3])
def test_frames_have_second_derivatives_and_forward_mode(levels: int) -> None:
    system = fluxonium_chain(2).system(levels)
    *firsts, coupling = system.operators[:3]

    def shares(energies: torch.Tensor, root: torch.Tensor) -> torch.Tensor:
        frame = dressed_frame(
            with_operators(system, [*energies, (root + root.mH) / 2, *system.operators[3:]])
        )
        return torch.cat([frame.energies, frame.states.abs().square().T.flatten()[:6]])

    arguments = torch.stack(firsts).requires_grad_(), coupling.clone().requires_grad_()
    fast = levels > 2  # in a random direction
    assert torch.autograd.gradcheck(shares, arguments, check_forward_ad=True, fast_mode=fast)
    assert torch.autograd.gradgradcheck(shares, arguments, fast_mode=fast)
    energies, couplings = (each.detach() for each in arguments)
    jacobian = torch.func.jacrev(lambda each: shares(each, couplings))
    several = torch.func.vmap(jacobian)(torch.stack([energies, 2 * energies]))
    torch.testing.assert_close(several[1], jacobian(2 * energies))


def test_dressed_states_are_named_after_the_product_states_they_are_most_like() -> None:
    for device in (fluxonium_chain(4), transmon_chain(4)):
        system = device.system(3)
        frame = dressed_frame(system)
        own = frame.states[system.computational].diagonal()
        assert own.real.min() > math.sqrt(0.5) and own.imag.abs().max() < 1e-14
        residual = torch.from_numpy(system.hamiltonian()) @ frame.states - frame.energies * frame.states
        assert residual.abs().max() < 1e-10


# Carriers as the controls of `kd.evolve`


DEVICE = kd.transmon_chain(2)
LOWER = kd.Term([0], [[0, 1], [0, 0]])
SYSTEM = replace(DEVICE.system(2), jumps={"down": LOWER}, rates={"down": 0.3})
START = rotations(DEVICE, length=3.0)
LENGTHS = torch.tensor([1.0, 0.2, 2.0], dtype=torch.float64)
STEPS: dict[str, Any] = {"method": "whole-space", "dt": 0.004}


def solved(times: torch.Tensor) -> np.ndarray[Any, Any]:
    """The density matrix at these times, from |00>."""
    drives = list(SYSTEM.controls.values())
    jump = SYSTEM.jumps["down"]
    square = jump.conj().T @ jump / 2

    def derivative(time: float, flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        rho, amplitudes = flat.reshape(4, 4), START.sample(torch.tensor(time, dtype=torch.float64)).tolist()
        hamiltonian = SYSTEM.hamiltonian() + sum(u * each for u, each in zip(amplitudes, drives, strict=True))
        unitary = -1j * (hamiltonian @ rho - rho @ hamiltonian)
        return (unitary + 0.3 * (jump @ rho @ jump.conj().T - square @ rho - rho @ square)).ravel()

    initial, options = (
        np.diag([1.0 + 0j, 0, 0, 0]).ravel(),
        {"method": "DOP853", "rtol": 1e-12, "atol": 1e-13},
    )
    result = scipy.integrate.solve_ivp(derivative, (0, times[-1]), initial, t_eval=times, **options)
    return result.y.T.reshape(-1, 4, 4)


def test_an_open_system_under_carriers_is_that_of_the_master_equation() -> None:
    times = torch.cat([torch.zeros(1), 3 * LENGTHS.cumsum(0) / LENGTHS.sum()])
    expected = solved(times)
    state = kd.evolve(SYSTEM, START, lengths=LENGTHS, trajectory=True, **STEPS)
    np.testing.assert_allclose(state, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(kd.evolve(SYSTEM, START, **STEPS), expected[-1], rtol=0, atol=1e-9)
    excited = torch.diag(torch.tensor([0, 0, 1, 1], dtype=torch.complex128))[None]
    shares = kd.evolve(SYSTEM, START, lengths=LENGTHS, trajectory=True, expect=excited, **STEPS)
    np.testing.assert_allclose(shares[:, 0], expected[:, 2, 2].real + expected[:, 3, 3].real, atol=1e-9)
    channel = kd.evolve(SYSTEM, START, kind="channel", **STEPS)
    np.testing.assert_allclose(channel[0, 0], expected[-1], rtol=0, atol=1e-9)
    coarse, estimate = (
        each(SYSTEM, START, method="whole-space", dt=0.02) for each in (kd.evolve, kd.error_estimate)
    )
    assert estimate.item() == pytest.approx(np.linalg.norm(coarse.numpy() - expected[-1]), rel=0.1)


@pytest.mark.parametrize("kind, method", [("ket", "suzuki4"), ("density", "whole-space")])
def test_carriers_have_gradients_by_all_their_numbers(kind: Any, method: str) -> None:
    assert isinstance(START.envelope, Cosine)
    # The longest pulse is the duration, so that two of one length have no derivative.
    lengths = START.length * torch.tensor([1.0, 1.1])
    arguments = START.envelope.amplitude, START.frequency, START.phase, lengths

    def population(amplitude: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        pulses = Pulses(Cosine(amplitude), *others)
        final = kd.evolve(SYSTEM, pulses, kind=kind, method=method, dt=0.13)  # not at a jump of steps
        return final[3].abs() if kind == "ket" else final[3, 3].real

    assert torch.autograd.gradcheck(population, [each.clone().requires_grad_() for each in arguments])


@pytest.mark.parametrize("kind, method", [("unitary", "interaction4"), ("density", "whole-space")])
def test_systems_and_states_may_be_batches_under_carriers(kind: Any, method: str) -> None:
    systems = [replace(SYSTEM, parameters=dict.fromkeys(SYSTEM.drift, each)) for each in (1.0, 1.1)]
    states = torch.linalg.qr(torch.randn(2, 4, 4, dtype=torch.complex128))[0]
    options: dict[str, Any] = {
        "kind": kind,
        "method": method,
        "dt": 0.1,
        "trajectory": True,
        "lengths": LENGTHS,
    }
    state = kd.evolve(systems, START, initial=states, **options)
    for number, system in enumerate(systems):
        single = kd.evolve(system, START, initial=states[number], **options)
        torch.testing.assert_close(state[number], single, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, "method: carriers need steps, which exact does not have; use whole-space with a dt"),
        ({"method": "suzuki4", "dt": 0.1}, "which suzuki4 does not have; use whole-space"),
        ({"kind": "ket", "method": "rk4", "dt": 0.1}, "use interaction4, suzuki4 or whole-space with a dt"),
        ({"duration": 3.0, **STEPS}, "duration: give that of all controls together; pulses with carriers have their own"),
        ({"method": "whole-space"}, "dt: whole-space needs a positive step"),
        ({"rates": [-0.1], **STEPS}, "rates: some are negative"),
        ({"rates": [math.nan], "expect": np.eye(4)[None], **STEPS}, "rates: some are not finite"),
        ({"expect": np.eye(4, k=1)[None], **STEPS}, "observables: is not Hermitian"),
    ],
)  # fmt: skip
def test_what_carriers_cannot_have_is_refused_in_words(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        kd.evolve(SYSTEM, START, **options)
    assert message in str(caught.value)


def alike() -> Frame:
    """Two coupled transmons of one frequency."""
    one = numbers(1.0, 1.0)
    return dressed_frame(
        Device(Transmons(0.1 * one, 30 * one, 0 * one), ((0, 1),), numbers(0.01), None).system(2)
    )


@pytest.mark.parametrize(
    "made, message",
    [
        (alike, r"51% of .(01|10)> \(at most 50%\)"),
        (lambda: cosine(frequency=numbers(1.0)), r"frequency: must be of shape \(2,\)"),
        (lambda: cosine(length=numbers(40.0, 0.0)), "length: must be positive"),
        (lambda: Cosine(numbers(1.0), ramp=0.6), "ramp: 0.6"),
        (lambda: cross_resonance(fluxonium_chain(3), [(0, 2)]), "pairs: 0 and 2 are not coupled"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(made: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        made()
