"""What a test sample has in common with training is refused where it is certainly wrong, and else counted and shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ketscale.config import Split
from ketscale.errors import UserError
from ketscale.problems import splits
from ketscale.problems.eeg import overlaps
from ketscale.problems.eeg.specification import Eegmmidb, eeg_file
from ketscale.problems.splits import SPLITS
from tests.own_files import (
    ANIMALS,
    GREY,
    NETWORK,
    SIGNALS,
    VECTORS,
    loaded,
    npz,
)
from tests.unit.problems.eeg.edf_factory import write_edf
from tests.unit.problems.eeg.test_series import recording
from tests.unit.problems.test_duplicates import of_record

PEOPLE = np.repeat(["anna", "ben", "cleo", "dan", "eve"], 8)
GIVEN = np.repeat(["train", "validation", "test"], [24, 8, 8])
RNG = np.random.default_rng(7)


# --- groups ---


@pytest.mark.parametrize(
    ("block", "data"),
    [
        ({"kind": "series", "split": "trials"}, {"x": SIGNALS}),
        ({"kind": "rows"}, {"x": VECTORS}),
        ({"kind": "arrays", **NETWORK}, {"images": GREY}),
    ],
)
def test_samples_that_belong_together_are_not_drawn_one_by_one(
    block: dict[str, Any], data: dict[str, Any], tmp_path: Path
) -> None:
    for name in ("groups", "Subject", "subject_id", "participants", "session", "run-number", "pid"):
        with pytest.raises(UserError, match=f"array {name}\\b.*split"):
            loaded({**block, "file": npz(tmp_path, y=ANIMALS, **{name: PEOPLE}, **data)})
    loaded({**block, "file": npz(tmp_path, y=ANIMALS, names=PEOPLE, grouping=PEOPLE, trunk=PEOPLE, **data)})


def related(parts: dict[str, np.ndarray], same: Any) -> int:
    """Samples of validation and test that are the `same` as one of an earlier part, one by one."""
    before = {"validation": ["train"], "test": ["train", "validation"]}
    return sum(
        any(same(i, j) for name in names for j in parts[name])
        for part, names in before.items()
        for i in parts[part]
    )


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ({"kind": "series", "split": "given"}, {"x": SIGNALS}),
        ({"kind": "rows", "split": "given"}, {"x": VECTORS}),
        ({"kind": "arrays", "split": "given", **NETWORK}, {"x": GREY}),
    ],
)
def test_groups_that_a_given_split_tears_apart_are_counted(
    kind: dict[str, Any], data: dict[str, Any], tmp_path: Path
) -> None:
    labels = np.arange(40) % 2
    for split in (GIVEN, RNG.permutation(GIVEN)):
        block = {**kind, "file": npz(tmp_path, y=labels, split=split, groups=PEOPLE, **data)}
        read = loaded(block)
        parts, (count,) = read.splits, read.shared()
        assert count == related(parts, lambda i, j: PEOPLE[i] == PEOPLE[j])
        assert (count == 0) == (split is GIVEN)


# --- trials that overlap ---


def windows(record: np.ndarray, steps: int, hop: int) -> np.ndarray:
    """Windows of so many steps, each `hop` after the last, of a recording (channels, time)."""
    starts = range(0, record.shape[1] - steps + 1, hop)
    return np.stack([record[:, start : start + steps] for start in starts])


def related_trials(signals: np.ndarray) -> list[int]:
    return sorted(set(overlaps.marks(signals.astype(np.float32))[:, 1].tolist()))


RECORDINGS = {
    "noise": RNG.normal(size=(3, 4000)),
    "one channel": RNG.normal(size=(1, 4000)),
    "slow": np.cumsum(RNG.normal(size=(2, 4000)), 1),
    "microvolts of 12 bits": np.rint(RNG.normal(0, 300, (4, 4000))),
    "with a dead channel": np.vstack([np.zeros((1, 4000)), RNG.normal(size=(2, 4000))]),
    "clipped": np.clip(RNG.normal(size=(4, 4000)), -1, 1),
}  # fmt: skip


@pytest.mark.parametrize("number", range(len(RECORDINGS)))
def test_windows_that_overlap_are_counted(number: int, tmp_path: Path) -> None:
    """Shuffled, and standardised trial by trial afterwards: the count is that of the windows' places."""
    record, standardise = [*RECORDINGS.values()][number], number % 2 == 0
    steps, hop = [(40, 20), (100, 10), (25, 17), (64, 48)][number % 4]
    assert related_trials(windows(record, 50, 50)) == []
    signals = windows(record, steps, hop)
    signals = signals[: len(signals) // 2 * 2]
    order = RNG.permutation(len(signals))
    file = npz(tmp_path, x=signals[order], y=np.arange(len(signals)) % 2)
    block = {"kind": "series", "split": "trials", "file": file, "standardise": standardise, "split_seed": 3}
    parts = loaded(block).splits
    reach = -(-steps // hop)  # windows that are so far apart have nothing in common, or the very end
    near = related(parts, lambda i, j: abs(int(order[i]) - int(order[j])) < reach - 1)
    far = related(parts, lambda i, j: abs(int(order[i]) - int(order[j])) < reach)
    split = of_record(block, tmp_path / "features.json")
    assert split.shared is not None and max(near, 1) <= split.shared <= far


def mirrored(signals: np.ndarray) -> np.ndarray:
    """One of the trials runs backwards."""
    return np.concatenate([signals[:3], signals[3:4, :, ::-1], signals[4:]])


def calibrated(signals: np.ndarray) -> np.ndarray:
    """Two of the trials have a sine instead."""
    sine = np.sin(np.arange(signals.shape[2]) * 2 * np.pi / 8) * np.ones(signals.shape[1:])
    return np.concatenate([signals[:10], [sine, sine], signals[12:]])


def with_channel(signals: np.ndarray, channel: np.ndarray) -> np.ndarray:
    return np.append(signals, np.broadcast_to(channel, (len(signals), 1, signals.shape[2])), axis=1)


CHANGED = {
    "one runs backwards": mirrored,
    "two have a sine": calibrated,
    "each value held": lambda signals: signals.repeat(4, axis=2),
    "a channel of the time": lambda signals: with_channel(signals, np.arange(signals.shape[2])),
    "a channel of the number": lambda signals: with_channel(signals, np.arange(len(signals))[:, None, None]),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGED)
def test_windows_that_overlap_are_found_and_no_others_whatever_else_there_is(change: str) -> None:
    signals = windows(RNG.normal(size=(8, 9000)), 120, 60)
    assert len(related_trials(CHANGED[change](signals))) >= len(signals) - 6
    separate = windows(RNG.normal(size=(2, 9000)), 60, 60)
    assert related_trials(CHANGED[change](separate)) == ([10, 11] if change == "two have a sine" else [])


def with_stretch(start: int, stop: int, value: float) -> np.ndarray:
    signals = RNG.normal(size=(60, 2, 80))
    signals[..., start:stop] = value
    return signals


ALIKE = {
    "a constant": np.full((60, 3, 80), 2.5),
    "padding": with_stretch(30, 80, 0.0),
    "a gap": with_stretch(20, 70, 3.0),
    "clipped": np.clip(RNG.normal(size=(200, 1, 80)), -0.3, 0.3),
    "slow integers": np.rint(np.cumsum(RNG.normal(0, 2, (300, 1, 120)), -1)),
    "held samples": np.rint(RNG.normal(size=(300, 1, 12)).repeat(10, -1) * 3),
}  # fmt: skip


@pytest.mark.parametrize("kind", ALIKE)
def test_what_is_alike_by_chance_or_constant_is_not_counted(kind: str) -> None:
    assert related_trials(np.asarray(ALIKE[kind])) == []


def test_a_run_of_steps_is_found_wherever_it_is() -> None:
    signals = RNG.normal(size=(50, 2, 60))
    signals[3, :, 40:52] = signals[31, :, 5:17]
    signals[8, :, -6:] = signals[20, :, :6]
    # In one channel only, or shorter than four steps, it is none.
    signals[12, 0] = signals[13, 0]
    signals[14, :, 10:13] = signals[15, :, 20:23]
    # Zero has no sign.
    signals[8, 0, -3], signals[20, 0, 3] = 0.0, -0.0
    assert related_trials(signals) == [3, 8, 20, 31]


def test_other_groups_have_steps_in_common(tmp_path: Path) -> None:
    """A split by groups is kept, and the record says what it shares."""
    signals = SIGNALS.copy()
    signals[::8, :, :6] = signals[3, :, 6:]  # the first trial of everyone begins as one of anna's ends
    file = npz(tmp_path, x=signals, y=np.arange(40) % 2, groups=PEOPLE)
    assert of_record(
        {"kind": "series", "split": "groups", "file": file}, tmp_path / "features.json"
    ) == Split("groups", shared=2)


def test_windows_of_recordings_that_overlap_are_counted(tmp_path: Path) -> None:
    cues = [(1.0 + 3.0 * i, f"T{1 + i % 2}") for i in range(6)]
    for run in (4, 8):
        write_edf(tmp_path / eeg_file(1, run), RNG.normal(size=recording(22).shape), cues)
    settings = {"folder": str(tmp_path), "subjects": [1], "runs": [4, 8], "rate": 80, "split_seed": 0}
    assert Eegmmidb(split="runs", window=(0.5, 3.5), **settings).load(None).shared() == [0, 0]
    assert min(Eegmmidb(split="runs", window=(0.0, 3.5), **settings).load(None).shared()) > 0


# --- copies ---


@pytest.mark.parametrize(
    ("unit", "changed"),
    [
        (1.0, lambda x: x + 1e-12),
        (1e-60, lambda x: x * (1 + 1e-12)),
        (1e60, lambda x: x + 1e-12 * RNG.normal(size=x.shape)),
        (1.0, lambda x: np.where(x == 0, -0.0, x)),
        (1e-60, lambda x: np.where(x == 0, 1e-17, x)),
        (1e60, lambda x: np.where(x == 0, 1e-300, x)),
    ],
)
def test_features_are_equal_if_a_model_cannot_tell_them_apart(
    unit: float, changed: Any, tmp_path: Path
) -> None:
    values = np.rint(RNG.normal(0, 3, (20, 7)) * 64) / 64
    values[::3, 2] = 0
    copies = np.append(values, changed(values), axis=0)
    copies[:, 6] = 5 + 1e-13 * RNG.normal(size=40)  # noise of a constant, which standardisation would blow up
    file = npz(tmp_path, x=copies * unit, y=np.tile(np.arange(20) % 2, 2))
    data = loaded({"kind": "rows", "file": file})
    part = {row: name for name in SPLITS for row in data.splits[name].tolist()}
    assert all(part[row] == part[row + 20] for row in range(20)) and data.shared() == [0]
    parts = np.repeat(["train", "validation", "test"], [20, 10, 10])
    file = npz(tmp_path, x=copies * unit, y=np.tile(np.arange(20) % 2, 2), split=parts)
    assert loaded({"kind": "rows", "split": "given", "file": file}).shared() == [20]


@pytest.mark.parametrize(
    "column",
    [
        np.arange(10_000_000, 10_001_000),
        1_790_000_000 + 128 * np.arange(1000),
        np.exp(RNG.normal(0, 3, 1000)),
    ],
)
def test_numbers_that_follow_each_other_closely_stay_apart(column: np.ndarray) -> None:
    """Whole numbers that single precision holds, times of day, and what lies over many decades."""
    equal = splits.first_equal_features(column[:, None].astype(float))
    assert len(set(equal.tolist())) >= len(set(column.astype(np.float32).tolist())) - 5


def test_features_that_differ_stay_apart() -> None:
    values = RNG.normal(size=(300, 4))
    values[1] = values[0] * (1 + 1e-6)
    assert splits.first_equal_features(values).tolist() == list(range(300))
    assert splits.first_equal_features(values * 1e300).tolist() == list(range(300))


def test_values_that_single_precision_makes_equal_are_equal() -> None:
    """Whatever their size and their place in it, before or after they are standardised."""
    values = RNG.normal(3, 1, (2000, 1)) * 10.0 ** RNG.integers(-3, 3, (2000, 1))
    near = values * (1 + RNG.uniform(-6e-8, 6e-8, (2000, 1)))
    both = np.append(values, near, axis=0)
    scaled = ((both - both.mean()) / both.std()).astype(np.float32)
    equal = splits.first_equal_features(both)
    for same in (both.astype(np.float32), scaled):
        pairs = same[:2000] == same[2000:]
        assert pairs.sum() > 100 and (equal[:2000] == equal[2000:])[pairs[:, 0]].all()
