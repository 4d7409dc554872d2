"""The settings of the models of `control`, and the metrics of their tasks. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from ketscale.config import Metric, Model, Sampling, Settings
from ketscale.problems.control.workloads import ControlWorkload

# Numbers of adaptation steps whose infidelity is always measured.
SHOWN = (0, 1, 5, 20)

# The deviations of the run's propagator; see `problem.deviations`.
DEVIATIONS = (
    Metric("exact_infidelity", "infidelity of the pulses by exact propagation", "", "down"),
    Metric("simulator_error", "largest error of a random pulse's fidelity", "", "down", about="error"),
    Metric("error_estimate", "estimated error of a task's state", "", "down"),
    Metric("negativity", "negativity of a random pulse's state", "", "down"),
)

METRICS = (
    Metric("infidelity", "infidelity", "", "down", chance="data"),
    Metric("worst_infidelity", "largest infidelity of a task", "", "down"),
    *(
        Metric(f"infidelity_{steps}", f"infidelity after {steps} adaptation steps", "", "down")
        for steps in SHOWN
    ),
    # These say how much the tasks differ.
    Metric("lowest_rate", "lowest rate of a jump", "1 / time", None),
    Metric("highest_rate", "highest rate of a jump", "1 / time", None),
    Metric("pulse_spread", "spread of the tasks' pulses", "amplitudes", None),
    Metric("exchanged_infidelity", "infidelity with another task's pulse", "", None),
    *DEVIATIONS,
)

# The aims of a policy's training; see `meta_learning.meta_loss`.
Adaptation = Literal["fomaml", "maml", "reptile", "multi-task"]


class NetworkSettings(Model, frozen=True, kw_only=True):
    """A model of any number of tasks, which is adapted to each by gradient steps."""

    stacks: ClassVar[bool] = True

    # fmt: off
    inner_steps: Annotated[int, Meta(ge=1, le=1000, description="Gradient steps on a task, after which it is "
        "judged")] = 10
    # fmt: on
    inner_learning_rate: Annotated[float, Meta(gt=0, description="Learning rate of these steps")] = 0.02

    def sampling(self, settings: Settings) -> Sampling | None:
        """In epochs, if there is a fixed set of training tasks."""
        assert isinstance(settings.workload, ControlWorkload)
        return None if settings.workload.tasks is None else "shuffled"


class PolicySettings(NetworkSettings, frozen=True, kw_only=True):
    """A network that makes a pulse from a task's values, and is adapted to the task by gradient steps."""

    implementation: ClassVar[str] = "ketscale.problems.control.policy:Policy"
    control: ClassVar[str | None] = "robust_grape"

    # fmt: off
    adaptation: Annotated[Adaptation, Meta(description="Aim of the training. fomaml: weights to adapt from, with "
        "first-order gradients, as published; maml: the same with all derivatives; reptile: the same, towards the "
        "adapted weights; multi-task: weights that are good without adaptation")] = "fomaml"
    inputs: Annotated[Literal["raw", "normalised"], Meta(description="raw: a task's values, as published; "
        "normalised: from their ranges to -1..1")] = "raw"
    batching: Annotated[Literal["broadcast", "loop"], Meta(description="Evaluation in training. broadcast: the "
        "network is evaluated for all tasks at once; loop: network and dynamics for one after the other, as first "
        "published")] = "broadcast"
    # fmt: on
    width: Annotated[int, Meta(ge=1, le=4096, description="Width of the hidden layers")] = 128
    depth: Annotated[int, Meta(ge=1, le=16, description="Number of hidden layers")] = 3

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Tasks that are all the same give a policy no inputs; a line search needs a loss with its own gradient."""
        assert isinstance(settings.workload, ControlWorkload)
        if settings.protocol.optimiser == "l-bfgs" and self.adaptation in ("fomaml", "reptile"):
            yield (
                f"protocol {settings.run.protocol} has optimiser: l-bfgs, but adaptation: {self.adaptation} follows no "
                "gradient of its loss; use adam, or maml or multi-task"
            )
        if not settings.workload.varied:
            yield (
                f"workload {settings.run.workload} has one task only, and {settings.run.model} needs values that vary; "
                f"give {' or '.join(settings.workload.VARIED)} a range"
            )


class RobustSettings(NetworkSettings, frozen=True, kw_only=True):
    """One pulse for all tasks, trained on their mean loss; before it is judged, it is adapted to each task."""

    implementation: ClassVar[str] = "ketscale.problems.control.policy:RobustPulse"


class GrapeSettings(Model, frozen=True, kw_only=True):
    """The controls of each held-out task, optimised directly (GRAPE): the best that any other model could reach.

    Khaneja et al., J. Magn. Reson. 172, 296 (2005). Each start of each task is a minimisation of its own.
    """

    implementation: ClassVar[str] = "ketscale.problems.control.grape:TaskPulses"

    # fmt: off
    starts: Annotated[int, Meta(ge=8, le=4096, description="Random starts of each task, of which the best counts; "
        "zero pulses are a saddle point")] = 8
    # fmt: on

    def sampling(self, settings: Settings) -> Sampling | None:
        """All held-out tasks in every step."""
        return "all"

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Tasks share nothing that would make one depend on the others."""
        protocol, workload = settings.protocol, settings.workload
        assert isinstance(workload, ControlWorkload)
        for setting in ("clip_norm", "plateau"):
            if getattr(protocol, setting) is not None:
                yield (
                    f"protocol {settings.run.protocol} has {setting}, through which the tasks of {settings.run.model} "
                    "would affect each other; leave it out"
                )
        if workload.tasks is not None:
            yield (
                f"workload {settings.run.workload} has training tasks (tasks: {workload.tasks}), and {settings.run.model} "
                "optimises the held-out ones; leave tasks out"
            )
        held_out = sum(workload.held_out.values())
        if settings.run.batch != held_out:
            yield (
                f"{settings.run.model} optimises all tasks of validation and test in every step; with {settings.run.workload} "
                f"use batch {held_out}, not {settings.run.batch}"
            )
