"""What a benchmark of pulses compares: sizes, simulators and limits, checked; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self

from ketscale.bench.selection import all_cores, at_least, names_of, numbers_of
from ketscale.errors import UserError

PROBLEM = "pulses"


class Own(NamedTuple):
    """One of our integrators; see `engines.pulses.integrators.integrator`."""

    integrator: str
    steps: int
    route: Literal["auto", "torch"] = "auto"


# Midpoint steps in the published number and order, and steps of order 4 whose error is below that of our and of SuperGrad's 5000.
OWN: dict[str, Own] = {
    "interaction4-150": Own("interaction4", 150),
    "interaction4-400": Own("interaction4", 400),
    "trotter2-5000": Own("trotter2", 5000),
    "trotter2-5000-torch": Own("trotter2", 5000, "torch"),
}
# Converged: its error is that of 400 steps times (400 / 1600)**4.
REFERENCE = Own("interaction4", 1600)
PEERS = ("supergrad", "supergrad-tad", "qutip", "dynamiqs", "qiskit-dynamics")
SIMULATORS = (*OWN, *PEERS)
# 5,000 steps of second order, ours and SuperGrad's: what others are matched to.
PUBLISHED = ("trotter2-5000", "supergrad")


class Cell(NamedTuple):
    """One size of the chain, to be timed with every simulator."""

    problem: str
    qubits: int
    levels: int

    @classmethod
    def of(cls, row: Mapping[str, object]) -> Self:
        """The cell of a row."""
        return cls(*(row[name] for name in cls._fields))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.problem} {self.qubits}q d{self.levels}"


@dataclass(frozen=True)
class PulsesSelection:
    """The arguments of `ketscale bench dynamics --problem pulses`; see `DynamicsSelection`."""

    qubits: tuple[int, ...] = (4,)
    levels: int = 2
    simulators: tuple[str, ...] = SIMULATORS
    asked: bool = False
    budget_s: float = 60.0
    repeats: int = 7
    threads: int = field(default_factory=all_cores)

    def cells(self) -> Iterator[Cell]:
        """All cells."""
        for qubits in self.qubits:
            yield Cell(PROBLEM, qubits, self.levels)


def parse(
    *,
    problem: str | None = PROBLEM,
    qubits: str | None = None,
    levels: str | None = None,
    segments: str | None = None,
    batch: str | None = None,
    simulators: str | None = None,
    budget: str | None = None,
    repeats: str | None = None,
    threads: str | None = None,
) -> PulsesSelection:
    """The selection of the command's options: lists separated by commas, None where not given.

    Raises:
        UserError: a value is not a number, out of range, or not a name of a simulator; an option is not of this problem.
    """
    for option, given in (("--segments", segments), ("--batch", batch)):
        if given is not None:
            raise UserError(f"{option}: belongs to --problem control; leave it out for {problem}")
    default = PulsesSelection()
    return PulsesSelection(
        qubits=numbers_of("--qubits", qubits, 2) or default.qubits,
        levels=at_least("--levels", levels, int, 2) if levels is not None else default.levels,
        simulators=names_of("--simulators", simulators, SIMULATORS) or default.simulators,
        asked=simulators is not None,
        budget_s=at_least("--budget", budget, float, 0) if budget is not None else default.budget_s,
        repeats=at_least("--repeats", repeats, int, 5) if repeats is not None else default.repeats,
        threads=at_least("--threads", threads, int, 1) if threads is not None else default.threads,
    )
