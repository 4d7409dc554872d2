"""Training steps of all models on the GPU, eager and as graphs."""

from __future__ import annotations

from ketscale.bench import models, steps
from ketscale.bench.models import ModelSelection
from ketscale.bench.rows import ModelRow
from ketscale.bench.steps import ModelCell
from tests.gpu.measure import Part

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

    def show(cell: ModelCell, rows: list[ModelRow]) -> None:
        part.say(cell=str(cell), rows=[vars(row) for row in rows])

    for names, qubits, batches in GRIDS:
        # A step of a classical model at a large batch is many small ones, and is not interrupted.
        if part.left() < (15 if names == CLASSICAL else 5):
            part.say(grid=[names, qubits, batches], skipped="the time was over")
            continue
        chosen = ModelSelection(
            models=names,
            qubits=qubits or (0,),
            batches=batches,
            simulators=("fused", steps.CLASSICAL),
            device="cuda",
            budget_s=3.0,
            repeats=5,
        )
        part.say(machine=models.measure(chosen, show, limit_s=part.left())["machine"])
