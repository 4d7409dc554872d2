"""Runs on more ranks than any record of their kind: a step of one rank at its share of the batch, and its messages.

It is a plan by a model, not a measurement: ranks do not wait for each other in it, nor share memory bandwidth. How far
off it is where ranks were measured widens its intervals.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.special import stdtrit

from ketscale.config import Settings
from ketscale.grid import BACKENDS
from ketscale.jobs.costs import messages
from ketscale.jobs.costs.features import Case, moved
from ketscale.jobs.costs.interval import Interval
from ketscale.jobs.costs.model import COVERAGE, PLACES, CostModel, Guess, Place
from ketscale.jobs.costs.regression import Array
from ketscale.jobs.costs.samples import Gradient, Sample

# A law of two parameters is contradicted by three points at the earliest.
_FEWEST = 3


@dataclass(frozen=True)
class AllReduce:
    """t = alpha x rounds + beta x bytes (`messages.terms`), by least squares of relative residuals.

    alpha_s: a round. beta_s: a byte. records, most_ranks: that it was fitted to. spread: the relative standard deviation
    of a point. covariance: of alpha and beta, (2, 2). freedom: of Student's t.
    """

    backend: str
    alpha_s: float
    beta_s: float
    records: int
    most_ranks: int
    spread: float
    covariance: Array
    freedom: int

    def seconds(self, gradient: Gradient, ranks: int) -> Interval:
        """All messages of a step with this gradient."""
        rounds, size = messages.terms(self.backend, ranks, gradient.size)
        x = np.array([gradient.messages * rounds, size])
        middle = float(x @ [self.alpha_s, self.beta_s])
        deviation = math.hypot(self.spread * middle, math.sqrt(max(float(x @ self.covariance @ x), 0.0)))
        half = float(stdtrit(self.freedom, (1 + COVERAGE) / 2)) * deviation
        return Interval(middle, max(0.0, middle - half), middle + half)


def all_reduce(backend: str, between_nodes: bool, samples: Iterable[Sample]) -> AllReduce | str:
    """The law of a backend's all-reduce, within or between nodes, from samples that timed it; or why there is none."""
    timed: dict[tuple[int, int], list[float]] = {}
    for sample in samples:
        if sample.gradient and sample.gradient.all_reduce_s:
            timed.setdefault((sample.ranks, sample.gradient.size), []).append(sample.gradient.all_reduce_s)
    what = f"communication of {backend} {'between nodes' if between_nodes else 'within a node'}"
    if not timed:
        return (
            f"{what} was not measured: it needs timed runs on several ranks with cores or GPUs of their own, on a quiet "
            "machine, and sampled_steps in their protocol"
        )
    terms = np.array([messages.terms(backend, *point) for point in timed])
    times = np.array([statistics.median(values) for values in timed.values()])
    scale = terms.max(axis=0)
    if len(timed) < _FEWEST or np.linalg.matrix_rank(terms / scale) < 2:
        return (
            f"{what} was measured at {len(timed)} of the {_FEWEST} or more numbers of ranks and sizes of gradients that "
            "tell alpha and beta apart"
        )
    relative = terms / scale / times[:, None]
    found, residual = nnls(relative, np.ones(len(times)))
    freedom = len(times) - 2
    variance = residual**2 / freedom
    alpha, beta = (found / scale).tolist()
    return AllReduce(
        backend,
        alpha,
        beta,
        sum(map(len, timed.values())),
        max(ranks for ranks, _ in timed),
        math.sqrt(variance),
        variance * np.linalg.inv(relative.T @ relative) / np.outer(scale, scale),
        freedom,
    )


@dataclass(frozen=True)
class Scaled:
    """The costs of a run on more ranks than were measured.

    costs: by the names of `COSTS`. share: samples a step of the rank that has most. place: where one rank with this
    share is, seen from the records. most_ranks: of the records of this model, simulator and backend. off: by how much, as
    a logarithm, the same sum misses the step of those with several ranks, at most; None if it cannot be compared.
    """

    costs: dict[str, Interval]
    share: int
    place: Place
    most_ranks: int
    all_reduce: AllReduce
    off: float | None

    def interval(self, name: str) -> Interval:
        """The interval of a cost."""
        return self.costs[name]

    def wall(self, steps: int, epochs: int | None) -> Interval:
        """The wall time in seconds of a run of so many steps and epochs, whose parts err together."""
        spent = self.costs["start_s"] + self.costs["pace_s"].times(steps)
        return (
            spent + self.costs["validation_s"].times(epochs)
            if epochs and "validation_s" in self.costs
            else spent
        )


