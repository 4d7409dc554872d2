"""Runs that are disturbed: the transformer on its eight sentences by parameter-shift, a dozen seconds of small, exact steps."""

from typing import Any

from ketscale.grid import Run
from tests.nightly.slurm.project import Project

STEPS = 1000


def config(places: list[str], steps: int = STEPS, seeds: int = 1) -> dict[str, Any]:
    return {
        "title": "Runs that are disturbed",
        "workloads": {"sentences": {"seed": 42, "held_out": 2, "split_seed": 0}},
        "simulators": {
            "shift": {"device": "closed-form", "gradient": "parameter-shift", "batching": "broadcast", "placement": "model"}
        },
        "protocols": {
            "long": {"precision": "fp64", "features": "cached", "timed": False, "steps": steps, "learning_rate": 0.003, "checkpoint_steps": 100}
        },
        "studies": {
            "long": {
                "kind": "parity",
                "question": "Do disturbed runs end as others do?",
                "axes": {
                    "workload": "sentences", "model": "superposition_transformer", "qubits": 4, "layers": 1, "batch": 8,
                    "simulator": "shift", "backend": places, "protocol": "long", "seed": list(range(seeds)),
                },
            }
        },
    }  # fmt: skip


def one_run(project: Project, place: str = "cpu-n1r1t1", **site: Any) -> Run:
    project.site(**site)
    (run,) = ready(project, config([place]))
    return run


def ready(project: Project, settings: dict[str, Any]) -> list[Run]:
    """The runs of a study whose sentences are prepared."""
    runs = project.study(**settings)
    project.prepare()
    return runs
