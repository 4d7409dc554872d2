"""What a benchmark of dynamics compares: problems, batches, propagators and limits, checked; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from ketscale.bench.selection import all_cores, at_least, names_of, numbers_of
from ketscale.engines.dynamics.settings import Route
from ketscale.errors import UserError

PROBLEMS = ("control",)
QUBITS = (1, 2)


class Own(NamedTuple):
    """One of our propagators. steps: the length of its steps as a share of the pulse; route: see `propagators.Batched`."""

    name: str
    step: float | None = None
    route: Route = "auto"


# The integrators have the published steps.
OWN: dict[str, Own] = {
    "exact": Own("exact"),
    "exact-torch": Own("exact", route="torch"),
    "rk4-0.01": Own("rk4", 0.01),
    "rk4-0.001": Own("rk4", 0.001),
    "euler-0.01": Own("euler", 0.01),
    "literal-0.01": Own("literal", 0.01),
    "literal-0.001": Own("literal", 0.001),
}
PEERS = ("qutip", "dynamiqs-expm", "dynamiqs-tsit5", "qiskit-dynamics")
SIMULATORS = (*OWN, *PEERS)


class Cell(NamedTuple):
    """One problem and batch size, to be timed with every propagator."""

    problem: str
    qubits: int
    segments: int
    batch: int

    @classmethod
    def of(cls, row: Mapping[str, object]) -> Self:
        """The cell of a row."""
        return cls(*(row[name] for name in cls._fields))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.problem} {self.qubits}q {self.segments} segments x {self.batch}"


@dataclass(frozen=True)
class DynamicsSelection:
    """The arguments of `ketscale bench dynamics`.

    asked: the propagators were asked for by name, so that a missing one is an error.
    budget_s: after a first call that takes longer, a propagator is not timed.
    """

    problems: tuple[str, ...] = PROBLEMS
    qubits: tuple[int, ...] = (1,)
    segments: int = 20
    batches: tuple[int, ...] = (200,)
    simulators: tuple[str, ...] = SIMULATORS
    asked: bool = False
    budget_s: float = 60.0
    repeats: int = 7
    threads: int = field(default_factory=all_cores)

    def cells(self) -> Iterator[Cell]:
        """All cells."""
        for problem in self.problems:
            for qubits in self.qubits:
                for batch in self.batches:
                    yield Cell(problem, qubits, self.segments, batch)


def parse(
    *,
    problem: str | None = None,
    qubits: str | None = None,
    segments: str | None = None,
    batch: str | None = None,
    levels: str | None = None,
    simulators: str | None = None,
    budget: str | None = None,
    repeats: str | None = None,
    threads: str | None = None,
) -> DynamicsSelection:
    """The selection of the command's options: lists separated by commas, None where not given.

    Raises:
        UserError: a value is not a number, out of range, or not a name of a problem or propagator.
    """
    if levels is not None:
        raise UserError("--levels: belongs to --problem pulses; leave it out for control")
    default = DynamicsSelection()
    selection = DynamicsSelection(
        problems=names_of("--problem", problem, PROBLEMS) or default.problems,
        qubits=numbers_of("--qubits", qubits, 1) or default.qubits,
        segments=at_least("--segments", segments, int, 1) if segments is not None else default.segments,
        batches=numbers_of("--batch", batch, 1) or default.batches,
        simulators=names_of("--simulators", simulators, SIMULATORS) or default.simulators,
        asked=simulators is not None,
        budget_s=at_least("--budget", budget, float, 0) if budget is not None else default.budget_s,
        repeats=at_least("--repeats", repeats, int, 5) if repeats is not None else default.repeats,
        threads=at_least("--threads", threads, int, 1) if threads is not None else default.threads,
    )
    for number in selection.qubits:
        if number not in QUBITS:
            raise UserError(f"--qubits: there is no problem of {number} qubits; choose of 1, 2")
    return selection
