"""Synthetic records for the tests of the analysis; they never leave a test's temporary folder."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import yaml

from ketscale import analysis
from ketscale.analysis import report
from ketscale.analysis.analysed import Analysed
from ketscale.config import Config, Settings, sources
from ketscale.grid import HISTORY, Run, config_hash
from ketscale.jobs import choice, prepared
from ketscale.measure import record as records
from ketscale.measure.right import packed
from tests import ROOT
from tests import record_maker as maker

FEATURES = "f" * 64
STEP_S = {
    "fused": 0.002,
    "default.qubit": 0.004,
    "lightning.qubit": 0.05,
    "default.qubit-loop-shift": 2.0,
    "qiskit": 5.0,
    "none": 0.001,
}
SPANS = {
    "data": 0.02, "transfer": 0.01, "classical.forward": 0.15, "circuit.forward": 0.25,
    "circuit.backward": 0.3, "classical.backward": 0.17, "communication.wait": 0.02, "communication": 0.03,
    "communication.total": 0.1, "optimiser": 0.05,
}  # fmt: skip


@cache
def _study() -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load((ROOT / "tests" / "data" / "study.yaml").read_text())
    return settings


def default_study() -> dict[str, Any]:
    """The settings in tests/data/study.yaml, which has most kinds of studies."""
    return copy.deepcopy(_study())


def default_config() -> Config:
    """The config that they make."""
    return analysis.of(default_study())


def small_study(studies: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The default study's workloads, simulators and protocols with other studies, and other settings replaced."""
    return {**default_study(), "studies": dict(studies), **changes}


def small_config(studies: Mapping[str, Any], **changes: Any) -> Config:
    """The config that they make."""
    return analysis.of(small_study(studies, **changes))


def partial(config: Config) -> Config:
    """The same config, which does with the records that exist."""
    return Config.of({**config.raw, "partial": True}, config.families)


def point(**axes: Any) -> dict[str, Any]:
    """A study's axes at one usual point, with some of them replaced."""
    defaults = {
        "workload": "digits", "model": "vqc", "qubits": 4, "layers": 3, "batch": 64,
        "simulator": "default.qubit", "backend": "cpu-n1r1t1", "protocol": "timing", "seed": [0, 1, 2],
    }  # fmt: skip
    return {**defaults, **axes}


def step_time(run: Run, sizes: Mapping[str, int]) -> float:
    """Seconds a step, plausible: it grows with batch and layers and falls with workers."""
    workers = run.ranks * run.threads
    share = STEP_S.get(run.simulator, 0.002) * (0.5 + run.batch / 64) * (1 + sizes.get("layers", 3) / 3) / 2
    inline = 15 if run.protocol == "timing-inline" else 1
    return share * inline * (0.3 + 0.7 / workers) * (1 + 0.03 * run.seed)


def metrics(config: Config, run: Run) -> dict[str, Any]:
    """The test metrics of a run: the headline one gets better with the seed, and is better of the control."""
    figures: dict[str, Any] = {"loss": 0.2, "count": 200}
    for number, metric in enumerate(config.family(run.workload).metrics):
        gain = 0.01 * run.seed + (0.005 if config.models[run.model][1].classical else 0)
        value = (0.94 + gain if metric.better == "up" else 1e-3 / (1 + gain)) - 0.001 * number
        figures[metric.name] = min(value, 1.0)
    return {**figures, "chance": 0.1}


def with_cases(config: Config, run: Run, quality: Mapping[str, Any]) -> dict[str, Any]:
    """The quality with single cases of the test, if its headline metric is a share: the first ones are right.

    There are as many cases as `count` says, or more if so many cannot have this share.
    """
    metric = config.family(run.workload).headline
    if not metric.is_share:
        return {**quality, "right": None}
    share = quality["test"][metric.name]
    count = next(
        n
        for n in (quality["test"].get("count", 200), 1000, 10_000)
        if abs(share * n - round(share * n)) < 1e-6
    )
    cases = packed([[int(sample < round(share * count))] for sample in range(count)])
    return {**quality, "test": {**quality["test"], "count": count}, "right": msgspec.to_builtins(cases)}


