"""Simulators of this package as subjects: what a model pays for them, autograd included."""

from __future__ import annotations

import torch

from ketscale.bench.calls import torch_call
from ketscale.bench.cases import Call, Case
from ketscale.engines.circuits.fused import Fused
from ketscale.engines.circuits.registry import SIMULATORS
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.circuits.spanned import Spanned


class Own:
    """The simulator of this name, on a device.

    name: a usual name; behind fused may be a route, as in fused-literal.

    Raises:
        UserError: what it needs is not here.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        self._device = device
        self._simulator = Spanned(_simulator(name))
        # PennyLane makes the matrices of gates on the host, in every call.
        self.uncapturable = (
            None if name.startswith("fused") else "PennyLane copies from the host in every call"
        )

    def prepare(self, case: Case) -> Call:
        """See `Subject.prepare`."""
        circuit, words = case.circuit, case.words
        return torch_call(case, lambda angles: self._simulator.expval(circuit, angles, words), self._device)


def _simulator(name: str) -> Simulator:
    # Not from the config's settings, so that a GPU without the packages that check them can be measured too.
    usual, _, route = name.partition("-")
    if usual == "fused":
        return Fused(route or "auto")
    from ketscale.engines.circuits.pennylane import PennyLane

    return PennyLane(SIMULATORS[name].device, SIMULATORS[name].gradient)
