"""A config: the workloads, models, simulators and protocols that it names, and the studies that it asks for."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from ketscale.config.block import Block, Count, Name, Positive
from ketscale.config.family import Families, Family, Model, Simulator, Workload
from ketscale.config.parsing import LAYOUT_PATTERN, at, parse, suggestion
from ketscale.config.protocol import Protocol
from ketscale.config.settings import Settings, simulators
from ketscale.errors import UserError
from ketscale.grid import Run, SizeAxis, Study, canonical, decode, expand, schedule

B = TypeVar("B", bound=Block)

Names = Name | Annotated[list[Name], Meta(min_length=1)]
Counts = Count | Annotated[list[Count], Meta(min_length=1)]
Positives = Positive | Annotated[list[Positive], Meta(min_length=1)]
_Layout = Annotated[str, Meta(pattern=LAYOUT_PATTERN)]
Layouts = _Layout | Annotated[list[_Layout], Meta(min_length=1)]
_Blocks = dict[Name, dict[str, Any]]


class StudyBlock(Block, frozen=True, kw_only=True):
    """A named subset of the grid that asks one question."""

    kind: Annotated[Name, Meta(description="What is compared, and so how it is checked, tabulated and drawn")]
    question: Annotated[str, Meta(description="The question in one sentence")]
    axes: Annotated[dict[str, Any], Meta(description="Values shared by every point; a list is expanded")] = (
        msgspec.field(default_factory=dict)
    )
    points: (
        Annotated[
            list[dict[str, Any]],
            Meta(min_length=1, description="Each point adds to or replaces the shared values"),
        ]
        | None
    ) = None


class ConfigFile(Block, frozen=True, kw_only=True):
    """A study to run. Nothing about machines is here; those settings are the profile's."""

    title: Annotated[str, Meta(description="The head of the report")]
    results: Annotated[
        str,
        Meta(
            min_length=1,
            pattern=r"^[^\s'\"{}]+$",
            description="The folder of all results, relative to where Snakemake runs",
        ),
    ] = "results"
    partial: Annotated[
        bool, Meta(description="Build tables and report from the runs that exist and show what is missing")
    ] = False
    workloads: Annotated[
        _Blocks, Meta(min_length=1, description="Tasks by name; kind says which type, by default the name")
    ]
    models: Annotated[
        _Blocks,
        Meta(description="Variants of models by name; a model that is not here has its kind's defaults"),
    ] = msgspec.field(default_factory=dict)
    simulators: Annotated[
        dict[Name, dict[str, Any]],
        Meta(description="Ways to evaluate and differentiate the physics, by name"),
    ] = msgspec.field(default_factory=dict)
    protocols: Annotated[
        dict[Name, Protocol], Meta(min_length=1, description="How a run is trained and timed, by name")
    ]
    studies: Annotated[
        dict[Name, StudyBlock],
        Meta(min_length=1, description="Named subsets of the grid that each ask one question"),
    ]