class Scaling:
    """Plans runs on more ranks than the records of their model, simulator and backend have."""

    def __init__(self, model: CostModel) -> None:
        self._model = model
        self._most: dict[tuple[tuple[str, ...], str, bool], Sample] = {}
        for sample in model.samples:
            key = _kind(sample.case, sample.nodes)
            if sample.quiet and (key not in self._most or sample.ranks > self._most[key].ranks):
                self._most[key] = sample
        self._known = {sample.case.known for sample in model.samples}
        self._laws: dict[tuple[str, str, bool], AllReduce | str] = {}
        self._made: dict[str, Scaled | str | None] = {}

    def of(self, settings: Settings, at: Case) -> Scaled | str | None:
        """The plan for a run, or why there is none; None if it has no more ranks than the records, or nothing is known."""
        run = settings.run
        most = self._most.get(_kind(at, run.nodes))
        more = at.known in self._known and run.ranks > (most.ranks if most else 1)
        if not more or self._model.place(at) != "beyond":
            return None
        if at.point not in self._made:
            self._made[at.point] = self._plan(settings, at, most)
        return self._made[at.point]

    def _plan(self, settings: Settings, at: Case, most: Sample | None) -> Scaled | str | None:
        run, protocol = settings.run, settings.protocol
        if protocol.mistake:
            return f"mistake {protocol.mistake} has to be measured"
        if protocol.parallel == "tasks":
            return "its ranks share tasks, not samples"
        law = self._law(at, run.nodes)
        if isinstance(law, str):
            return law
        if most is None or most.ranks == 1:
            return f"no quiet record of its model and simulator is on several ranks of {run.backend}"
        gradient = self._gradient(at)
        if gradient is None:
            return "no record of its model in this size says how many bytes its gradient has"
        if messages.in_parts(run.backend, gradient.size):
            return "its gradient is sent in several messages during the backward pass"
        share = math.ceil(run.batch / run.ranks)
        alone = self._alone(at, share)
        if alone is None:
            return f"no records of one rank are around {share} samples a step"
        # Starting and validating take no longer on more ranks; each rank keeps the states of its share.
        near = moved(at, run.backend, most.nodes, most.ranks, run.batch)
        if not self._model.knows(near):
            return None
        [measured] = self._model.guess([near])
        off = self._off(at, most, law)
        sent = law.seconds(gradient, run.ranks)
        costs = {name: self._model.interval(measured, name) for name in measured.costs}
        costs["memory_bytes"] = self._model.interval(alone, "memory_bytes")
        for name in ("step_s", "pace_s"):
            costs[name] = self._model.interval(alone, name).and_by_itself(sent).widened(off or 0.0)
        return Scaled(costs, share, alone.place, most.ranks, law, off)

    def _law(self, at: Case, nodes: int) -> AllReduce | str:
        """The law of messages within a node, or between nodes, of a backend on a machine."""
        backend, machine = at.names["backend"], at.names["machine"]
        key = backend, machine, nodes > 1
        if key not in self._laws:
            like = (
                sample
                for sample in self._model.samples
                if (sample.case.names["backend"], sample.case.names["machine"], sample.nodes > 1) == key
            )
            self._laws[key] = all_reduce(backend, nodes > 1, like)
        return self._laws[key]

    def _gradient(self, at: Case) -> Gradient | None:
        """The gradient of the same model in the same size and precision."""
        return next(
            (
                sample.gradient
                for sample in self._model.samples
                if sample.gradient
                and all(
                    sample.case.names[name] == at.names[name]
                    for name in ("workload", "model", "simulator", "protocol")
                )
                and moved(sample.case, "cpu", 1, 1, 1).numbers == moved(at, "cpu", 1, 1, 1).numbers
            ),
            None,
        )

    def _alone(self, at: Case, share: int) -> Guess | None:
        """One rank with its share of the batch, as the serial backend of the device or its own has it; None beyond the records."""
        backend = at.names["backend"]
        serial = next(
            name
            for name, one in BACKENDS.items()
            if one.device == BACKENDS[backend].device and not one.several_ranks
        )
        cases = [moved(at, name, 1, 1, share) for name in (serial, backend)]
        best = min(cases, key=lambda case: PLACES.index(self._model.place(case)))
        return None if self._model.place(best) == "beyond" else self._model.guess([best])[0]

    def _off(self, at: Case, most: Sample, law: AllReduce) -> float | None:
        """The largest distance, as a logarithm, of the step of a measured point of several ranks from the model's."""
        points: dict[str, list[Sample]] = {}
        for sample in self._model.samples:
            alike = _kind(sample.case, sample.nodes) == _kind(most.case, most.nodes)
            if alike and sample.case.alike == at.alike and sample.gradient and sample.gradient.all_reduce_s:
                points.setdefault(sample.case.point, []).append(sample)
        found = []
        for of in points.values():
            one = of[0]
            alone = self._alone(one.case, math.ceil(one.batch / one.ranks))
            if alone and one.gradient:
                step_s = (
                    self._model.interval(alone, "step_s").middle + law.seconds(one.gradient, one.ranks).middle
                )
                measured = statistics.median(sample.costs["step_s"] for sample in of)
                found.append(abs(math.log(measured / step_s)))
        return max(found, default=None)


def _kind(at: Case, nodes: int) -> tuple[tuple[str, ...], str, bool]:
    """What runs share that tell of each other's ranks: see `features.known`; the machine; and whether nodes communicate."""
    return at.known, at.names["machine"], nodes > 1
