"""What a problem family says of itself: everything that the rest of KetScale needs to know, without running anything.

A family is data (typed settings, sizes, metrics) and three functions that prepare and read its data and build its
problem. The registry `ketscale.problems` hands the families to whoever reads a config. Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ketscale.config.block import Block
from ketscale.config.parsing import resolved
from ketscale.config.protocol import Protocol
from ketscale.errors import UserError
from ketscale.grid import Run, SizeAxis, canonical, config_hash, decode

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Metric:
    """A figure of a model's quality.

    name: in metrics and tables, e.g. 'accuracy'. title: in figures and sentences. unit: of the axis, e.g. 'share
    correct'. better: which way is better, 'up' or 'down'.
    """

    name: str
    title: str
    unit: str
    better: Literal["up", "down"]


LOSS = "loss"


class Part(Block, frozen=True, kw_only=True):
    """Settings of a run's workload, model or simulator."""

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Why a run with these settings among others cannot be trained, and what to do."""
        yield from ()


class Workload(Part, frozen=True, kw_only=True):
    """Settings of a workload; a family has a subclass for each kind.

    generated: nothing in the data was measured, which every figure says.
    """

    generated: ClassVar[bool] = False

    @property
    def inline(self) -> bool:
        """Whether a network between raw data and the model's inputs can run in every step (features: inline)."""
        return False

    @property
    def fetched(self) -> bool:
        """Whether something must be fetched from a network first, by the rule `fetch`."""
        return False

    def sources(self) -> list[Path]:
        """The files on this machine that are read; none where they are fetched or made.

        Raises:
            UserError: a file is missing, as 'FIELD: what, and what to do'.
        """
        return []

    def fetch(self, folder: Path) -> list[Path]:
        """Fetch into `folder` what is not there whole; the files.

        Raises:
            UserError: the network, the disk or a checksum fails.
        """
        raise NotImplementedError


class Model(Part, frozen=True, kw_only=True):
    """Settings of a model; a family has a subclass for each kind.

    implementation: its torch module, as 'package.module:Class'. It takes the settings, and by keywords what the
        family's `build` adds.
    classical: it has no physics to simulate: its simulator is none and its sizes are 0.
    control: the kind of its classical control, that it is compared with.
    sizes: size axes with only one possible value.
    """

    implementation: ClassVar[str] = ""
    classical: ClassVar[bool] = False
    control: ClassVar[str | None] = None
    sizes: ClassVar[Mapping[str, int]] = {}


class Simulator(Part, frozen=True, kw_only=True):
    """Settings of a simulator; an engine, or a family, has a subclass for the devices that it brings.

    device: how the physics is evaluated. Subclasses narrow its type to the names that they bring.
    """

    devices: ClassVar[tuple[str, ...]] = ()

    device: str

    @property
    def needs_gpu(self) -> bool:
        """Whether it computes on a GPU whatever the backend."""
        return False

    @property
    def has_tasks(self) -> bool:
        """Whether its gradient is made of tasks that ranks can share (parallel: tasks)."""
        return False


@dataclass(frozen=True)
class Split:
    """How data are split into training, validation and test.

    by: what these share nothing of, such as 'subjects'; None where nothing is split. Where each of several folds is the
    test once: which fold, of how many, and what is held out in it.
    """

    by: str | None = None
    fold: int | None = None
    folds: int | None = None
    held_out: int | None = None


@dataclass(frozen=True)
class Data:
    """A workload's data as a run reads it, with what its record keeps.

    content: what the family's `build` takes. The hashes are None where a family has no data.
    """

    content: Any = None
    split: Split = Split()
    data_hash: str | None = None
    features_hash: str | None = None


Prepare = Callable[[Workload, Path, "Path | None"], None]
Read = Callable[["Settings", Path], Data]
Build = Callable[["Settings", Data, "torch.device"], Any]


@dataclass(frozen=True)
class Family:
    """A problem family.

    name, title: in code, and in words.
    sample, samples: what the data-parallel axis counts, e.g. 'trial' and 'trials'.
    sizes: the axes that say how big a model is, in the order of paths.
    sampler: how training samples are drawn: 'shuffled' (data, in epochs), 'all' (every sample in every step) or
        'stream' (drawn afresh).
    workloads, models: the kinds of each, with the class of their settings.
    simulators: the classes of simulators' settings that can evaluate its models.
    metrics: the headline one first; the loss is always there and is not named.
    tiny: a config of this family alone that trains in seconds; the contract's tests run it.
    build: the problem of a run, on a device, in the protocol's precision.
    prepare: write a workload's data for all runs, then the manifest; None for a family without data. It is given
        the manifest's path and the folder of what was fetched.
    read: open and verify what `prepare` wrote.
    """

    name: str
    title: str
    sample: str
    samples: str
    sizes: tuple[SizeAxis, ...]
    sampler: Literal["shuffled", "all", "stream"]
    workloads: Mapping[str, type[Workload]]
    models: Mapping[str, type[Model]]
    simulators: tuple[type[Simulator], ...]
    metrics: tuple[Metric, ...]
    tiny: Mapping[str, Any]
    build: Build
    prepare: Prepare | None = None
    read: Read | None = None

    @property
    def prepared(self) -> bool:
        """Whether its workloads are prepared once for all runs."""
        return self.prepare is not None

    @property
    def headline(self) -> Metric:
        """The metric that models are compared by."""
        return self.metrics[0]

    def metric(self, name: str) -> Metric:
        """A metric by name; the loss too."""
        loss = Metric(LOSS, "loss", "nats", "down")
        return next((metric for metric in self.metrics if metric.name == name), loss)


Families = Mapping[str, Family]


def simulators(families: Iterable[Family]) -> dict[str, type[Simulator]]:
    """The class of a simulator's settings by its device."""
    return {device: kind for family in families for kind in family.simulators for device in kind.devices}


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
