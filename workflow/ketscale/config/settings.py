"""All that decides one run's numbers and timing, resolved from a config: what a run is started with, and its record keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from ketscale.config.family import Families, Family, Model, Simulator, Workload
from ketscale.config.parsing import resolved
from ketscale.config.protocol import Protocol
from ketscale.errors import UserError
from ketscale.grid import BACKENDS, Run, canonical, config_hash, decode


@dataclass(frozen=True)
class Settings:
    """A run with the blocks that its names mean.

    workload_kind, model_kind: which types the workload and the model are. simulator: None for a classical model.
    """

    run: Run
    family: Family
    workload_kind: str
    workload: Workload
    model_kind: str
    model: Model
    simulator: Simulator | None
    protocol: Protocol

    @property
    def sizes(self) -> dict[str, int]:
        """The model's sizes by name, e.g. {'qubits': 4, 'layers': 3}."""
        return decode(self.family.sizes, self.run.size)

    @cached_property
    def content(self) -> dict[str, Any]:
        """Everything as plain values; `of` is its inverse."""
        return {
            "run": asdict(self.run),
            "family": self.family.name,
            "workload": {"kind": self.workload_kind, **self.workload.content()},
            "model": {"kind": self.model_kind, **self.model.content()},
            "simulator": self.simulator.content() if self.simulator else None,
            "protocol": self.protocol.content(),
        }

    @property
    def text(self) -> str:
        """The content as one canonical text: equal for equal settings."""
        return canonical(self.content)

    @property
    def hash(self) -> str:
        """SHA-256 of the content."""
        return config_hash(self.content)

    @classmethod
    def of(cls, content: Mapping[str, Any], families: Families) -> Settings:
        """The settings with this `content`, as another process has resolved them.

        Raises:
            UserError: they are not settings of this version.
        """
        try:
            family = families[content["family"]]
            workload, model, simulator = (content[name] for name in ("workload", "model", "simulator"))
            devices = simulators([family])
            return cls(
                Run.of(content["run"]),
                family,
                workload["kind"],
                resolved(family.workloads[workload["kind"]], workload, "--settings"),
                model["kind"],
                resolved(family.models[model["kind"]], model, "--settings"),
                simulator and resolved(devices[simulator["device"]], simulator, "--settings"),
                resolved(Protocol, content["protocol"], "--settings"),
            )
        except (KeyError, TypeError) as error:
            raise UserError(f"--settings: not settings of this version ({error!r})") from None

    def conflicts(self) -> Iterator[str]:
        """Why the run cannot be trained, although each of its blocks is right."""
        yield from self._of_model()
        yield from self._of_layout()
        yield from self._of_protocol()
        for block in (self.workload, self.model, self.simulator):
            if block is not None:
                yield from block.conflicts(self)

    def _of_model(self) -> Iterator[str]:
        run, model, sizes = self.run, self.model, self.sizes
        words = ", ".join(f"{name}: {value}" for name, value in sizes.items())
        for axis, value in model.sizes.items():
            if sizes[axis] != value:
                yield f"{run.model} has {value} {axis}, not {sizes[axis]}; set {axis}: {value}"
        if model.classical:
            if run.simulator != "none" or any(sizes.values()):
                zeros = ", ".join(f"{name}: 0" for name in sizes)
                yield (
                    f"{run.model} is classical: give it simulator: none and {zeros} "
                    f"(not {run.simulator} and {words}), in a point of its own"
                )
        elif self.simulator is None:
            yield f"{run.model} has physics to simulate, so its simulator cannot be none; name one of simulators"
        elif not all(sizes.values()):
            yield f"{run.model} has physics to simulate, so none of its sizes can be 0 ({words})"
        elif not isinstance(self.simulator, self.family.simulators):
            able = ", ".join(device for kind in self.family.simulators for device in kind.devices)
            yield (
                f"simulator {run.simulator} (device: {self.simulator.device}) cannot evaluate {run.model}; "
                f"models of {self.family.name} take device {able}"
            )

    def _of_layout(self) -> Iterator[str]:
        run = self.run
        backend = BACKENDS.get(run.backend)
        if backend is None:
            yield f"backend {run.layout}: no backend is called {run.backend}; choose from {', '.join(BACKENDS)}"
            return
        if not backend.several_ranks and (run.ranks, run.nodes) != (1, 1):
            yield f"backend {run.layout}: {run.backend} is one process; write {run.backend}-n1r1t{run.threads}, or use ddp or mpi"
        if run.ranks % run.nodes:
            yield (
                f"backend {run.layout}: {run.ranks} ranks do not fill {run.nodes} nodes evenly; "
                "ranks counts all of them, so make it a multiple of nodes"
            )
        if backend.device == "cpu":
            if self.protocol.precision == "amp":
                yield f"protocol {run.protocol} has precision: amp, which only GPUs have, but backend {run.layout} uses none"
            if self.simulator is not None and self.simulator.needs_gpu:
                yield f"simulator {run.simulator} needs a GPU, but backend {run.layout} uses none; use gpu-n1r1t1 or ddp"

    def _of_protocol(self) -> Iterator[str]:
        run, protocol = self.run, self.protocol
        where = f"protocol {run.protocol}"
        if protocol.features == "inline" and not self.workload.inline:
            yield f"{run.workload} has no feature network to run inline; give {where} features: cached"
        if protocol.mistake is not None:
            gpu = run.backend in BACKENDS and BACKENDS[run.backend].device == "gpu"
            if run.ranks == 1 or gpu or not protocol.timed:
                yield (
                    f"{where} has mistake: {protocol.mistake}, which is of several timed ranks on CPUs, "
                    f"not of {run.layout}; name ddp-cpu or mpi with 2 ranks or more, and set timed: true"
                )
        if protocol.parallel == "tasks" and not (self.simulator and self.simulator.has_tasks):
            yield (
                f"{where} has parallel: tasks, which are evaluations of parameter-shift, and simulator {run.simulator} "
                "has none; name one with such tasks (closed-form or literal with parameter-shift), or leave it out"
            )
        if protocol.optimiser == "l-bfgs":
            for setting, given in (
                ("steps", protocol.steps is not None),
                ("plateau", protocol.plateau is not None),
                ("clip_norm", protocol.clip_norm is not None),
                ("weight_decay", bool(protocol.weight_decay)),
                ("mistake", protocol.mistake is not None),
            ):
                if given:
                    yield f"{where} has optimiser: l-bfgs, which has no {setting}; use epochs, one an iteration, and leave it out"
        stopping = protocol.early_stopping
        names = ["loss", *(metric.name for metric in self.family.metrics)]
        if stopping is not None and stopping.monitor not in names:
            yield f"{where} has monitor: {stopping.monitor}, but {self.family.name} has {', '.join(names)}"


def simulators(families: Any) -> dict[str, type[Simulator]]:
    """The class of a simulator's settings by its device."""
    return {device: kind for family in families for kind in family.simulators for device in kind.devices}
