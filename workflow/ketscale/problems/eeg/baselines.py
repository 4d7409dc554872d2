"""The baselines of trials: the majority class, and common spatial patterns with a linear discriminant.

Common spatial patterns are the filters of the channels whose power differs most between classes (Blankertz et al., IEEE
Signal Process. Mag. 25(1), 41, 2008); the logarithms of the powers behind four of them go to a linear discriminant. The
covariances are shrunk by the oracle (Chen et al., IEEE Trans. Signal Process. 58, 5016, 2010), since trials are few. The
trials are those that the models see: nothing is filtered here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ketscale.optional import needed_for
from ketscale.problems.baselines import Baseline, constant, fitted
from ketscale.problems.eeg.prepared import PreparedTrials

FILTERS = 4


def baselines(manifest: Path) -> Iterator[Baseline]:
    """Both, in each fold of the split."""
    prepared = PreparedTrials.open(manifest)
    # MNE computes in double precision only.
    signals, labels = np.asarray(prepared.trials.signals, np.float64), prepared.trials.labels
    for number, parts in enumerate(prepared.folds):
        fold = prepared.data(number).split.fold
        yield constant(signals, labels, parts, fold)
        yield fitted("CSP with LDA", _csp, signals, labels, parts, fold=fold)


def _csp(penalty: None) -> Any:
    with needed_for("the baseline CSP with LDA", "eeg"):
        import mne
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
        from sklearn.pipeline import make_pipeline

        mne.set_log_level("ERROR")
        patterns = mne.decoding.CSP(n_components=FILTERS, reg="oas", log=True)
    return make_pipeline(patterns, LinearDiscriminantAnalysis())
