"""Records as samples of what runs cost, and in which respects two runs are alike as far as that is concerned."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ketscale.grid import RECORDS, Run, canonical
from ketscale.measure import record
from ketscale.measure.form import Host, Record
from ketscale.words import counted

# What distinguishes protocols by the cost of a step; their lengths are counted, not learned.
_OF_PROTOCOL = ("precision", "features", "mistake", "parallel", "sharding")
# A difference of one in each number is about as much as the grid of a study has: eight times the batch, say.
_BATCH, _WORKERS, _SIZE, _LOG_SIZE = 3.0, 2.0, 4.0, 2.0


@dataclass(frozen=True)
class Case:
    """What a run's cost may depend on: numbers, scaled, and what is named."""

    numbers: Mapping[str, float]
    names: Mapping[str, str]

    @cached_property
    def point(self) -> str:
        """Equal for cases that cost the same: runs that differ in their seed, or in how long they train."""
        return canonical({**self.numbers, **self.names})

    @property
    def known(self) -> tuple[str, ...]:
        """What a record must share with a run to tell anything of its cost: kind of model, simulator and backend."""
        return self.names["kind"], self.names["simulator"], self.names["backend"]


def case(content: Mapping[str, Any], sizes: Mapping[str, int], machine: str) -> Case:
    """The case of a run.

    Args:
        content: the settings of the run, as `Settings.content` and a record's `config` have them.
        sizes: the model's sizes by name.
        machine: the hardware, as `hardware` words it.
    """
    run, protocol, model = content["run"], content["protocol"], content["model"]
    simulator = content["simulator"] or {}
    numbers = {"batch": math.log2(run["batch"]) / _BATCH}
    numbers |= {axis: math.log2(run[axis]) / _WORKERS for axis in ("nodes", "ranks", "threads")}
    # A register doubles what each qubit more costs; layers and segments multiply it. Data decide which a size is.
    for name, size in sizes.items():
        numbers |= {name: size / _SIZE, f"log {name}": math.log2(1 + size) / _LOG_SIZE}
    names = {
        "family": content["family"],
        "workload": canonical(content["workload"]),
        # That of a model in a user's own file is its class.
        "kind": str(model.get("class", model["kind"])),
        "model": canonical(model),
        "device": str(simulator.get("device")),
        "simulator": canonical(simulator),
        "backend": run["backend"],
        "protocol": canonical({name: protocol.get(name) for name in _OF_PROTOCOL}),
        "optimiser": protocol["optimiser"],
        "machine": machine,
    }
    return Case(numbers, names)


def hardware(machine: Host) -> str:
    """The hardware of a machine in words: processor, cores and GPUs."""
    # An allocation may have only some of the cores and GPUs; the machine is the same.
    cores = machine.topology.physical_cores if machine.topology else machine.cores
    return ", ".join(
        [f"{machine.cpu}, {counted(cores, 'core')}", *sorted({gpu.name for gpu in machine.gpus})]
    )


@dataclass(frozen=True)
class Sample:
    """What a run cost.

    costs: by name; one that the run did not have is missing. Times are in seconds, in a cohort the run's share. pace_s: the
        mean of all steps but the first, which the length of a run depends on. validation_s: a pass over the validation
        samples. start_s: all the rest: starting, reading data, the first step, testing, saving. memory_bytes: host memory of
        the largest rank.
    steps, epochs: how many it took; None in a protocol with steps. planned: the most epochs of one that may stop early.
    seconds: all of its time. quiet: whether it had the machine to itself.
    """

    case: Case
    costs: Mapping[str, float]
    steps: int
    steps_per_epoch: int
    batch: int
    epochs: int | None
    planned: int | None
    seconds: float
    quiet: bool


def sample(made: Record) -> Sample | None:
    """The sample that a record is; None if the run failed or was resumed, or has no steady step."""
    timing, protocol, run = made.timing, made.settings.protocol, Run.of(made.run)
    members, steps, step_s = 1 + len(made.cohort), timing.steps, timing.step.median_s
    memory = max(rank.peak_rss_bytes or 0 for rank in made.machine.ranks)
    # Steps of a cohort are no run's own: only its share of all is known.
    steady = steps and (members > 1 or step_s)
    if made.status not in ("completed", "timed_out") or made.resumed or not memory or not steady:
        return None
    seconds = 3600 * made.node_hours / run.nodes + timing.startup_s / members
    seconds -= (made.quiet.passes - 1) * timing.train_s
    begin_s = (timing.startup_s + timing.data_s) / members
    epochs = made.quality.epochs if made.quality else None
    validation_s = timing.validation_s if epochs and members == 1 else None
    validated_s = (epochs or 0) * (validation_s or 0.0)
    if step_s is None or members > 1:
        pace_s = (seconds - begin_s) / steps
    else:
        paced_s = timing.train_s - (timing.first_step_s or step_s) - validated_s
        pace_s = max(paced_s / (steps - 1), step_s / 2) if steps > 1 else step_s
    # What rounding leaves of a very short start is not below what was measured of it.
    costs = {"pace_s": pace_s, "start_s": max(seconds - steps * pace_s - validated_s, begin_s, 1e-3)}
    costs |= {"memory_bytes": float(memory)} | ({"validation_s": validation_s} if validation_s else {})
    at = case(made.config, made.sizes, hardware(made.machine))
    planned = protocol.epochs if protocol.early_stopping else None
    quiet = made.quiet.quiet
    return Sample(at, costs, steps, timing.steps_per_epoch, run.batch, epochs, planned, seconds, quiet)


def below(folders: Iterable[Path], known: Mapping[Path, Record] | None = None) -> list[Sample]:
    """The samples of all whole records in results folders, whatever config they are of.

    The busy runs of a point that has quiet ones are left out.

    Args:
        known: records that have been read, by their paths.
    """
    paths = [path for folder in folders for path in sorted(folder.glob(RECORDS))]
    read = ((known or {}).get(path) or record.read(path).record for path in paths)
    found = [one for each in read if each and (one := sample(each))]
    quiet = {one.case.point for one in found if one.quiet}
    return [one for one in found if one.quiet or one.case.point not in quiet]
