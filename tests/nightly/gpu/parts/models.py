"""Training steps of all models on the GPU, eager and as graphs."""

from __future__ import annotations

from benchmarks import steps
from benchmarks.models import Models
from benchmarks.runner import Rows
from benchmarks.steps import ModelCase
from tests.nightly.gpu.measure import Part

CIRCUITS = tuple(name for name, kind in steps.MODELS.items() if not kind.classical)
CLASSICAL = tuple(name for name, kind in steps.MODELS.items() if kind.classical)
# The models of the published claims first; large batches of classical models last, since their steps are slow.
GRIDS = (
    (("vqc",), (4, 8), (32, 256, 2048, 8192)),
    (("hydra", "mamba", "superposition_transformer"), (6,), (32, 256, 2048)),
    (CIRCUITS, (6,), (32, 2048)),
    (("hydra", "mamba"), (6,), (8192,)),
    (CLASSICAL, (), (32, 2048, 8192)),
)


def measure(part: Part) -> None:
    """Grid after grid, each cell as it ends, then the machine."""

    def show(case: ModelCase, rows: Rows) -> None:
        part.say(cell=str(case), rows=rows)

    for names, qubits, batches in GRIDS:
        # A step of a classical model at a large batch is many small ones, and is not interrupted.
        if part.left() < (15 if names == CLASSICAL else 5):
            part.say(grid=[names, qubits, batches], skipped="the time was over")
            continue
        bench = Models(
            models=names,
            qubits=qubits or (0,),
            batch=batches,
            simulators=("fused", steps.CLASSICAL),
            device="cuda",
            budget=3.0,
            repeats=5,
        )
        part.say(machine=bench.run(show, limit_s=part.left())["machine"])
