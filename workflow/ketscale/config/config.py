"""A config: its named workloads, models, simulators and protocols, and its studies."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ketscale.config.block import Block, Faults, at, faults_of, parse
from ketscale.config.conflicts import conflicts
from ketscale.config.family import (
    OWN_MODEL,
    Families,
    Family,
    Model,
    Settings,
    Simulator,
    Workload,
    model_kinds,
    simulators,
    workload_kinds,
)
from ketscale.config.file import SPLIT_SEEDS, ConfigFile, SplitSeeds, StudyBlock, axes_block
from ketscale.config.own_code import FileModel
from ketscale.config.protocol import Protocol
from ketscale.errors import UserError, within
from ketscale.grid import Run, Study, canonical, decode, expand, listed, schedule
from ketscale.words import suggestion

B = TypeVar("B", bound=Block)


@dataclasses.dataclass(frozen=True)
class Config:
    """A config whose every name and value has been checked.

    given: the settings as they were given. cohorts: whether runs of one shape are trained together. placed: whether the
    settings say where things are on this machine. splits: the block's name by the names of its splits (`split_seeds`).
    trials: of each protocol that is a trial of a search, the protocol that searches, and its number.
    """

    raw: Mapping[str, Any]
    families: Families
    title: str
    results: str
    partial: bool
    cohorts: bool
    workloads: Mapping[str, tuple[str, Workload]]
    models: Mapping[str, tuple[str, Model]]
    simulators: Mapping[str, Simulator]
    protocols: Mapping[str, Protocol]
    studies: tuple[Study, ...]
    placed: bool = True
    splits: Mapping[str, str] = dataclasses.field(default_factory=dict)
    trials: Mapping[str, tuple[str, int]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, settings: Mapping[str, Any], families: Families, placed: bool = True) -> Config:
        """The config with these settings.

        placed: whether the settings say where things are on this machine; those of `text` do not.

        Raises:
            UserError: names each setting that is wrong, and what is wrong with it; or, if each fits its type, the first
                thing in each study that does not go together.
        """
        faults, kinds = Faults(), families.values()
        of_workloads, of_models, devices = workload_kinds(kinds), model_kinds(kinds), simulators(kinds)
        blocks = {section: _blocks(settings, section) for section in ("workloads", "models", "simulators")}
        workloads, models = dict[str, tuple[str, Workload]](), dict[str, tuple[str, Model]]()
        of_simulators, splits = dict[str, Simulator](), dict[str, str]()
        with faults:
            file = parse(ConfigFile, settings, "")
            for name, protocol in file.protocols.items():
                faults += [at(f"protocols.{name}", fault) for fault in protocol.faults()]
        for base in blocks["workloads"]:
            with faults:
                for name, block in _splits(base, blocks["workloads"]).items():
                    workloads[name] = _of_kind(block, base, "workloads", of_workloads)
                    if placed:
                        faults += [at(f"workloads.{base}", fault) for fault in workloads[name][1].misplaced()]
                    splits |= {} if name == base else {name: base}
        for name, block in blocks["models"].items():
            with faults:
                models[name] = _model(block, name, of_models, families)
        for name, block in blocks["simulators"].items():
            with faults:
                if name == "none":
                    raise UserError("simulators.none: classical models have this; choose another name")
                _, of_simulators[name] = _of_kind(block, name, "simulators", devices, "device")
        faults.refuse()
        # Each kind is also a model with default settings, unless the config gives its name another meaning.
        models |= {kind: (kind, build()) for kind, build in of_models.items() if kind not in models}
        for name, (_, model) in models.items():
            if isinstance(model, FileModel) and model.control and model.control not in models:
                why = f"no model is called {model.control}{suggestion(model.control, models)}"
                faults.append(f"models.{name}.control: {why}")
        for name, protocol in file.protocols.items():
            for simulator in sorted(protocol.steps_for.keys() - {*of_simulators, "none"}):
                why = f"no such simulator{suggestion(simulator, of_simulators)}"
                faults.append(f"protocols.{name}.steps_for.{simulator}: {why}")
        faults.refuse()
        protocols, trials = _searched(file.protocols, models)
        config = cls(
            settings,
            families,
            file.title,
            # As Snakemake has it: out/ and ./out are out.
            os.path.normpath(Path(file.results).expanduser()),
            file.partial,
            file.cohorts,
            workloads,
            models,
            of_simulators,
            protocols,
            (),
            placed,
            splits,
            trials,
        )
        studies = []
        for name, study in file.studies.items():
            with faults:
                studies.append(config._study(name, study))
        faults.refuse()
        return dataclasses.replace(config, studies=tuple(studies))

    def data(self, workload: str) -> str:
        """The name of the data of a workload: that of its block, also where this has several splits."""
        return self.splits.get(workload, workload)

    def first_split(self, workload: str) -> str:
        """The first workload of a study that has the same data, if not the same split of them."""
        return next(name for name in self.studied if self.data(name) == self.data(workload))

    def block(self, data: str) -> tuple[str, Workload]:
        """The kind and the settings of a workload, or of a split of some data (`data`)."""
        return self.workloads[self._splits_of(data)[0]]

    def family(self, workload: str) -> Family:
        """The family of a workload of this config, or of data with several splits, with the metrics of its task."""
        kind, block = self.block(workload)
        family = next(family for family in self.families.values() if kind in family.workloads)
        return family.for_task(block)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Every run of every study once, in scheduling order; the trials of searches come first."""
        finals = schedule(self.studies, self.timed)
        trials = dict.fromkeys(trial for run in finals for trial in self.trials_of(run))
        return (*sorted(trials, key=lambda run: run.seed), *finals)

    def trials_of(self, run: Run) -> Iterator[Run]:
        """The trials from which the settings of a run are chosen; none without a search."""
        search = self.protocols[run.protocol].search if run.protocol in self.protocols else None
        if search is not None:
            for seed, number in itertools.product(search.seeds, range(search.trials)):
                yield dataclasses.replace(run, protocol=search.name(run.protocol, number), seed=seed)

    def runs_of(self, study: Study) -> frozenset[Run]:
        """The runs of a study with the trials of their searches."""
        return frozenset((*study.runs, *(trial for run in study.runs for trial in self.trials_of(run))))

    @cached_property
    def classical(self) -> frozenset[str]:
        """The models without a circuit: of a user's own those without a control that no study gives a simulator or qubits."""
        simulated = {
            run.model for run in self.runs if run.simulator != "none" or self.sizes(run).get("qubits")
        }
        own = {name for name, (_, model) in self.models.items() if model.own_code}
        classical = {name for name, (_, model) in self.models.items() if model.classical}
        simple = {name for name in own - simulated if self.models[name][1].control is None}
        return frozenset((classical - own) | simple)

    @cached_property
    def run_set(self) -> frozenset[Run]:
        """The same, to look a run up among thousands."""
        return frozenset(self.runs)

    @cached_property
    def studied(self) -> tuple[str, ...]:
        """The workloads of the studies' runs, each once, in the order of the studies."""
        return tuple(dict.fromkeys(run.workload for study in self.studies for run in study.runs))

    def sizes(self, run: Run) -> dict[str, int]:
        """The run's sizes by name; empty if its workload is not in this config."""
        return decode(self.family(run.workload).sizes, run.size) if run.workload in self.workloads else {}

    @property
    def size_names(self) -> tuple[str, ...]:
        """The names of the sizes of all families, each once."""
        return _size_names(self.families)

    @property
    def text(self) -> str:
        """The config that tables, figures and report are made for, as one canonical text: without `partial` and
        `cohorts`, and without the locations of data on this machine. It says of models in files what is read in them.
        """
        rest = {name: value for name, value in self.raw.items() if name not in ("partial", "cohorts")}
        workloads, models = dict[str, Any](), dict[str, Any]()
        for name, block in self.raw["workloads"].items():
            machine = self.block(name)[1].machine
            workloads[name] = {key: value for key, value in block.items() if key not in machine}
        for name, block in self.raw.get("models", {}).items():
            kind, model = self.models[name]
            models[name] = {"kind": kind, **model.content()} if isinstance(model, FileModel) else block
        return canonical({**rest, "workloads": workloads, **({"models": models} if models else {})})

    def workload_text(self, name: str) -> str:
        """Everything that determines a workload's data, as one canonical text."""
        kind, workload = self.workloads[name]
        return canonical({"kind": kind, **workload.content()})

    def timed(self, run: Run) -> bool:
        """Whether a run has the machine to itself; False if its protocol is not in this config."""
        return run.protocol in self.protocols and self.protocols[run.protocol].timed

    def is_trial(self, run: Run) -> bool:
        """Whether a run is a trial of a search."""
        return run.protocol in self.trials

    def settings(self, run: Run) -> Settings:
        """Everything that determines the run's numbers and timing, before a search has chosen (`jobs.choice`).

        The run need not be part of a study.

        Raises:
            UserError: a name in its path is not defined, or its axes cannot be combined.
        """
        if run in self.run_set:
            return self._settings(run)  # all of its studies are checked, and there are thousands
        with within(run.path):
            for axis, names in self._names().items():
                name = getattr(run, axis)
                if name not in names and name not in (self.trials if axis == "protocol" else ()):
                    raise UserError(f"no {axis} is called {name}{suggestion(name, names)}")
            return self._validated(run)

    def _validated(self, run: Run) -> Settings:
        """The settings of a run whose names are known.

        Raises:
            UserError: they cannot be combined.
        """
        settings = self._settings(run)
        for conflict in conflicts(settings):
            raise UserError(conflict)
        return settings

    def _settings(self, run: Run) -> Settings:
        workload_kind, workload = self.workloads[run.workload]
        model_kind, model = self.models[run.model]
        family = self.family(run.workload)
        if model_kind not in family.all_models:
            fitting = [name for name, (kind, _) in self.models.items() if kind in family.all_models]
            raise UserError(
                f"{run.model} is no model for {run.workload} ({family.name}): {', '.join(fitting)}"
            )
        name, trial = self.trials.get(run.protocol, (run.protocol, None))
        settings = Settings(
            dataclasses.replace(run, protocol=name),
            family,
            workload_kind,
            workload,
            model_kind,
            model,
            self.simulators.get(run.simulator),
            self.protocols[name].for_run(run.simulator, run.model),
        )
        return settings if trial is None else settings.trial(trial, run.seed)

    def _names(self) -> dict[str, list[str]]:
        """The names that are defined, for each axis whose values are names."""
        return {
            "workload": list(self.workloads),
            "model": list(self.models),
            "simulator": [*self.simulators, "none"],
            "protocol": [name for name in self.protocols if name not in self.trials],
        }

    def _study(self, name: str, block: StudyBlock) -> Study:
        """The study of a block, whose points and runs are checked."""
        where, faults, sizes = f"studies.{name}", Faults(), set[str]()
        points = [{**block.axes, **point} for point in block.points or [{}]]
        for index, point in enumerate(points):
            if "workload" in point:  # a block with several splits means all of them
                names = map(self._splits_of, listed(point["workload"]))
                point["workload"] = list(itertools.chain.from_iterable(names))
            with faults:
                sizes |= self._check_point(where, block, index, point)
        faults.refuse()
        for size in self.size_names:
            if size in block.axes and size not in sizes:
                raise UserError(f"{where}.axes.{size}: no model of this study has {size}; leave it out")
        with within(where):
            runs = expand(points, lambda workload: self.family(workload).sizes)
            for run in runs:
                self._validated(run)
                search = self.protocols[run.protocol].search
                if search and run.seed in search.seeds:
                    raise UserError(
                        f"protocol {run.protocol} has a search with seed {run.seed}, which is a seed of the study too, where the luck "
                        "of the trial that was chosen would count; give search.seeds others, such as 1000"
                    )
        for trial in dict.fromkeys(trial for run in runs for trial in self.trials_of(run)):
            self._validated(trial)  # whose faults are named by the search's own settings
        return Study(name, block.kind, block.question, runs)

    def _splits_of(self, data: Any) -> list[Any]:
        """The splits of some data; else the name itself."""
        return [name for name, base in self.splits.items() if base == data] or [data]

    def _check_point(self, where: str, block: StudyBlock, index: int, point: Mapping[str, Any]) -> set[str]:
        """The sizes of a point's models. Refuse a point that lacks an axis, or names what neither the config nor a
        family defines.
        """
        of_point = block.points[index] if block.points else {}
        here = f"{where}.points.{index}" if block.points else where
        axes = _axes(self.families)
        Faults([*faults_of(axes, block.axes, f"{where}.axes"), *faults_of(axes, of_point, here)]).refuse()
        for axis, names in self._names().items():
            for value in listed(point.get(axis, [])):
                if value not in names:
                    place = here if axis in of_point else f"{where}.axes"
                    raise UserError(f"{place}.{axis}: no {axis} is called {value}{suggestion(value, names)}")
        sizes = {
            axis.name
            for workload in listed(point.get("workload", []))
            for axis in self.family(workload).sizes
        }
        for axis in axes.__struct_fields__:
            if axis not in point and (axis in sizes or axis not in self.size_names):
                raise UserError(f"{here}: {axis} is missing; give it in axes, or in every point")
        # Points of several families may share `axes`, so those are looked at all together.
        for name in self.size_names:
            if name in of_point and name not in sizes:
                raise UserError(f"{here}.{name}: models of {', '.join(point['workload'])} have no {name}")
        return sizes


