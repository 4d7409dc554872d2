"""What one benchmark compares: circuits, sizes, simulators and limits, checked; imports nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeVar

from ketscale.errors import UserError

# The layers of each ansatz; `cases.py` builds it.
LAYERS: dict[str, int] = {"strongly_entangling": 3, "vqc": 3, "qlcu": 2}
QUBITS = (4, 6, 8, 10, 12)
BATCHES = (1, 32, 128, 1024)
# Where a batch of this size still fits in the memory of every simulator.
LARGE_BATCH, LARGE_BATCH_QUBITS = 8192, 8
DEVICES = ("cpu", "cuda")

OWN = ("fused", "fused-literal")
# The routes between which fused chooses, to see whether it chose well; only where they are asked for.
ROUTES = ("fused-sweep", "fused-matrix")
# The ways of a user's QNode to the same numbers: on a device, or converted; only where they are asked for.
QNODES = ("qnode-default.qubit", "qnode-lightning.qubit", "qnode-fused", "from_qnode")
# `SETS` sets of inputs and weights in one call of fused, or in one call each; only where they are asked for.
GROUPS = ("fused-together", "fused-apart")
SETS = 16
PENNYLANE = ("default.qubit", "lightning.qubit", "lightning.gpu")
OUTSIDE = ("tensorcircuit", "deepquantum", "jax")
# Plain torch, which needs no other package.
BY_HAND = "kronecker"
FLOOR = "floor"
PEERS = (*PENNYLANE, *OUTSIDE, BY_HAND)
SIMULATORS = (*OWN, *PEERS, FLOOR)
KNOWN = (*SIMULATORS, *ROUTES, *QNODES, *GROUPS)
# Those that run on one kind of device only.
BOUND_TO = {
    **dict.fromkeys(("fused-literal", "lightning.qubit", "qnode-lightning.qubit", FLOOR), "cpu"),
    "lightning.gpu": "cuda",
}

T = TypeVar("T")


def all_cores() -> int:
    """As many threads as there are cores to run on."""
    return len(os.sched_getaffinity(0))


class Cell(NamedTuple):
    """One circuit and batch size, to be timed with every simulator."""

    ansatz: str
    qubits: int
    batch: int
    layers: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """The cell of a row."""
        return cls(*(row[name] for name in cls._fields))

    def __str__(self) -> str:
        return f"{self.ansatz} {self.qubits}q x {self.batch}"


@dataclass(frozen=True)
class Selection:
    """The arguments of `ketscale bench simulators`.

    device: cpu or cuda.
    batches: None for the default ones, which depend on the number of qubits.
    layers: of every ansatz; None for those of `LAYERS`.
    simulators: empty for all that run on the device.
    asked: the simulators were asked for by name, so that a missing one is an error.
    budget_s: a call predicted to take longer is not made.
    repeats: timed repeats of a cell, at least 5; fewer where calls take more than a second.
    threads: of every simulator; by default as many as there are cores to run on.
    """

    ansaetze: tuple[str, ...] = tuple(LAYERS)
    qubits: tuple[int, ...] = QUBITS
    batches: tuple[int, ...] | None = None
    layers: int | None = None
    simulators: tuple[str, ...] = ()
    asked: bool = False
    device: str = "cpu"
    budget_s: float = 20.0
    repeats: int = 7
    threads: int = field(default_factory=all_cores)

    @property
    def names(self) -> tuple[str, ...]:
        """The simulators to time."""
        return self.simulators or tuple(name for name in SIMULATORS if runs_on(name, self.device))

    def cells(self) -> Iterator[Cell]:
        """All cells, the batches of a circuit in ascending order: each predicts the time of the next."""
        for ansatz in self.ansaetze:
            for qubits in self.qubits:
                fits = qubits <= LARGE_BATCH_QUBITS or self.device == "cuda"
                large = (LARGE_BATCH,) if fits else ()
                for batch in sorted(self.batches or (*BATCHES, *large)):
                    yield Cell(ansatz, qubits, batch, self.layers or LAYERS[ansatz])


def parse(
    *,
    ansatz: str | None = None,
    qubits: str | None = None,
    batch: str | None = None,
    layers: str | None = None,
    simulators: str | None = None,
    budget: str | None = None,
    repeats: str | None = None,
    threads: str | None = None,
    device: str | None = None,
) -> Selection:
    """The selection of the command's options: lists separated by commas, None where not given.

    Raises:
        UserError: a value is not a number, too small, or not a name of an ansatz, simulator or device; or a simulator does
            not run on the device.
    """
    default = Selection()
    selection = Selection(
        ansaetze=names_of("--ansatz", ansatz, LAYERS) or default.ansaetze,
        # The rings of qlcu need two wires.
        qubits=numbers_of("--qubits", qubits, 2) or default.qubits,
        batches=numbers_of("--batch", batch, 1) or None,
        layers=at_least("--layers", layers, int, 1) if layers is not None else None,
        simulators=names_of("--simulators", simulators, KNOWN),
        asked=simulators is not None,
        budget_s=at_least("--budget", budget, float, 0) if budget is not None else default.budget_s,
        repeats=at_least("--repeats", repeats, int, 5) if repeats is not None else default.repeats,
        threads=at_least("--threads", threads, int, 1) if threads is not None else default.threads,
        device=device_of(device),
    )
    for name in selection.names:
        if not runs_on(name, selection.device):
            raise UserError(f"--simulators: {name} runs on {BOUND_TO[name]} only, not on {selection.device}")
    return selection


def runs_on(simulator: str, device: str) -> bool:
    """Whether a simulator can run on a device."""
    return BOUND_TO.get(simulator, device) == device


def device_of(text: str | None) -> str:
    """The value of the option `--device`; raises UserError for one that does not exist."""
    devices = names_of("--device", text, DEVICES) or ("cpu",)
    if len(devices) > 1:
        raise UserError(f"--device: one of {', '.join(DEVICES)}, not {text}")
    return devices[0]


def names_of(option: str, text: str | None, known: Collection[str]) -> tuple[str, ...]:
    """The names of an option's value, none if it was not given; raises UserError for one that is not `known`."""
    names = _parts(option, text)
    for name in names:
        if name not in known:
            raise UserError(f"{option}: no {name!r}; choose of {', '.join(known)}")
    return names


def numbers_of(option: str, text: str | None, least: int) -> tuple[int, ...]:
    """The whole numbers of an option's value in ascending order; raises UserError for one below `least`."""
    return tuple(sorted(at_least(option, part, int, least) for part in _parts(option, text)))


def _parts(option: str, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if "" in parts:
        raise UserError(f"{option}: an empty value in {text!r}; separate values by single commas")
    return parts


def at_least(option: str, text: str, kind: Callable[[str], T], least: int) -> T:
    """One number of an option's value; raises UserError where it is none, or below `least`."""
    try:
        value = kind(text)
    except ValueError:
        raise UserError(f"{option}: {text!r} is not a number") from None
    if not value >= least:  # type: ignore[operator]
        raise UserError(f"{option}: must be at least {least}, not {text}")
    return value