@dataclasses.dataclass(frozen=True)
class Config:
    """A config whose every name and value has been checked.

    given: the settings as they were given.
    """

    given: Mapping[str, Any]
    families: Families
    title: str
    results: str
    partial: bool
    workloads: Mapping[str, tuple[str, Workload]]
    models: Mapping[str, tuple[str, Model]]
    simulators: Mapping[str, Simulator]
    protocols: Mapping[str, Protocol]
    studies: tuple[Study, ...]

    @classmethod
    def of(cls, given: Mapping[str, Any], families: Families) -> Config:
        """The config with these settings.

        Raises:
            UserError: names the setting, what is wrong and what to do; the first problem found.
        """
        file = parse(ConfigFile, given, "")
        workload_kinds = {
            kind: family.workloads[kind] for family in families.values() for kind in family.workloads
        }
        model_kinds = {kind: family.models[kind] for family in families.values() for kind in family.models}
        protocols = dict(file.protocols)
        for name, protocol in protocols.items():
            for fault in protocol.faults():
                raise UserError(at(f"protocols.{name}", fault))
        workloads = {
            name: _of_kind(block, name, "workloads", workload_kinds) for name, block in file.workloads.items()
        }
        models = {name: _of_kind(block, name, "models", model_kinds) for name, block in file.models.items()}
        # A kind is a model too, with its defaults, unless the config gives the name another meaning.
        models |= {kind: (kind, settings()) for kind, settings in model_kinds.items() if kind not in models}
        config = cls(
            given,
            families,
            file.title,
            file.results,
            file.partial,
            workloads,
            models,
            _simulators(file.simulators, families),
            protocols,
            (),
        )
        for name, protocol in protocols.items():
            for simulator in protocol.steps_for:
                if simulator not in (*config.simulators, "none"):
                    raise UserError(
                        f"protocols.{name}.steps_for.{simulator}: no such simulator{suggestion(simulator, config.simulators)}"
                    )
        studies = tuple(config._study(name, block) for name, block in file.studies.items())
        return dataclasses.replace(config, studies=studies)

    def family(self, workload: str) -> Family:
        """The family of a workload of this config."""
        return _family_of(self.families, self.workloads[workload][0])

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Every run of every study once, in scheduling order."""
        return schedule(self.studies, self.timed)

    def sizes(self, run: Run) -> dict[str, int]:
        """The run's sizes by name; none of a run whose workload is not of this config."""
        return decode(self.family(run.workload).sizes, run.size) if run.workload in self.workloads else {}

    @property
    def size_names(self) -> tuple[str, ...]:
        """The names of the sizes of the workloads' families, each once."""
        axes = (axis for workload in self.workloads for axis in self.family(workload).sizes)
        return tuple(dict.fromkeys(axis.name for axis in axes))

    @property
    def text(self) -> str:
        """What tables, figures and report are made for, as one canonical text: the config without `partial`, and
        without where data are on this machine.
        """
        blocks = {
            name: {key: value for key, value in block.items() if key not in self.workloads[name][1].machine}
            for name, block in self.given["workloads"].items()
        }
        rest = {key: value for key, value in self.given.items() if key != "partial"}
        return canonical({**rest, "workloads": blocks})

    def workload_text(self, name: str) -> str:
        """All that decides a workload's data, as one canonical text."""
        kind, workload = self.workloads[name]
        return canonical({"kind": kind, **workload.content()})

    def timed(self, run: Run) -> bool:
        """Whether a run has the machine to itself; False for one whose protocol is not of this config."""
        return run.protocol in self.protocols and self.protocols[run.protocol].timed

    def settings(self, run: Run) -> Settings:
        """All that decides the run's numbers and timing; the run need not be of a study.

        Raises:
            UserError: a name of its path is not defined, or its axes do not go together.
        """
        for axis, known in self._names().items():
            name = getattr(run, axis)
            if name not in known:
                raise UserError(f"{run.path}: no {axis} is called {name}{suggestion(name, known)}")
        settings = self._settings(run)
        for conflict in settings.conflicts():
            raise UserError(f"{run.path}: {conflict}")
        return settings

    def _settings(self, run: Run) -> Settings:
        workload_kind, workload = self.workloads[run.workload]
        model_kind, model = self.models[run.model]
        family = _family_of(self.families, workload_kind)
        if model_kind not in family.models:
            fitting = [name for name, (kind, _) in self.models.items() if kind in family.models]
            raise UserError(
                f"{run.model} is no model of {run.workload} ({family.name}); its models are {', '.join(fitting)}"
            )
        protocol = self.protocols[run.protocol].for_simulator(run.simulator)
        simulator = self.simulators.get(run.simulator)
        return Settings(run, family, workload_kind, workload, model_kind, model, simulator, protocol)

    def _names(self) -> dict[str, list[str]]:
        """What the axes that are names may be called."""
        return {
            "workload": list(self.workloads),
            "model": list(self.models),
            "simulator": [*self.simulators, "none"],
            "protocol": list(self.protocols),
        }

    def _study(self, name: str, block: StudyBlock) -> Study:
        points = [{**block.axes, **point} for point in block.points or [{}]]
        for index, point in enumerate(points):
            self._check_point(f"studies.{name}", block, index, point)
        runs = expand(points, lambda workload: self.family(workload).sizes)
        for run in runs:
            try:
                problem = next(self._settings(run).conflicts(), None)
            except UserError as error:
                problem = str(error)
            if problem:
                raise UserError(f"studies.{name}: {problem}")
        return Study(name, block.kind, block.question, runs)

    def _check_point(self, where: str, block: StudyBlock, index: int, point: Mapping[str, Any]) -> None:
        """Every point has every axis, and names only what the config or a family defines."""
        of_point = block.points[index] if block.points else {}
        here = f"{where}.points.{index}" if block.points else where
        every = tuple(axis for family in self.families.values() for axis in family.sizes)
        parse(axes_block(every), block.axes, f"{where}.axes")
        parse(axes_block(every), of_point, here)
        for axis, value in point.items():
            values = value if isinstance(value, list) else [value]
            if twice := next((v for v in values if values.count(v) > 1), None):
                raise UserError(
                    f"{here if axis in of_point else f'{where}.axes'}.{axis}: {twice!r} is given twice; keep one"
                )
        for axis, names in self._names().items():
            for value in _listed(point.get(axis, [])):
                if value not in names:
                    place = f"{here}.{axis}" if axis in of_point else f"{where}.axes.{axis}"
                    raise UserError(f"{place}: no {axis} is called {value}{suggestion(value, names)}")
        wanted = {
            axis.name
            for workload in _listed(point.get("workload", []))
            for axis in self.family(workload).sizes
        }
        for axis in (
            "workload",
            "model",
            *sorted(wanted),
            "batch",
            "simulator",
            "backend",
            "protocol",
            "seed",
        ):
            if axis not in point:
                raise UserError(f"{here}: {axis} is missing; give it in axes, or in every point")
        foreign = sorted({axis.name for axis in every} & set(of_point) - wanted)
        if foreign:
            raise UserError(
                f"{here}.{foreign[0]}: models of {point['workload']} have no {foreign[0]}; leave it out"
            )


