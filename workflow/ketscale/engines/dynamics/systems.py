"""The systems that come with the engine: a qubit, and a transmon with levels to leak into; `dynamics.chain` couples them.

Their jumps are chosen by name:

- x, y, z: Pauli matrices, which environments with a spectrum couple to, as published. For a transmon they are a + a^+,
  i (a^+ - a) and 1 - 2n, which act on its two lowest levels as the Pauli matrices do.
- relaxation, dephasing: jumps whose rates for the qubit are `relaxation_rates`: the lowering operator (for a
  transmon: a) and Z / sqrt(2) (for a transmon: sqrt(2) n). The rate of the latter is that at which coherence decays.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, pi, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ketscale.engines.dynamics.basis import PAULI, Matrix
from ketscale.engines.dynamics.system import System
from ketscale.engines.dynamics.tasks import as_real
from ketscale.errors import UserError
from ketscale.shapes import Float

# The published integral: its points, and the highest angular frequency that counts (the integral goes to twice that).
POINTS = 500
HIGHEST = 20.0


def spectrum(
    omega: torch.Tensor, alpha: torch.Tensor, amplitude: torch.Tensor, cutoff: torch.Tensor
) -> torch.Tensor:
    """S(omega) = amplitude / (|omega|**alpha + cutoff**alpha); with alpha = 2 a Lorentzian."""
    return amplitude / (omega.abs() ** alpha + cutoff**alpha)


def noise_rates(
    alpha: Float[torch.Tensor, "*#tasks"] | NDArray[Any] | float,
    amplitude: Float[torch.Tensor, "*#tasks"] | NDArray[Any] | float,
    cutoff: Float[torch.Tensor, "*#tasks"] | NDArray[Any] | float,
) -> Float[torch.Tensor, "*tasks"]:
    """The rate of each task's environment, 1 / time, of the shape to which the arguments broadcast; differentiable.

    It is Gamma = 1 / (2 w) times the integral over 0..2w of S(omega) 1[omega <= w] by the trapezoid rule, with
    w = `HIGHEST` and `POINTS` points: the published code's, which gives each of its three jumps this rate. The cut-off w
    is arbitrary, and so is the rate, which is no physical one.

    alpha: exponent of the spectrum, at least 0. amplitude: at least 0. cutoff: angular frequency, above 0.

    Raises:
        UserError: an argument is outside its range or not finite.

    Example:
        >>> bool(noise_rates(1.0, 1e-3, 100.0) < 1e-5)
        True
    """
    alpha, amplitude, cutoff = _tensors(alpha=alpha, amplitude=amplitude, cutoff=cutoff)
    limits = ("alpha", alpha, 0.0), ("amplitude", amplitude, 0.0), ("cutoff", cutoff, None)
    for name, values, least in limits:
        inside = values > 0 if least is None else values >= least
        if not bool((inside & values.isfinite()).all()):
            raise UserError(f"{name}: must be {'above 0' if least is None else 'at least 0'} and finite")
    omega = torch.linspace(0, 2 * HIGHEST, POINTS, dtype=amplitude.dtype, device=amplitude.device)
    density = spectrum(omega, alpha[..., None], amplitude[..., None], cutoff[..., None]) * (omega <= HIGHEST)
    return torch.trapezoid(density, omega, dim=-1) / (2 * HIGHEST)


def relaxation_rates(
    t1: Float[torch.Tensor, "*#tasks"] | NDArray[Any] | float,
    t2: Float[torch.Tensor, "*#tasks"] | NDArray[Any] | float,
) -> Float[torch.Tensor, "*tasks 2"]:
    """Rates (..., 2) of the jumps `relaxation` and `dephasing` of `systems`: 1 / T1 and 1 / T2 - 1 / (2 T1).

    t1, t2: times of relaxation and of the decay of coherence; infinity switches a process off.

    Raises:
        UserError: a time is not positive, or T2 is above 2 T1.

    Example:
        >>> relaxation_rates(torch.tensor(50.0), torch.tensor(100.0))
        tensor([0.0200, 0.0000])
    """
    t1, t2 = _tensors(t1=t1, t2=t2)
    if not bool(((t1 > 0) & (t2 > 0)).all()):
        raise UserError("t1, t2: times must be positive")
    if not bool((t2 <= 2 * t1).all()):
        raise UserError("t2: is at most twice t1, since relaxation destroys coherence too")
    relaxation = 1 / t1
    return torch.stack(torch.broadcast_tensors(relaxation, 1 / t2 - relaxation / 2), -1)


def _tensors(**values: Any) -> list[torch.Tensor]:
    """Tensors as they are; numbers and arrays in the precision and on the device of the first of them, or in fp64."""
    reals = [each for each in values.values() if isinstance(each, torch.Tensor) and each.is_floating_point()]
    like = reals[0] if reals else torch.empty(0, dtype=torch.float64)
    return [as_real(name, each, like) for name, each in values.items()]


# The transmons of Sheldon et al., Phys. Rev. A 93, 060302 (2016), arXiv:1603.04821, in rad/ns.
ANHARMONICITY = -2 * pi * 0.33

PAULI_JUMPS = ("x", "y", "z")
RELAXATION_JUMPS = ("relaxation", "dephasing")

_QUBIT_JUMPS: dict[str, Matrix] = {
    **{name: PAULI[name.upper()] for name in PAULI_JUMPS},
    "relaxation": np.array([[0, 1], [0, 0]], dtype=complex),
    "dephasing": PAULI["Z"] / sqrt(2),
}


def qubit(detuning: float = 0.1, jumps: Sequence[str] = PAULI_JUMPS) -> System:
    """A dimensionless qubit, H = detuning Z + u_x X + u_y Y: the published system, whose pulse has duration 1.

    Its levels are 2 detuning apart, and a control is half a Rabi frequency. `transmon(levels=2)` is a qubit in the usual
    units, at rest unless it is driven.

    jumps: names of x, y, z (Pauli matrices, as published), relaxation (|0><1|) and dephasing (Z / sqrt(2)).
    targets: x: X|0>; hadamard: H|0>.

    Raises:
        UserError: there is no such jump, or the detuning is not finite.

    Example:
        >>> list(qubit().controls)
        ['x', 'y']
    """
    return System(
        drift={"detuning": PAULI["Z"]},
        parameters={"detuning": detuning},
        controls={"x": PAULI["X"], "y": PAULI["Y"]},
        jumps=_selected(_QUBIT_JUMPS, jumps),
        targets={"x": np.array([0, 1]), "hadamard": np.array([1, 1]) / sqrt(2)},
    )


def transmon(
    detuning: float = 0.0,
    anharmonicity: float = ANHARMONICITY,
    levels: int = 3,
    jumps: Sequence[str] = RELAXATION_JUMPS,
    t1: float | None = None,
    t2: float | None = None,
) -> System:
    """A driven transmon, by default with a level above its qubit, in a frame that rotates with the drive.

    H = detuning n + anharmonicity n (n - 1) / 2 + (u_x (a + a^+) + i u_y (a^+ - a)) / 2 (Krantz et al., Appl. Phys. Rev. 6,
    021318, 2019, arXiv:1904.06560): a control is the Rabi frequency of the qubit's transition. Angular frequencies in
    rad/ns, times in ns.

    jumps: names of relaxation (a), dephasing (sqrt(2) n, whose rate is that at which coherence decays), and x, y, z
        (a + a^+, i (a^+ - a), 1 - 2n).
    t1, t2: times of the qubit's relaxation and of the decay of its coherence, which give its jumps their usual rates; one
        that is omitted is infinite, or as long as the other allows. Without both there are no usual rates.
    targets: x: |1>; hadamard: (|0> + |1>) / sqrt(2). What is in neither level has leaked.

    Raises:
        UserError: there is no such jump, a frequency is not finite, there are fewer than 2 levels, or times do not fit
            each other or the jumps.

    Example:
        >>> transmon(t1=40e3, t2=50e3).rates["relaxation"]
        2.5e-05
    """
    if not (isinstance(levels, int) and levels >= 2):
        raise UserError(f"levels: {levels} is no qubit; use at least 2, or 3 with one to leak into")
    rates = {}
    if t1 is not None or t2 is not None:
        if tuple(jumps) != RELAXATION_JUMPS:
            raise UserError(f"t1, t2: are those of the jumps {', '.join(RELAXATION_JUMPS)}; leave jumps out")
        t1 = inf if t1 is None else t1
        times = torch.tensor([t1, 2 * t1 if t2 is None else t2], dtype=torch.float64)
        rates = dict(zip(jumps, relaxation_rates(*times).tolist(), strict=True))
    a = np.diag(np.sqrt(np.arange(1, levels)), 1).astype(complex)
    number, identity = np.diag(np.arange(levels)).astype(complex), np.eye(levels, dtype=complex)
    x, y = a + a.T, 1j * (a.T - a)
    choices = {
        "x": x,
        "y": y,
        "z": identity - 2 * number,
        "relaxation": a,
        "dephasing": sqrt(2) * number,
    }
    return System(
        drift={"detuning": number, "anharmonicity": number @ (number - identity) / 2},
        parameters={"detuning": detuning, "anharmonicity": anharmonicity},
        controls={"x": x / 2, "y": y / 2},
        jumps=_selected(choices, jumps),
        targets={"x": identity[1], "hadamard": (identity[0] + identity[1]) / sqrt(2)},
        rates=rates,
    )


def _selected(choices: dict[str, Matrix], names: Sequence[str]) -> dict[str, Matrix]:
    for name in names:
        if name not in choices:
            raise UserError(f"jumps: {name!r} is not one of {', '.join(choices)}")
    return {name: choices[name] for name in names}
