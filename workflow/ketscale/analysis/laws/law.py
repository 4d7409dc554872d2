"""Laws that are linear in their coefficients: fitted seed by seed, tested for lack of fit, and tried on a held-out point.

A seed is the replicate and a block: a factor common to all times of a seed has no effect on a law's shape. Errors are
taken as relative, which is how step times vary.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ketscale.analysis.comparison import paired
from ketscale.analysis.intervals import FEWEST, LEVEL, Estimate, typical
from ketscale.words import counted

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]


# The relative differences of times that no clock resolves.
RESOLUTION = 1e-9


@dataclass(frozen=True)
class Parameter:
    """A law's parameter: its name, its unit, and the values that it can have."""

    name: str
    unit: str = ""
    least: float = 0.0
    largest: float = math.inf


@dataclass(frozen=True)
class Law:
    """t = sum of coefficients times terms, or 1/t where `inverse`.

    terms: the k terms at some points; takes one array (m,) for each variable. values: the parameters from the
    coefficients (k,). chosen: how many numbers besides the coefficients were chosen to fit the same data.
    """

    name: str
    parameters: tuple[Parameter, ...]
    terms: Callable[..., Sequence[Array]]
    values: Callable[[Sequence[float]], Sequence[float]]
    inverse: bool = False
    chosen: int = 0

    @property
    def fewest(self) -> int:
        """The fewest points that can contradict it."""
        return len(self.parameters) + self.chosen + 1


@dataclass(frozen=True)
class HeldOut:
    """The last point as predicted from the others: seconds, and the relative error with its 95 % interval over seeds."""

    point: str
    predicted_s: float
    measured_s: float
    error: Estimate


@dataclass(frozen=True)
class Fit:
    """What the runs of a series say about a law.

    verdict: refused where they cannot decide; rejected where they contradict it. identity: the columns of laws.csv that
    name the series. regimes: those of a sweep's points, in words. estimates: of the parameters, in their
    order. n: seeds. points: of the fit. p_value: of the F-test of lack of fit. residual: the largest relative distance of
    a point from the law. spread: the relative standard deviation over seeds.
    """

    verdict: Literal["accepted", "rejected", "refused"]
    reason: str
    law: Law
    identity: Mapping[str, Any] = field(default_factory=dict)
    regimes: str = ""
    estimates: tuple[Estimate, ...] = ()
    n: int = 0
    points: int = 0
    p_value: float | None = None
    residual: float | None = None
    spread: float | None = None
    held_out: HeldOut | None = None


def fit(
    law: Law, variables: Sequence[Sequence[float]], times: Sequence[Sequence[float]], names: Sequence[str]
) -> Fit:
    """Fit a law to the times of each seed at m points.

    A parameter's estimate is `intervals.typical` of its fits to single seeds. The test of
    lack of fit compares the residuals of the mean over seeds with the pure error, which is the spread over seeds less a
    factor common to each seed (Draper & Smith, Applied Regression Analysis, 1998, section 2.1; seeds are the blocks).

    Args:
        law: what to fit.
        variables: the values (m,) of each of the law's variables, the point to hold out last.
        times: seconds, one row (m,) for each seed.
        names: the m points in words.
    """
    import numpy as np

    n, m = len(times), len(names)
    if m < law.fewest:
        why = f"{counted(m, 'point')}; the fewest that can contradict this law are {law.fewest}"
        return Fit("refused", why, law, n=n, points=m)
    if n < FEWEST:
        why = f"{counted(n, 'seed')} at every point; a fit with intervals needs {FEWEST}"
        return Fit("refused", why, law, n=n, points=m)
    measured = np.asarray(times, dtype=float)
    if not (np.isfinite(measured).all() and (measured > 0).all()):
        return Fit("refused", "a time is not a positive number", law, n=n, points=m)
    terms = np.stack([np.broadcast_to(term, m) for term in law.terms(*map(np.asarray, variables))], axis=1)
    if np.linalg.matrix_rank(terms / np.abs(terms).max(axis=0)) < terms.shape[1]:
        return Fit("refused", "its points do not tell its terms apart", law, n=n, points=m)
    values = [law.values(_coefficients(law, terms, row).tolist()) for row in measured]
    estimates = tuple(found for column in zip(*values, strict=True) if (found := typical(column)))
    residuals, p_value, spread = _lack_of_fit(law, terms, measured)
    worst = int(np.abs(residuals).argmax())
    why = _impossible(law, estimates)
    if p_value < 1 - LEVEL:
        why = (
            f"the largest residual is {abs(residuals[worst]):.1%} at {names[worst]}, the spread over seeds "
            f"{spread:.1%} (F-test of lack of fit, p = {p_value:.2g})"
        )
    return Fit(
        "rejected" if why else "accepted",
        why,
        law,
        estimates=estimates,
        n=n,
        points=m,
        p_value=p_value,
        residual=float(abs(residuals[worst])),
        spread=spread,
        held_out=_held_out(law, terms, measured, names[-1]),
    )


