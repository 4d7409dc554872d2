"""Simulators of small circuits on the GPU, eager and as graphs, against the chip's own ceilings; largest gain first."""

from __future__ import annotations

from benchmarks.circuits import CircuitCase, Circuits
from benchmarks.runner import Rows
from tests.nightly.gpu.measure import Part

# The goal is said for 8 qubits, 3 layers and a batch of 32; the others show where a GPU's time goes.
GRIDS = (
    ("strongly_entangling", (8,), (32, 8192)),
    ("strongly_entangling", (4, 12), (32, 1024)),
    ("vqc", (4, 8), (32, 8192)),
    ("qlcu", (6,), (32, 8192)),
    ("strongly_entangling", (6, 10), (32, 1024, 8192)),
    ("strongly_entangling", (4, 8), (1, 256, 1024)),
)


# The simulators of others compile for long, and some may be missing: they are a part of their own, the last.
OURS = ("fused", "kronecker")


def measure(part: Part) -> None:
    """Ours."""
    grids(part, OURS)


def grids(part: Part, names: tuple[str, ...]) -> None:
    """Grid after grid, each cell as it ends, then the machine with its ceilings."""

    def show(case: CircuitCase, rows: Rows) -> None:
        part.say(cell=str(case), rows=rows)

    for ansatz, qubits, batches in GRIDS:
        if part.left() < 5:
            part.say(grid=[ansatz, qubits, batches], skipped="the time was over")
            continue
        bench = Circuits(
            device="cuda",
            ansatz=(ansatz,),
            qubits=qubits,
            batch=batches,
            simulators=names,
            budget=2.0,
            repeats=7,
        )
        result = bench.run(show, limit_s=part.left())
        part.say(machine=result["machine"], reference=result["reference"])