def _family_of(families: Families, kind: str) -> Family:
    return next(family for family in families.values() if kind in family.workloads)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _of_kind(
    block: Mapping[str, Any], name: str, section: str, kinds: Mapping[str, type[B]]
) -> tuple[str, B]:
    """A named block's kind, by default its name, and its settings."""
    where = f"{section}.{name}"
    kind = block.get("kind", name)
    if not isinstance(kind, str) or kind not in kinds:
        place = f"{where}.kind" if "kind" in block else where
        said = suggestion(str(kind), list(kinds))
        add = "" if "kind" in block else f"; a block of another name says its kind, one of {', '.join(kinds)}"
        raise UserError(f"{place}: no kind of {section[:-1]} is called {kind}{add or said}")
    settings = {key: value for key, value in block.items() if key != "kind"}
    return kind, parse(kinds[kind], settings, where)


def _simulators(blocks: Mapping[str, Mapping[str, Any]], families: Families) -> dict[str, Simulator]:
    kinds = simulators(families.values())
    found = {}
    for name, block in blocks.items():
        where = f"simulators.{name}"
        if name == "none":
            raise UserError(
                "simulators.none: none is the simulator of a classical model; give this one another name"
            )
        device = block.get("device")
        if device is None:
            raise UserError(f"{where}: device is missing (one of {', '.join(kinds)})")
        if device not in kinds:
            raise UserError(
                f"{where}.device: {device!r} is not one of its values{suggestion(str(device), list(kinds))}"
            )
        found[name] = parse(kinds[device], block, where)
    return found


@functools.cache
def axes_block(sizes: tuple[SizeAxis, ...]) -> type[Block]:
    """The type of a study's axes: those of every run, and the sizes of all families."""
    fields: list[Any] = [
        ("workload", Annotated[Names, Meta(description="Names from workloads")]),
        ("model", Annotated[Names, Meta(description="Names from models, or kinds of models")]),
        *((name, Annotated[Counts, Meta(description=titles)]) for name, titles in _titles(sizes).items()),
        (
            "batch",
            Annotated[Positives, Meta(description="The global batch size whatever the number of ranks")],
        ),
        (
            "simulator",
            Annotated[Names, Meta(description="Names from simulators; none for a classical model")],
        ),
        (
            "backend",
            Annotated[
                Layouts,
                Meta(description="Where ranks run: NAME-n<nodes>r<ranks>t<threads>, e.g. mpi-n1r2t1"),
            ],
        ),
        ("protocol", Annotated[Names, Meta(description="Names from protocols")]),
        (
            "seed",
            Annotated[
                Counts, Meta(description="Seeds of the initial weights and the order of samples and dropout")
            ],
        ),
    ]
    optional = [(name, kind | None, None) for name, kind in fields]
    return msgspec.defstruct(
        "Axes", optional, bases=(Block,), frozen=True, kw_only=True, forbid_unknown_fields=True
    )


def _titles(sizes: tuple[SizeAxis, ...]) -> dict[str, str]:
    ordered = sorted(sizes, key=lambda axis: axis.name)
    return {
        name: " or ".join(dict.fromkeys(axis.title for axis in group)) + "; 0 for a classical model"
        for name, group in itertools.groupby(ordered, key=lambda axis: axis.name)
    }


def sources(config: Config, workload: str) -> list[Path]:
    """The files on this machine that a workload reads.

    Raises:
        UserError: one is missing; names the setting.
    """
    try:
        return config.workloads[workload][1].sources()
    except UserError as error:
        raise UserError(at(f"workloads.{workload}", str(error))) from None
