"""The laws by name, and the speedups that they predict.

p workers take t(p); the speedup is S(p) = t(1) / t(p) at fixed work, p t(1) / t(p) at fixed work per worker.
"""

from __future__ import annotations

import math

from ketscale.analysis.laws.fit import Law, Parameter

SERIAL, TIME = Parameter("serial fraction", largest=1.0), Parameter("time of one worker", "s")
COST, FIXED, UPDATE = "cost", Parameter("fixed time", "s"), "time per amplitude update"


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
    (SERIAL, TIME),
    lambda p: (p**0.0, 1 / p),
    lambda c: (c[0] / (c[0] + c[1]), c[0] + c[1]),
    speedup=amdahl,
)
# The efficiency t(1) / t(p) = 1 - s + s / p, so 1 / t = a + b / p.
GUSTAFSON = Law(
    "Gustafson",
    (SERIAL, TIME),
    lambda p: (p**0.0, 1 / p),
    lambda c: (c[1] / (c[0] + c[1]), 1 / (c[0] + c[1])),
    inverse=True,
    speedup=gustafson,
)
# t = t(1) (1 + sigma (p - 1) + kappa p (p - 1)) / p = a + b / p + c p.
USL = Law(
    "USL",
    (Parameter("contention"), Parameter("coherency"), TIME),
    lambda p: (p**0.0, 1 / p, p),
    lambda c: ((c[0] + c[2]) / sum(c), c[2] / sum(c), sum(c)),
    speedup=usl,
)
# t = alpha rounds + beta bytes (Hockney, Parallel Computing 20, 389, 1994), as `all_reduce` counts them.
ALPHA_BETA = Law(
    "alpha-beta",
    (Parameter("alpha (latency of a round)", "s"), Parameter("beta (time per byte sent)", "s/B")),
    lambda rounds, size: (rounds, size),
)

# Gloo's all-reduce is a ring whatever its size (gloo/allreduce.cc), so that its rounds grow with the ranks.
RINGS = ("ddp-cpu",)


def all_reduce(backend: str, ranks: int, size: int) -> tuple[float, float]:
    """What alpha and beta are multiplied by: the rounds of an all-reduce, and the bytes that each rank sends.

    R. Thakur, R. Rabenseifner and W. Gropp, Int. J. High Perform. Comput. Appl. 19, 49 (2005): log2(p) rounds, or twice
    as many, and 2 (p - 1) / p n bytes; a ring has 2 (p - 1) rounds. A factor of two of the rounds is part of alpha.
    """
    rounds = ranks - 1 if backend in RINGS else math.ceil(math.log2(ranks))
    return float(rounds), 2 * (ranks - 1) / ranks * size


def cost(limit: float | None) -> Law:
    """t = t0 + c w for states of at most `limit` bytes, t0 + c' w for larger ones; w is the work. None: one c for all."""
    if limit is None:
        return Law(COST, (FIXED, Parameter(UPDATE, "s")), lambda work, _: (work**0.0, work))
    return Law(
        COST,
        (FIXED, Parameter(UPDATE, "s"), Parameter(f"{UPDATE}, beyond the cache", "s")),
        lambda work, size: (work**0.0, work * (size <= limit), work * (size > limit)),
    )
