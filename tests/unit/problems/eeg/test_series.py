"""Trials of EEG: reading EDF files, generated ones, their splits, and how they are kept on disk."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ketscale.config import Data, Split
from ketscale.errors import UserError
from ketscale.problems import arrays
from ketscale.problems.eeg import eegmmidb, prepared, synthetic
from ketscale.problems.eeg.prepared import by_subject, leaving_one_run_out
from ketscale.problems.eeg.specification import CHANNELS, Eegmmidb, EegSynthetic, eeg_file
from ketscale.problems.samples import Samples
from ketscale.problems.splits import SPLITS
from tests import ROOT
from tests.unit.problems.eeg.edf_factory import RATE, write_edf

SHARED = Path(os.environ.get("KETSCALE_SHARED", ROOT.parent / "shared")) / "data/eegmmidb"
CUES = [(1.0, "T0"), (3.0, "T1"), (7.0, "T2"), (11.0, "T1"), (15.0, "T2")]
SWAPPED = (CHANNELS[1], CHANNELS[0], *CHANNELS[2:])
SYNTHETIC: dict[str, Any] = {
    "subjects": 4, "trials": 20, "rate": 80, "window_s": 3.1, "seed": 5, "split": "subjects", "split_seed": 0,
}  # fmt: skip


def recording(seconds: int = 20, channels: int = 64) -> np.ndarray:
    """Channel c holds a slow sine of c + 1 microvolts."""
    time = np.arange(seconds * RATE) / RATE
    return np.arange(1, channels + 1)[:, None] * np.sin(2 * np.pi * time / 5)


def read(folder: Path, subjects: list[int], runs: list[int], **settings: Any) -> Samples:
    defaults = {"split": "subjects", "split_seed": 0, "subjects": subjects, "runs": runs}
    return eegmmidb.recorded(Eegmmidb(**{**defaults, **settings}), folder)


def generated(**settings: Any) -> Samples:
    return synthetic.generate(EegSynthetic(**{**SYNTHETIC, **settings}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One subject with two runs."""
    for run in (4, 8):
        write_edf(tmp_path / eeg_file(1, run), recording(), CUES)
    return tmp_path


# --- reading ---


def test_trials_are_cut_after_their_cues(folder: Path) -> None:
    result = read(folder, [1], [4, 8], rate=80)
    assert result.values.shape == (8, 64, 249)
    assert result.values.dtype == np.float32
    assert result.targets.tolist() == [0, 1] * 4
    assert result.names == ("left fist", "right fist")
    assert result.groups["runs"].tolist() == [4] * 4 + [8] * 4
    assert set(result.groups["subjects"].tolist()) == {1}
    # 3 s is the cue of the first trial: it starts at 4 s. Millivolts.
    time = 4.0 + np.arange(249) / 80
    expected = 1e-3 * 64 * np.sin(2 * np.pi * time / 5)
    np.testing.assert_allclose(result.values[0, 63], expected, atol=2e-3)


def test_a_band_pass_takes_slow_waves_away(folder: Path) -> None:
    plain = read(folder, [1], [4], rate=80)
    passed = read(folder, [1], [4], rate=80, band=(8, 30))
    assert passed.values.std() < 0.1 * plain.values.std()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: write_edf(path, recording(), [(1.0, "T0")]),
        lambda path: write_edf(path, recording(seconds=17), CUES),
        lambda path: write_edf(path, recording(), CUES, SWAPPED),
        lambda path: write_edf(path, recording(), CUES, rate=128),
    ],
    ids=["missing", "shorter", "no cue", "ends early", "channels swapped", "another rate"],
)
def test_a_recording_that_is_another_is_an_error_that_names_it(folder: Path, damage: Any) -> None:
    path = folder / eeg_file(1, 8)
    damage(path)
    with pytest.raises(UserError, match=re.escape(str(path))):
        read(folder, [1], [4, 8], rate=80)


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"{SHARED} is not here")
def test_the_real_recordings_have_their_known_trials() -> None:
    result = read(SHARED, [1], [4, 8, 12], rate=80)
    assert result.values.shape == (45, 64, 249)
    assert np.bincount(result.targets).tolist() == [23, 22]
    # Raw EEG: tens of microvolts.
    assert 0.01 < result.values.std() < 0.2


# --- generated ---


