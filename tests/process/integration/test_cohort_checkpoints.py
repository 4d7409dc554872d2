"""Each member of a cohort has a checkpoint of its own: whoever goes on, with whomever, takes no step again."""

from __future__ import annotations

import csv
import json
import math
import random
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ketscale import grid
from ketscale.errors import UserError
from ketscale.jobs import cohorts
from ketscale.process import THREAD_VARIABLES
from ketscale.training import checkpoint, pace
from ketscale.training.stack import Stack
from ketscale.training.step import Stepper
from tests.nightly.faults import SEED
from tests.process.integration.trials import Study, generated

KILLED = (0, 1, 2)
# After how many written checkpoints they are killed: once between two rounds of them, and once within a round. A round
# follows each step, and with a patience of 3 epochs of three steps none stops early before the twelfth.
MOMENTS = [3 * random.Random(SEED).randrange(1, 9) + within for within in (0, 1 + SEED % 2)]


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    """Runs 0 to 2 were trained together, and 3 alone, undisturbed."""
    with pytest.MonkeyPatch.context() as patch:
        for name in THREAD_VARIABLES:
            patch.setenv(name, "1")
        # After each step, however long one takes.
        patch.setattr(pace, "SAVING_SHARE", math.inf)
        patch.setattr(pace, "AGREE_STEPS", 1)
        made = Study(
            tmp_path_factory.mktemp("study"),
            generated(Path(), 45),
            {"model": "classical_hydra", "qubits": 0, "layers": 0, "simulator": "none"},
            checkpoint_steps=1,
            epochs=12,
            learning_rate=1e-3,
            early_stopping={"monitor": "loss", "patience": 3},
        )
        made.train("whole", 0, made.cohort(patch, "whole", KILLED))
        made.train("whole", 3, None)
        yield made


def killed(study: Study, moment: int, patch: pytest.MonkeyPatch) -> tuple[str, dict[int, int]]:
    """Kill the cohort of three after so many written checkpoints: its place, and the steps that the runs had saved."""
    where, save, written = f"killed{moment}", checkpoint.save, 0

    def save_or_die(*arguments: Any) -> None:
        nonlocal written
        if written == moment:
            raise Killed
        written += 1
        save(*arguments)

    cohort = study.cohort(patch, where, KILLED)
    with patch.context() as inner:
        inner.setattr(checkpoint, "save", save_or_die)
        with pytest.raises(Killed):
            study.train(where, 0, cohort)
    return where, {seed: saved(study, where, seed) for seed in KILLED}


def file_of(study: Study, where: str, seed: int) -> Path:
    """The checkpoint of a run."""
    (file,) = study.path(where, seed).parent.glob("checkpoint/*.pt")
    return file


def saved(study: Study, where: str, seed: int) -> int:
    """The step of a run's checkpoint."""
    file = file_of(study, where, seed)
    key = json.loads(file.read_bytes().partition(b"\n")[0])["key"]
    state = checkpoint.load(file.parent.parent, key)
    assert state is not None
    return int(state["step"])


def rows(study: Study, where: str, seed: int) -> list[dict[str, Any]]:
    """A run's history without its times."""
    with study.path(where, seed).with_name(grid.HISTORY).open(newline="") as file:
        found = list(csv.DictReader(file))
    assert all(float(row.pop("epoch_s") or 1) > 0 for row in found)
    return found


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many runs took each step."""
    found: list[int] = []
    together, alone = Stack.take, Stepper.take

    def counted(self: Stack, batches: Any, step: int) -> Any:
        found.append(len(batches))
        return together(self, batches, step)

    def counted_alone(self: Stepper, *arguments: Any) -> Any:
        found.append(1)
        return alone(self, *arguments)

    monkeypatch.setattr(Stack, "take", counted)
    monkeypatch.setattr(Stepper, "take", counted_alone)
    return found


# None: the members of the plan for more cores.
@pytest.mark.parametrize(
    ("moment", "cases"),
    list(zip(MOMENTS, [(KILLED, (0, 1, 2, 3)), (KILLED, (0, 2), (1,), None)], strict=True)),
)
def test_the_members_of_a_killed_cohort_go_on_with_whomever_they_find(
    study: Study,
    moment: int,
    cases: tuple[tuple[int, ...] | None, ...],
    monkeypatch: pytest.MonkeyPatch,
    taken: list[int],
) -> None:
    where, steps = killed(study, moment, monkeypatch)
    assert (len(set(steps.values())) == 1) == (moment % 3 == 0)
    (pair,) = cohorts.plan([study.settings[seed] for seed in KILLED], 2)
    on_more_cores = tuple(settings.run.seed for settings in pair)
    for case, members in enumerate(each or on_more_cores for each in cases):
        place = f"{where}-{case}"
        shutil.copytree(study.folder / where, study.folder / place)
        taken.clear()
        study.train(place, members[0], study.cohort(monkeypatch, place, members) if members[1:] else None)
        records = {seed: study.record(place, seed) for seed in members}
        assert sum(taken) == sum(
            record["timing"]["steps"] - steps.get(seed, 0) for seed, record in records.items()
        )
        ends = [datetime.fromisoformat(record["stopped"]) for record in records.values()]
        spent = max(ends) - datetime.fromisoformat(records[members[0]]["started"])
        assert 3600 * sum(record["node_hours"] for record in records.values()) <= spent.total_seconds() + 1e-3
        for seed, record in records.items():
            whole = study.record("whole", seed)
            assert record["resumed"] == (seed in steps)
            others = {*members, *(KILLED if seed in steps else ())} - {seed}
            assert record["cohort"] == [f"quality/seed{other}" for other in sorted(others)]
            if members == KILLED and moment % 3 == 0:
                for name in ("weights_hash", "losses", "quality"):
                    assert record[name] == whole[name], name
                assert rows(study, place, seed) == rows(study, "whole", seed)
            assert record["losses"] == pytest.approx(whole["losses"], rel=1e-10)
            assert record["timing"]["steps"] == whole["timing"]["steps"]
            assert record["quality"]["test"]["loss"] == pytest.approx(
                whole["quality"]["test"]["loss"], rel=1e-7
            )
            mine, theirs = (rows(study, of, seed) for of in (place, "whole"))
            for name in mine[0]:
                numbers = [[float(row[name]) for row in of] for of in (mine, theirs)]
                assert numbers[0] == pytest.approx(numbers[1], rel=1e-7), name


def test_a_damaged_checkpoint_stops_its_own_run_alone(
    study: Study, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where, steps = killed(study, 6, monkeypatch)
    damaged = file_of(study, where, 1)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    cohort = study.cohort(monkeypatch, where, KILLED)
    said = f"{damaged}: damaged (its checksum differs); delete it and start the run again"
    with pytest.raises(UserError) as refused:
        study.train(where, 1, cohort)
    assert str(refused.value) == said
    study.train(where, 0, cohort)
    told = capsys.readouterr().err
    begun = f"trains 2 runs together: quality/seed0, quality/seed2 from step {steps[0]}\n"
    assert said in told and begun in told
    assert [study.path(where, seed).exists() for seed in KILLED] == [True, False, True]
    assert study.record(where, 2)["cohort"] == ["quality/seed0", "quality/seed1"]
    damaged.unlink()
    study.train(where, 1, cohort)
    assert study.record(where, 1)["losses"] == pytest.approx(study.record("whole", 1)["losses"], rel=1e-10)
