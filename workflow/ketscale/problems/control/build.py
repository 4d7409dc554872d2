"""Builds the problem of a run."""

from __future__ import annotations

from typing import Any

from ketscale.config import Settings
from ketscale.engines.dynamics.factory import build_propagator
from ketscale.engines.dynamics.settings import DynamicsSimulator
from ketscale.engines.dynamics.spanned import SpannedPropagator
from ketscale.problems import models
from ketscale.problems.control.adaptation import Inner
from ketscale.problems.control.grape import Grape, Pulses
from ketscale.problems.control.meta_learning import MetaLearning
from ketscale.problems.control.objective import Objective
from ketscale.problems.control.policy import Network
from ketscale.problems.control.specification import GrapeSettings, PolicySettings, RobustSettings
from ketscale.problems.control.workload import ControlWorkload
from ketscale.problems.problem import Problem


def problem(settings: Settings) -> Problem:
    """The control problem of a run, whose model and propagator are those of its settings.

    Raises:
        UserError: as for `build_propagator`.
    """
    workload, model = settings.workload, settings.model
    assert isinstance(workload, ControlWorkload)
    simulator = settings.simulator
    assert isinstance(simulator, DynamicsSimulator)
    propagator = SpannedPropagator(build_propagator(settings.run.simulator, simulator))
    objective = Objective(workload, propagator, simulator.creation)
    arguments: dict[str, Any] = {
        "controls": len(objective.system.controls),
        "amplitude": workload.amplitude,
        "limit": workload.limit,
    }
    if isinstance(model, GrapeSettings):
        arguments["tasks"] = sum(workload.held_out.values())
        pulses = models.of_settings(settings, None, **arguments)
        assert isinstance(pulses, Pulses)
        return Grape(pulses, objective, settings.run.seed, arguments)
    if isinstance(model, PolicySettings):
        arguments |= {name: [getattr(each, name) for each in workload.varied] for name in ("low", "high")}
    assert isinstance(model, (PolicySettings, RobustSettings))
    network = models.of_settings(settings, None, **arguments)
    assert isinstance(network, Network)
    return MetaLearning(
        network,
        objective,
        model.adaptation if isinstance(model, PolicySettings) else "multi-task",
        Inner(model.inner_steps, model.inner_learning_rate),
        settings.run.seed,
        arguments,
        loop=isinstance(model, PolicySettings) and model.batching == "loop",
    )