def _lack_of_fit(law: Law, terms: Array, measured: Array) -> tuple[Array, float, float]:
    """The relative residuals (m,) of the geometric mean over seeds, the p-value of lack of fit, and the pure spread."""
    import numpy as np
    from scipy.special import fdtrc

    n, m = measured.shape
    logs = np.log(measured)
    centre = logs.mean(axis=0)
    residuals = _ratios(law, terms, np.exp(centre)) - 1
    pure = logs - centre - logs.mean(axis=1, keepdims=True) + logs.mean()
    free, free_pure = m - law.fewest + 1, (m - 1) * (n - 1)
    lack, variance = n * float((residuals**2).sum()) / free, float((pure**2).sum()) / free_pure
    # Equal times of all seeds have no spread but that of rounding.
    variance = max(variance, RESOLUTION**2)
    return residuals, float(fdtrc(free, free_pure, lack / variance)), math.sqrt(variance)


def _impossible(law: Law, estimates: Sequence[Estimate]) -> str:
    """Which parameter is, with its whole interval, where the law has no meaning; '' if none."""
    for parameter, found in zip(law.parameters, estimates, strict=True):
        assert found.low is not None and found.high is not None
        if found.high < parameter.least:
            return f"the {parameter.name} is below {parameter.least:g}"
        if found.low > parameter.largest:
            return f"the {parameter.name} is above {parameter.largest:g}"
    return ""


def _held_out(law: Law, terms: Array, measured: Array, name: str) -> HeldOut | None:
    """The last point as predicted from the others; None if these are too few, or leave a coefficient open."""
    import numpy as np

    rest = terms[:-1]
    if len(rest) < law.fewest or np.linalg.matrix_rank(rest / np.abs(terms).max(axis=0)) < rest.shape[1]:
        return None
    found = [float(_times(law, terms, _coefficients(law, rest, row[:-1]))[-1]) for row in measured]
    last = measured[:, -1].tolist()
    # A law that is beyond its range may even predict a negative time.
    if min(found) <= 0:
        return None
    error = paired(dict(enumerate(found)), dict(enumerate(last)), 0.0)
    assert error is not None
    low, high = (None if end is None else end - 1 for end in (error.low, error.high))
    predicted, true = (statistics.geometric_mean(values) for values in (found, last))
    return HeldOut(name, predicted, true, Estimate(error.value - 1, low, high, error.n))


def _coefficients(law: Law, terms: Array, times: Array) -> Array:
    """The coefficients (k,) with the least sum of squares of relative residuals."""
    import numpy as np

    values = 1 / times if law.inverse else times
    # Terms may differ by many orders of magnitude, such as one and a number of bytes.
    scale = np.abs(terms).max(axis=0)
    found, *_ = np.linalg.lstsq(terms / scale / values[:, None], np.ones(len(values)), rcond=None)
    return np.asarray(found / scale)


def _ratios(law: Law, terms: Array, times: Array) -> Array:
    """The fitted over the measured values (m,), whose distance from one the fit makes small."""
    values = 1 / times if law.inverse else times
    return terms @ _coefficients(law, terms, times) / values


def _times(law: Law, terms: Array, coefficients: Array) -> Array:
    values = terms @ coefficients
    return 1 / values if law.inverse else values
