"""`csp`: common spatial patterns with a linear discriminant, the baseline of trials.

Common spatial patterns are the filters of the channels whose power differs most between classes (Blankertz et al., IEEE
Signal Process. Mag. 25(1), 41, 2008); the logarithms of the powers behind four of them go to a linear discriminant. The
covariances are shrunk by the oracle (Chen et al., IEEE Trans. Signal Process. 58, 5016, 2010), since trials are few. The
trials are those that all models see: nothing is filtered here.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import nn

from ketscale.optional import needed_for
from ketscale.problems.fitted import Fitted, Samples

# Here, so that it is no part of the time of a fit.
with needed_for("the model csp", "eeg"):
    import mne
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

FILTERS = 4


class CSP(Fitted):
    """Scores of the classes (batch, outputs) of trials x (batch, channels, steps). Fitted by MNE and scikit-learn.

    inputs: channels and steps.
    """

    logits: ClassVar[bool] = True

    def __init__(self, inputs: tuple[int, int] = (64, 249), outputs: int = 2) -> None:
        super().__init__()
        self.inputs = tuple(inputs)
        self.filters = nn.Parameter(torch.zeros(FILTERS, self.inputs[0]))
        self.weight = nn.Parameter(torch.zeros(outputs, FILTERS))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores (batch, outputs) of trials (batch, channels, steps)."""
        powers = (self.filters @ x).square().mean(2).log()
        return nn.functional.linear(powers, self.weight, self.bias)

    def fit(self, train: Samples, validation: Samples | None) -> None:
        """Fit to trials (n, channels, steps) with classes, int64 (n,)."""
        # MNE computes in double precision only.
        signals, labels = train.inputs.cpu().double().numpy(), train.targets.cpu().numpy()
        mne.set_log_level("ERROR")
        patterns = mne.decoding.CSP(n_components=FILTERS, reg="oas", log=True).fit(signals, labels)
        classifier = LinearDiscriminantAnalysis().fit(patterns.transform(signals), labels)
        filters, bias = patterns.filters_[:FILTERS], torch.zeros_like(self.bias)
        weight = self.weight.new_zeros(len(bias), len(filters))
        # scikit-learn has the difference of two classes' scores alone.
        weight[-len(classifier.coef_) :] = torch.from_numpy(np.asarray(classifier.coef_))
        bias[-len(classifier.intercept_) :] = torch.from_numpy(np.asarray(classifier.intercept_))
        self.filters = nn.Parameter(torch.from_numpy(np.array(filters)).to(self.filters))
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
