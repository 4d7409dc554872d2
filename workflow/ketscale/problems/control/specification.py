"""The family `control`: pulses that steer open quantum systems whose environment varies from task to task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ketscale.config import Data, Family, Settings, SizeAxis, checked
from ketscale.config.circuits import CIRCUIT_SIZES
from ketscale.problems.control.workloads import (
    METRICS,
    ControlWorkload,
    DynamicsSimulator,
    GrapeSettings,
    PolicySettings,
    QubitRelaxation,
    QubitSpectrum,
    RobustSettings,
)

if TYPE_CHECKING:
    import torch

    from ketscale.problems.problem import Problem


def build(settings: Settings, data: Data, device: torch.device) -> Problem:
    """The control problem of a run, whose model and propagator are those of its settings."""
    from ketscale.engines.dynamics.propagators import of_method
    from ketscale.problems import models
    from ketscale.problems.control.grape import Grape, TaskPulses
    from ketscale.problems.control.meta_learning import Inner, MetaLearning
    from ketscale.problems.control.policy import Network
    from ketscale.problems.control.problem import Objective

    workload, model, simulator = settings.workload, settings.model, settings.simulator
    assert isinstance(workload, ControlWorkload) and isinstance(simulator, DynamicsSimulator)
    backend = checked(simulator, f"simulators.{settings.run.simulator}")
    assert backend.method is not None  # as checked
    objective = Objective(workload, of_method(backend.method, backend.content()), backend.creation)
    arguments: dict[str, Any] = {
        "controls": len(objective.system.controls),
        "amplitude": workload.amplitude,
        "limit": workload.limit,
    }
    if isinstance(model, GrapeSettings):
        arguments["tasks"] = sum(workload.held_out.values())
    if isinstance(model, PolicySettings):
        arguments |= {name: [getattr(each, name) for each in workload.varied] for name in ("low", "high")}
    module = models.of_settings(settings, None, **arguments)
    if isinstance(module, TaskPulses):
        return Grape(module, objective, settings.run.seed, arguments)
    assert isinstance(module, Network) and isinstance(model, (PolicySettings, RobustSettings))
    return MetaLearning(
        module,
        objective,
        model.adaptation if isinstance(model, PolicySettings) else "multi-task",
        Inner(model.inner_steps, model.inner_learning_rate),
        settings.run.seed,
        arguments,
        loop=isinstance(model, PolicySettings) and model.batching == "loop",
    )


WORKLOADS: dict[str, type[ControlWorkload]] = {
    "qubit-spectrum": QubitSpectrum,
    "qubit-relaxation": QubitRelaxation,
}

FAMILY = Family(
    name="control",
    title="control",
    samples="tasks",
    sizes=(CIRCUIT_SIZES[0], SizeAxis("s", "segments", "control segments")),
    sampler="stream",
    workloads=dict(WORKLOADS),
    models={"policy": PolicySettings, "robust_grape": RobustSettings, "grape": GrapeSettings},
    simulators=(DynamicsSimulator,),
    metrics=METRICS,
    build=build,
)
