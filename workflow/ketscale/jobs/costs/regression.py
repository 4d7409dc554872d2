"""A Gaussian process whose covariance is a sum of given parts, with a variance for each.

C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning, 2006: prediction by eqs. 2.25 and 2.26, the
marginal likelihood and its gradient by eqs. 5.8 and 5.9, and what it predicts of left-out values by eqs. 5.12, for blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

Array = NDArray[np.float64]

# How far the logarithm of a variance is from its usual value: data decide where there are some, else the prior does.
_SPREAD = 1.5
# The least variance of the noise, so that equal values make no covariance singular; and of any part.
_LEAST, _MOST = 1e-5, 100.0


@dataclass(frozen=True)
class Fit:
    """The process given some values.

    variances: of each part. weights: the inverse covariance times the values, (n,). inverse: of the covariance, (n, n).
    """

    variances: Array
    mean: float
    weights: Array
    inverse: Array

    def predict(self, parts: Sequence[Array], own: Array) -> tuple[Array, Array]:
        """The mean and the standard deviation of m new values.

        Args:
            parts: each part of the covariance of the new values with the n known ones, (m, n).
            own: each part of the variance of the new values, (parts, m).
        """
        covariance = sum(
            (variance * part for variance, part in zip(self.variances, parts, strict=True)),
            start=np.zeros_like(parts[0]),
        )
        variance = self.variances @ own - np.einsum("ij,jk,ik->i", covariance, self.inverse, covariance)
        return self.mean + covariance @ self.weights, np.sqrt(np.maximum(variance, 1e-12))

    def left_out(self, rows: NDArray[np.intp]) -> tuple[Array, Array]:
        """What is known of these values without them: how far each is from its mean, and the standard deviations."""
        covariance = np.linalg.inv(self.inverse[np.ix_(rows, rows)])
        return covariance @ self.weights[rows], np.sqrt(np.diag(covariance))


def fit(values: Array, parts: Sequence[Array], variances: Array) -> Fit:
    """The process with these variances, given values.

    Args:
        values: (n,), n at least 1.
        parts: the parts of the covariance, (n, n) each, positive semidefinite; the last is that of noise, the identity.
        variances: of each part.
    """
    mean = float(np.median(values))
    inverse = cho_solve(
        cho_factor(np.tensordot(variances, np.stack(parts), 1), lower=True), np.eye(len(values))
    )
    return Fit(variances, mean, inverse @ (values - mean), inverse)


def variances(values: Array, parts: Sequence[Array], usual: Sequence[float]) -> Array:
    """The variances that are most probable given the values; arguments as for `fit`.

    Args:
        usual: the variance of each part before there are data.
    """
    centred = values - np.median(values)
    stack, start = np.stack(parts), np.log(usual)

    def loss(logs: Array) -> tuple[float, Array]:
        found = np.exp(logs)
        factor = cho_factor(np.tensordot(found, stack, 1), lower=True)
        inverse = cho_solve(factor, np.eye(len(centred)))
        weights = inverse @ centred
        away = (logs - start) / _SPREAD**2
        said = 0.5 * centred @ weights + np.log(np.diag(factor[0])).sum() + 0.5 * (logs - start) @ away
        slopes = 0.5 * found * np.tensordot(stack, inverse - np.outer(weights, weights), 2)
        return float(said), slopes + away

    bounds = [
        *((math.log(_LEAST / 100), math.log(_MOST)) for _ in usual[1:]),
        (math.log(_LEAST), math.log(_MOST)),
    ]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60})
    return np.exp(found.x)
