"""The numbers of the five readers: their points are runs of the studies that they name, and records give them all."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks import readers
from ketscale.config import Config
from ketscale.errors import UserError
from ketscale.grid import RECORD, Run
from ketscale.problems.samples import Samples
from tests import records_factory as factory

OPTIONS = argparse.Namespace(quick=False, mnist=None, stand_in=False)


def studied(name: str, out: Path) -> Config:
    return readers._studied(name, readers.READERS[name], out, OPTIONS)


def runs(name: str, config: Config) -> list[Run]:
    points = readers.READERS[name].points.items()
    return [Run.parse(f"runs/{point}/seed{seed}/{RECORD}") for point, seeds in points for seed in seeds]


@pytest.mark.parametrize("name", readers.READERS)
def test_what_a_reader_trains_is_in_its_study(name: str, tmp_path: Path) -> None:
    config = studied(name, tmp_path)
    assert set(runs(name, config)) <= config.run_set


@pytest.mark.parametrize("name", readers.READERS)
def test_records_give_the_numbers_of_a_reader(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        factory, "SPANS", {"pulses.forward": 0.2, "pulses.backward": 0.55, "pulses.gates": 0.2}
    )
    result = factory.metrics
    monkeypatch.setattr(
        factory,
        "metrics",
        lambda config, run: {key: max(each, 1e-5) for key, each in result(config, run).items()},
    )
    config = studied(name, tmp_path)
    results = Path(config.results)
    for run in runs(name, config):
        factory.write(config, results, factory.record(config, run))
    timing = results / "features" / "mnist" / "of-these-images" / "timing.json"
    timing.parent.mkdir(parents=True)
    timing.write_text('{"embed_seconds": 30.1}')
    value, busy = readers.numbers(name, readers.READERS[name], results)
    assert busy == set()
    here = {each.number: each for each in value if "Synthetic CPU" in each.source}
    assert len(value) == len(here) + len(readers.READERS[name].published)
    assert len({each.number for each in value}) == len(value)
    for each in here.values():
        assert each.value is not None
        assert each.n in (1, 3)
        assert (each.low is None) == (each.n == 1)
    if name == "gate":
        # A quarter is repeated, so that eight devices gain 1 / (1/4 + 3/4 / 8).
        assert here["repeated-matched-6"].shown == "25 % (25 to 25)"
        assert here["ceiling-matched-6"].shown == "2.91x (2.91 to 2.91)"
    if name == "transformer":
        # The made-up times of two ranks are 0.3 + 0.7 / 2 of those of one.
        assert here["ranks-fused"].value == pytest.approx(1 / 0.65)
        assert here["sentence-literal"].n == 1


def test_numbers_of_a_busy_machine_are_not_written_and_a_run_that_failed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = studied("transformer", tmp_path)
    results = Path(config.results)
    for number, run in enumerate(runs("transformer", config)):
        changes = {"quiet": factory.BUSY} if number == 0 else {}
        factory.write(config, results, factory.record(config, run, **changes))
    reader = readers.READERS["transformer"]
    assert len(readers.numbers("transformer", reader, results)[1]) == 1
    # Snakemake would find nothing to do.
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess((), 0))
    with pytest.raises(UserError, match=r"others used the machine during .*seed"):
        readers.main(["transformer", "--out", str(tmp_path)])
    assert not (tmp_path / "transformer.csv").exists()
    factory.write(config, results, factory.record(config, run, status="diverged"))
    with pytest.raises(UserError, match="diverged"):
        readers.numbers("transformer", reader, results)


@pytest.mark.parametrize("share", [None, "others_share"])
def test_ranks_that_disturb_each_other_on_purpose_have_no_company(tmp_path: Path, share: str | None) -> None:
    config = studied("eeg", tmp_path)
    results = Path(config.results)
    wrong = next(run for run in runs("eeg", config) if run.protocol == "one-device")
    shares = {name: 0.5 * (name == share) for name in ("others_share", "steal_share", "throttled_share")}
    for run in runs("eeg", config):
        changes = {"quiet": {**factory.BUSY, **shares}} if run == wrong else {}
        factory.write(config, results, factory.record(config, run, **changes))
    assert len(readers.numbers("eeg", readers.READERS["eeg"], results)[1]) == (share is not None)


def test_the_stand_in_has_as_many_images_as_are_asked_for() -> None:
    pixels = np.random.default_rng(1).integers(0, 255, (10, 6, 6), np.uint8)
    arguments = Samples(values=pixels, targets=np.arange(10), names=tuple("0123456789"), peak=255)
    result = readers.stand_in(arguments, 60)
    assert result["images"].shape == (70, 6, 6)
    assert [(result["split"] == part).sum() for part in ("train", "validation", "test")] == [54, 6, 10]
    assert (result["images"][60:] == pixels).all()
    # Each is a shift of an image of its own label.
    for image, label in zip(result["images"], result["labels"], strict=True):
        shifts = [
            np.roll(pixels[label], (down, right), (0, 1)) for down in range(-2, 3) for right in range(-2, 3)
        ]
        assert any((image == shift).all() for shift in shifts)