def split_of(config: Config, run: Run) -> dict[str, Any]:
    """A split; the seed chooses the fold of a workload that has several."""
    folds = 3 if getattr(config.workloads[run.workload][1], "folded", False) else None
    fold = None if folds is None else run.seed % folds
    return {"by": "runs" if folds else "labels", "fold": fold, "folds": folds, "held_out": fold, "shared": 0}


def record(config: Config, run: Run, **changes: Any) -> dict[str, Any]:
    """A record of `run`, without its digest; `step_s` sets the step time, `settings` are those with what a search chose, other
    `changes` replace top-level keys. A trial of a search has no test.
    """
    settings = changes.pop("settings", config.settings(run))
    protocol = settings.protocol
    step_s = changes.pop("step_s", step_time(run, settings.sizes))
    empty, steps = maker.quartiles(), protocol.steps or 60
    # All of them fit into the time of training.
    count = max(1, min(steps // 2, 10, int(15 / step_s)))
    around = {**maker.quartiles(step_s, count), "q25_s": 0.97 * step_s, "q75_s": 1.04 * step_s}
    steps_per_epoch = -(-1257 // run.batch)
    train_s = min(59.0, max(10.0, 25 * step_s))
    timing = {
        "startup_s": 1.5, "data_s": 0.1, "first_step_s": min(9.0, 3 * step_s), "step": around,
        "spans": {name: maker.quartiles(share * step_s, count) for name, share in SPANS.items()} if protocol.sampled_steps else {},
        "sampled_step": around if protocol.sampled_steps and step_s < 15 else empty, "validation_s": 0.01, "epoch": empty,
        "steps": steps, "steps_per_epoch": steps_per_epoch, "epoch_s": steps_per_epoch * step_s,
        "samples_per_s": run.batch / step_s, "steps_s": train_s, "aside_s": 0.0, "fit_s": None, "train_s": train_s,
    }  # fmt: skip
    losses = [2.3 * 0.9**step for step in range(min(20, steps))]
    quality = {"epochs": 30 + run.seed, "best_epoch": 20, "chosen": {}}
    quality |= {split: metrics(config, run) for split in ("validation", "test")}
    if protocol.fitted:
        quality |= {"epochs": None, "best_epoch": None, "chosen": {"cost": 1.0}, "tried": 32}
        for split in ("validation", "test"):
            quality[split] = {name: value for name, value in quality[split].items() if name != "loss"}
    if config.is_trial(run):
        quality |= {"test": {}, "right": None}
    completed = changes.get("status", "completed") == "completed"
    if not protocol.stepped:
        timing |= {
            "first_step_s": None, "step": empty, "sampled_step": empty, "spans": {}, "validation_s": None, "steps": 0,
            "steps_per_epoch": 0, "epoch_s": None, "samples_per_s": None, "steps_s": 0.0,
            "fit_s": 1.0 if protocol.fitted and completed else None,
        }  # fmt: skip
        losses = []
    if changes.get("status") == "timed_out":
        # The first step alone took longer than the run's time.
        none = {"step": empty, "sampled_step": empty, "spans": {}, "epoch_s": None, "samples_per_s": None}
        timing |= {**none, "first_step_s": 24.0, "steps": 1, "train_s": 25.0, "steps_s": 24.0}
        losses = losses[:1]
    used = maker.used(run, 400_000_000)["machine"]
    result = {
        "split": split_of(config, run),
        "samples": {"train": 1257, "validation": 270, "test": 270},
        "files": {HISTORY: hashlib.sha256(history(config, run).encode()).hexdigest()},
        "parameters": 70186,
        "data_hash": "d" if settings.family.prepared else None,
        "features_hash": FEATURES if settings.family.prepared else None,
        "code": {
            "version": "0.1.0",
            "hash": "c" * 64,
            "imported": "namehash",
            "commit": "a" * 40,
            "dirty": False,
        },
        "packages": {"torch": "2.9.0", "pennylane": "0.43"},
        "machine": {**used, "host": "a", "cpu": "Synthetic CPU", "memory_bytes": 8 << 30},
        "started": "2026-01-01T00:00:00Z",
        "stopped": "2026-01-01T00:01:00Z",
        "quiet": maker.others(others_share=0.01),
        "quality": quality if protocol.tested and completed else None,
        "losses": losses,
        "timing": timing,
    }
    return maker.of(settings, **{**result, **changes})


def history(config: Config, run: Run) -> str:
    """A history.csv: with epochs 30 of them, two fewer with every seed, that fall and level off."""
    if not config.protocols[run.protocol].by_epochs:
        return "epoch,step\n"
    metric = config.family(run.workload).headline
    columns = ["epoch", "step", "train_loss", "validation_loss", f"validation_{metric.name}", "epoch_s"]
    lines = [",".join(columns)]
    for epoch in range(1, 31 - 2 * run.seed):
        loss = 2.3 * 0.85**epoch + 0.1 + 0.02 * run.seed
        figure = 1 - loss / 3 if metric.better == "up" else 0.7**epoch
        lines.append(f"{epoch},{20 * epoch},{loss:.4f},{loss + 0.05:.4f},{figure:.6g},0.2")
    return "\n".join(lines) + "\n"


def sealed(made: Mapping[str, Any]) -> dict[str, Any]:
    """The record with its digest."""
    return {**made, "digest": config_hash(made)}


def write(config: Config, results: Path, result: Mapping[str, Any], settings: Settings | None = None) -> Path:
    """Such a record below a results folder with its history; the run's folder. settings: with what a search chose."""
    run, quality = Run.of(result["run"]), result["quality"]
    if quality and "right" not in quality:
        result = {**result, "quality": with_cases(config, run, quality)}
    records.write(results / run.path, settings or config.settings(run), result)
    (results / run.folder / HISTORY).write_text(history(config, run))
    return results / run.folder


def collect(config: Config, results: Path) -> Analysed:
    """What the records below `results` say; the tables are written too, but no figure is drawn."""
    report.tables(config, results)
    return Analysed.read(config, results)


def draw(config: Config, results: Path) -> Analysed:
    """The same with the data that figures draw, which are drawn but not saved."""
    from ketscale.analysis.drawing import style

    analysed = collect(config, results)
    with patch.object(style, "_saved", lambda figure, *_: style.plt.close(figure) or {}):
        report.draw(config, results)
    return analysed


Change = Callable[[Run], Mapping[str, Any] | None]
BUSY = maker.others(others_share=0.4)


def fates() -> dict[str, Change]:
    """Changes of records by name: all are there, none is, or of six one is missing, one busy and one diverged."""
    noise = np.random.default_rng(3)

    def some(run: Run) -> Mapping[str, Any] | None:
        fate = int(noise.integers(6))
        if fate == 0:
            return None
        return {1: {"quiet": BUSY}, 2: {"status": "diverged", "reason": "NaN"}}.get(fate, {})

    return {"whole": lambda run: {}, "some": some, "none": lambda run: None}


def write_all(config: Config, results: Path, change: Change = lambda run: {}) -> None:
    """A record of every run of the config below `results`; `change` replaces values, or leaves it out (None)."""
    for workload in {run.workload for run in config.runs}:
        if config.family(workload).prepared:
            folder = results / "features" / workload
            folder.mkdir(parents=True, exist_ok=True)
            block = config.workloads[workload][1]
            result = {"hash": FEATURES, "workload": type(block).__name__, "settings": block.content()}
            (folder / "features.json").write_text(json.dumps(result))
            if config.workloads[workload][1].sources():
                prepared.note(
                    folder / "features.json",
                    prepared.digest(sources(config, workload), folder / "features.json"),
                )
    missing = []
    for run in config.runs:
        changes, settings = change(run), config.settings(run)
        if changes is None and config.is_trial(run):
            missing.append(results / run.folder)  # after the choice
            changes = {}
        if changes is not None:
            if settings.protocol.search:
                pick = choice.make(settings, results, FEATURES if settings.family.prepared else None)
                settings = settings.chosen(pick.chosen, pick.hash)
            result = record(config, run, **{"settings": settings, **changes})
            write(config, results, result, settings)
    for folder in missing:
        shutil.rmtree(folder)
