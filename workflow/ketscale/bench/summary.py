"""The benchmark in a few numbers: ratios of simulators in the same cell, never across cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from ketscale.bench.rows import best_s
from ketscale.bench.selection import FLOOR, GROUPS, PEERS, SETS, Cell

# Amplitudes of a batch from which arithmetic, rather than the call itself, takes the time.
LARGE = 32768
SMALL_LEAST_BATCH = 32
WIDE_BATCH = 128


@dataclass(frozen=True)
class Factors:
    """A cell where `fused` and a peer were timed.

    speedup: time of the fastest peer over that of `fused`.
    algebra: what `fused` gains over its own literal route; None where that was not timed.
    kernel: what the literal route gains over the fastest peer. algebra * kernel = speedup.
    """

    cell: Cell
    peer: str
    speedup: float
    algebra: float | None
    kernel: float | None


def times(rows: Iterable[Mapping[str, Any]]) -> dict[Cell, dict[str, float]]:
    """Median seconds of the simulators that were timed, by cell; the shorter of a call's and its graph's."""
    out: dict[Cell, dict[str, float]] = {}
    for row in rows:
        of_cell = out.setdefault(Cell.of(row), {})
        seconds = best_s(row)
        if seconds is not None:
            of_cell[row["simulator"]] = seconds
    return out


def factors(rows: Iterable[Mapping[str, Any]]) -> list[Factors]:
    """Of every cell where both `fused` and a peer were timed."""
    out = []
    for cell, timed in times(rows).items():
        peers = {name: timed[name] for name in PEERS if name in timed}
        if "fused" not in timed or not peers:
            continue
        peer = min(peers, key=lambda name: peers[name])
        literal = timed.get("fused-literal")
        out.append(
            Factors(
                cell,
                peer,
                peers[peer] / timed["fused"],
                literal and literal / timed["fused"],
                literal and peers[peer] / literal,
            )
        )
    return out


def lines(rows: list[dict[str, Any]]) -> list[str]:
    """The summary, one statement a line; what was not measured is left out."""
    every = factors(rows)
    large = [f for f in every if _amplitudes(f.cell) >= LARGE]
    small = [f for f in every if _amplitudes(f.cell) < LARGE and f.cell.batch >= SMALL_LEAST_BATCH]
    out = []
    for name, found in (
        (f"batch * 2^n >= {LARGE}", large),
        (f"smaller, batch >= {SMALL_LEAST_BATCH}", small),
    ):
        if found:
            worst = min(found, key=lambda f: f.speedup)
            out.append(
                f"fused over its fastest peer, {name}: median {median(f.speedup for f in found):.3g}x, "
                f"worst {worst.speedup:.3g}x ({worst.cell}, {worst.peer}), {len(found)} cell(s)"
            )
    out += _over_lightning(rows) + _fractions(rows) + _over_floor(rows) + _together(rows)
    out += [
        f"{f.cell}: algebra {f.algebra:.3g}x, kernel {f.kernel:.3g}x over {f.peer}"
        for f in every
        if f.algebra and f.kernel
    ]
    return out


def _amplitudes(cell: Cell) -> int:
    return int(cell.batch * 2**cell.qubits)


def _over_lightning(rows: list[dict[str, Any]]) -> list[str]:
    ratios = [
        timed["lightning.qubit"] / timed["fused"]
        for cell, timed in times(rows).items()
        if {"fused", "lightning.qubit"} <= timed.keys() and cell.batch >= WIDE_BATCH and cell.qubits <= 10
    ]
    where = f"batch >= {WIDE_BATCH}, at most 10 qubits"
    return [f"fused over lightning.qubit, {where}: at least {min(ratios):.3g}x"] if ratios else []


def _fractions(rows: list[dict[str, Any]]) -> list[str]:
    found = [
        row["fraction"]
        for row in rows
        if row["simulator"] == "fused"
        and row["fraction"] is not None
        and row["qubits"] >= 8
        and row["batch"] >= WIDE_BATCH
    ]
    where = f"at least 8 qubits, batch >= {WIDE_BATCH}"
    return (
        [f"fused of the device's rate, {where}: min {min(found):.2f}, median {median(found):.2f}"]
        if found
        else []
    )


def _over_floor(rows: list[dict[str, Any]]) -> list[str]:
    return [
        f"fused over the floor, {cell}: {timed['fused'] / timed[FLOOR]:.3g}x"
        for cell, timed in times(rows).items()
        if cell.qubits == 4 and cell.batch == 1 and {"fused", FLOOR} <= timed.keys()
    ]


def _together(rows: list[dict[str, Any]]) -> list[str]:
    together, apart = GROUPS
    return [
        f"{SETS} sets of weights in one call of fused over one call each, {cell}: {timed[apart] / timed[together]:.3g}x"
        for cell, timed in times(rows).items()
        if {together, apart} <= timed.keys()
    ]
