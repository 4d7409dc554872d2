"""Builds the problem of a run."""

from __future__ import annotations

from typing import Any

from ketscale.config import Settings
from ketscale.engines.pulses.settings import PulseSimulator
from ketscale.problems import models
from ketscale.problems.problem import Problem
from ketscale.problems.pulses.gate import Gate
from ketscale.problems.pulses.shapes import PulseModel, described, start
from ketscale.problems.pulses.specification import PulseSettings
from ketscale.problems.pulses.workload import PulseWorkload


def problem(settings: Settings) -> Problem:
    """The gate of a run, with its model and integrator.

    Raises:
        UserError: the device or the gate's pairs are impossible.
    """
    workload, simulator, settings_of_model = settings.workload, settings.simulator, settings.model
    assert isinstance(workload, PulseWorkload)
    assert isinstance(simulator, PulseSimulator)
    assert isinstance(settings_of_model, PulseSettings)
    qubits, levels = settings.sizes["qubits"], settings.sizes["levels"]
    device = workload.device(qubits)
    arguments: dict[str, Any] = {
        "device": described(device),
        "begins": start(device, workload.gate, workload.pairs, workload.start_length),
    }
    model = models.of_settings(settings, None, **arguments)
    assert isinstance(model, PulseModel)
    model.scatter(settings.run.seed, settings_of_model.start_spread)
    return Gate(model, workload, simulator, qubits, levels, arguments)