def _splits(base: str, workloads: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The block of a workload, or that of each of its splits, NAME.sSEED, by name.

    Raises:
        UserError: both seeds and seed are given, or a split has the name of another workload.
    """
    block = workloads[base]
    if SPLIT_SEEDS not in block:
        return {base: block}
    where, seeds = f"workloads.{base}.{SPLIT_SEEDS}", block[SPLIT_SEEDS]
    Faults(faults_of(SplitSeeds, seeds, where)).refuse()
    folds = block.get("folds")
    # The seeds of one block have different folds of one order; another block has another order.
    orders = {seed // folds for seed in seeds} if isinstance(folds, int) and folds > 0 else set()
    if len(orders) > 1 and len(orders) * folds != len(seeds):
        raise UserError(f"{where}: {folds} folds need whole blocks of seeds, such as 0 to {folds - 1}")
    if "split_seed" in block:
        raise UserError(f"{where}: split_seed gives one split; leave one of them out")
    rest = {name: value for name, value in block.items() if name != SPLIT_SEEDS}
    splits = {f"{base}.s{seed}": {**rest, "split_seed": seed} for seed in seeds}
    if clash := splits.keys() & workloads.keys():
        raise UserError(f"workloads.{min(clash)}: has the name of a split of {base}; choose another")
    return splits


def _axes(families: Families) -> type[Block]:
    return axes_block(tuple(axis for family in families.values() for axis in family.sizes))


def _searched(
    plain: Mapping[str, Protocol], models: Mapping[str, tuple[str, Model]]
) -> tuple[dict[str, Protocol], dict[str, tuple[str, int]]]:
    """The protocols with one for each trial of their searches; of each of these, the protocol and its number."""
    kinds = {name: type(model) for name, (_, model) in models.items() if not isinstance(model, FileModel)}
    protocols, trials = dict(plain), dict[str, tuple[str, int]]()
    for name, protocol in plain.items():
        if protocol.search is None:
            continue
        where, search = f"protocols.{name}.search", protocol.search.typed(kinds)
        for model in search.models:
            if model not in models:
                raise UserError(f"{where}.models: no model is called {model}{suggestion(model, models)}")
        protocols[name] = msgspec.structs.replace(protocol, search=search)
        for number in range(search.trials):
            trial = search.name(name, number)
            if trial in plain:
                raise UserError(f"protocols.{trial}: has the name of a trial of {name}; choose another")
            trials[trial] = name, number
            protocols[trial] = msgspec.structs.replace(protocol, search=None, keep_model=False)
    return protocols, trials


def _of_kind(
    block: Mapping[str, Any], name: str, section: str, kinds: Mapping[str, type[B]], key: str = "kind"
) -> tuple[str, B]:
    """A named block's kind, by default its name, and its settings."""
    kind = block.get(key, name)
    if not isinstance(kind, str) or kind not in kinds:
        place, hint = (f".{key}", "") if key in block else ("", f"; give it a {key}")
        why = f"no {key} of {section} is called {kind}{hint}{suggestion(str(kind), list(kinds))}"
        raise UserError(f"{section}.{name}{place}: {why}")
    settings = {name: value for name, value in block.items() if name != "kind" or key != "kind"}
    return kind, parse(kinds[kind], settings, f"{section}.{name}")


def _model(
    block: Mapping[str, Any], name: str, kinds: Mapping[str, type[Model]], families: Families
) -> tuple[str, Model]:
    """A model's kind and its settings; those of one in a file follow from what is in the file."""
    if block.get("kind", OWN_MODEL) == OWN_MODEL and "file" in block and "code" not in block:
        return OWN_MODEL, FileModel.of_block(block, f"models.{name}", _size_names(families))
    return _of_kind(block, name, "models", {**kinds, OWN_MODEL: FileModel})


def _size_names(families: Families) -> tuple[str, ...]:
    """The names of the sizes of all families, each once."""
    return tuple(dict.fromkeys(axis.name for family in families.values() for axis in family.sizes))


def _blocks(settings: Mapping[str, Any], section: str) -> dict[str, dict[str, Any]]:
    """The blocks of a section; anything else is an error of the file's form."""
    blocks = settings.get(section)
    items = blocks.items() if isinstance(blocks, dict) else ()
    return {name: block for name, block in items if isinstance(block, dict)}


def sources(config: Config, workload: str) -> list[Path]:
    """The files on this machine that a workload reads.

    Raises:
        UserError: one is missing; names the setting.
    """
    try:
        return config.workloads[workload][1].sources()
    except UserError as error:
        raise UserError(at(f"workloads.{workload}", str(error))) from None
