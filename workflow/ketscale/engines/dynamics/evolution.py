"""How a real linear system is evolved: for how long, in how many steps, and with which polynomial."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch

from ketscale.engines.dynamics.generators import Generators
from ketscale.engines.dynamics.settings import MOST_STEPS
from ketscale.errors import UserError

# How a segment is evolved: by the exponential of its generator, or by a Runge-Kutta integrator.
Scheme = Literal["exact", "rk4", "euler"]


class Division(NamedTuple):
    """How a segment is divided into steps, and the degree of each step's Taylor polynomial of the exponential.

    degrees, reaches: ascending; a degree serves steps in which the norm of G t is at most its reach. Each task and
        segment has the lowest degree that serves it in one step, or as many steps of the highest one as it needs, so
        that a result depends on no other task. Without reaches there is one degree, and `steps` of it.
    """

    degrees: tuple[int, ...]
    reaches: tuple[float, ...] = ()
    steps: int = 0


class Evolution(NamedTuple):
    """A family of linear systems, the time that each segment takes, and its division."""

    generators: Generators
    tau: float
    division: Division


# Backward errors below rounding (Al-Mohy and Higham, SIAM J. Sci. Comput. 33, 488, 2011, table 3.1). Longer steps are
# cheaper for their length, but their terms are large and cancel.
EXACT = {
    torch.float64: Division((10, 15, 20, 25, 30), (0.14, 0.64, 1.4, 2.4, 3.5)),
    torch.float32: Division((5, 10, 15), (0.13, 1.0, 2.2)),
}

# On a linear system whose coefficients are constant, a Runge-Kutta step of order p is the polynomial of degree p.
DEGREES: dict[Scheme, int] = {"rk4": 4, "euler": 1}


def substeps(segment: float, dt: float) -> int:
    """The number of equal steps of a segment, none longer than `dt`.

    Raises:
        UserError: there are more than `MOST_STEPS`.
    """
    if segment / MOST_STEPS > dt:
        raise UserError(
            f"dt: {dt} makes more than {MOST_STEPS:,} steps of a segment, which takes {segment:.6g}; use a longer one"
        )
    # The quotient of 0.9 and 0.3 is a hair above 3.
    return max(1, math.ceil(segment / dt * (1 - 1e-12)))
