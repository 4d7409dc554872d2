"""The benchmark of models: rows, files, and what is timed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import steps
from benchmarks.peers import jax_step
from benchmarks.steps import ModelCase
from ketscale import cli
from ketscale.config import Protocol
from ketscale.errors import UserError
from ketscale.training.step import Stepper


def test_a_whole_benchmark_of_models(tmp_path: Path) -> None:
    files = {kind: tmp_path / f"bench.{kind}" for kind in ("json", "png", "md")}
    named = zip(("--json", "--figure", "--markdown"), files.values(), strict=True)
    options = [str(part) for pair in named for part in pair]
    arguments = "--models mamba_hybrid --qubits 2 --batch 2 --simulators fused,default.qubit --repeats 5"
    assert cli.main(["bench", "models", *arguments.split(), *options]) == 0
    result = json.loads(files["json"].read_text())
    assert [(r["simulator"], r["status"]) for r in result["rows"]] == [
        ("fused", "timed"),
        ("default.qubit", "timed"),
    ]
    for row in result["rows"]:
        assert row["median_s"] > 0 and row["peak_bytes"] > 0
        assert {"circuit.forward", "circuit.backward", "classical.forward", "optimiser"} <= set(row["spans"])
    assert "| mamba_hybrid | 2 | 2 | default.qubit |" in files["md"].read_text()
    assert files["png"].read_bytes().startswith(b"\x89PNG")


def test_what_is_timed_is_the_trainers_step(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[int, int, Protocol]] = []
    take = Stepper.take

    def recorded(stepper: Stepper, indices: torch.Tensor, step: int) -> Any:
        taken.append((len(indices), step, stepper.protocol))
        return take(stepper, indices, step)

    monkeypatch.setattr(Stepper, "take", recorded)
    for case, protocol in (
        (ModelCase("mamba_hybrid", 2, 3), steps.LABELLED_PROTOCOL),
        (ModelCase("superposition_transformer", 4, steps.SENTENCES), steps.SENTENCES_PROTOCOL),
    ):
        call = steps.step(case, "fused")
        losses = [float(call()) for _ in range(3)]
        assert taken == [(case.batch, number, protocol) for number in range(3)]
        assert len(set(losses)) == 3
        taken.clear()


def test_the_step_in_jax_has_the_losses_of_the_trainer() -> None:
    try:
        assert jax_step.disagreement(ModelCase("vqc", 2, 3)) is None
    except UserError as missing:
        pytest.skip(str(missing))


def test_a_literal_step_on_sentences_is_projected_from_the_loss_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = ModelCase("superposition_transformer", 4, steps.SENTENCES)
    expected = float(steps.step(case, "fused")())
    monkeypatch.setattr(Stepper, "take", None)
    call = steps.step(case, "literal-bound")
    assert float(call()) == pytest.approx(expected, rel=1e-9)
    assert (steps.evaluations(case, "literal-bound"), steps.evaluations(case, "fused")) == (97, 1)
