"""The workload eeg-synthetic: generated trials in the shape of eegmmidb's, to run studies without data.

Every channel is 1/f noise, partly shared between channels, with a mu (about 10 Hz) and a beta (about 20 Hz)
rhythm over the sensorimotor cortex of both sides. Imagining a fist weakens the rhythms of the opposite side
(event-related desynchronisation, Pfurtscheller and Lopes da Silva, Clin. Neurophysiol. 110, 1842, 1999). The
classes differ in nothing else. Frequencies, strengths and mixing differ between subjects. The trials are
artificial: a model trained on them says nothing about brains.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ketscale.problems.eeg.prepared import folds
from ketscale.problems.eeg.specification import CLASSES
from ketscale.problems.samples import Samples

if TYPE_CHECKING:
    from ketscale.problems.eeg.specification import EegSynthetic

CHANNELS = 64
# Indices of FC3, C5, C3, C1, CP3 and of FC4, C6, C4, C2, CP4 in eegmmidb's order of channels.
LEFT, RIGHT = (1, 7, 8, 9, 15), (5, 13, 12, 11, 19)
NOISE_MV, RHYTHM_MV = 0.02, 0.012
SHARED = 0.5  # share of the noise's variance that is common to all channels
WEAKENED = 0.4  # factor on a rhythm's strength on the side opposite to the imagined fist
BANDS_HZ = (10.0, 20.0)
BETA_STRENGTH = 0.5


def load(workload: EegSynthetic, fetched: Path | None = None) -> Samples:
    """The generated trials and the folds of their split; nothing is fetched."""
    trials = generate(workload)
    return replace(trials, folds=folds(trials, workload.split, workload.split_seed))


def generate(workload: EegSynthetic) -> Samples:
    """The workload's trials of each subject, half of each class, in runs of 15: signals (n, 64, floor(rate * window_s) + 1).

    With gain 1 signals have the amplitudes of real ones in millivolts, from which models learn slowly.
    """
    subjects, trials = workload.subjects, workload.trials
    steps = int(np.floor(workload.rate * workload.window_s)) + 1
    parts = [_subject(s, trials, steps, workload.rate, workload.seed) for s in range(1, subjects + 1)]
    return Samples(
        values=np.concatenate([np.float32(workload.gain) * signals for signals, _ in parts]),
        targets=np.concatenate([labels for _, labels in parts]),
        names=CLASSES,
        groups={
            "subjects": np.repeat(np.arange(1, subjects + 1), trials),
            "runs": np.tile(np.arange(trials) // 15, subjects),
        },
    )


def _subject(
    subject: int, trials: int, steps: int, rate: float, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng((seed, subject))
    labels = rng.permutation(np.arange(trials) % 2)
    own, shared = _pink(rng, (trials, CHANNELS), steps), _pink(rng, (trials, 1), steps)
    signals = NOISE_MV * (np.sqrt(1 - SHARED) * own + np.sqrt(SHARED) * shared)
    time = np.arange(steps) / rate
    for band, strength in zip(BANDS_HZ, (1.0, BETA_STRENGTH), strict=True):
        frequency = band * rng.normal(1, 0.05)
        amplitude = RHYTHM_MV * strength * rng.lognormal(0, 0.2)
        # Class 0 is the left fist, which weakens the right side.
        for side, weak in ((LEFT, labels == 1), (RIGHT, labels == 0)):
            phase = rng.uniform(0, 2 * np.pi, (trials, 1))
            wave = amplitude * np.sin(2 * np.pi * frequency * time + phase)
            wave *= np.where(weak, WEAKENED, 1.0)[:, None]
            gains = rng.uniform(0.5, 1.0, len(side))
            signals[:, list(side)] += gains[:, None] * wave[:, None]
    return signals.astype(np.float32), labels.astype(np.int64)


def _pink(rng: np.random.Generator, shape: tuple[int, int], steps: int) -> NDArray[np.float64]:
    """Noise (*shape, steps) whose power falls as 1/f, of standard deviation 1."""
    frequencies = np.arange(1, steps // 2 + 1)
    spectrum = rng.standard_normal((*shape, len(frequencies), 2)) @ np.array([1, 1j])
    padded = np.concatenate([np.zeros((*shape, 1)), spectrum / np.sqrt(frequencies)], axis=-1)
    noise = np.fft.irfft(padded, n=steps)
    return np.asarray(noise / noise.std(-1, keepdims=True))
