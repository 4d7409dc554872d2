"""In which respects two runs are alike, as far as their costs are concerned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ketscale.grid import canonical
from ketscale.jobs.costs.regression import Array
from ketscale.measure.form import Host
from ketscale.words import counted

# What distinguishes protocols by the cost of a step; their lengths are counted, not learned.
_OF_PROTOCOL = ("precision", "features", "mistake", "parallel", "sharding")
# A difference of one in each feature is about as much as the grid of a study has: eight times the batch, say.
_BATCH, _RANKS, _SIZE, _LOG_SIZE = 3.0, 2.0, 4.0, 2.0


@dataclass(frozen=True)
class Case:
    """What a run's cost may depend on.

    numbers: by name, scaled; a size that a family does not have is 0. names: by what they name. known: see
    `known`. alike: equal for cases that grow alike.
    """

    numbers: Mapping[str, float]
    names: Mapping[str, str]
    known: tuple[str, ...]
    alike: tuple[str, ...]

    @cached_property
    def point(self) -> str:
        """Equal for cases that cost the same: runs that differ in their seed, or in how long they train."""
        return canonical({**self.numbers, **self.names})


def case(content: Mapping[str, Any], sizes: Mapping[str, int], machine: str) -> Case:
    """The case of a run.

    Args:
        content: the settings of the run, as `Settings.content` and a record's `config` have them.
        sizes: the model's sizes by name.
        machine: the hardware, as `hardware` words it.
    """
    run, protocol, simulator = content["run"], content["protocol"], content["simulator"] or {}
    numbers = {"batch": math.log2(run["batch"]) / _BATCH}
    for axis in ("nodes", "ranks", "threads"):
        numbers[axis] = math.log2(run[axis]) / _RANKS
    # A register doubles what each qubit more costs; layers and segments multiply it. Data decide which a size is.
    for name, size in sizes.items():
        numbers[name] = size / _SIZE
        numbers[f"log {name}"] = math.log2(1 + size) / _LOG_SIZE
    workload, model = content["workload"], content["model"]
    names = {
        "family": content["family"],
        "workload": canonical(workload),
        "kind": _kind(model),
        "model": canonical(model),
        "device": str(simulator.get("device")),
        "simulator": canonical(simulator),
        "backend": run["backend"],
        "protocol": canonical({name: protocol.get(name) for name in _OF_PROTOCOL}),
        "optimiser": protocol["optimiser"],
        "machine": machine,
    }
    return Case(numbers, names, known(content), (names["model"], names["simulator"]))


def moved(at: Case, backend: str, nodes: int, ranks: int, batch: int) -> Case:
    """The same case in another layout, with another batch."""
    numbers = {"batch": math.log2(batch) / _BATCH, "nodes": math.log2(nodes) / _RANKS}
    return replace(
        at,
        numbers={**at.numbers, **numbers, "ranks": math.log2(ranks) / _RANKS},
        names={**at.names, "backend": backend},
        known=(*at.known[:-1], backend),
    )


def known(content: Mapping[str, Any]) -> tuple[str, ...]:
    """What a record must share with a run to say anything about its cost: kind of model, simulator and backend."""
    simulator = content["simulator"] or {}
    return _kind(content["model"]), canonical(simulator), content["run"]["backend"]


def _kind(model: Mapping[str, Any]) -> str:
    """The kind of a model; of one in a user's own file, its class."""
    return str(model.get("class", model["kind"]))


def hardware(machine: Host) -> str:
    """The hardware of a machine in words: processor, cores and GPUs."""
    # An allocation may have only some of the cores; the machine is the same.
    topology = machine.topology
    cores = topology.physical_cores if topology else machine.cores
    return ", ".join([f"{machine.cpu}, {counted(cores, 'core')}", *sorted(gpu.name for gpu in machine.gpus)])


# Variances of the logarithm of a cost before there are data, for each part of `Covariance`.
USUAL = (9.0, 0.5, 0.5, 0.3, 0.3, 0.1, 0.1, 0.1, 0.01, 0.01)


class Covariance:
    """The covariance between the logarithms of costs of some cases and of known ones, part by part.

    The parts: a level; slopes in every number; a level for every name; slopes of their own for cases that are alike,
    and for backends and machines; smooth deviations from straight lines, wide and narrow, of alike cases and of all of
    a backend; what is special to a point; and the noise of each run.
    """

    def __init__(self, known: Sequence[Case]) -> None:
        self.known = known
        self._numbers = sorted({name for case in known for name in case.numbers})
        # Around the middle of what is known, so that slopes and levels are told apart.
        self._middle = np.median([self._row(case) for case in known], axis=0)

    def _row(self, case: Case) -> list[float]:
        return [case.numbers.get(name, 0.0) for name in self._numbers]

    def parts(self, ones: Sequence[Case]) -> list[Array]:
        """The parts between these cases, which are other runs than the known ones, and those: (m, n) each."""
        return [*self._shared(ones, self.known), np.zeros((len(ones), len(self.known)))]

    def own(self, ones: Sequence[Case]) -> Array:
        """The parts of the variance of each of these cases, (parts, m)."""
        return np.array([[part[0, 0] for part in self._shared([one], [one])] + [1.0] for one in ones]).T

    @property
    def among(self) -> list[Array]:
        """The parts among the known cases, (n, n) each."""
        return [*self._shared(self.known, self.known), np.eye(len(self.known))]

    def _shared(self, ones: Sequence[Case], others: Sequence[Case]) -> list[Array]:
        x, y = (np.array([self._row(case) for case in cases]) - self._middle for cases in (ones, others))
        lines = x @ y.T
        apart = ((x[:, None] - y[None]) ** 2).sum(-1)
        same = {
            name: _same([c.names[name] for c in ones], [c.names[name] for c in others])
            for name in ones[0].names
        }
        alike = _same([case.alike for case in ones], [case.alike for case in others])
        return [
            np.ones_like(lines),
            lines,
            np.sum(list(same.values()), axis=0) / 2,
            lines * alike,
            lines * (same["backend"] + same["machine"]) / 2,
            np.exp(-apart / 2) * alike,
            np.exp(-apart / 2 / 0.25) * alike * same["backend"],
            np.exp(-apart / 2) * same["backend"],
            _same([case.point for case in ones], [case.point for case in others]),
        ]


def _same(ones: Sequence[object], others: Sequence[object]) -> Array:
    numbers = {value: number for number, value in enumerate(dict.fromkeys((*ones, *others)))}
    first, second = (np.array([numbers[value] for value in values]) for values in (ones, others))
    return np.asarray(first[:, None] == second[None], dtype=float)
