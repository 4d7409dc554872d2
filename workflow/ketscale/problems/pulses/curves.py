"""A trained pulse over time: what a generator has to play, what the qubits do, and how far an integrator is from that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ketscale.dynamics import Frame, System, evolve
from ketscale.engines.dynamics.methods import MOST_STEPS
from ketscale.engines.pulses import Pulses
from ketscale.engines.pulses.integrators import integrator, step_count
from ketscale.shapes import Float64

# What is compared with: an integrator of order 4 for any couplings, with so short steps, ns.
REFERENCE, SHORTEST = "suzuki4", 0.005


def reference_step(pulses: Pulses) -> float:
    """The longest step of the reference, ns: `SHORTEST`, or of very long pulses as short a one as there may be."""
    return max(SHORTEST, float(pulses.duration) / MOST_STEPS)


@torch.no_grad()
def deviations(
    system: System, pulses: Pulses, initial: torch.Tensor, method: Mapping[str, Any]
) -> dict[str, float]:
    """The errors of an integrator, which `method` names to `evolve`, for initial states as columns (dimension, columns).

    simulator_error: the largest norm of a column's difference from an exact one. norm_error: | |psi| - 1 |.
    """
    found = evolve(system, pulses, kind="unitary", initial=initial, **method)
    # At least four steps for each of the integrator's own, of which some have a tenth of the reference's error.
    steps = max(step_count(pulses, reference_step(pulses)), 4 * step_count(pulses, method["dt"]))
    dt = float(pulses.duration) / steps
    exact = evolve(system, pulses, kind="unitary", initial=initial, method=REFERENCE, dt=dt)
    return {
        "simulator_error": float((found - exact).norm(dim=0).max()),
        "norm_error": float((found.norm(dim=0) - 1).abs().max()),
    }


# Time between samples, ns; and the most samples of a trained pulse, of which a very long one has fewer.
INTERVAL, MOST_SAMPLES = 0.1, 100_000


@torch.no_grad()
def samples(pulses: Pulses, interval: float = INTERVAL) -> dict[str, Float64[torch.Tensor, " times"]]:
    """Samples of pulses from 0 to their end, by name; all real (times,), without gradients.

    interval: about the time between samples, ns, of which a whole number makes the duration.

    time_ns: the last is the end. envelope_re_K, envelope_im_K: of drive K, rad/ns: its real part multiplies
    cos(frequency t + phase), its imaginary part -sin of the same. signal_K: the product, rad/ns.

    Example:
        >>> table = samples(ketscale.construct("cosine_pulse", qubits=1)(), interval=0.5)
        >>> table["time_ns"].shape == table["signal_0"].shape
        True
    """
    duration = pulses.duration
    count = max(1, round(float(duration) / interval))
    times = torch.linspace(0, 1, count + 1, dtype=torch.float64, device=duration.device) * duration
    drives = pulses.envelope.drives
    envelope = pulses.envelope.at(times[:, None] / pulses.length.expand(drives)).to(torch.complex128)
    signal = pulses.sample(times)
    found = {"time_ns": times}
    for drive in range(drives):
        found[f"envelope_re_{drive}"] = envelope[:, drive].real
        found[f"envelope_im_{drive}"] = envelope[:, drive].imag
        found[f"signal_{drive}"] = signal[:, drive]
    return found


@torch.no_grad()
def trained_curves(problem: Any) -> Mapping[str, torch.Tensor]:
    """`samples` of the trained pulses, and what one column does under them.

    population_K: the probability that qubit K is 1, in the problem's frame. population_outside: that of all states that
    are none of the qubits. The column begins in the last of the problem's basis states: |1...1>, or the one state.
    """
    pulses = problem.model()
    duration = float(pulses.duration)
    # No segment is between two samples.
    found = samples(pulses, max(min(INTERVAL, duration / pulses.envelope.divisions), duration / MOST_SAMPLES))
    times = found["time_ns"]
    system, frame = problem.physics()
    state = frame.states[:, problem.get_buffer("columns")[-1:]]
    qubits = len(system.levels)
    places = torch.arange(qubits - 1, -1, -1, device=state.device)
    bits = torch.arange(2**qubits, device=state.device)[:, None] >> places & 1
    populations = [_populations(frame, state, bits)]
    by = integrator(REFERENCE, max(1, round(float(times[1]) / reference_step(pulses))))
    length = times[1]
    for begin in times[:-1]:
        state = by.evolve(system, pulses.sample(begin + by.times(length)), length, state)
        populations.append(_populations(frame, state, bits))
    columns = torch.stack(populations).unbind(1)
    names = [*(f"population_{qubit}" for qubit in range(qubits)), "population_outside"]
    return {**found, **dict(zip(names, columns, strict=True))}


def _populations(frame: Frame, state: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    shares = frame.amplitudes(state, 0.0)[:, 0].abs().square()
    return torch.cat([shares @ bits.to(shares), 1 - shares.sum()[None]])
