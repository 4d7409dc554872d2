"""What evolved a quantum system, as a run's record and an optimised pulse say it. Imports nothing heavy."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kernel = Literal["dense", "chain"]
Code = Literal["compiled", "table", "torch", "loop"]


class Evolved(NamedTuple):
    """The kernel, method and code by which a quantum system was evolved.

    kernel: dense: the states of the whole system; chain: gates on its sites and pairs. method: propagator or integrator.
    code: compiled: machine code written for the system or its levels; table: machine code that reads the system from a table;
    torch: torch's operators; loop: those, one task after the other. states: the system's product states. steps: of a segment
    (dense) or of the pulse (chain); None where each segment's norm decides.
    """

    kernel: Kernel
    method: str
    code: Code
    states: int
    steps: int | None
