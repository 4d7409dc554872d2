"""Conflicts: what is wrong with a run although each of its blocks is valid."""

from __future__ import annotations

from collections.abc import Iterator

from ketscale.config.family import Settings, WithTargets
from ketscale.config.metrics import LOSSES, metrics_by_name
from ketscale.grid import BACKENDS
from ketscale.words import suggestion


def conflicts(settings: Settings) -> Iterator[str]:
    """Why the run cannot be trained, although each of its blocks is valid."""
    yield from _of_model(settings)
    yield from _of_layout(settings)
    yield from _of_protocol(settings)
    for part in (settings.workload, settings.model, settings.simulator):
        if part is not None:
            yield from part.conflicts(settings)


def _of_model(settings: Settings) -> Iterator[str]:
    run, model, simulator, sizes = settings.run, settings.model, settings.simulator, settings.sizes
    absent = [name for name in ("simulator", *sizes) if not model.takes(name)]
    if any(sizes.get(name) for name in absent) or ("simulator" in absent and run.simulator != "none"):
        what = "is classical" if model.classical else f"does not take {' or '.join(absent)}"
        none = ", ".join(f"{name}: {'none' if name == 'simulator' else 0}" for name in absent)
        yield f"{run.model} {what}: give it {none}, in a point of its own"
    elif model.own_code:
        pass
    elif model.takes("simulator") and simulator is None and settings.family.simulators:
        yield f"{run.model} has physics to simulate, so its simulator cannot be none; name one of simulators"
    elif any(model.takes(name) and not size for name, size in sizes.items()):
        yield f"{run.model} is not classical, so none of its sizes can be 0 ({', '.join(sizes)})"
    if simulator is not None and not isinstance(simulator, settings.family.simulators):
        devices = ", ".join(device for kind in settings.family.simulators for device in kind.devices)
        yield (
            f"simulator {run.simulator} (device: {simulator.device}) cannot evaluate {run.model}; "
            f"models of {settings.family.name} take {f'device {devices}' if devices else 'simulator: none'}"
        )


def _of_layout(settings: Settings) -> Iterator[str]:
    run, backend = settings.run, BACKENDS[settings.run.backend]
    if not backend.several_ranks and (run.ranks, run.nodes) != (1, 1):
        yield f"backend {run.layout}: {run.backend} is one process; write {run.backend}-n1r1t{run.threads}, or use ddp or mpi"
    if not settings.protocol.stepped and (run.ranks, run.batch) != (1, 1):
        yield f"{run.model} is fitted to all samples at once: give it one rank and batch: 1"
    if run.ranks % run.nodes:
        yield f"backend {run.layout}: {run.ranks} ranks do not fill {run.nodes} nodes evenly; make ranks a multiple of nodes"
    if backend.device == "cpu":
        if settings.protocol.precision == "amp":
            yield f"protocol {run.protocol} has precision: amp, which needs a GPU, but backend {run.layout} uses none"
        if settings.simulator is not None and settings.simulator.needs_gpu:
            yield f"simulator {run.simulator} needs a GPU, but backend {run.layout} uses none; use gpu-n1r1t1 or ddp"


def _of_protocol(settings: Settings) -> Iterator[str]:
    run, protocol = settings.run, settings.protocol
    where = f"protocol {run.protocol}"
    if settings.fitted != protocol.fitted:
        if protocol.fitted:
            yield f"{run.model} is trained by steps, but {where} has none; give it epochs or steps, and a learning_rate"
        else:
            yield f"{run.model} is fitted: give it a protocol without epochs, steps and learning_rate"
        return
    if protocol.search is not None and (fault := protocol.search.lacks(run.model)):
        yield f"{where}: search: {fault}"
    if protocol.features == "inline" and not settings.workload.inline:
        yield f"{run.workload} has no feature network to run inline; give {where} features: cached"
    if protocol.dropout and not settings.model.has_dropout:
        yield f"{run.model} has no dropout; give it a protocol with dropout: 0"
    if protocol.mistake is not None and (run.ranks == 1 or settings.on_gpu or not protocol.timed):
        yield (
            f"{where} has mistake: {protocol.mistake}, which needs several timed ranks on CPUs, "
            f"not {run.layout}; use ddp-cpu or mpi with 2 ranks or more, and set timed: true"
        )
    if protocol.parallel == "tasks" and not (settings.simulator and settings.simulator.has_tasks):
        yield (
            f"{where} has parallel: tasks, which are evaluations of parameter-shift, and simulator {run.simulator} "
            "has none; name one with gradient: parameter-shift that shares them, or leave it out"
        )
    if protocol.optimiser == "l-bfgs":
        if settings.sampler == "stream":
            yield f"{where} has optimiser: l-bfgs, but {settings.family.samples} are drawn afresh in each step; use adam"
        for setting in ("steps", "plateau", "cosine", "clip_norm", "weight_decay", "dropout", "mistake"):
            if getattr(protocol, setting):
                yield f"{where} has optimiser: l-bfgs, which does not support {setting}; leave it out, and use epochs"
        if getattr(settings.simulator, "random", False):
            yield f"{where} has optimiser: l-bfgs, but simulator {run.simulator} draws anew in each step; use adam"
    yield from _of_targets(settings)
    stopping = protocol.early_stopping
    names = ["loss", *(metric.name for metric in settings.family.metrics if metric.better is not None)]
    if stopping is not None and stopping.monitor not in names:
        yield f"{where} has monitor: {stopping.monitor}, but {settings.family.name} has {', '.join(names)}"


def _of_targets(settings: Settings) -> Iterator[str]:
    """A loss, weights of classes or a metric that the workload's targets do not have."""
    run, loss, targets = settings.run, settings.protocol.loss, settings.workload.targets
    losses = LOSSES[targets]
    if loss is not None and loss not in losses:
        able = f"the losses {' and '.join(losses)}" if losses else "a loss of its own"
        yield f"protocol {run.protocol} has loss: {loss}, but workload {run.workload} has {able}"
    if settings.protocol.class_weights is not None and targets != "classes":
        yield f"protocol {run.protocol} has class_weights, but workload {run.workload} has no classes; leave them out"
    if isinstance(settings.workload, WithTargets) and (metric := settings.workload.metric) is not None:
        metrics = metrics_by_name(settings.workload.targets)
        if metric not in metrics:
            yield f"workload {run.workload} has metric: {metric}, which is none of its metrics{suggestion(metric, metrics)}"
