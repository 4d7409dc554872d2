"""The specification of a problem family: what the rest of KetScale must know about it without running anything.

`ketscale.problems.registry` gives the families to the code that reads a config. Imports nothing heavy.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import msgspec
from msgspec import Meta

from ketscale.config.block import Block, Count, Positive, checked, parse, resolved
from ketscale.config.metrics import METRICS, REGRESSION, Metric, Targets, metrics_by_name
from ketscale.config.protocol import Protocol
from ketscale.errors import UserError
from ketscale.grid import BACKENDS, Run, SizeAxis, canonical, config_hash, decode

if TYPE_CHECKING:
    import torch


class Part(Block, frozen=True, kw_only=True):
    """Settings of a run's workload, model or simulator."""

    def conflicts(self, settings: Settings) -> Iterator[str]:
        """Why these settings cannot be combined with the run's others, and what to do."""
        yield from ()


class Workload(Part, frozen=True, kw_only=True):
    """Settings of a workload; a family has a subclass for each kind.

    generated: the data are generated, not measured; every figure says so.
    """

    generated: ClassVar[bool] = False

    @property
    def targets(self) -> Targets | None:
        """What `Supervised` problems learn; None of a family with a loss of its own."""
        return None

    @property
    def inline(self) -> bool:
        """Whether a network between the raw data and the model can run in every step (features: inline)."""
        return False

    @property
    def fetched(self) -> bool:
        """Whether the rule `fetch` must first download something."""
        return False

    def sources(self) -> list[Path]:
        """The files on this machine that are read; none if the data are fetched or generated.

        Raises:
            UserError: a file is missing, as 'FIELD: what is wrong, and what to do'.
        """
        return []

    def fetch(self, folder: Path) -> list[Path]:
        """Download into `folder` whatever is missing or incomplete there, and return the files.

        Raises:
            UserError: the network, the disk or a checksum fails.
        """
        raise NotImplementedError


class WithTargets(Workload, frozen=True, kw_only=True):
    """Settings of a workload whose samples have targets, which a `Supervised` problem learns."""

    # What reads or makes the samples, as 'package.module:function', from the workload and the folder of fetched files.
    loader: ClassVar[str] = ""

    metric: Annotated[
        str | None,
        Meta(
            description="The metric that models are compared by, by its name in scikit-learn without `neg_`, such as "
            "f1_macro, balanced_accuracy or mean_absolute_error; or another of the workload's. By default the first"
        ),
    ] = None

    @property
    def task(self) -> str:
        """`REGRESSION` where numbers are to be predicted; any other word where classes are."""
        return ""

    @property
    def targets(self) -> Targets:
        """See `Workload.targets`."""
        return "numbers" if self.task == REGRESSION else "classes"

    def load(self, fetched: Path | None) -> Any:
        """The samples with their split, in the family's form; `fetched` is the folder of the fetched files, if there are any.

        Raises:
            UserError: the data are missing, damaged or do not fit.
        """
        return pkgutil.resolve_name(self.loader)(self, fetched)

    def content(self) -> dict[str, Any]:
        """What determines the data; the metric is part of a run's settings alone (`Settings.content`)."""
        return {name: value for name, value in super().content().items() if name != "metric"}


# The kind of a model in a user's own file.
OWN_MODEL = "file"
# How training samples are drawn: from data, in epochs; every sample in every step; or new samples in every step.
Sampling = Literal["shuffled", "all", "stream"]


class Model(Part, frozen=True, kw_only=True):
    """Settings of a model; a family has a subclass for each kind."""

    # Its torch module, as 'package.module:Class', which takes the settings, and as keywords what the family's `build` adds.
    implementation: ClassVar[str] = ""
    # There is no physics to simulate, so its simulator is none and its sizes are 0.
    classical: ClassVar[bool] = False
    # Its module has an argument `dropout`, which the protocol sets.
    has_dropout: ClassVar[bool] = False
    # Several runs are trained at once, by torch.func.vmap, which was measured to gain 1.5 times or more (`ketscale bench
    # cohorts`); None if `ketscale try` finds out whether they can be.
    stacks: ClassVar[bool | None] = False
    # It is fitted in one phase, not trained by steps: its module is a `Fitted`.
    fitted: ClassVar[bool] = False
    # It is a standard method, shown with all models, and the control of those that have none.
    baseline: ClassVar[bool] = False
    # It is the user's own code, one step of which is tried before the first run.
    own_code: ClassVar[bool] = False
    # The kind of the model that it is compared with.
    control: ClassVar[str | None] = None
    # How a run draws its training samples; None for the usual way of its family.
    sampling: ClassVar[Sampling | None] = None

    def takes(self, name: str) -> bool:
        """Whether it has this size, or `simulator`."""
        return not self.classical

    def changed(self, settings: Mapping[str, Any], where: str) -> Self:
        """The model with other values of some settings; `where` has them in the config.

        Raises:
            UserError: it has no such setting, or it cannot have this value.
        """
        return parse(type(self), {**msgspec.to_builtins(self), **settings}, where) if settings else self


