"""The systems that come with the engine: a qubit, two coupled qubits, and a transmon with levels to leak into."""

from __future__ import annotations

from math import pi, sqrt
from typing import Literal

import numpy as np

from ketscale.engines.dynamics.basis import PAULI, word
from ketscale.engines.dynamics.system import System
from ketscale.errors import UserError

# Two transmons of Sheldon et al., Phys. Rev. A 93, 060302 (2016), arXiv:1603.04821: the control (qubit 1) at 5.114 GHz with
# T1 = 38 us and T2 = 50 us, the target (qubit 2) at 4.914 GHz with 41 and 61 us; both with an anharmonicity of -330 MHz;
# an exchange coupling of 3.8 MHz. Angular frequencies in rad/ns, times in ns.
DIFFERENCE = 2 * pi * 0.2
ANHARMONICITY = -2 * pi * 0.33
COUPLING = 2 * pi * 0.0038
T1 = (38e3, 41e3)
T2 = (50e3, 61e3)

LOWER = np.array([[0, 1], [0, 0]], dtype=complex)
# Its rate is the decay rate of the coherence.
DEPHASING = PAULI["Z"] / sqrt(2)


def qubit(detuning: float = 0.1, noise: Literal["pauli", "relaxation"] = "pauli") -> System:
    """H = detuning Z + u_x X + u_y Y, the published system, whose pulse has duration 1; dimensionless.

    noise: pauli: the jumps X, Y and Z, as published; relaxation: the jumps of `noise.relaxation_rates`.
    targets: x: X|0>; hadamard: H|0>.

    Raises:
        UserError: there is no such noise, or the detuning is not finite.
    """
    x, y, z = (PAULI[letter] for letter in "XYZ")
    jumps = {"pauli": {"x": x, "y": y, "z": z}, "relaxation": {"relaxation": LOWER, "dephasing": DEPHASING}}
    if noise not in jumps:
        raise UserError(f"noise: {noise!r} is not one of {', '.join(jumps)}")
    return System(
        drift={"detuning": z},
        parameters={"detuning": detuning},
        controls={"x": x, "y": y},
        jumps=jumps[noise],
        targets={"x": np.array([0, 1]), "hadamard": np.array([1, 1]) / sqrt(2)},
    )


def coupled_qubits(
    detuning_1: float = DIFFERENCE, detuning_2: float = 0.0, coupling: float = COUPLING
) -> System:
    """Two qubits with exchange, each driven, in a frame that rotates with the drive.

    H = sum_i (-detuning_i Z_i + u_xi X_i + u_yi Y_i) / 2 + coupling (X X + Y Y) / 2: a control is a Rabi frequency.
    Angular frequencies in rad/ns, times in ns. By default the drive is resonant with qubit 2, as in a cross-resonance
    gate (Sheldon et al., see above; their gate takes 160 ns).

    noise: the jumps of `noise.relaxation_rates` for qubit 1, then for qubit 2 (`T1`, `T2`).
    targets: bell: (|00> + |11>) / sqrt(2); x: X on qubit 1, |10>.

    Raises:
        UserError: a frequency is not finite.
    """
    return System(
        drift={
            "detuning_1": -word("ZI") / 2,
            "detuning_2": -word("IZ") / 2,
            "coupling": (word("XX") + word("YY")) / 2,
        },
        parameters={"detuning_1": detuning_1, "detuning_2": detuning_2, "coupling": coupling},
        controls={
            "x_1": word("XI") / 2,
            "y_1": word("YI") / 2,
            "x_2": word("IX") / 2,
            "y_2": word("IY") / 2,
        },
        jumps={
            "relaxation_1": np.kron(LOWER, PAULI["I"]),
            "dephasing_1": np.kron(DEPHASING, PAULI["I"]),
            "relaxation_2": np.kron(PAULI["I"], LOWER),
            "dephasing_2": np.kron(PAULI["I"], DEPHASING),
        },
        targets={"bell": np.array([1, 0, 0, 1]) / sqrt(2), "x": np.array([0, 0, 1, 0])},
    )


def transmon(detuning: float = 0.0, anharmonicity: float = ANHARMONICITY, levels: int = 3) -> System:
    """A driven transmon with levels above its qubit, in a frame that rotates with the drive.

    H = detuning n + anharmonicity n (n - 1) / 2 + (u_x (a + a^+) + i u_y (a^+ - a)) / 2 (Krantz et al., Appl. Phys. Rev. 6,
    021318, 2019, arXiv:1904.06560): a control is the Rabi frequency of the qubit's transition. Angular frequencies in
    rad/ns, times in ns.

    noise: the jumps a (relaxation) and sqrt(2) n (dephasing), whose rates for the qubit are those of
        `noise.relaxation_rates` (`T1[0]`, `T2[0]`).
    targets: x: |1>; hadamard: (|0> + |1>) / sqrt(2). What is in neither level has leaked.

    Raises:
        UserError: a frequency is not finite, or there are fewer than 3 levels.
    """
    if levels < 3:
        raise UserError(f"levels: {levels} has no level to leak into; use at least 3, or a qubit")
    a = np.diag(np.sqrt(np.arange(1, levels)), 1).astype(complex)
    number = np.diag(np.arange(levels)).astype(complex)
    one, plus = np.eye(levels)[1], (np.eye(levels)[0] + np.eye(levels)[1]) / sqrt(2)
    return System(
        drift={"detuning": number, "anharmonicity": number @ (number - np.eye(levels)) / 2},
        parameters={"detuning": detuning, "anharmonicity": anharmonicity},
        controls={"x": (a + a.T) / 2, "y": 1j * (a.T - a) / 2},
        jumps={"relaxation": a, "dephasing": sqrt(2) * number},
        targets={"x": one, "hadamard": plus},
    )
