"""Pulses on a GPU: the CPU's infidelities and gradients, by every integrator, in either frame, with either envelope."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from ketscale import dynamics as kd
from ketscale.engines.dynamics.methods import Route
from ketscale.engines.pulses import Cosine, Pulses, fluxonium_chain, rotations, segmented
from ketscale.engines.pulses.chain import with_operators
from ketscale.engines.pulses.schemes import SIMULATORS

START, SYSTEM, TARGET = rotations(fluxonium_chain(2)), fluxonium_chain(2).system(3), kd.gate("x", 2)
FRAMES = {"dressed": kd.dressed_frame, "laboratory": kd.bare_frame}


def pulses(envelope: str, device: str) -> tuple[Pulses, list[torch.Tensor]]:
    """The published start of X, and its trainable tensors."""
    assert isinstance(START.envelope, Cosine)
    cosine = envelope == "cosine"
    amplitude = START.envelope.amplitude if cosine else segmented(START.envelope, 10).amplitude
    length = START.length if cosine else START.length[0]
    arguments = [amplitude, START.frequency, START.phase, length]
    leaves = [tensor.detach().to(device).requires_grad_() for tensor in arguments]
    result = Cosine(leaves[0]) if cosine else type(segmented(START.envelope, 10))(leaves[0])
    return Pulses(result, *leaves[1:]), leaves


def figures(
    device: str, name: str, frame: str, envelope: str, route: Route = "auto", count: int = 60
) -> list[torch.Tensor]:
    """Infidelity, leakage and the infidelity's gradients by pulses and operators, in `count` steps."""
    result, leaves = pulses(envelope, device)
    tensors = [each.detach().to(device).requires_grad_() for each in SYSTEM.operators]
    system = with_operators(SYSTEM, tensors)
    states = FRAMES[frame](system)
    options: Any = {"method": name, "dt": result.duration.item() / count, "route": route}
    final = kd.evolve(system, result, kind="unitary", initial=states.states, **options)
    error = kd.error_estimate(system, result, kind="unitary", initial=states.states, **options)
    amplitudes = states.amplitudes(final, result.duration)
    infidelity = 1 - kd.process_fidelity(amplitudes, TARGET.to(device), virtual_z=True)
    gradients = torch.autograd.grad(infidelity, [*leaves, *tensors])
    return [each.detach().cpu() for each in (infidelity, kd.leakage(amplitudes), error, *gradients)]


BOTH = pytest.mark.parametrize(("frame", "envelope"), [("dressed", "cosine"), ("laboratory", "segments")])


class Elsewhere(TorchFunctionMode):
    """Tensors that are made without a device are on another one, where they cannot meet those of the CPU."""

    MAKE = frozenset(
        {
            torch.arange,
            torch.empty,
            torch.eye,
            torch.full,
            torch.linspace,
            torch.ones,
            torch.tensor,
            torch.zeros,
        }
    )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {**({"device": "meta"} if func in self.MAKE else {}), **(kwargs or {})}
        return func(*args, **kwargs)


@pytest.mark.parametrize("name", SIMULATORS)
@BOTH
def test_tensors_are_made_on_the_operators_device(name: str, frame: str, envelope: str) -> None:
    # Each step makes its tensors alike, and the values are compared with themselves: a few steps are as good as many.
    arguments = ("cpu", name, frame, envelope, "torch", 6)
    with Elsewhere():
        values = figures(*arguments)
    torch.testing.assert_close(values, figures(*arguments))


@pytest.mark.gpu
@pytest.mark.parametrize("name", SIMULATORS)
@BOTH
def test_a_gpu_has_the_cpus_infidelity_and_gradients(name: str, frame: str, envelope: str) -> None:
    arguments = (name, frame, envelope)
    torch.testing.assert_close(figures("cuda", *arguments), figures("cpu", *arguments), rtol=1e-8, atol=1e-9)
