"""Laws that are linear in their coefficients: fitted seed by seed, tested for lack of fit, and tried on a held-out point.

A seed is the replicate and a block: a factor common to all times of a seed has no effect on a law's shape. Errors are
taken as relative, which is how step times vary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ketscale.analysis.comparison import RESOLUTION, paired
from ketscale.analysis.heavy import np, special
from ketscale.analysis.intervals import FEWEST, LEVEL, Estimate, typical
from ketscale.analysis.verdicts import ACCEPTED, REFUSED, REJECTED
from ketscale.words import counted

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


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
    coefficients (k,). speedup: of workers, from their number and the parameters but the last, which is a time; of other laws
    none.
    """

    name: str
    parameters: tuple[Parameter, ...]
    terms: Callable[..., Sequence[Array]]
    values: Callable[[Sequence[float]], Sequence[float]] = tuple
    inverse: bool = False
    speedup: Callable[..., float] = lambda p: 1.0

    @property
    def fewest(self) -> int:
        """The fewest points that can contradict it."""
        return len(self.parameters) + 1


@dataclass(frozen=True)
class Fit:
    """What the runs of a series say about a law.

    verdict: refused where they cannot decide; rejected where they contradict it. estimates: of the parameters, in their
    order. n: seeds. points: of the fit. p_value: of the F-test of lack of fit. residual: the largest relative distance of
    a point from the law. spread: the relative standard deviation over seeds. error: of the last point's time as predicted
    from the others, relative; None if these are too few, or leave a coefficient open.
    """

    verdict: str
    reason: str
    law: Law
    estimates: tuple[Estimate, ...] = ()
    n: int = 0
    points: int = 0
    p_value: float | None = None
    residual: float | None = None
    spread: float | None = None
    error: Estimate | None = None


def fit(
    law: Law, variables: Sequence[Sequence[float]], times: Sequence[Sequence[float]], names: Sequence[str]
) -> Fit:
    """Fit a law to the times of each seed at m points.

    A parameter's estimate is `intervals.typical` of its fits to single seeds. The test of lack of fit compares the
    residuals of the geometric mean over seeds with the pure error, which is the spread over seeds less a factor common to
    each seed (Draper & Smith, Applied Regression Analysis, 1998, section 2.1; seeds are the blocks).

    Args:
        law: what to fit.
        variables: the values (m,) of each of the law's variables, the point to hold out last.
        times: seconds, one row (m,) for each seed.
        names: the m points in words.
    """
    n, m = len(times), len(names)
    if m < law.fewest:
        why = f"{counted(m, 'point')}; the fewest that can contradict this law are {law.fewest}"
        return Fit(REFUSED, why, law, n=n, points=m)
    if n < FEWEST:
        why = f"{counted(n, 'seed')} at every point; a fit with intervals needs {FEWEST}"
        return Fit(REFUSED, why, law, n=n, points=m)
    measured = np.asarray(times, dtype=float)
    if not (np.isfinite(measured).all() and (measured > 0).all()):
        return Fit(REFUSED, "a time is not a positive number", law, n=n, points=m)
    terms = np.stack([np.broadcast_to(term, m) for term in law.terms(*map(np.asarray, variables))], axis=1)
    if not _apart(terms):
        return Fit(REFUSED, "its points do not tell its terms apart", law, n=n, points=m)
    fitted = 1 / measured if law.inverse else measured
    values = [law.values(_coefficients(terms, row).tolist()) for row in fitted]
    estimates = tuple(found for column in zip(*values, strict=True) if (found := typical(column)))

    logs = np.log(fitted)
    centre = logs.mean(axis=0)
    residuals = terms @ _coefficients(terms, np.exp(centre)) / np.exp(centre) - 1
    pure = logs - centre - logs.mean(axis=1, keepdims=True) + logs.mean()
    free, free_pure = m - terms.shape[1], (m - 1) * (n - 1)
    # Equal times of all seeds do not show that there is no noise.
    variance = max(float((pure**2).sum()) / free_pure, RESOLUTION**2)
    p_value = float(special.fdtrc(free, free_pure, n * float((residuals**2).sum()) / free / variance))
    worst = int(np.abs(residuals).argmax())
    residual, spread = float(abs(residuals[worst])), math.sqrt(variance)
    why = _impossible(law, estimates)
    if p_value < 1 - LEVEL:
        why = (
            f"the largest residual is {residual:.1%} at {names[worst]}, the spread over seeds "
            f"{spread:.1%} (F-test of lack of fit, p = {p_value:.2g})"
        )
    error = None
    if m > law.fewest and _apart(terms[:-1]):
        error = _error(
            law, [float(terms[-1] @ _coefficients(terms[:-1], row[:-1])) for row in fitted], measured
        )
    verdict = REJECTED if why else ACCEPTED
    return Fit(verdict, why, law, estimates, n, m, p_value, residual, spread, error)


def _apart(terms: Array) -> bool:
    """Whether the points tell all terms apart."""
    return bool(np.linalg.matrix_rank(terms / np.abs(terms).max(axis=0)) == terms.shape[1])


def _coefficients(terms: Array, values: Array) -> Array:
    """The coefficients (k,) with the least sum of squares of relative residuals."""
    # Terms may differ by many orders of magnitude, such as one and a number of bytes.
    scale = np.abs(terms).max(axis=0)
    found, *_ = np.linalg.lstsq(terms / scale / values[:, None], np.ones(len(values)), rcond=None)
    return np.asarray(found / scale)


def _impossible(law: Law, estimates: Sequence[Estimate]) -> str:
    """Which parameter is, with its whole interval, where the law has no meaning; '' if none."""
    for parameter, found in zip(law.parameters, estimates, strict=True):
        assert found.low is not None and found.high is not None
        if found.high < parameter.least:
            return f"the {parameter.name} is below {parameter.least:g}"
        if found.low > parameter.largest:
            return f"the {parameter.name} is above {parameter.largest:g}"
    return ""


def _error(law: Law, predicted: Sequence[float], measured: Array) -> Estimate | None:
    """The relative error of the last point's time, of each seed as `predicted`; None if a law predicts a negative one."""
    if min(predicted) <= 0:
        return None
    seconds = [1 / value if law.inverse else value for value in predicted]
    found = paired(dict(enumerate(seconds)), dict(enumerate(measured[:, -1].tolist())), RESOLUTION)
    assert found is not None
    return found.mapped(lambda ratio: ratio - 1)
