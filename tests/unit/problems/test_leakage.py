"""What a test sample has in common with training is refused where it is certainly wrong, and else counted and shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ketscale.config import Split
from ketscale.errors import UserError
from ketscale.problems.eeg import overlaps
from tests.own_files import (
    ANIMALS,
    GREY,
    NETWORK,
    SIGNALS,
    VECTORS,
    loaded,
    npz,
)
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
    steps, hop = [(40, 20), (100, 10), (30, 17), (64, 48)][number % 4]
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
    "a channel of the time": lambda signals: with_channel(signals, np.arange(signals.shape[2])),
    "a channel of the number": lambda signals: with_channel(signals, np.arange(len(signals))[:, None, None]),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGED)
def test_windows_that_overlap_are_found_and_no_others_whatever_else_there_is(change: str) -> None:
    signals = windows(RNG.normal(size=(8, 9000)), 120, 60)
    assert len(related_trials(CHANGED[change](signals))) >= len(signals) - 6
    apart = windows(RNG.normal(size=(2, 9000)), 60, 60)
    assert related_trials(CHANGED[change](apart)) == ([10, 11] if change == "two have a sine" else [])


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
    signals[8, :, -12:] = signals[20, :, :12]
    # In one channel only, or shorter than twelve steps, it is none.
    signals[12, 0] = signals[13, 0]
    signals[14, :, 10:21] = signals[15, :, 20:31]
    # Zero has no sign.
    signals[8, 0, -3], signals[20, 0, 9] = 0.0, -0.0
    assert related_trials(signals) == [3, 8, 20, 31]


def test_other_groups_have_steps_in_common(tmp_path: Path) -> None:
    """A split by groups is kept, and the record says what it shares."""
    signals = RNG.normal(size=(40, 3, 30))
    signals[::8, :, :15] = signals[3, :, 15:]  # the first trial of everyone begins as one of anna's ends
    file = npz(tmp_path, x=signals, y=np.arange(40) % 2, groups=PEOPLE)
    assert of_record(
        {"kind": "series", "split": "groups", "file": file}, tmp_path / "features.json"
    ) == Split("groups", shared=2)
