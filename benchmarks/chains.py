"""`ketscale bench chains`: `exact` beside the integrators of chains, at the steps that they need for one error."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product, starmap
from typing import Any, NamedTuple

import torch

from benchmarks.gates import chain_of
from benchmarks.options import SECONDS, names, numbers, option
from benchmarks.runner import OVER_BUDGET, Benchmark, Call, Column, Row, Untimed, declared
from ketscale import dynamics as kd

REFERENCE = "exact"
SIMULATORS = (REFERENCE, "suzuki4", "interaction4")
KINDS = ("ket", "unitary")
# The distance of a final state from that of `exact`, the largest of all columns.
LARGEST_ERROR = 1e-8
# Fewer steps than an order of 4 predicts would do by chance alone.
LEAST_GROWTH = 1.2


class ChainCase(NamedTuple):
    """A pulse on one chain."""

    chain: str
    kind: str
    qubits: int
    segments: int

    def __str__(self) -> str:
        return f"{self.chain} {self.kind} {self.qubits}q {self.segments} segments"


def heisenberg(qubits: int) -> kd.System:
    """Qubits whose exchanges are as strong as their drives, and do not commute."""
    spins = [kd.gate(letter) for letter in "xyz"]
    exchange = sum(torch.kron(spin, spin) for spin in spins)
    return kd.chain([kd.qubit()] * qubits, {(site, site + 1): exchange for site in range(qubits - 1)})


def laboratory(qubits: int) -> kd.System:
    """The published transmons of `transmon_chain`, of 4.5 to 6.5 GHz."""
    return kd.transmon_chain(qubits).system(2)


# What makes each chain, its duration, and the standard deviation of its controls, in its units.
CHAINS: dict[str, tuple[Callable[[int], kd.System], float, float]] = {
    "rotating": (partial(chain_of, levels=2), 20.0, 0.15),
    "heisenberg": (heisenberg, 1.0, 2.0),
    "laboratory": (laboratory, 20.0, 0.1),
}


@lru_cache(maxsize=8)
def system_of(chain: str, qubits: int) -> kd.System:
    """The system of a case."""
    return CHAINS[chain][0](qubits)


def evolved(case: ChainCase, method: str, steps: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Final columns, without a graph, and the gradient of a sum of populations by all controls.

    steps: in each segment; None: of `exact`.
    """
    system, (_, length, spread) = system_of(case.chain, case.qubits), CHAINS[case.chain]
    shape = case.segments, len(system.controls)
    controls = spread * torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kind: Any = case.kind
    dt = None if steps is None else length / case.segments / steps
    final = kd.evolve(system, controls.requires_grad_(), length, kind=kind, method=method, dt=dt)
    columns = final if final.ndim == 2 else final[:, None]
    weights = torch.linspace(0, 1, len(columns), dtype=torch.float64)
    (gradient,) = torch.autograd.grad((columns.abs().square() * weights[:, None]).sum(), controls)
    return columns.detach(), gradient


@dataclass(kw_only=True)
class Chains(Benchmark):
    """Times are of one pulse: the final states, and a gradient."""

    text = "value and gradient of chains, by exact and by integrators at equal error"
    case = ChainCase
    columns = (
        declared("error"),
        Column("steps_in_segment", "steps in a segment"),
        Column("times", "times as long", "{:.3g}".format),
    )

    chains: tuple[str, ...] = option(tuple(CHAINS), names(CHAINS), "chains")
    kinds: tuple[str, ...] = option(KINDS, names(KINDS), "what is evolved")
    qubits: tuple[int, ...] = option((4, 6), numbers(2), "numbers of qubits in the chain")
    segments: tuple[int, ...] = option((40,), numbers(1), "segments of every pulse")
    simulators: tuple[str, ...] = option(SIMULATORS, names(SIMULATORS), "simulators")
    budget: float = option(20, SECONDS, "skip a simulator whose first call takes longer")

    def cases(self) -> Iterator[ChainCase]:
        yield from starmap(ChainCase, product(self.chains, self.kinds, self.qubits, self.segments))

    def open(self) -> None:
        self.found, self.reference = dict.fromkeys(self.simulators), REFERENCE

    def prepare(self, case: ChainCase, name: str, row: Row) -> Call:
        """The call, with the steps that its error needs."""
        self._expected = evolved(case, REFERENCE, None)[0]
        if name == REFERENCE:
            return partial(evolved, case, name, None)
        steps, error = 1, math.inf
        while True:
            began = time.monotonic()
            error = self._error(evolved(case, name, steps)[0])
            if error <= LARGEST_ERROR:
                break
            if time.monotonic() - began > self.budget:
                raise Untimed(OVER_BUDGET, f"{steps} steps in a segment have an error of {error:.1e}")
            steps = math.ceil(steps * max(LEAST_GROWTH, (error / LARGEST_ERROR) ** 0.25))
        row["steps_in_segment"] = steps
        return partial(evolved, case, name, steps)

    def agree(self, case: ChainCase, name: str, row: Row, result: Any) -> None:
        row["error"] = self._error(result[0])

    def finish(self, case: ChainCase, rows: Any, calls: Any, rate: float | None) -> None:
        """Add how many times as long as `exact` each takes."""
        own = rows.get(REFERENCE, {}).get("median_s")
        for name, row in rows.items():
            if own and row["median_s"] and name != REFERENCE:
                row["times"] = row["median_s"] / own

    def _error(self, columns: torch.Tensor) -> float:
        return float((columns - self._expected).norm(dim=0).max())
