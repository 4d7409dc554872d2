"""The problem: pulses that make a gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ketscale.engines.pulses import Bounds, cnot_gate, fidelity, hadamard_gate, leakage, row_overlaps, x_gate
from ketscale.engines.pulses.settings import PulseSimulator
from ketscale.engines.randomness import Step
from ketscale.problems.pulses.curves import trained_curves
from ketscale.problems.pulses.deviations import deviations
from ketscale.problems.pulses.driven import DrivenColumns
from ketscale.problems.pulses.shapes import PulseModel
from ketscale.problems.pulses.workload import PulseWorkload


class GateProblem(DrivenColumns):
    """1 - F of the gate, with F = |sum of overlaps / columns|^2; see `engines.pulses.frame`.

    The sums over columns are the overlaps by row, complex (2**n,), if virtual Z needs them, else their sum (1,).
    """

    linear = False

    def __init__(
        self,
        model: PulseModel,
        workload: PulseWorkload,
        simulator: PulseSimulator,
        qubits: int,
        levels: int,
        arguments: dict[str, Any],
    ) -> None:
        super().__init__(model, workload, simulator, qubits, levels, arguments)
        self.bounds = Bounds(**workload.hardware)
        self.bounds.exceeded(model())  # refuses amplitudes of another number of drives
        target = {"x": x_gate, "hadamard": hadamard_gate}.get(workload.gate)
        unitary = target(qubits) if target else cnot_gate(qubits, workload.pairs)
        self.register_buffer("target", unitary.T[self.wanted].contiguous(), persistent=False)

    def sums(self, indices: torch.Tensor, step: Step) -> torch.Tensor:
        """See `Problem.sums`: the overlaps of these columns."""
        rows = row_overlaps(self.evolved(indices), self.get_buffer("target")[indices])
        return rows if self.workload.virtual_z else rows.sum()[None]

    def combine(self, sums: torch.Tensor, count: int) -> torch.Tensor:
        """The infidelity."""
        return 1 - fidelity(sums, count, self.workload.virtual_z)

    def penalty(self) -> torch.Tensor | None:
        """What is out of the hardware's bounds; None where they are kept by construction."""
        penalised = self.workload.bounds == "penalty" and self.workload.hardware
        pulses = self.possible_pulses() if penalised else None
        return None if pulses is None else self.workload.bounds_weight * self.bounds.penalty(pulses)

    def outputs(self, split: str, indices: torch.Tensor) -> torch.Tensor:
        """The amplitudes of these columns, real and imaginary parts, (columns, 2**n * 2)."""
        with torch.no_grad():
            found = self.evolved(indices.to(self.get_buffer("columns").device))
        return torch.view_as_real(found).flatten(1)

    def metrics(self, split: str, outputs: torch.Tensor, *, full: bool) -> dict[str, Any]:
        """Loss and infidelity; when full all metrics.

        chance: the mean infidelity of a random unitary, or of a random state.
        """
        amplitudes, target = _complex(outputs), self.get_buffer("target")
        rows, count = row_overlaps(amplitudes, target), len(target)
        infidelity = float(1 - fidelity(rows, count, self.workload.virtual_z))
        penalty = self.penalty()
        found: dict[str, Any] = {
            "loss": infidelity if penalty is None else infidelity + penalty.item(),
            "infidelity": infidelity,
        }
        if not full:
            return found
        dimension = target.shape[1]
        pulses = self.possible_pulses() if self.workload.hardware else None
        return {
            **found,
            "leakage": float(leakage(amplitudes)) / count,
            "infidelity_without_z": float(1 - fidelity(rows, count, virtual_z=False)),
            "chance": 1 - dimension ** (-2 if self.workload.target == "unitary" else -1),
            "bounds_exceeded": None if pulses is None else self.bounds.exceeded(pulses),
            **deviations(self, split),
        }

    def predictions(self, split: str, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The `amplitudes` (columns, 2**n), complex, and their `target`."""
        return {"amplitudes": _complex(outputs), "target": self.get_buffer("target")}

    def curves(self) -> Mapping[str, torch.Tensor]:
        """See `trained_curves`."""
        with torch.no_grad():
            return trained_curves(self)


def _complex(outputs: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(outputs.unflatten(1, (-1, 2)).contiguous())