class Baseline(Model, frozen=True, kw_only=True):
    """Settings of a standard method, which is fitted."""

    classical: ClassVar[bool] = True
    fitted: ClassVar[bool] = True
    baseline: ClassVar[bool] = True


class Simulator(Part, frozen=True, kw_only=True):
    """Settings of a simulator; an engine or a family has a subclass for the devices that it provides.

    device: how the physics is evaluated. Subclasses restrict it to the names of their devices.

    A subclass with approximate devices has a field `tolerance`: the largest relative difference of its losses from
    those of an exact simulator, as measured, or None for exact devices. A subclass with devices that take steps has a
    field `dt`: their length, in units of the simulated time, or None for the others.
    """

    devices: ClassVar[tuple[str, ...]] = ()

    device: str

    @property
    def step(self) -> float | None:
        """The length of its steps; None if it takes none."""
        return getattr(self, "dt", None)

    @property
    def needs_gpu(self) -> bool:
        """Whether it always computes on a GPU, whatever the backend."""
        return False

    @property
    def stacks(self) -> bool:
        """Whether it evaluates several sets of weights at once, under torch.func.vmap."""
        return False

    @property
    def mode(self) -> str | None:
        """Its numbers in words, as 'torch, backprop' or '100 shots, noisy value, exact gradient'; None if plain."""
        return None

    @property
    def has_tasks(self) -> bool:
        """Whether its gradient consists of tasks that ranks can share (parallel: tasks)."""
        return False


