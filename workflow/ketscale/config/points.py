"""What the schema cannot say of simulators, protocols and single runs: names that are not defined, the impossible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ketscale.config.schema import suggestion
from ketscale.engines.circuits.methods import SUPPORTED, Method
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.parallel.backends import BACKENDS
from ketscale.problems.models import MODELS
from ketscale.problems.workloads import WORKLOADS

AXES = ("workload", "model", "qubits", "layers", "batch", "simulator", "backend", "protocol", "seed")


def check_simulator(name: str, simulator: Mapping[str, Any]) -> None:
    triple = _method(simulator)
    if name == "none":
        raise UserError(
            "simulators.none: none is the simulator of a classical model; give this one another name"
        )
    known = SUPPORTED.union(*(entry.own for entry in MODELS.values()))
    if triple not in known:
        able = sorted(
            f"{gradient} with {batching}" for device, gradient, batching in known if device == triple[0]
        )
        raise UserError(
            f"simulators.{name}: {triple[0]} cannot do {triple[1]} with {triple[2]} batching; it can do {', '.join(able)}"
        )


def _method(simulator: Mapping[str, Any]) -> Method:
    return Method(simulator["device"], simulator["gradient"], simulator["batching"])


def check_protocol(name: str, protocol: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    where = f"protocols.{name}"
    if "steps" in protocol:
        for setting in ("plateau", "early_stopping"):
            if setting in protocol:
                raise UserError(
                    f"{where}.{setting}: needs validation, which a protocol with steps has none of; use epochs or leave it out"
                )
    elif "steps_for" in protocol:
        raise UserError(f"{where}.steps_for: only shortens a protocol with steps; this one has epochs")
    for simulator in protocol.get("steps_for", {}):
        if simulator not in (*config["simulators"], "none"):
            raise UserError(
                f"{where}.steps_for.{simulator}: no such simulator{suggestion(simulator, config['simulators'])}"
            )
    if "steps" not in protocol:
        return
    warmup, sampled = protocol.get("warmup", 2), protocol.get("sampled_steps", 0)
    lengths = {f"{where}.steps": protocol["steps"]}
    lengths |= {f"{where}.steps_for.{key}": value for key, value in protocol.get("steps_for", {}).items()}
    for setting, steps in lengths.items():
        if steps <= warmup:
            raise UserError(
                f"{setting}: {steps} steps are all warm-up (warmup: {warmup}); give more than {warmup}"
            )
    # Slow simulators sample fewer steps than the protocol says; the protocol's own steps must leave some unsampled.
    if sampled and warmup + sampled >= protocol["steps"]:
        raise UserError(
            f"{where}.sampled_steps: {sampled} sampled and {warmup} warm-up steps leave none of {protocol['steps']} to time; "
            "give more steps or sample fewer"
        )


def check_axes(name: str, block: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Every point of a study has every axis, and names only what the config or the package defines."""
    known = {
        "workload": config["workloads"],
        "model": MODELS,
        "simulator": [*config["simulators"], "none"],
        "protocol": config["protocols"],
    }
    for index, point in enumerate(block.get("points", [{}])):
        axes = {**block.get("axes", {}), **point}
        where = f"studies.{name}" + (f".points.{index}" if "points" in block else "")
        for axis in AXES:
            if axis not in axes:
                raise UserError(f"{where}: {axis} is missing; give it in axes, or in every point")
        for axis, names in known.items():
            for value in _listed(axes[axis]):
                if value not in names:
                    place = f"{where}.{axis}" if axis in point else f"studies.{name}.axes.{axis}"
                    raise UserError(f"{place}: no {axis} is called {value}{suggestion(value, list(names))}")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def impossible(run: Run, config: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with one run whose names are all defined."""
    protocol, backend = config["protocols"][run.protocol], BACKENDS[run.backend]
    takes, gives = MODELS[run.model].takes, WORKLOADS[run.workload].gives
    if takes != gives:
        fitting = [name for name, entry in MODELS.items() if entry.takes == gives]
        yield f"{run.model} takes {takes}, but {run.workload} gives {gives}; its models are {', '.join(fitting)}"
    if gives != "images" and protocol["features"] == "inline":
        yield f"{run.workload} has no feature network to run inline; give protocol {run.protocol} features: cached"
    entry = MODELS[run.model]
    if entry.qubits not in (None, run.qubits):
        yield f"{run.model} has {entry.qubits} qubits, not {run.qubits}; set qubits: {entry.qubits}"
    if entry.quantum:
        if run.simulator == "none":
            yield f"{run.model} has a circuit, so its simulator cannot be none; name one of {', '.join(config['simulators'])}"
        if run.qubits == 0 or run.layers == 0:
            yield f"{run.model} has a circuit, so it needs at least one of qubits and layers (q{run.qubits}-l{run.layers})"
    elif run.simulator != "none" or run.qubits or run.layers:
        yield (
            f"{run.model} is classical: give it simulator: none, qubits: 0 and layers: 0 "
            f"(not {run.simulator}, {run.qubits} and {run.layers}), in a point of its own"
        )
    if not backend.several_ranks and (run.ranks, run.nodes) != (1, 1):
        yield f"backend {run.place}: {run.backend} is one process; write {run.backend}-n1r1t{run.threads}, or use ddp or mpi"
    if run.ranks % run.nodes:
        yield (
            f"backend {run.place}: {run.ranks} ranks do not fill {run.nodes} nodes evenly; "
            "ranks counts all of them, so make it a multiple of nodes"
        )
    if "mistake" in protocol and (run.ranks == 1 or backend.device == "gpu" or not protocol["timed"]):
        yield (
            f"protocol {run.protocol} has mistake: {protocol['mistake']}, which is of several timed ranks on CPUs, "
            f"not of {run.place}; name ddp-cpu or mpi with 2 ranks or more, and set timed: true"
        )
    if protocol["precision"] == "amp" and backend.device == "cpu":
        yield f"protocol {run.protocol} has precision: amp, which only GPUs have, but backend {run.place} uses none"
    yield from _unfit_training(run, protocol, config)
    simulator = config["simulators"].get(run.simulator, {})
    if simulator and not _evaluates(_method(simulator), run.model):
        yield f"simulator {run.simulator} is a way to evaluate superposition_transformer only, not {run.model}; name another"
    if simulator.get("device", "").startswith("literal") and backend.device == "gpu":
        yield f"simulator {run.simulator} computes on the CPU, but backend {run.place} trains on a GPU; use cpu, ddp-cpu or mpi"
    if backend.device == "cpu" and "gpu" in (
        simulator.get("placement"),
        simulator.get("device", "").split(".")[-1],
    ):
        yield f"simulator {run.simulator} needs a GPU, but backend {run.place} uses none; use gpu-n1r1t1 or ddp"


def _evaluates(method: Method, model: str) -> bool:
    return method in SUPPORTED or method in MODELS[model].own


def _unfit_training(run: Run, protocol: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    """What does not fit among optimiser, sharding and the workload."""
    simulator = config["simulators"].get(run.simulator, {})
    where = f"protocol {run.protocol}"
    if protocol.get("parallel") == "tasks":
        own = MODELS[run.model].own
        if not simulator or _method(simulator) not in own or simulator["gradient"] != "parameter-shift":
            able = sorted({method.device for method in own if method.gradient == "parameter-shift"})
            yield (
                f"{where} has parallel: tasks, which are evaluations of parameter-shift; give {run.model} a simulator "
                f"with device {', '.join(able)} and gradient: parameter-shift"
                if able
                else f"{where} has parallel: tasks, but {run.model} has no tasks of parameter-shift; leave it out"
            )
    if protocol.get("optimiser") == "l-bfgs":
        for setting in ("steps", "plateau", "clip_norm", "weight_decay", "mistake"):
            if setting in protocol:
                yield f"{where} has optimiser: l-bfgs, which has no {setting}; use epochs, one an iteration, and leave it out"
    held_out = config["workloads"][run.workload].get("held_out")
    if held_out == 0 and "epochs" in protocol:
        yield (
            f"{where} has epochs, which are validated, but workload {run.workload} holds out no sentence; "
            "set held_out to 1 or more, or give the protocol steps"
        )
