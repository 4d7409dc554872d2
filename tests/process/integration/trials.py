"""A small study of several seeds on trials of EEG, whose runs are trained in the process of the test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ketscale.config import Config, Settings
from ketscale.jobs import cohorts, finished, session
from ketscale.measure.record import check
from ketscale.problems.registry import FAMILIES

TRAINING = {
    "precision": "fp64", "features": "cached", "timed": False, "learning_rate": 0.01, "dropout": 0.1,
    "early_stopping": {"monitor": "loss", "patience": 10},
}  # fmt: skip
SEEDS = 5
# The family's own models train alone, one of the user's with others if it can.
SERIES = """
from torch import nn

from ketscale.layers.dropout import SampleDropout


class Series(nn.Sequential):
    def __init__(self, inputs, outputs, dropout):
        channels, steps = inputs
        head = nn.Linear(6, outputs)
        super().__init__(nn.Flatten(), nn.Linear(channels * steps, 6), nn.Tanh(), SampleDropout(dropout), head)
"""


def generated(trials: int) -> dict[str, Any]:
    """The settings of one subject's generated trials, in recordings of 15."""
    return {
        "kind": "eeg-synthetic", "subjects": 1, "trials": trials, "rate": 20, "window_s": 0.5, "seed": 0,
        "gain": 20, "split": "runs", "split_seed": 0,
    }  # fmt: skip


class Study:
    """Runs of one model with several seeds, on a prepared workload."""

    def __init__(
        self, folder: Path, workload: dict[str, Any], axes: Mapping[str, Any] | None = None, **protocol: Any
    ) -> None:
        self.folder, self.manifest = folder, folder / "features" / "features.json"
        (folder / "series.py").write_text(SERIES)
        axes = {
            "model": "series", "qubits": 0, "layers": 0, "simulator": "none", "workload": "trials", "batch": 8, "backend": "cpu-n1r1t1", "protocol": "quality", "seed": list(range(SEEDS)),
            **(axes or {}),
        }  # fmt: skip
        config = Config.of(
            {
                "title": "test",
                "workloads": {"trials": workload},
                "models": {"series": {"file": str(folder / "series.py"), "class": "Series"}},
                "protocols": {"quality": {**TRAINING, "epochs": 10, **protocol}},
                "studies": {"s": {"kind": "accuracy", "question": "?", "axes": axes}},
            },
            FAMILIES,
        )
        self.settings: list[Settings] = [config.settings(run) for run in config.runs]
        first = self.settings[0]
        assert first.family.prepare is not None
        first.family.prepare(first.workload, self.manifest, None)

    def train(self, where: str, seed: int, cohort: Path | None) -> str:
        """Train the run of this seed as its job does, with its cohort if one is named."""
        settings = self.settings[seed]
        return session.train(settings, self.folder / where / settings.run.folder, self.manifest, cohort)

    def path(self, where: str, seed: int) -> Path:
        """The path of a run's record."""
        return self.folder / where / self.settings[seed].run.path

    def record(self, where: str, seed: int) -> dict[str, Any]:
        """A record, checked."""
        settings = self.settings[seed]
        hashed = json.loads(self.manifest.read_text())["hash"]
        # As its own job does, which puts in its place what another run's job keeps for it.
        finished.result(self.path(where, seed).parent, settings, hashed)
        result = check(self.path(where, seed), settings, hashed)
        assert result.record is not None, result.why
        built: dict[str, Any] = msgspec.to_builtins(result.record)
        return built

    def cohort(
        self, monkeypatch: pytest.MonkeyPatch, where: str, seeds: Sequence[int] = range(SEEDS)
    ) -> Path:
        """Write down the cohort of some runs, as a call of Snakemake does."""
        monkeypatch.setenv("KETSCALE_CALL", f"call-{where}")
        cohorts.write(self.folder / where, [[self.settings[seed] for seed in seeds]])
        file = cohorts.file_of(self.settings[seeds[0]].run)
        assert file is not None
        return file
