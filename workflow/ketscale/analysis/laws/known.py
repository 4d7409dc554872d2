"""The laws by name, and the speedups that they predict.

p workers take t(p); the speedup is S(p) = t(1) / t(p) at fixed work, p t(1) / t(p) at fixed work per worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ketscale.analysis.laws.law import Law, Parameter

if TYPE_CHECKING:
    from ketscale.analysis.laws.law import Array

TIME = Parameter("time of one worker", "s")
FIXED = Parameter("fixed time", "s")


def amdahl(p: float, serial: float) -> float:
    """S = 1 / (s + (1 - s) / p) (Amdahl, AFIPS Conf. Proc. 30, 483, 1967)."""
    return 1 / (serial + (1 - serial) / p)


def gustafson(p: float, serial: float) -> float:
    """S = p - s (p - 1), s a share of the time on p workers (Gustafson, Commun. ACM 31, 532, 1988)."""
    return p - serial * (p - 1)


def usl(p: float, contention: float, coherency: float) -> float:
    """S = p / (1 + sigma (p - 1) + kappa p (p - 1)), the universal scalability law.

    Gunther, Proc. CMG 1993, 1035; Guerrilla Capacity Planning, Springer 2007, ch. 4. kappa = 0 is Amdahl's law, with
    sigma its serial fraction.
    """
    return p / (1 + contention * (p - 1) + coherency * p * (p - 1))


def karp_flatt(speedup: float, workers: int) -> float | None:
    """Experimental serial fraction e = (1/S - 1/p) / (1 - 1/p) (Karp & Flatt 1990); None for p = 1."""
    if workers == 1:
        return None
    return (1 / speedup - 1 / workers) / (1 - 1 / workers)


# t = a + b / p.
AMDAHL = Law(
    "Amdahl",
    (Parameter("serial fraction", largest=1.0), TIME),
    lambda p: (p**0.0, 1 / p),
    lambda c: (c[0] / (c[0] + c[1]), c[0] + c[1]),
)
# The efficiency t(1) / t(p) = 1 - s + s / p, so 1 / t = a + b / p.
GUSTAFSON = Law(
    "Gustafson",
    (Parameter("serial fraction", largest=1.0), TIME),
    lambda p: (p**0.0, 1 / p),
    lambda c: (c[1] / (c[0] + c[1]), 1 / (c[0] + c[1])),
    inverse=True,
)
# t = t(1) (1 + sigma (p - 1) + kappa p (p - 1)) / p = a + b / p + c p.
USL = Law(
    "USL",
    (Parameter("contention"), Parameter("coherency"), TIME),
    lambda p: (p**0.0, 1 / p, p),
    lambda c: ((c[0] + c[2]) / sum(c), c[2] / sum(c), sum(c)),
)
# t = alpha + beta bytes (Hockney, Parallel Computing 20, 389, 1994).
HOCKNEY = Law(
    "alpha-beta",
    (Parameter("alpha (latency)", "s"), Parameter("beta (time per byte)", "s/B")),
    lambda size: (size**0.0, size),
    tuple,
)
# The latency of a tree of messages grows with its depth (Thakur et al., Int. J. High Perform. Comput. Appl. 19, 49, 2005).
HOCKNEY_RANKS = Law(
    "alpha-beta, log2(ranks)",
    (
        Parameter("alpha (latency)", "s", least=float("-inf")),
        Parameter("alpha per log2(ranks)", "s"),
        Parameter("beta (time per byte)", "s/B"),
    ),
    lambda ranks, size: (size**0.0, _log2(ranks), size),
    tuple,
)


def cost(limit: float | None, chosen: int = 0) -> Law:
    """t = t0 + c w for states of at most `limit` bytes, t0 + c' w for larger ones; w is the work.

    limit: None for one c for all. chosen: 1 if the limit was inferred from the same times.
    """
    each = (
        Parameter("time per amplitude update", "s"),
        Parameter("time per amplitude update, beyond the cache", "s"),
    )
    if limit is None:
        return Law("cost", (FIXED, each[0]), lambda work, _: (work**0.0, work), tuple)
    return Law(
        "cost",
        (FIXED, *each),
        lambda work, size: (work**0.0, work * (size <= limit), work * (size > limit)),
        tuple,
        chosen=chosen,
    )


def _log2(values: Array) -> Array:
    import numpy as np

    return np.log2(values)
