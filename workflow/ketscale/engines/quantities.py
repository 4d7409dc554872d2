"""Physical quantities as settings, each with limits beyond which it is a mistake in the unit. Imports nothing heavy.

Angular frequencies are in rad/ns and times in ns; a dimensionless system has the same
limits. They are wider by far than any hardware: products of what is within them are numbers.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

# rad/ns.
LARGEST_ANGULAR_FREQUENCY = 1e5
# ns: a femtosecond and a second of a pulse, and eleven days of coherence.
SHORTEST, LONGEST, LONGEST_LIVED = 1e-6, 1e9, 1e15

Detuning = Annotated[float, Meta(ge=-LARGEST_ANGULAR_FREQUENCY, le=LARGEST_ANGULAR_FREQUENCY)]
Time = Annotated[float, Meta(ge=SHORTEST, le=LONGEST)]
# A step of an integrator; how many fit into a pulse is a limit of its own.
Step = Annotated[float, Meta(gt=0, le=LONGEST)]
Lifetime = Annotated[float, Meta(ge=SHORTEST, le=LONGEST_LIVED)]
# A spectrum A / (omega^alpha + omega_c^alpha) has an exponent and A and omega_c, whose powers must be numbers.
Exponent = Annotated[float, Meta(ge=0, le=10)]
Strength = Annotated[float, Meta(ge=0, le=1e9)]
Cutoff = Annotated[float, Meta(gt=0, le=1e9)]
