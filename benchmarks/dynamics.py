"""`ketscale bench dynamics`: value and gradient of many control tasks, by our propagators and by other packages."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.options import SECONDS, names, number, numbers, option
from benchmarks.runner import WRONG, Benchmark, Call, Column, Row, Rows, Untimed, by_case, declared
from ketscale.dynamics import chain
from ketscale.engines.dynamics.methods import SIMULATORS as PROPAGATORS
from ketscale.engines.dynamics.methods import Route
from ketscale.engines.dynamics.propagators import Batched, Propagator, propagator
from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.systems import noise_rates, qubit, relaxation_rates, transmon
from ketscale.engines.dynamics.tasks import Tasks
from ketscale.errors import UserError
from ketscale.words import duration

Array = NDArray[np.float64]
# A value or values, and their gradient, or None instead of a gradient.
Outcome = tuple[Any, Array | None]


class OwnPropagator(NamedTuple):
    """One of our propagators. step: the length of its steps as a share of the pulse; route: see `propagators.Batched`."""

    name: str
    step: float | None = None
    route: Route = "auto"


# The integrators have the published steps.
OWN = {
    "exact": OwnPropagator("exact"),
    "exact-torch": OwnPropagator("exact", route="torch"),
    "rk4-0.01": OwnPropagator("rk4", 0.01),
    "rk4-0.001": OwnPropagator("rk4", 0.001),
    "euler-0.01": OwnPropagator("euler", 0.01),
    "literal-0.01": OwnPropagator("literal", 0.01),
    "literal-0.001": OwnPropagator("literal", 0.001),
}
REFERENCE = "exact-torch"
# A peer is one file and one line here: its name, and its module in `peers`, whose `Control` is made of the name.
PEERS = {
    "plain-torch": "plain_torch",
    "plain-jax": "plain_jax",
    "plain-jax-expm": "plain_jax",
    "qutip": "qutip",
    "dynamiqs-expm": "dynamiqs",
    "dynamiqs-tsit5-1e-5": "dynamiqs",
    "dynamiqs-tsit5-1e-8": "dynamiqs",
    "dynamiqs-tsit5-1e-11": "dynamiqs",
    "qiskit-dynamics": "qiskit_dynamics",
}
SIMULATORS = (*OWN, *PEERS)
QUBITS = (1, 2)
# The simulators that have trajectories; how many points and tasks these have.
TRAJECTORIES = ("exact", "exact-torch", "plain-torch", "plain-jax", "plain-jax-expm")
POINTS, TASKS = 200, (1, 16)
# The published loop takes one task after the other: a steady time needs few, since one takes up to seconds.
LOOPED = 2
# What is exact has to agree with the reference to this share of its norm. JAX's exponential of matrices is off by up to
# 1e-8 for two qubits.
LARGEST_ERROR = 1e-7
# Errors below this are rounding's, and equal.
ROUNDING = 1e-11
# T1 and T2 of two transmons, ns: Sheldon et al., Phys. Rev. A 93, 060302 (2016).
TIMES = ((38e3, 50e3), (41e3, 61e3))
# What `at_equal_error` adds to rows.
EQUAL = (
    Column("beside", "fastest of ours with no larger error"),
    Column("times", "times as long", "{:.3g}".format),
)


class ControlCase(NamedTuple):
    """A number of tasks on one system. problem: control, or trajectory-3 of three levels."""

    problem: str
    qubits: int
    segments: int
    batch: int

    def __str__(self) -> str:
        return f"{self.problem} {self.qubits}q {self.segments} segments x {self.batch}"


@dataclass(frozen=True)
class ControlTasks:
    """Control tasks from |0...0> in double precision: overlaps with a target and the gradient of their sum by the controls.

    controls: (tasks, segments, controls). rates: (tasks, jumps). target: the name of the system's target. trajectory: whether
    there is an overlap at the start and at the end of each segment.
    """

    system: System
    duration: float
    controls: Array
    rates: Array
    target: str
    trajectory: bool = False

    def first(self, tasks: int) -> ControlTasks:
        """The same with the first tasks only."""
        return replace(self, controls=self.controls[:tasks], rates=self.rates[:tasks])

    @property
    def tensors(self) -> Tasks:
        """The tasks for our propagators."""
        return Tasks(torch.from_numpy(self.controls), self.duration, torch.from_numpy(self.rates))


@lru_cache(maxsize=8)
def tasks_of(case: ControlCase) -> ControlTasks:
    """The tasks of a case.

    One qubit: the published system and range of environments. Two: coupled transmons, relaxation times from half to twice
    the usual ones. Trajectories: a transmon of some levels that relaxes and dephases. The controls are normal, of a size that
    turns the state a few times.
    """
    generator = torch.Generator().manual_seed(0)

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(case.batch, generator=generator, dtype=torch.float64)

    _, is_trajectory, levels = case.problem.partition("trajectory-")
    if is_trajectory:
        system, length, target = transmon(levels=int(levels)), 40.0, "x"
        rates = torch.stack([uniform(0.005, 0.02), uniform(0.005, 0.02)], 1)
    elif case.qubits == 1:
        system, length, target = qubit(), 1.0, "x"
        rate = noise_rates(uniform(0.5, 2.0), uniform(1e-3, 1e-2), uniform(100.0, 1000.0))
        rates = rate[:, None].expand(-1, 3)
    else:
        pair = chain([transmon(0.4 * math.pi, levels=2), transmon(levels=2)], {(0, 1): 0.0076 * math.pi})
        system, length, target = (
            replace(pair, targets={"bell": np.array([1, 0, 0, 1]) / 2**0.5}),
            160.0,
            "bell",
        )
        factors = uniform(0.5, 2.0)
        each = (relaxation_rates(t1 * factors, t2 * factors) for t1, t2 in TIMES)
        rates = torch.cat(list(each), 1)
    shape = (case.batch, case.segments, len(system.controls))
    controls = 2 / length * torch.randn(shape, generator=generator, dtype=torch.float64)
    arguments = controls.numpy(), rates.contiguous().numpy()
    return ControlTasks(system, length, *arguments, target, bool(is_trajectory))


class Own:
    """One of `OWN`.

    most: tasks that one call is given at most; times of more are projected, since it takes one after the other. exact:
    whether its only error is rounding's.
    """

    def __init__(self, name: str) -> None:
        self.own = OWN[name]
        self.most = LOOPED if self.own.name.startswith("literal") else None
        self.exact = PROPAGATORS[self.own.name].exact

    def propagator(self, duration: float) -> Propagator:
        """Its propagator for pulses of this duration."""
        name, step, route = self.own
        return propagator(name, step and step * duration, route, strict=False)  # as in training

    def prepare(self, tasks: ControlTasks) -> Call:
        """The call that is timed; what does not depend on controls and rates is prepared before."""
        simulator, arguments = self.propagator(tasks.duration), tasks.tensors
        arguments.controls.requires_grad_()
        target = torch.from_numpy(tasks.system.projector(tasks.target))[None]

        def call() -> Outcome:
            if tasks.trajectory:
                assert isinstance(simulator, Batched)
                overlaps = simulator.expval(tasks.system, arguments, target, trajectory=True)
            else:
                overlaps = simulator.expval(tasks.system, arguments, target)
            (gradient,) = torch.autograd.grad(overlaps.sum(), arguments.controls)
            return overlaps.detach().numpy()[..., 0], gradient.numpy()

        return call


def create(name: str) -> Any:
    """The propagator of this name: with `most`, `exact` and `prepare`, as `Own` has them.

    Raises:
        UserError: its package is not installed.
    """
    return Own(name) if name in OWN else import_module(f"benchmarks.peers.{PEERS[name]}").Control(name)


def error_of(found: Outcome, expected: Outcome) -> float:
    """The larger of the distances of values and gradient from what is expected, each as a share of its norm.

    What finds fewer numbers is compared with the first of them.
    """
    pairs = [
        (np.atleast_1d(mine), np.atleast_1d(peer)[: len(np.atleast_1d(mine))])
        for mine, peer in zip(found, expected, strict=True)
        if mine is not None and peer is not None
    ]
    return max(float(np.linalg.norm(mine - peer) / np.linalg.norm(peer)) for mine, peer in pairs)


def at_equal_error(rows: Mapping[str, Row], actual: Collection[str]) -> None:
    """Add to each timed row the fastest of ours whose error is no larger, and how many times as long as that the row takes."""
    timed = {name: row for name, row in rows.items() if row["median_s"] is not None}
    for name, row in timed.items():
        equals = {
            mine: timed[mine]["median_s"]
            for mine in actual
            if mine in timed and timed[mine]["error"] <= max(row["error"], ROUNDING)
        }
        fastest = min(equals, key=equals.__getitem__, default=name)
        if fastest != name:
            row["beside"], row["times"] = fastest, row["median_s"] / equals[fastest]


def compared(case: Any, rows: Mapping[str, Row]) -> Iterator[str]:
    """A line about each row that has one of ours beside it; rows by name, as `runner.by_case` gives them."""
    for name, row in rows.items():
        if row["beside"] is not None:
            mine = rows[row["beside"]]
            yield (
                f"{case}: {name} {row['times']:.3g} times as long as {row['beside']}, which takes "
                f"{duration(mine['median_s'])} (errors {row['error']:.1e} and {mine['error']:.1e})"
            )


@dataclass(kw_only=True)
class Dynamics(Benchmark):
    """Times are of the whole batch: all overlaps with the target, and their gradient by all controls."""

    text = "value and gradient of control tasks with every propagator"
    case = ControlCase
    columns = (
        Column("computes", "computes"),
        # Tasks that were timed, where it takes one after the other and their time is multiplied.
        Column("projected_from", "projected from"),
        declared("error"),
        *EQUAL,
    )

    qubits: tuple[int, ...] = option((1,), numbers(1), "numbers of qubits, 1 or 2 or both")
    segments: int = option(20, number(1), "segments of every pulse")
    batch: tuple[int, ...] = option((200,), numbers(1), "numbers of tasks")
    trajectories: tuple[int, ...] = option(
        (), numbers(2), f"levels of transmons with trajectories of {POINTS} points, instead of tasks"
    )
    simulators: tuple[str, ...] = option(SIMULATORS, names(SIMULATORS), "propagators")
    budget: float = option(60, SECONDS, "skip a propagator whose first call takes longer")

    def check(self) -> None:
        for qubits in self.qubits:
            if qubits not in QUBITS:
                raise UserError(f"--qubits: there is no problem of {qubits} qubits; choose of 1, 2")

    def cases(self) -> Iterator[ControlCase]:
        for levels, batch in product(self.trajectories, TASKS):
            yield ControlCase(f"trajectory-{levels}", 1, POINTS, batch)
        for qubits in () if self.trajectories else self.qubits:
            for batch in self.batch:
                yield ControlCase("control", qubits, self.segments, batch)

    def open(self) -> None:
        """Create the propagators."""
        self.install(create, self.simulators)
        self.reference = REFERENCE

    def subjects(self, case: ControlCase) -> dict[str, Any]:
        self._expected = Own(REFERENCE).prepare(tasks_of(case))()
        own = case.problem == "control"
        return {name: each for name, each in self.found.items() if own or name in TRAJECTORIES}

    def prepare(self, case: ControlCase, name: str, row: Row) -> Call:
        propagator = self.installed(name)
        tasks = min(case.batch, propagator.most or case.batch)
        row["projected_from"] = tasks if tasks < case.batch else None
        call: Call = propagator.prepare(tasks_of(case).first(tasks))
        return call

    def agree(self, case: ControlCase, name: str, row: Row, result: Outcome) -> None:
        """The error of integrators is what their steps make it."""
        row["computes"] = "value" if result[1] is None else "value and gradient"
        error = error_of(result, self._expected)
        largest = LARGEST_ERROR if self.found[name].exact else math.inf
        if not error <= largest:  # NaN fails too
            raise Untimed(WRONG, f"off by {error:.1e} of the norm")
        row["error"] = error

    def times(self, row: Row) -> float:
        """How many times as long all tasks take as those that were timed."""
        return float(row["batch"] / (row["projected_from"] or row["batch"]))

    def finish(self, case: ControlCase, rows: Any, calls: Any, rate: float | None) -> None:
        """Add what each row is compared with."""
        at_equal_error(rows, [name for name in OWN if not name.startswith("literal")])

    @classmethod
    def summary(cls, rows: Rows) -> list[str]:
        """How many times as long as the fastest of ours with no larger error each other propagator takes, by case."""
        return [line for case, timed in by_case(ControlCase, rows).items() for line in compared(case, timed)]