class Split(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the data were split."""

    # fmt: off
    by: Annotated[str | None, Meta(description="The unit that is never in two of training, validation and test")] = None
    fold: Annotated[Count | None, Meta(description="The number of the fold that is the test set; null without "
        "folds")] = None
    folds: Annotated[Positive | None, Meta(description="The number of folds")] = None
    held_out: Annotated[int | None, Meta(description="What the fold holds out")] = None
    shared: Annotated[Count | None, Meta(description="How many samples of validation and test equal one of a part "
        "before theirs (train, validation, test), or have steps or a group in common with one; null without a "
        "split")] = None
    # fmt: on


@dataclass(frozen=True)
class Data:
    """A workload's data as a run reads them, with what the record keeps about them.

    content: what the family's `build` takes. The hashes are None for a family without data.
    """

    content: Any = None
    split: Split = field(default_factory=Split)
    data_hash: str | None = None
    features_hash: str | None = None


Prepare = Callable[[Workload, Path, "Path | None"], None]
Read = Callable[["Settings", Path], Data]
Build = Callable[["Settings", Data, "torch.device"], Any]


def lazily(function: str) -> Callable[..., Any]:
    """The function 'package.module:function' of a family, whose module is imported when it is called."""
    return lambda *arguments: pkgutil.resolve_name(function)(*arguments)


@dataclass(frozen=True)
class Family:
    """A problem family.

    name, title: its name in code, and in words.
    samples: what the data-parallel axis counts, e.g. 'trials'.
    sizes: the size axes of its models, in the order of paths.
    sampler: how training samples are drawn, unless a model says otherwise (`Model.sampling`).
    workloads, models: the kinds of each, with the class of their settings.
    own: the class of the settings of a model in a user's own file; None if it takes none.
    simulators: the settings classes of the simulators that can evaluate its models; without any it is simulator: none.
    metrics: the headline metric first; the loss is always measured and not listed.
    build: makes the problem of a run for a device.
    prepare: writes a workload's data for all runs, then the manifest; None for a family without data. It takes
        the manifest's path and the folder of downloaded files.
    read: opens and verifies what `prepare` wrote.
    work: the arithmetic of a sample by sizes, relative to others, for families in which a larger batch needs a larger
        model; None where the batch is free.
    """

    name: str
    title: str
    samples: str
    sizes: tuple[SizeAxis, ...]
    sampler: Sampling
    workloads: Mapping[str, type[Workload]]
    models: Mapping[str, type[Model]]
    simulators: tuple[type[Simulator], ...]
    metrics: tuple[Metric, ...]
    build: Build
    own: type[Model] | None = None
    prepare: Prepare | None = None
    read: Read | None = None
    work: Callable[[Mapping[str, int]], float] | None = None

    def for_task(self, workload: Workload) -> Family:
        """The family with the metrics of a workload's targets, that which it chooses first."""
        if not isinstance(workload, WithTargets):
            return self
        metrics = METRICS[workload.targets]
        # A name that is none of its metrics is one of the run's conflicts.
        if workload.metric and (first := metrics_by_name(workload.targets).get(workload.metric)):
            metrics = (first, *(metric for metric in metrics if metric != first))
        return replace(self, metrics=metrics)

    @property
    def all_models(self) -> Mapping[str, type[Model]]:
        """The kinds of models that a run may have, with those in files."""
        return {**self.models, OWN_MODEL: self.own} if self.own else self.models

    @property
    def prepared(self) -> bool:
        """Whether its workloads' data are prepared once for all runs."""
        return self.prepare is not None

    @property
    def headline(self) -> Metric:
        """The metric that models are compared by."""
        return self.metrics[0]

    def about(self, what: Literal["error"]) -> Metric | None:
        """The metric that is about this property of the simulator; None if the family measures none."""
        return next((metric for metric in self.metrics if metric.about == what), None)


Families = Mapping[str, Family]


def workload_kinds(families: Iterable[Family]) -> dict[str, type[Workload]]:
    """The class of a workload's settings by its kind."""
    return {kind: settings for family in families for kind, settings in family.workloads.items()}


def model_kinds(families: Iterable[Family]) -> dict[str, type[Model]]:
    """The class of a model's settings by its kind."""
    return {kind: settings for family in families for kind, settings in family.models.items()}


def simulators(families: Iterable[Family]) -> dict[str, type[Simulator]]:
    """The class of a simulator's settings by its device."""
    return {device: kind for family in families for kind in family.simulators for device in kind.devices}


@dataclass(frozen=True)
class Settings:
    """A run with the blocks that its path names.

    workload_kind, model_kind: the kinds of the workload and the model. simulator: None for a classical model. choice: the
    hash of what a search has chosen, whose values these settings have; None before, and without a search. trial_of: the
    protocol whose search tries them; such a run is validated and not tested.
    """

    run: Run
    family: Family
    workload_kind: str
    workload: Workload
    model_kind: str
    model: Model
    simulator: Simulator | None
    protocol: Protocol
    choice: str | None = None
    trial_of: str | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """The model's sizes by name, e.g. {'qubits': 4, 'layers': 3}."""
        return decode(self.family.sizes, self.run.size)

    @property
    def fitted(self) -> bool:
        """Whether the model is fitted in one phase, not trained by steps; of a user's own the protocol says that."""
        return self.protocol.fitted if self.model.own_code else self.model.fitted

    @property
    def on_gpu(self) -> bool:
        """Whether the run's backend trains on GPUs."""
        return BACKENDS[self.run.backend].device == "gpu"

    @property
    def sampler(self) -> Sampling:
        """How the run's training samples are drawn."""
        return self.model.sampling or self.family.sampler

    @cached_property
    def content(self) -> dict[str, Any]:
        """Everything as plain values; `of` is its inverse."""
        metric = getattr(self.workload, "metric", None)
        workload = {"kind": self.workload_kind, **self.workload.content()}
        parts = {
            "run": dict(vars(self.run)),
            "family": self.family.name,
            "workload": workload | ({"metric": metric} if metric else {}),
            "model": {"kind": self.model_kind, **self.model.content()},
            "simulator": self.simulator.content() if self.simulator else None,
            "protocol": self.protocol.content(),
        }
        searched = {"choice": self.choice, "trial_of": self.trial_of}
        return parts | {name: value for name, value in searched.items() if value}

    @property
    def text(self) -> str:
        """The content as one canonical text, which is equal for equal settings."""
        return canonical(self.content)

    @property
    def hash(self) -> str:
        """SHA-256 of the content."""
        return config_hash(self.content)

    @property
    def trials(self) -> list[list[Settings]]:
        """The settings of each trial of the protocol's search, once for each of its seeds; none without a search."""
        search = self.protocol.search
        numbers, seeds = (range(search.trials), search.seeds) if search else ((), ())
        return [[self.trial(number, seed) for seed in seeds] for number in numbers]

    def trial(self, number: int, seed: int) -> Settings:
        """The settings of a trial of the protocol's search, with one of its seeds.

        Raises:
            UserError: a value cannot be that of its setting.
        """
        search, name = self.protocol.search, self.run.protocol
        assert search is not None
        point, where = search.point(self.run.model, number), f"protocols.{name}.search"
        protocol = msgspec.structs.replace(self.protocol, search=None, keep_model=False, **point.training)
        return replace(
            self,
            run=replace(self.run, protocol=search.name(name, number), seed=seed),
            model=self.model.changed(point.model, f"{where}.models.{self.run.model}"),
            protocol=checked(protocol, f"{where}.settings"),
            trial_of=name,
        )

    def chosen(self, number: int, choice: str) -> Settings:
        """The same settings with the values of the trial that was chosen, and the hash of the choice."""
        trial, own = self.trial(number, self.run.seed), self.protocol
        protocol = msgspec.structs.replace(trial.protocol, search=own.search, keep_model=own.keep_model)
        return replace(trial, run=self.run, protocol=protocol, choice=choice, trial_of=None)

    @classmethod
    def of(cls, content: Mapping[str, Any], families: Families, where: str) -> Settings:
        """The settings with this `content`, which another process has resolved.

        where: what has the content, for errors, such as '--settings'.

        Raises:
            UserError: the content does not fit this version.
        """
        try:
            family = families[content["family"]]
            workload, model, simulator = (content[name] for name in ("workload", "model", "simulator"))
            devices = simulators([family])
            block = resolved(family.workloads[workload["kind"]], workload, where)
            return cls(
                Run.of(content["run"]),
                family.for_task(block),
                workload["kind"],
                block,
                model["kind"],
                resolved(family.all_models[model["kind"]], model, where),
                simulator and resolved(devices[simulator["device"]], simulator, where),
                resolved(Protocol, content["protocol"], where),
                content.get("choice"),
                content.get("trial_of"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{where}: not settings of this version ({error!r})") from None
