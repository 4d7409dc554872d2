"""`ketscale bench gates`: value and gradient of gates on chains of transmons without noise, by their unitaries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from itertools import product, starmap
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.dynamics import EQUAL, Outcome, at_equal_error, compared, error_of
from benchmarks.options import SECONDS, names, numbers, option
from benchmarks.runner import WRONG, Benchmark, Call, Row, Rows, Untimed, by_case, declared, markdown_table
from ketscale import dynamics as kd
from ketscale.engines.dynamics.methods import Route
from ketscale.errors import UserError
from ketscale.words import duration

OWN: dict[str, Route] = {"evolve": "auto", "evolve-compiled": "compiled", "evolve-torch": "torch"}
# A peer is one file and one line here: its name, and its module in `peers`, whose `Gates` is made of the name.
PEERS = {
    "plain-torch": "plain_torch",
    "plain-jax": "plain_jax",
    "qutip-qtrl": "qutip_qtrl",
    "dynamiqs-expm": "dynamiqs",
}
REFERENCE = "evolve-torch"
SIMULATORS = (*OWN, *PEERS)
# All evolve by exponentials, so that only rounding may differ.
LARGEST_ERROR = 1e-9
DURATION_NS = 40.0
# X on all qubits, or CNOT on two.
GATES = ("x", "cnot")


class GatesCase(NamedTuple):
    """A number of pulses on one chain."""

    qubits: int
    levels: int
    segments: int
    batch: int
    gate: str = "x"

    def __str__(self) -> str:
        return f"{self.gate} {self.qubits}q d{self.levels} {self.segments} segments x {self.batch}"


@dataclass(frozen=True)
class GateTasks:
    """Pulses for a gate: 1 - |Tr(T^+ U)|^2 / D^2 of each, and the gradient of the sum by the controls.

    drift: (d, d). operators: of the controls, (K, d, d). controls: (pulses, segments, K). target: (d, d), T on computational
    states and zero elsewhere. tau: a segment's duration.
    """

    system: kd.System
    drift: NDArray[np.complex128]
    operators: NDArray[np.complex128]
    controls: NDArray[np.float64]
    target: NDArray[np.complex128]
    tau: float

    @property
    def states(self) -> NDArray[np.complex128]:
        """The computational states as columns, (d, D)."""
        return self.system.computational_states.copy()

    @property
    def reach(self) -> float:
        """A bound of the norm of H tau in all segments."""
        norms = np.abs(self.operators).sum(-1).max(-1)
        strongest = np.abs(self.controls).max((0, 1)) @ norms
        return self.tau * float(np.abs(self.drift).sum(-1).max() + strongest)


def chain_of(qubits: int, levels: int, t1: float | None = None, t2: float | None = None) -> kd.System:
    """Detuned transmons with exchange couplings; times are in ns."""
    sites = [kd.transmon(0.1 * site, levels=levels, t1=t1, t2=t2) for site in range(qubits)]
    return kd.chain(sites, {(site, site + 1): 0.02 for site in range(qubits - 1)})


def controls_of(system: kd.System, segments: int, batch: int) -> torch.Tensor:
    """Normal controls that turn each state once or twice, (batch, segments, controls)."""
    generator = torch.Generator().manual_seed(0)
    shape = (batch, segments, len(system.controls))
    return 6 / DURATION_NS * torch.randn(shape, generator=generator, dtype=torch.float64)


@lru_cache(maxsize=8)
def tasks_of(case: GatesCase) -> GateTasks:
    """Normal controls of `chain_of`."""
    system = chain_of(case.qubits, case.levels)
    operators = np.array(list(system.controls.values()))
    controls = controls_of(system, case.segments, case.batch)
    states = system.computational_states
    gate = np.eye(4)[[0, 1, 3, 2]] if case.gate == "cnot" else np.eye(2**case.qubits)[::-1]
    target = states @ gate @ states.T
    return GateTasks(
        system, system.hamiltonian(), operators, controls.numpy(), target, DURATION_NS / case.segments
    )


class Own:
    """`ketscale.dynamics.evolve` by one of `OWN`."""

    def __init__(self, name: str) -> None:
        self._route = OWN[name]

    def prepare(self, tasks: GateTasks) -> Call:
        """The call that is timed: the infidelities, and the gradient."""
        controls = torch.from_numpy(tasks.controls).requires_grad_()
        states = torch.from_numpy(tasks.states)
        gate = states.mH @ torch.from_numpy(tasks.target) @ states

        def call() -> Outcome:
            final = kd.evolve(
                tasks.system, controls, DURATION_NS, initial=states, kind="unitary", route=self._route
            )
            infidelities = 1 - kd.process_fidelity(final, gate, states)
            (gradient,) = torch.autograd.grad(infidelities.sum(), controls)
            return infidelities.detach().numpy(), gradient.numpy()

        return call


def create(name: str) -> Any:
    """The simulator of this name, with `prepare` as `Own` has it.

    Raises:
        UserError: its package is not installed.
    """
    return Own(name) if name in OWN else import_module(f"benchmarks.peers.{PEERS[name]}").Gates(name)


@dataclass(kw_only=True)
class Gates(Benchmark):
    """Times are of all pulses: their infidelities, and the gradient."""

    text = "value and gradient of gates without noise"
    case = GatesCase
    columns = (declared("error"), *EQUAL)

    qubits: tuple[int, ...] = option((1, 2), numbers(1), "numbers of transmons in the chain")
    levels: tuple[int, ...] = option((2, 3), numbers(2), "levels of each transmon")
    segments: tuple[int, ...] = option((40,), numbers(1), "segments of every pulse")
    batch: tuple[int, ...] = option((1, 64), numbers(1), "numbers of pulses")
    gates: tuple[str, ...] = option(GATES, names(GATES), "gates, x on all qubits and cnot on two")
    simulators: tuple[str, ...] = option(SIMULATORS, names(SIMULATORS), "simulators")
    budget: float = option(60, SECONDS, "skip a simulator whose first call takes longer")

    def check(self) -> None:
        if not list(self.cases()):
            raise UserError("--gates: cnot is on two qubits: add 2 to --qubits")

    def cases(self) -> Iterator[GatesCase]:
        sizes = product(self.qubits, self.levels, self.segments, self.batch, self.gates)
        for case in starmap(GatesCase, sizes):
            if case.gate == "x" or case.qubits == 2:
                yield case

    def open(self) -> None:
        """Create the simulators."""
        self.install(create, self.simulators)
        self.reference = REFERENCE

    def subjects(self, case: GatesCase) -> dict[str, Any]:
        self._expected = Own(REFERENCE).prepare(tasks_of(case))()
        return self.found

    def prepare(self, case: GatesCase, name: str, row: Row) -> Call:
        call: Call = self.installed(name).prepare(tasks_of(case))
        return call

    def agree(self, case: GatesCase, name: str, row: Row, result: Outcome) -> None:
        row["error"] = error_of(result, self._expected)
        if not row["error"] <= LARGEST_ERROR:  # NaN fails too
            raise Untimed(WRONG, f"off by {row['error']:.1e} of the norm")

    def finish(self, case: GatesCase, rows: Any, calls: Any, rate: float | None) -> None:
        """Add what each row is compared with."""
        at_equal_error(rows, ("evolve",))

    @classmethod
    def table(cls, rows: Rows) -> list[str]:
        """A row for each case: the time and first call of `evolve`, and how many times as long each other takes, and its error."""
        names = list(dict.fromkeys(row["simulator"] for row in rows))
        lines = []
        for case, timed in by_case(GatesCase, rows).items():
            cells = [duration(timed["evolve"]["median_s"]), duration(timed["evolve"]["first_s"])]
            for name in names[1:]:
                row = timed.get(name)
                cells.append(
                    f"{row['median_s'] / timed['evolve']['median_s']:.3g} ({row['error'] or 0:.0e})"
                    if row
                    else ""
                )
            lines.append([*case, *cells])
        others = (f"{name}, times (error)" for name in names[1:])
        return markdown_table([*GatesCase._fields, "evolve", "first call", *others], lines)

    @classmethod
    def summary(cls, rows: Rows) -> list[str]:
        """How many times as long each other simulator takes as `evolve`, by case."""
        return [line for case, timed in by_case(GatesCase, rows).items() for line in compared(case, timed)]
