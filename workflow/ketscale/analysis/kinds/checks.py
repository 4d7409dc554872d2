"""What the runs of a study must be for its comparison. Each function gives what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from ketscale.analysis.points import axis_of, point_of, serial, workers
from ketscale.config import Config
from ketscale.grid import LAYOUT, POINT, Run, Study

Check = Callable[[Study, Config], Iterator[str]]


def every(*checks: Check) -> Check:
    """Require what several checks do, in their order."""
    return lambda study, config: chain.from_iterable(check(study, config) for check in checks)


def one_core(study: Study, config: Config) -> Iterator[str]:
    """Require a run on one core, the reference."""
    if not any(run.ranks * run.threads == 1 for run in study.runs):
        yield f"a study of kind {study.kind} needs a run on one core to compare with; add backend: {serial(study.runs[0].backend)}"


def weak(study: Study, config: Config) -> Iterator[str]:
    """Require a batch in proportion to the workers, and a run on one core."""
    shares: dict[tuple[Any, ...], set[float]] = {}
    for run in study.runs:
        # The size may differ too if the batch is not free.
        size = ("size",) if config.family(run.workload).work else ()
        shares.setdefault(run.without("batch", *LAYOUT, *size), set()).add(run.batch / workers(run.layout))
    if any(len(each) > 1 for each in shares.values()):
        yield "weak scaling keeps batch / (ranks x threads), or batch / GPUs, the same: give each layout its batch in points"
    yield from one_core(study, config)


def several(what: Callable[[Run, Config], Any], noun: str) -> Check:
    """Require at least two values of what is compared."""

    def check(study: Study, config: Config) -> Iterator[str]:
        if len({what(run, config) for run in study.runs}) < 2:
            yield f"a study of kind {study.kind} compares {noun}, but has only one; give a list of them"

    return check


break_even = every(several(lambda run, config: run.layout, "layouts"), one_core)


def mistakes(study: Study, config: Config) -> Iterator[str]:
    """Require a protocol with a misconfiguration, and a run on one core."""
    if not any(config.protocols[run.protocol].mistake for run in study.runs):
        yield "a study of kind mistakes needs a protocol that sets mistake; give it one"
    yield from one_core(study, config)


def one_axis(study: Study, config: Config) -> Iterator[str]:
    """Require that each point differs from the first one in one axis."""
    for run in study.runs:
        axes = [name for name in POINT if getattr(run, name) != getattr(study.runs[0], name)]
        if len(axes) > 1:
            yield f"a point must differ from the first one in one axis, not in {', '.join(axes)}; make a study of each"


def measured_errors(study: Study, config: Config) -> Iterator[str]:
    """Require runs whose error and step time are measured."""
    for run in study.runs:
        family, protocol = config.family(run.workload), config.protocols[run.protocol]
        if run.simulator not in config.simulators or family.about("error") is None:
            yield f"the error of simulator {run.simulator} is not measured with {run.workload} and {run.model}; leave it out"
        if not (protocol.by_epochs and protocol.timed):
            yield (
                f"convergence needs a test and the time of a step, but protocol {run.protocol} has no epochs or is "
                "not timed; give it epochs and timed: true"
            )


changes = every(several(lambda run, config: point_of(run), "points"), one_axis)
simulators = several(lambda run, config: run.simulator, "values of simulator")
features = several(lambda run, config: config.protocols[run.protocol].features, "cached and inline features")
convergence = every(measured_errors, simulators)


def sweep(axis: str) -> Check:
    """Require at least two values of an axis, and that every run has one."""

    def has_one(study: Study, config: Config) -> Iterator[str]:
        for run in study.runs:
            if axis_of(config, run, axis) is None:
                yield f"models of {run.workload} have no {axis}; give them a study of their own"

    return every(has_one, several(lambda run, config: axis_of(config, run, axis), f"values of {axis}"))


def quality(study: Study, config: Config) -> Iterator[str]:
    """Require protocols with epochs, or of fits."""
    for run in study.runs:
        if not config.protocols[run.protocol].tested:
            yield f"{study.kind} needs validation and test, but protocol {run.protocol} has steps; give it epochs"


def comparison(study: Study, config: Config) -> Iterator[str]:
    """Require validation and test, and one headline metric."""
    yield from quality(study, config)
    metrics = sorted({config.family(run.workload).headline.name for run in study.runs})
    if len(metrics) > 1:
        yield f"comparison joins data sets of one metric, not {', '.join(metrics)}; make a study of each"


def parity(study: Study, config: Config) -> Iterator[str]:
    """Require fp64 and protocols with steps: the losses of the first steps are compared."""
    for run in study.runs:
        protocol = config.protocols[run.protocol]
        if protocol.precision != "fp64":
            yield f"parity compares losses in fp64, but protocol {run.protocol} has precision: {protocol.precision}"
        if protocol.steps is None:
            yield f"parity compares the first steps, but protocol {run.protocol} has epochs; give it steps"