def test_generated_trials_are_a_function_of_the_seed() -> None:
    first, repeat, other = (generated(seed=s) for s in (1, 1, 2))
    assert np.array_equal(first.values, repeat.values) and not np.array_equal(first.values, other.values)
    louder = generated(seed=1, gain=20.0)
    np.testing.assert_allclose(louder.values, 20 * first.values, rtol=1e-6)
    np.testing.assert_array_equal(louder.targets, first.targets)
    assert first.values.shape == (80, 64, 249)
    assert np.bincount(first.targets).tolist() == [40, 40]


def test_rhythms_are_weaker_opposite_to_the_imagined_fist() -> None:
    result = generated(subjects=3, trials=60, rate=80, window_s=3.1, seed=0)
    spectrum = np.abs(np.fft.rfft(result.values)) ** 2
    frequencies = np.fft.rfftfreq(249, 1 / 80)
    mu = spectrum[..., (frequencies > 8) & (frequencies < 12)].sum(2)

    def power(side: tuple[int, ...], label: int) -> float:
        return float(mu[result.targets == label][:, list(side)].mean())

    assert power(synthetic.RIGHT, 0) < 0.7 * power(synthetic.RIGHT, 1)
    assert power(synthetic.LEFT, 1) < 0.7 * power(synthetic.LEFT, 0)
    others = tuple(set(range(64)) - {*synthetic.LEFT, *synthetic.RIGHT})
    assert power(others, 0) == pytest.approx(power(others, 1), rel=0.2)


def test_the_background_falls_as_one_over_f() -> None:
    noise = synthetic._pink(np.random.default_rng(0), (200, 4), 1024)
    power = (np.abs(np.fft.rfft(noise)) ** 2).mean((0, 1))
    low, high = power[8:16].mean(), power[128:256].mean()
    assert low / high == pytest.approx(16, rel=0.2)


# --- splits ---


def test_no_subject_is_in_two_splits() -> None:
    result = generated(subjects=20, trials=2, rate=10, window_s=1, seed=0)
    split = by_subject(result, 3)
    sets = [set(result.groups["subjects"][split[name]].tolist()) for name in SPLITS]
    assert [len(s) for s in sets] == [14, 3, 3]
    assert not sets[0] & sets[1] and not sets[0] & sets[2] and not sets[1] & sets[2]
    assert by_subject(result, 4)["test"].tolist() != split["test"].tolist()


def test_every_run_is_left_out_once(folder: Path) -> None:
    write_edf(folder / eeg_file(1, 12), recording(), CUES)
    result = read(folder, [1], [4, 8, 12], rate=40)
    folds = leaving_one_run_out(result, 0)
    assert [set(result.groups["runs"][fold["test"]].tolist()) for fold in folds] == [{4}, {8}, {12}]
    for fold in folds:
        union = np.concatenate([fold[name] for name in SPLITS])
        assert sorted(union.tolist()) == list(range(12))


# --- on disk ---


def opened(manifest: Path, seed: int) -> Data:
    run: Any = SimpleNamespace(run=SimpleNamespace(seed=seed))
    return prepared.read(run, manifest)


def test_prepared_trials_are_what_was_made(tmp_path: Path) -> None:
    manifest = tmp_path / "features.json"
    prepared.prepare(EegSynthetic(**SYNTHETIC), manifest, None)
    first = manifest.read_bytes()
    data, trials = opened(manifest, seed=7), generated()
    assert data.data_hash == arrays.digest((trials.values, trials.targets, *trials.groups.values()))
    assert (data.content.inputs == trials.values).all() and (data.content.targets == trials.targets).all()
    assert data.split == Split("subjects", shared=0)
    assert [len(data.content.splits[name]) for name in SPLITS] == [40, 20, 20]
    prepared.prepare(EegSynthetic(**SYNTHETIC), manifest, None)
    assert manifest.read_bytes() == first


def test_the_seed_says_which_run_is_left_out(folder: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "kept" / "features.json"
    settings = {"subjects": [1], "runs": [4, 8], "rate": 40, "split": "runs", "split_seed": 0}
    prepared.prepare(Eegmmidb(**settings), manifest, folder)
    # The two recordings are copies, and the record says so.
    assert opened(manifest, seed=0).split == Split("runs", 0, 2, 4, shared=4)
    assert opened(manifest, seed=3).split == Split("runs", 1, 2, 8, shared=4)
